//! Worlds of Apollo with exact message delays, and with liars that send the messages of a test.

use crate::support::{begin, incr, level};
use crate::sync_exact_world::{NEAR_NS, exact};
use crate::sync_planned_run::{answer_probes, ids};
use quorate_consensus::parts::blames::blame;
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::{Certificate, Entry, To};
use quorate_protocols::unique_chain::apollo::{NoMessage, Proposal};
use quorate_protocols::unique_chain::{Entry as _, Framed, RoundProof, UniqueMessage, skips_digest};
use quorate_sim::{Failure, Frame, Settings, Verdict, World, ms, secs};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{Block, BlockId, Height, ReplicaId, ReplicaSet, Time, View, Wire as _};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) type Message = UniqueMessage<Proposal, NoMessage>;

/// τ of these worlds.
pub(crate) const TAU_NS: u64 = ms(1);

pub(crate) fn apollo() -> &'static Entry {
    quorate_protocols::find("apollo").unwrap()
}

/// A message of the protocol with its time, once for each receiver.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) from: ReplicaId,
    pub(crate) message: Message,
}

/// All messages, and the delays of those between honest replicas by sender and receiver.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) sent: Vec<Sent>,
    /// The first proposal of each round.
    proposals: BTreeMap<View, Sent>,
    paths: Vec<(ReplicaId, ReplicaId, u64)>,
}

pub(crate) fn decoded(frame: &Frame) -> Option<Message> {
    if frame.frame_type != PROTOCOL {
        return None;
    }
    let whole = Message::from_bytes(&frame.body).ok();
    whole.or_else(|| Message::from_bytes(frame.body.split_last_chunk::<64>()?.0).ok())
}

/// See the module.
pub(crate) struct ApolloRun {
    pub(crate) world: World,
    pub(crate) network: Rc<RefCell<Network>>,
    pub(crate) liars: Vec<ReplicaId>,
    /// Whether liars answer probes of the guard.
    pub(crate) answers_probes: bool,
    /// Whether a request is submitted in each rotation, in time for the last leader before the liar.
    pub(crate) is_busy: bool,
}

impl ApolloRun {
    /// Returns a world in which all replicas are at one height. τ is a millisecond unless `change` sets it.
    pub(crate) fn new(entry: &Entry, n: usize, change: impl FnOnce(&mut Settings)) -> Self {
        Self::judged(entry, n, change, |_, _| Verdict::Pass)
    }

    /// Returns the same with a verdict on each message.
    pub(crate) fn judged(
        entry: &Entry,
        n: usize,
        change: impl FnOnce(&mut Settings),
        mut judge: impl FnMut(Time, &Frame) -> Verdict + 'static,
    ) -> Self {
        let mut world = exact(entry, n, 31, |settings| {
            settings.set("heartbeat_ms", 1);
            change(settings);
        });
        let near_ns = world.settings().conditions.delay_ns;
        let network: Rc<RefCell<Network>> = Rc::default();
        let shared = Rc::clone(&network);
        world.hook(move |at, frame| {
            let mut network = shared.borrow_mut();
            if let Some(message) = decoded(frame) {
                let sent = Sent { at, from: frame.from, message };
                if let UniqueMessage::Entry { entry, .. } = &sent.message {
                    network.proposals.entry(entry.round()).or_insert_with(|| sent.clone());
                }
                network.sent.push(sent);
            }
            let verdict = judge(at, frame);
            let is_it = |(from, to, _): &&(ReplicaId, ReplicaId, u64)| (*from, *to) == (frame.from, frame.to);
            match network.paths.iter().rfind(is_it) {
                Some((.., span_ns)) if verdict == Verdict::Pass && *span_ns > near_ns => {
                    Verdict::Delay(span_ns - near_ns)
                }
                _ => verdict,
            }
        });
        begin(&mut world);
        level(&mut world);
        Self { world, network, liars: Vec::new(), answers_probes: false, is_busy: false }
    }

    /// Sets the delay of messages from these to those replicas.
    pub(crate) fn takes(&mut self, from: &[u16], to: &[u16], span_ns: u64) {
        for from in ids(from) {
            for to in ids(to) {
                self.network.borrow_mut().paths.push((from, to, span_ns));
            }
        }
    }

    pub(crate) fn run(&mut self, span_ns: u64) -> Result<(), Failure> {
        self.run_until(self.world.now().plus(span_ns))
    }

    pub(crate) fn run_until(&mut self, end: Time) -> Result<(), Failure> {
        while self.answers_probes && self.world.now() < end {
            self.world.run_until(end.min(self.world.now().plus(ms(5))))?;
            answer_probes(&mut self.world, &self.liars);
        }
        self.world.run_until(end)
    }

    pub(crate) fn leader(&self, round: View) -> ReplicaId {
        let n = u64::try_from(self.world.settings().n).unwrap();
        ReplicaId(u16::try_from((round.0 - 1) % n).unwrap())
    }

    pub(crate) fn round(&self, id: ReplicaId) -> View {
        self.world.status(id).unwrap().view
    }

    /// Returns the first proposal of a round.
    pub(crate) fn proposed(&self, round: View) -> Option<Sent> {
        self.network.borrow().proposals.get(&round).cloned()
    }

    /// Returns the block of a round that was proposed first, with the skip certificates that it shows.
    pub(crate) fn block(&self, round: View) -> Option<(Proposal, Vec<Certificate>)> {
        let UniqueMessage::Entry { entry, skips } = self.proposed(round)?.message else { return None };
        Some((entry, skips))
    }

    /// Returns sender and round of each blame, in order.
    pub(crate) fn blames(&self) -> Vec<(ReplicaId, View)> {
        let of = |sent: &Sent| match &sent.message {
            UniqueMessage::Blame(proof) => Some((sent.from, proof.round)),
            _ => None,
        };
        let mut all: Vec<_> = self.network.borrow().sent.iter().filter_map(of).collect();
        all.dedup();
        all
    }

    /// Whether an honest replica has blamed the round of an honest leader since a round.
    pub(crate) fn honest_leader_is_blamed(&self, since: View) -> bool {
        let is_liar = |id: ReplicaId| self.liars.contains(&id);
        self.blames()
            .iter()
            .any(|(by, round)| *round >= since && !is_liar(*by) && !is_liar(self.leader(*round)))
    }

    /// Makes these replicas controlled ones, and runs until all others are in a round of the first of them, with empty blocks
    /// below it, so that empty blocks of the next height are committed. Returns that round and the block below.
    pub(crate) fn corrupt(&mut self, liars: &[u16]) -> Result<(View, Proposal), Failure> {
        self.liars = ids(liars);
        // Their earlier honest messages arrive, before they lead again.
        let liar = self.liars[0];
        while self.round(liar) != self.leaders_next_round(liar) {
            self.run(TAU_NS / 2)?;
        }
        self.run(NEAR_NS + ms(5))?;
        self.liars.iter().for_each(|liar| self.world.take_control(*liar));
        for turn in 0..40 {
            let round = self.wait_for_round_of(liar)?;
            let below = self.below(round);
            if below.block.height.0 % 8 == 7 {
                return Ok((round, below));
            }
            // A block of the liar in every second turn: so all heights come up.
            let (entry, skips) = self.on(round, &below, 0);
            let to: Vec<u16> = self.honest().iter().map(|id| id.0).collect();
            if turn % 2 == 0 {
                self.send(liar.0, &to, &UniqueMessage::Entry { entry, skips });
            }
            let is_open = |world: &World| world.status(ReplicaId(to[0])).unwrap().view == round;
            self.world.run_while("the round is over", secs(5), is_open)?;
            if self.is_busy {
                self.world.submit(0, &[incr("n")]);
            }
            self.run(ms(30))?;
        }
        panic!("no round of {liar} begins at a height below a multiple of 8");
    }

    fn leaders_next_round(&self, id: ReplicaId) -> View {
        let mut round = self.round(id);
        while self.leader(round.minus(1)) != id {
            round = round.next();
        }
        round
    }

    pub(crate) fn honest(&self) -> Vec<ReplicaId> {
        self.world.replicas().filter(|id| !self.liars.contains(id)).collect()
    }

    fn wait_for_round_of(&mut self, liar: ReplicaId) -> Result<View, Failure> {
        let honest = self.honest();
        let n = u64::try_from(self.world.settings().n).unwrap();
        let is_open = |world: &World| {
            let round = world.status(honest[0]).unwrap().view;
            let leads = u64::from(liar.0) == (round.0 - 1) % n;
            !(leads && honest.iter().all(|id| world.status(*id).unwrap().view == round))
        };
        self.world.run_while("all are in a round of the liar", secs(20), is_open)?;
        Ok(self.round(honest[0]))
    }

    /// Returns the block of the highest round below one.
    pub(crate) fn below(&self, round: View) -> Proposal {
        let blocks = (1..round.0).rev().find_map(|before| self.block(View(before)));
        blocks.unwrap().0
    }

    /// Returns skip certificates of all rounds between two, signed by the liars and by honest replicas that have blamed.
    pub(crate) fn skips(&self, after: View, before: View) -> Vec<Certificate> {
        let of = |round: u64| {
            let said = self.blames().into_iter().filter(|(_, of)| of.0 == round).map(|(by, _)| by);
            let mut signers: Vec<ReplicaId> = said.chain(self.liars.iter().copied()).collect();
            signers.sort_unstable();
            signers.dedup();
            let statement = blame(View(round));
            let votes: Vec<_> = signers.iter().map(|by| (*by, self.world.sign(*by, &statement))).collect();
            Certificate::of(statement, &votes)
        };
        (after.0 + 1..before.0).map(of).collect()
    }

    /// Returns an empty block of a round's leader on top of a block; `number` distinguishes blocks.
    pub(crate) fn on(&self, round: View, parent: &Proposal, number: u64) -> (Proposal, Vec<Certificate>) {
        let skips = self.skips(parent.round(), round);
        let block = Block {
            parent: parent.block.id(),
            height: parent.block.height.next(),
            view: round,
            proposer: self.leader(round),
            time_ns: number,
            payload: empty_payload(),
            extra: Proposal::bind(parent.round(), skips_digest(&skips)),
        };
        (Proposal { block, parent_round: parent.round() }, skips)
    }

    /// Returns the proof of the round after a block.
    pub(crate) fn proof(&self, tip: &Proposal, skips: &[Certificate]) -> RoundProof<Proposal> {
        let signature = self.world.sign(tip.author(), &tip.statement());
        let tip_round = tip.round();
        let tip = Framed { entry: tip.clone(), skips: skips.to_vec(), signature };
        RoundProof { round: tip_round.next(), tip: Some(tip), skips: Vec::new(), resync: false }
    }

    pub(crate) fn send(&mut self, by: u16, to: &[u16], message: &Message) {
        let to = To::Some(ids(to).into_iter().collect::<ReplicaSet>());
        self.world.send_as(ReplicaId(by), to, message);
    }

    /// Sends a block of a liar, with the skip certificates since its parent.
    pub(crate) fn propose(&mut self, to: &[u16], (entry, skips): &(Proposal, Vec<Certificate>)) {
        let message = UniqueMessage::Entry { entry: entry.clone(), skips: skips.clone() };
        self.send(entry.author().0, to, &message);
    }

    /// Sends blames of all liars for the round of a proof.
    pub(crate) fn liars_blame(&mut self, to: &[u16], proof: &RoundProof<Proposal>) {
        for liar in self.liars.clone() {
            self.send(liar.0, to, &UniqueMessage::Blame(Box::new(proof.clone())));
        }
    }

    /// Returns the verdict of the oracles after a while without messages of liars.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        match self.world.failure() {
            Some(failure) => Err(failure.clone()),
            None => self.world.run_for(secs(3)),
        }
    }
}

/// Whether a block is on the chain that a block names, as far as it was proposed.
pub(crate) fn extends(run: &ApolloRun, mut at: BlockId, of: BlockId) -> bool {
    let network = run.network.borrow();
    loop {
        if at == of {
            return true;
        }
        let is_it = |sent: &&Sent| matches!(&sent.message, UniqueMessage::Entry { entry, .. } if entry.block.id() == at);
        let Some(Sent { message: UniqueMessage::Entry { entry, .. }, .. }) = network.sent.iter().find(is_it)
        else {
            return false;
        };
        if entry.block.height == Height(1) {
            return false;
        }
        at = entry.block.parent;
    }
}
