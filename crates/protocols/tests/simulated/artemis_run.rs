//! Worlds of Artemis with exact message delays, and with liars that send the messages of a test.

use crate::support::{begin, go, incr, level, r, settle_honest, wait_for};
use crate::sync_exact_world::{DELTA_NS, exact};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::{AttackEntry, Entry, Signed, To};
use quorate_protocols::unique_chain::artemis::{Artemis, ArtemisMessage, CBlock, Vote, VoteKind};
use quorate_protocols::unique_chain::{Entry as _, EntryRef, UniqueChain, UniqueMessage, skips_digest};
use quorate_sim::{Audience, Frame, Settings, Verdict, World, ms, secs};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{Block, BlockId, Digest, Kind, ReplicaId, ReplicaSet, Time, View, Wire as _};
use std::cell::RefCell;
use std::collections::BTreeSet;
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
    known: BTreeSet<Digest>,
}

impl Log {
    pub(crate) fn hear(&mut self, at: Time, message: Message) {
        match message {
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
            shared.borrow_mut().hear(now, message);
        }
        judge(now, frame)
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

/// The first coordinator is a controlled replica in its first view. All others are at one height.
pub(crate) struct Controlled {
    pub(crate) world: World,
    pub(crate) log: SharedLog,
    /// The last block of the coordinator.
    pub(crate) last: Block,
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
        liars.iter().for_each(|liar| world.take_control(r(*liar)));
        let last = log.borrow().blocks.last().unwrap().1.block.clone();
        Self { world, log, last }
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

    /// Ends the messages of liars, and judges agreement and progress of the others.
    pub(crate) fn end(mut self) {
        let id = self.world.submit(1, &[incr("n")])[0];
        wait_for(&mut self.world, &[id], secs(30));
        settle_honest(&mut self.world);
    }
}
