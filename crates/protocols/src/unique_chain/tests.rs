//! Tests of the rules in the module's table, named after them. The replica under test runs Apollo.

mod accept;
pub(super) mod claims;
mod codec;
mod commit;
mod grace;
mod records;
mod recovery;
mod rounds;
mod sizes;

use super::apollo::{NoMessage, Proposal};
use super::replica::Timer;
use super::{Answer, Apollo, EntryRef, Framed, RoundProof, UniqueChain, UniqueMessage, skips_digest};
use quorate_consensus::harness::{Harness, Setup, payload};
use quorate_consensus::parts::blames::blame;
use quorate_consensus::parts::chain::{Tip, empty_payload};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Alarm, Certificate, Commit, Reject, To};
use quorate_types::{Block, BlockId, Digest, Height, Incarnation, ReplicaId, Signature, View};

pub(super) type Message = UniqueMessage<Proposal, NoMessage>;

pub(super) const SIGNATURE: Signature = Signature([0; 64]);
/// f = 2, f + 1 = 3.
pub(super) const N: u16 = 5;
/// Leader of rounds 5 and 10.
pub(super) const ME: u16 = 4;
pub(super) const GENESIS: Tip = Tip::GENESIS;

pub(super) fn r(id: u16) -> ReplicaId {
    ReplicaId(id)
}

/// Returns `count` Δ as a timer.
pub(super) fn delta(count: u64) -> u64 {
    SynchronyParams::default().delta().times(count)
}

/// Returns a quarter of Δ.
pub(super) fn quarter() -> u64 {
    SynchronyParams::default().delta().quarter()
}

/// Returns τ.
pub(super) fn heartbeat() -> u64 {
    SynchronyParams::default().heartbeat_ns()
}

/// Returns the time after which the leader of a round is blamed.
pub(super) fn wait() -> u64 {
    delta(4) + heartbeat()
}

/// Returns the leader of a round among five.
pub(super) fn leads(round: u64) -> ReplicaId {
    r(u16::try_from((round - 1) % u64::from(N)).unwrap())
}

/// Returns blames of a round by replicas 0, 1, …
pub(super) fn blames(round: u64, signers: u16) -> Certificate {
    let votes: Vec<_> = (0..signers).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(blame(View(round)), &votes)
}

/// Returns skip certificates of all rounds between two.
pub(super) fn skips(after: u64, before: u64) -> Vec<Certificate> {
    (after + 1..before).map(|round| blames(round, 3)).collect()
}

/// Returns the block of an honest leader on top of a block, with a payload; `number` distinguishes blocks. Rounds between both
/// are skipped.
pub(super) fn entry(round: u64, on: Tip, number: u64) -> Proposal {
    let block = Block {
        parent: on.id,
        height: on.height.next(),
        view: View(round),
        proposer: leads(round),
        time_ns: number,
        payload: payload(number).id,
        extra: Proposal::bind(on.view, skips_digest(&skips(on.view.0, round))),
    };
    Proposal { block, parent_round: on.view }
}

/// Returns the same with an empty payload.
pub(super) fn empty(round: u64, on: Tip) -> Proposal {
    let mut entry = entry(round, on, 0);
    entry.block.payload = empty_payload();
    entry
}

/// Returns blocks of consecutive rounds, each on top of the last.
pub(super) fn chain(first: u64, mut on: Tip, count: u64) -> Vec<Proposal> {
    let next = |round| {
        let next = entry(round, on, round);
        on = tip(&next);
        next
    };
    (first..first + count).map(next).collect()
}

pub(super) fn id(entry: &Proposal) -> BlockId {
    entry.block.id()
}

pub(super) fn tip(entry: &Proposal) -> Tip {
    Tip::of(&entry.block, id(entry))
}

pub(super) fn place(entry: &Proposal) -> EntryRef {
    EntryRef { round: entry.block.view, id: id(entry).0 }
}

fn skips_of(entry: &Proposal) -> Vec<Certificate> {
    skips(entry.parent_round.0, entry.block.view.0)
}

/// Returns the entry with its leader's signature.
pub(super) fn frame(entry: &Proposal) -> Framed<Proposal> {
    Framed { entry: entry.clone(), skips: skips_of(entry), signature: SIGNATURE }
}

/// Returns the leader's message.
pub(super) fn proposal(entry: &Proposal) -> Message {
    UniqueMessage::Entry { entry: entry.clone(), skips: skips_of(entry) }
}

/// Returns a proof of a round: its tip, and skip certificates of all rounds since.
pub(super) fn proof(round: u64, tip: Option<&Proposal>) -> RoundProof<Proposal> {
    let after = tip.map_or(0, |tip| tip.block.view.0);
    RoundProof { round: View(round), tip: tip.map(frame), skips: skips(after, round), resync: false }
}

/// Returns a relay of a replica that has recovered lately, also for the first time.
pub(super) fn flagged(round: u64, tip: Option<&Proposal>) -> Message {
    UniqueMessage::Proof(Box::new(RoundProof { resync: true, ..proof(round, tip) }))
}

pub(super) fn relay(round: u64, tip: Option<&Proposal>) -> Message {
    UniqueMessage::Proof(Box::new(proof(round, tip)))
}

pub(super) fn blamed(round: u64, tip: Option<&Proposal>) -> Message {
    UniqueMessage::Blame(Box::new(proof(round, tip)))
}

/// Returns an answer that reports nothing but its sender's stage.
pub(super) fn stands(stage: RecoveryStage) -> Answer<Proposal> {
    Answer { incarnation: Incarnation::ZERO, stage, proof: proof(1, None), last: None }
}

/// One replica under test.
pub(super) struct Bench {
    pub(super) replica: Harness<UniqueChain<Apollo>>,
}

impl Bench {
    /// Returns a replica that was opened and is silent.
    pub(super) fn opened(me: u16) -> Self {
        Self::opened_among(me, N)
    }

    fn opened_among(me: u16, n: u16) -> Self {
        let setup = Setup::of::<UniqueChain<Apollo>>(usize::from(n));
        Self { replica: Harness::open(r(me), setup, &SynchronyParams::default()).unwrap() }
    }

    /// Returns a replica that runs, in the first round.
    pub(super) fn running(me: u16) -> Self {
        Self::running_among(me, N)
    }

    /// Returns one among `n` that runs. The fifth round is the last one with the same leader as among five.
    pub(super) fn running_among(me: u16, n: u16) -> Self {
        let mut bench = Self::opened_among(me, n);
        bench.replica.advance(delta(20));
        bench.run();
        bench.clear();
        bench
    }

    /// Returns the usual running replica.
    pub(super) fn new() -> Self {
        Self::running(ME)
    }

    /// All peers answer, and then report that they run.
    pub(super) fn run(&mut self) {
        for stage in [RecoveryStage::Silent, RecoveryStage::Running] {
            for peer in self.peers() {
                self.take(peer, UniqueMessage::Answer(Box::new(stands(stage))));
            }
            if self.stage() == RecoveryStage::Silent {
                // Peers that were reached have their time to answer.
                self.replica.advance(delta(2));
            }
        }
        assert_eq!(self.stage(), RecoveryStage::Running);
    }

    pub(super) fn stage(&self) -> RecoveryStage {
        self.replica.protocol().recovery.stage()
    }

    pub(super) fn peers(&self) -> Vec<u16> {
        (0..N).filter(|id| r(*id) != self.replica.me()).collect()
    }

    pub(super) fn deliver(&mut self, from: u16, message: Message) -> Result<(), Reject> {
        self.replica.deliver(r(from), message)
    }

    /// Delivers a message that must be accepted.
    pub(super) fn take(&mut self, from: u16, message: Message) {
        let text = format!("{message:?}");
        assert_eq!(self.deliver(from, message), Ok(()), "{text}");
    }

    /// The leader of its round sends an entry.
    pub(super) fn propose(&mut self, entry: &Proposal) {
        self.take(entry.block.proposer.0, proposal(entry));
    }

    /// The leaders send these entries one after the other, and each is accepted.
    pub(super) fn grow(&mut self, entries: &[Proposal]) {
        for entry in entries {
            self.propose(entry);
            self.replica.settle();
            assert!(self.is_accepted(entry), "{entry:?}");
        }
    }

    /// A peer shows that the current round was skipped.
    pub(super) fn skip(&mut self, tip: Option<&Proposal>) {
        let round = self.round() + 1;
        let from = self.peers()[0];
        self.take(from, relay(round, tip));
        assert_eq!(self.round(), round);
    }

    /// Lets time pass. The disk keeps up.
    pub(super) fn pass(&mut self, ns: u64) {
        self.replica.settle();
        self.replica.advance(ns);
    }

    pub(super) fn round(&self) -> u64 {
        self.replica.status().view.0
    }

    /// Returns the accepted block of the highest round.
    pub(super) fn tip(&self) -> BlockId {
        BlockId(self.replica.protocol().entries.tip().id)
    }

    pub(super) fn is_accepted(&self, entry: &Proposal) -> bool {
        self.replica.protocol().entries.is_accepted(place(entry))
    }

    /// Bodies are missing until the test delivers them.
    pub(super) fn lack_bodies(&mut self) {
        self.replica.answer_otherwise(None);
    }

    /// Returns the end of the wait for the leader of this round.
    pub(super) fn wait_ends(&self) -> Option<u64> {
        self.replica.timer(Timer::Round).map(|at| at.since(self.replica.now()))
    }

    /// Returns messages that have left when the disk has everything.
    pub(super) fn said(&mut self) -> Vec<(To, Message)> {
        self.replica.settle();
        self.replica.sent()
    }

    /// Returns the receivers of round proofs, with their rounds.
    pub(super) fn relays(&mut self) -> Vec<(To, u64)> {
        relays_in(&self.said())
    }

    /// Returns the rounds that this replica blames.
    pub(super) fn blames(&mut self) -> Vec<u64> {
        blames_in(&self.said())
    }

    /// Returns rounds and parents of own proposals.
    pub(super) fn proposals(&mut self) -> Vec<(u64, BlockId)> {
        proposals_in(&self.said())
    }

    /// Returns committed blocks since the last call.
    pub(super) fn committed(&mut self) -> Vec<BlockId> {
        let chains = self.replica.committed().into_iter().map(|what| match what {
            Commit::Chain(id) => id,
            Commit::At(..) => panic!("chains commit with their ancestors"),
        });
        chains.collect()
    }

    /// Forgets all events so far.
    pub(super) fn clear(&mut self) {
        self.replica.settle();
        self.replica.sent();
        self.replica.lines();
        self.replica.wanted();
        self.replica.committed();
        self.replica.notes();
        self.replica.asked_fresh();
    }

    /// Returns the number of alarms that stop the replica, and the reasons of the others.
    pub(super) fn alarms(&self) -> (usize, Vec<&'static str>) {
        let alarms = self.replica.alarms();
        let why = |alarm: &Alarm| match alarm {
            Alarm::SynchronyDoubt { why, .. } => Some(*why),
            Alarm::NearMiss { .. } => Some("near miss"),
            _ => None,
        };
        (alarms.iter().filter(|alarm| alarm.stops()).count(), alarms.iter().filter_map(why).collect())
    }
}

pub(super) fn relays_in(said: &[(To, Message)]) -> Vec<(To, u64)> {
    let round = |(to, it): &(To, Message)| {
        if let UniqueMessage::Proof(proof) = it { Some((*to, proof.round.0)) } else { None }
    };
    said.iter().filter_map(round).collect()
}

pub(super) fn blames_in(said: &[(To, Message)]) -> Vec<u64> {
    let round = |(_, it): &(To, Message)| {
        if let UniqueMessage::Blame(proof) = it { Some(proof.round.0) } else { None }
    };
    said.iter().filter_map(round).collect()
}

pub(super) fn proposals_in(said: &[(To, Message)]) -> Vec<(u64, BlockId)> {
    let block = |(_, it): &(To, Message)| {
        if let UniqueMessage::Entry { entry, .. } = it {
            Some((entry.block.view.0, entry.block.parent))
        } else {
            None
        }
    };
    said.iter().filter_map(block).collect()
}

/// Returns the peers that are asked for entries, with the id of the last one.
pub(super) fn wants_in(said: &[(To, Message)]) -> Vec<(To, Digest)> {
    let want = |(to, it): &(To, Message)| {
        if let UniqueMessage::Want { id, .. } = it { Some((*to, *id)) } else { None }
    };
    said.iter().filter_map(want).collect()
}

/// Returns the position of the first line with this beginning.
pub(super) fn line(lines: &[String], start: &str) -> usize {
    let found = lines.iter().position(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start}: {lines:#?}"))
}
