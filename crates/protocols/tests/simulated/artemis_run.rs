//! Worlds of Artemis with exact message delays, and with liars that send the messages of a test.

use crate::support::{begin, go, incr, level, r, settle_honest, wait_for};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS, exact};
use crate::sync_planned_run::ids;
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::{AttackEntry, Entry, Signed, To};
use quorate_protocols::unique_chain::artemis::{Artemis, ArtemisMessage, CBlock, Vote, VoteKind};
use quorate_protocols::unique_chain::{
    Entry as _, EntryRef, Framed, RoundProof, UniqueChain, UniqueMessage, skips_digest,
};
use quorate_sim::{Audience, Frame, Settings, Verdict, World, ms, secs};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{Block, BlockId, Digest, Kind, ReplicaId, ReplicaSet, Time, View, Wire as _};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(crate) type Message = UniqueMessage<Vote, ArtemisMessage>;
pub(crate) type Protocol = UniqueChain<Artemis>;

/// τ of these worlds: S is 4 Δ.
pub(crate) const HEARTBEAT_NS: u64 = 3 * DELTA_NS;
pub(crate) const SILENCE_NS: u64 = 4 * DELTA_NS;

pub(crate) fn registered() -> &'static Entry {
    quorate_protocols::find("artemis").unwrap()
}

pub(crate) fn decoded(frame: &Frame) -> Option<Message> {
    if frame.frame_type != PROTOCOL {
        return None;
    }
    let whole = Message::from_bytes(&frame.body).ok();
    whole.or_else(|| Message::from_bytes(frame.body.split_last_chunk::<64>()?.0).ok())
}

/// Votes and blocks that have left, each once, with their times.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) votes: Vec<(Time, Vote)>,
    pub(crate) blocks: Vec<(Time, CBlock)>,
    /// Sender and round of each blame.
    pub(crate) blames: BTreeSet<(ReplicaId, View)>,
    known: BTreeSet<Digest>,
    /// Delays of messages by sender and receiver.
    paths: BTreeMap<(ReplicaId, ReplicaId), u64>,
}

impl Log {
    fn hear(&mut self, at: Time, from: ReplicaId, message: Message) {
        match message {
            UniqueMessage::Blame(proof) => {
                self.blames.insert((from, proof.round));
            }
            UniqueMessage::Entry { entry, .. } if self.known.insert(entry.id()) => {
                self.votes.push((at, entry));
            }
            UniqueMessage::Own(ArtemisMessage::CBlock(block)) if self.known.insert(block.block.id().0) => {
                self.blocks.push((at, block));
            }
            _ => {}
        }
    }

    pub(crate) fn since(&self, at: Time) -> Vec<(Time, Vote)> {
        self.votes.iter().filter(|(sent, _)| *sent >= at).cloned().collect()
    }
}

pub(crate) type SharedLog = Rc<RefCell<Log>>;

pub(crate) fn listen(
    world: &mut World,
    mut judge: impl FnMut(Time, &Frame) -> Verdict + 'static,
) -> SharedLog {
    let log = SharedLog::default();
    let shared = Rc::clone(&log);
    world.hook(move |now, frame| {
        if let Some(message) = decoded(frame) {
            shared.borrow_mut().hear(now, frame.from, message);
        }
        let verdict = judge(now, frame);
        match shared.borrow().paths.get(&(frame.from, frame.to)) {
            Some(span_ns) if verdict == Verdict::Pass => Verdict::Delay(span_ns - NEAR_NS),
            _ => verdict,
        }
    });
    log
}

/// Returns a world whose messages all take δ, with a heartbeat of 3 Δ.
pub(crate) fn world_of(entry: &Entry, n: usize, seed: u64, change: impl FnOnce(&mut Settings)) -> World {
    exact(entry, n, seed, |settings| {
        settings.set("heartbeat_ms", i64::try_from(HEARTBEAT_NS / ms(1)).unwrap());
        settings.client.audience = Audience::All;
        settings.client.in_flight_max = 64;
        change(settings);
    })
}

/// Returns the entry with one attack alone.
pub(crate) fn with_attack(name: &str) -> Entry {
    let entry = registered();
    let attack: AttackEntry = *entry.attacks.iter().find(|attack| attack.name == name).unwrap();
    Entry { attacks: Box::leak(Box::new([attack])), ..*entry }
}

pub(crate) fn count(world: &World, kind: &'static str) -> u64 {
    world.sent().get(&Kind::new(kind)).copied().unwrap_or_default()
}

pub(crate) fn view(world: &World, id: u16) -> View {
    world.status(r(id)).unwrap().view
}

/// Returns the kinds of votes that change views, with their voters, by view.
pub(crate) fn against(log: &SharedLog, since: Time) -> Vec<(View, ReplicaId, bool)> {
    let votes = log.borrow().since(since);
    let changes = votes.into_iter().filter_map(|(_, vote)| match vote.kind {
        VoteKind::NoProgress => Some((vote.view, vote.voter, false)),
        VoteKind::Equivocation(_) => Some((vote.view, vote.voter, true)),
        _ => None,
    });
    changes.collect()
}

/// Whether the last block before a fork has a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Idle,
    Busy,
}

/// The first coordinator is a controlled replica in its first view. All others are at one height.
pub(crate) struct Controlled {
    pub(crate) world: World,
    pub(crate) log: SharedLog,
    /// The last block of the coordinator.
    pub(crate) last: Block,
    pub(crate) liars: Vec<ReplicaId>,
}

impl Controlled {
    pub(crate) fn new(
        n: usize,
        seed: u64,
        liars: &[u16],
        judge: impl FnMut(Time, &Frame) -> Verdict + 'static,
    ) -> Self {
        Self::of(registered(), n, seed, liars, |_| {}, judge)
    }

    pub(crate) fn of(
        entry: &Entry,
        n: usize,
        seed: u64,
        liars: &[u16],
        change: impl FnOnce(&mut Settings),
        judge: impl FnMut(Time, &Frame) -> Verdict + 'static,
    ) -> Self {
        let mut world = world_of(entry, n, seed, change);
        let log = listen(&mut world, judge);
        begin(&mut world);
        level(&mut world);
        // Half a heartbeat after the last block nothing is on its way.
        let blocks = Rc::clone(&log);
        let count = blocks.borrow().blocks.len();
        go(world.run_while("a heartbeat", secs(2), |_| blocks.borrow().blocks.len() == count), &world);
        go(world.run_for(HEARTBEAT_NS / 2), &world);
        assert!(world.replicas().all(|id| world.status(id).unwrap().view == View(1)));
        Self::take(world, log, liars)
    }

    /// Makes these replicas controlled ones.
    pub(crate) fn take(mut world: World, log: SharedLog, liars: &[u16]) -> Self {
        let liars = ids(liars);
        liars.iter().for_each(|liar| world.take_control(*liar));
        let last = log.borrow().blocks.last().unwrap().1.block.clone();
        Self { world, log, last, liars }
    }

    /// Makes these replicas controlled ones just before the voter of the next round, replica 0, receives the vote before. All
    /// votes so far are for one chain, and empty blocks of the next height are committed. If the run is busy, the last block has
    /// a request that is not final.
    pub(crate) fn before_a_fork(
        entry: &Entry,
        n: u16,
        liars: &[u16],
        load: Load,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut world = world_of(entry, usize::from(n), 140, change);
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        level(&mut world);
        // Longer than any wait after a doubt.
        go(world.run_for(30 * DELTA_NS), &world);
        let stands = |log: &SharedLog, height: u64, round: u64| {
            let log = log.borrow();
            let (block, vote) = (&log.blocks.last().unwrap().1.block, &log.votes.last().unwrap().1);
            let is_named = vote.block == block.id();
            is_named && block.height.0 % 8 == height && vote.round.0 % u64::from(n) == round
        };
        if load == Load::Busy {
            let before = u64::from(n) - 1;
            go(world.run_while("a rotation ends", secs(60), |_| !stands(&log, 6, before)), &world);
            go(world.run_for(3 * NEAR_NS), &world);
            world.submit(0, &[incr("n")]);
        }
        go(world.run_while("the last vote before the liar's", secs(60), |_| !stands(&log, 7, 0)), &world);
        go(world.run_for(NEAR_NS / 2), &world);
        let mut c = Self::take(world, log, liars);
        assert_eq!(c.last.payload != empty_payload(), load == Load::Busy);
        c.run(2 * NEAR_NS);
        c
    }

    /// Returns the tip of the vote chain.
    pub(crate) fn tip(&self) -> Vote {
        self.log.borrow().votes.last().unwrap().1.clone()
    }

    /// Returns an empty block of the coordinator on top of another one; its time distinguishes it.
    pub(crate) fn block(on: &Block, time_ns: u64) -> CBlock {
        let block = Block {
            parent: on.id(),
            height: on.height.next(),
            view: View(1),
            proposer: r(0),
            time_ns,
            payload: empty_payload(),
            extra: CBlock::bind(Digest::ZERO),
        };
        CBlock { block, anchor: Digest::ZERO }
    }

    pub(crate) fn emit(&mut self, to: &[u16], block: &CBlock) {
        let to: ReplicaSet = to.iter().map(|id| r(*id)).collect();
        let message: Message = UniqueMessage::Own(ArtemisMessage::CBlock(block.clone()));
        self.world.send_as(r(0), To::Some(to), &message);
    }

    /// Returns the vote of a liar in the round after a vote.
    pub(crate) fn vote(&self, on: &Vote, block: BlockId, kind: VoteKind) -> Vote {
        let n = u64::try_from(self.world.settings().n).unwrap();
        let round = on.round.next();
        let voter = r(u16::try_from((round.0 - 1) % n).unwrap());
        let parent = EntryRef { round: on.round, id: on.id() };
        Vote { round, voter, parent, skips: skips_digest(&[]), view: View(1), block, kind }
    }

    pub(crate) fn cast(&mut self, to: &[u16], vote: &Vote) {
        let to: ReplicaSet = to.iter().map(|id| r(*id)).collect();
        let message: Message = UniqueMessage::Entry { entry: vote.clone(), skips: Vec::new() };
        self.world.send_as(vote.voter, To::Some(to), &message);
    }

    pub(crate) fn run(&mut self, ns: u64) {
        let ran = self.world.run_for(ns);
        go(ran, &self.world);
    }

    pub(crate) fn signed(&self, block: &CBlock) -> Signed<CBlock> {
        let signature = self.world.sign(r(0), &block.statement());
        Signed { body: block.clone(), by: r(0), signature }
    }

    /// Runs until the next voter is this replica, half a heartbeat after the last block. The coordinator still coordinates.
    pub(crate) fn wait_for_voter(world: &mut World, log: &SharedLog, voter: u16) {
        let n = u64::try_from(world.settings().n).unwrap();
        let is_next = |log: &SharedLog| {
            let round = log.borrow().votes.last().unwrap().1.round.0;
            round % n == u64::from(voter)
        };
        go(world.run_while("the voter is next", secs(20), |_| !is_next(log)), world);
        go(world.run_for(HEARTBEAT_NS / 2), world);
        assert!(is_next(log));
    }

    /// Sets the delay of messages from these to those replicas.
    pub(crate) fn takes(&mut self, from: &[u16], to: &[u16], span_ns: u64) {
        for from in ids(from) {
            for to in ids(to) {
                self.log.borrow_mut().paths.insert((from, to), span_ns);
            }
        }
    }

    /// Returns the proof of the round after a vote.
    pub(crate) fn proof(&self, tip: &Vote) -> RoundProof<Vote> {
        let signature = self.world.sign(tip.voter, &tip.statement());
        let round = tip.round.next();
        let tip = Framed { entry: tip.clone(), skips: Vec::new(), signature };
        RoundProof { round, tip: Some(tip), skips: Vec::new(), resync: false }
    }

    /// Sends blames of all liars for the round after a vote.
    pub(crate) fn liars_blame(&mut self, to: &[u16], tip: &Vote) {
        let message: Message = UniqueMessage::Blame(Box::new(self.proof(tip)));
        let to: ReplicaSet = ids(to).into_iter().collect();
        for liar in self.liars.clone() {
            self.world.send_as(liar, To::Some(to), &message);
        }
    }

    /// Whether an honest replica has blamed the round of an honest voter since a round.
    pub(crate) fn honest_voter_is_blamed(&self, since: View) -> bool {
        let n = u64::try_from(self.world.settings().n).unwrap();
        let is_liar = |id: &ReplicaId| self.liars.contains(id);
        let voter = |round: View| r(u16::try_from((round.0 - 1) % n).unwrap());
        let log = self.log.borrow();
        log.blames.iter().any(|(by, round)| *round >= since && !is_liar(by) && !is_liar(&voter(*round)))
    }

    /// Ends the messages of liars, and judges agreement and progress of the others.
    pub(crate) fn end(mut self) {
        let id = self.world.submit(1, &[incr("n")])[0];
        wait_for(&mut self.world, &[id], secs(30));
        settle_honest(&mut self.world);
    }
}
