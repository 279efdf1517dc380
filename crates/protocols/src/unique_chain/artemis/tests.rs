//! Tests of the rules in the module's table, named after them. Rules of the engine have their tests in the engine's folder.
//!
//! Most mutations of §21 are inside the form, and a test of the rule fails with each:
//!
//! | mutation | test |
//! |---|---|
//! | unchained-vote | `id_of_a_vote_binds_its_fields`, and the engine's rules about parents |
//! | ref-not-below-head | `a1_data_vote_names_a_strict_descendant_of_the_head` |
//! | double-flag | `a5_flags_count_once_for_each_voter` |
//! | no-scope | `a14_coordinator_serves_the_view_on_each_branch` |
//! | no-endorse | `a7_requests_that_are_not_final_are_endorsed_at_once` |
//! | timer-without-S | `a13_round_lasts_long_enough_for_the_voters_wait`, museum V4 |
//! | fetched-then-direct | `a11_fetched_block_does_not_and_its_direct_copy_does`, the slow link in `artemis_schedules.rs` |
//! | restart-blames | `u14_votes_in_answers_count_before_any_blame`, museum V1 |
//! | slow-all, slow-link | scenario 14 in `artemis_schedules.rs`, museum V5 |
//!
//! `tests/simulated/artemis_schedules.rs` has the rows V of the museum. The rows V2 and V3 are mutations of scenario 15.

mod attacks;
mod base_points;
mod blocks;
mod bounds;
mod codec;
mod coordinator;
mod records;
mod recovery;
mod silence;
mod sizes;
mod states;
mod validity;
mod voting;

use super::super::entry::Entry as _;
use super::super::replica::Timer;
use super::super::{Answer, EntryRef, Framed, RoundProof, UniqueChain, UniqueMessage, skips_digest};
use super::{Artemis, ArtemisMessage, CBlock, ChainState, Evidence, Vote, VoteKind};
use quorate_consensus::harness::{Harness, Setup, payload};
use quorate_consensus::parts::blames::blame;
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Certificate, Commit, Reject, Signed, To};
use quorate_types::{Block, BlockId, Digest, Height, Incarnation, ReplicaId, Signature, View};

pub(super) type Message = UniqueMessage<Vote, ArtemisMessage>;

pub(super) const SIGNATURE: Signature = Signature([0; 64]);
/// f = 2, f + 1 = 3.
pub(super) const N: u16 = 5;
/// Voter of rounds 5 and 10, and coordinator of view 5.
pub(super) const ME: u16 = 4;

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

/// Returns S, with τ > 3 Δ.
pub(super) fn silence() -> u64 {
    heartbeat() + delta(1)
}

/// Returns the voter of a round, who is the coordinator of the view of the same number.
pub(super) fn leads(number: u64) -> ReplicaId {
    r(u16::try_from((number - 1) % u64::from(N)).unwrap())
}

/// Returns blames of a round by f + 1 replicas.
pub(super) fn blames(round: u64) -> Certificate {
    let votes: Vec<_> = (0..3).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(blame(View(round)), &votes)
}

/// Returns skip certificates of all rounds between two.
pub(super) fn skips(after: u64, before: u64) -> Vec<Certificate> {
    (after + 1..before).map(blames).collect()
}

/// An instance, as the tests name it.
#[derive(Clone, Copy)]
pub(super) struct In {
    pub(super) view: u64,
    pub(super) anchor: Digest,
}

pub(super) fn genesis() -> EntryRef {
    EntryRef::GENESIS
}

/// The instance of the first view.
pub(super) const FIRST: In = In { view: 1, anchor: Digest::ZERO };

/// Height and id of a block.
pub(super) type Head = (u64, BlockId);

/// Genesis.
pub(super) const ROOT: Head = (0, BlockId::ZERO);

/// Returns a coordinator's block with a payload; `number` distinguishes blocks.
pub(super) fn cblock(of: In, on: Head, number: u64) -> CBlock {
    let block = Block {
        parent: on.1,
        height: Height(on.0 + 1),
        view: View(of.view),
        proposer: leads(of.view),
        time_ns: number,
        payload: payload(number).id,
        extra: CBlock::bind(of.anchor),
    };
    CBlock { block, anchor: of.anchor }
}

/// Returns the same with an empty payload.
pub(super) fn empty(of: In, on: Head, number: u64) -> CBlock {
    let mut block = cblock(of, on, number);
    block.block.payload = empty_payload();
    block
}

/// Returns consecutive blocks of an instance.
pub(super) fn stream(of: In, mut on: Head, count: u64) -> Vec<CBlock> {
    let next = |number| {
        let next = cblock(of, on, number);
        on = head(&next);
        next
    };
    (1..=count).map(next).collect()
}

pub(super) fn id(block: &CBlock) -> BlockId {
    block.block.id()
}

pub(super) fn head(block: &CBlock) -> Head {
    (block.block.height.0, id(block))
}

/// Returns the block with its coordinator's signature.
pub(super) fn signed(block: &CBlock) -> Signed<CBlock> {
    Signed { body: block.clone(), by: block.block.proposer, signature: SIGNATURE }
}

/// Returns the coordinator's message.
pub(super) fn sends(block: &CBlock) -> Message {
    UniqueMessage::Own(ArtemisMessage::CBlock(block.clone()))
}

/// Returns an answer with blocks.
pub(super) fn hands_on(blocks: &[CBlock]) -> Message {
    UniqueMessage::Own(ArtemisMessage::Blocks { blocks: blocks.iter().map(signed).collect() })
}

/// Returns two blocks as evidence.
pub(super) fn evidence(first: &CBlock, second: &CBlock) -> VoteKind {
    VoteKind::Equivocation(Box::new(Evidence { first: signed(first), second: signed(second) }))
}

/// Returns a vote in a view of the first coordinator. Rounds between it and its parent are skipped.
pub(super) fn vote(round: u64, on: EntryRef, block: BlockId, kind: VoteKind) -> Vote {
    let skips = skips_digest(&skips(on.round.0, round));
    Vote { round: View(round), voter: leads(round), parent: on, skips, view: View(1), block, kind }
}

/// Returns a vote in a later view.
pub(super) fn vote_in(view: u64, round: u64, on: EntryRef, block: BlockId, kind: VoteKind) -> Vote {
    Vote { view: View(view), ..vote(round, on, block, kind) }
}

pub(super) fn data(round: u64, on: EntryRef, block: &CBlock) -> Vote {
    vote(round, on, id(block), VoteKind::Data)
}

/// Returns votes of consecutive rounds for the head.
pub(super) fn again(first: u64, mut on: EntryRef, block: BlockId, kind: &VoteKind, count: u64) -> Vec<Vote> {
    let next = |round| {
        let next = vote(round, on, block, kind.clone());
        on = next.place();
        next
    };
    (first..first + count).map(next).collect()
}

fn skips_of(vote: &Vote) -> Vec<Certificate> {
    skips(vote.parent.round.0, vote.round.0)
}

/// Returns the vote with its voter's signature.
pub(super) fn frame(vote: &Vote) -> Framed<Vote> {
    Framed { entry: vote.clone(), skips: skips_of(vote), signature: SIGNATURE }
}

/// Returns the voter's message.
pub(super) fn casts(vote: &Vote) -> Message {
    UniqueMessage::Entry { entry: vote.clone(), skips: skips_of(vote) }
}

/// Returns a proof of a round: its tip, and skip certificates of all rounds since.
pub(super) fn proof(round: u64, tip: Option<&Vote>) -> RoundProof<Vote> {
    let after = tip.map_or(0, |tip| tip.round.0);
    RoundProof { round: View(round), tip: tip.map(frame), skips: skips(after, round), resync: false }
}

pub(super) fn relay(round: u64, tip: Option<&Vote>) -> Message {
    UniqueMessage::Proof(Box::new(proof(round, tip)))
}

/// Returns an answer that reports nothing but its sender's stage.
pub(super) fn stands(stage: RecoveryStage) -> Message {
    let proof = proof(1, None);
    UniqueMessage::Answer(Box::new(Answer { incarnation: Incarnation::ZERO, stage, proof, last: None }))
}

/// One replica under test.
pub(super) struct Bench {
    pub(super) replica: Harness<UniqueChain<Artemis>>,
}

impl Bench {
    /// Returns a replica that was opened and is silent.
    pub(super) fn opened(me: u16) -> Self {
        Self::opened_among(me, N)
    }

    fn opened_among(me: u16, n: u16) -> Self {
        let setup = Setup::of::<UniqueChain<Artemis>>(usize::from(n));
        Self { replica: Harness::open(r(me), setup, &SynchronyParams::default()).unwrap() }
    }

    /// Returns a replica that runs, in the first round.
    pub(super) fn running(me: u16) -> Self {
        Self::running_among(me, N)
    }

    /// Returns one among `n` that runs. The fifth round is the last one with the same voter as among five.
    pub(super) fn running_among(me: u16, n: u16) -> Self {
        let mut bench = Self::opened_among(me, n);
        bench.replica.advance(2 * silence());
        bench.run();
        bench
    }

    /// Returns the usual running replica.
    pub(super) fn new() -> Self {
        let mut bench = Self::running(ME);
        bench.clear();
        bench
    }

    /// Returns a replica that runs and votes next, on the votes of earlier rounds.
    pub(super) fn voter(votes: &[Vote], blocks: &[CBlock]) -> Self {
        let mut bench = Self::new();
        blocks.iter().for_each(|block| bench.emit(block));
        bench.grow(votes);
        bench.clear();
        bench
    }

    /// All peers answer, and then report that they run.
    pub(super) fn run(&mut self) {
        for stage in [RecoveryStage::Silent, RecoveryStage::Running] {
            for peer in self.peers() {
                self.take(peer, stands(stage));
            }
            if self.replica.protocol().recovery.is_silent() {
                // Peers that were reached have their time to answer.
                self.replica.advance(delta(2));
            }
        }
        assert!(!self.replica.protocol().recovery.is_silent());
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

    /// The coordinator of its view sends a block.
    pub(super) fn emit(&mut self, block: &CBlock) {
        self.take(block.block.proposer.0, sends(block));
    }

    /// The voter of its round sends a vote.
    pub(super) fn cast(&mut self, vote: &Vote) {
        self.take(vote.voter.0, casts(vote));
    }

    /// The voters send these votes one after the other, and each is accepted.
    pub(super) fn grow(&mut self, votes: &[Vote]) {
        for vote in votes {
            self.cast(vote);
            self.replica.settle();
            assert!(self.is_accepted(vote), "{vote:?}");
        }
    }

    /// Skips the rounds up to one, on a tip.
    pub(super) fn skip_to(&mut self, round: u64, tip: Option<&Vote>) {
        let from = self.peers()[0];
        if self.round() < round {
            self.take(from, relay(round, tip));
        }
        assert_eq!(self.round(), round);
    }

    /// Lets time pass. The disk keeps up.
    pub(super) fn pass(&mut self, ns: u64) {
        self.replica.settle();
        self.replica.advance(ns);
    }

    pub(super) fn round(&self) -> u64 {
        self.replica.protocol().round.number.0
    }

    pub(super) fn is_accepted(&self, vote: &Vote) -> bool {
        self.replica.protocol().entries.is_accepted(vote.place())
    }

    /// Whether the vote is kept, accepted or not: invalid ones are dropped.
    pub(super) fn is_kept(&self, vote: &Vote) -> bool {
        self.replica.protocol().entries.contains(vote.id())
    }

    /// Returns the state after an accepted vote.
    pub(super) fn state(&self, vote: &Vote) -> ChainState {
        self.replica.protocol().state_after(vote.place()).unwrap()
    }

    /// Bodies are missing until the test delivers them.
    pub(super) fn lack_bodies(&mut self) {
        self.replica.answer_otherwise(None);
    }

    /// Returns messages that have left when the disk has everything.
    pub(super) fn said(&mut self) -> Vec<(To, Message)> {
        self.replica.settle();
        self.replica.sent()
    }

    /// Returns own votes.
    pub(super) fn votes(&mut self) -> Vec<Vote> {
        votes_in(&self.said())
    }

    /// Returns own blocks.
    pub(super) fn emitted(&mut self) -> Vec<CBlock> {
        blocks_in(&self.said())
    }

    /// Returns committed blocks since the last call.
    pub(super) fn committed(&mut self) -> Vec<BlockId> {
        let chains = self.replica.committed().into_iter().map(|what| match what {
            Commit::Chain(id) => id,
            Commit::At(..) => panic!("chains commit with their ancestors"),
        });
        chains.collect()
    }

    /// Returns the time until the coordinator of an instance counts as silent.
    pub(super) fn patience(&self, of: In) -> u64 {
        let deadline = self.replica.protocol().state.blocks.instances[&of.anchor].deadline;
        deadline.since(self.replica.now())
    }

    /// Returns the time until the next empty block.
    pub(super) fn until_heartbeat(&self) -> u64 {
        self.replica.timer(Timer::Emit).unwrap().since(self.replica.now())
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
}

/// Lets all voters vote up to a round, each for a new block. This replica votes in its own rounds. Returns the last block and vote
/// of each round.
pub(super) fn grow_to(bench: &mut Bench, last: u64) -> (Vec<EntryRef>, EntryRef) {
    let (mut on, mut tip, mut all) = (ROOT, genesis(), Vec::new());
    for round in 1..=last {
        let block = cblock(FIRST, on, round);
        bench.emit(&block);
        on = head(&block);
        tip = match leads(round) == bench.replica.me() {
            true => bench.votes().pop().unwrap().place(),
            false => {
                let next = vote(round, tip, id(&block), VoteKind::Data);
                bench.cast(&next);
                next.place()
            }
        };
        all.push(tip);
        // The own vote of the next round is collected there.
        if leads(round + 1) != bench.replica.me() {
            bench.clear();
        }
    }
    (all, tip)
}

pub(super) fn votes_in(said: &[(To, Message)]) -> Vec<Vote> {
    let vote = |(_, it): &(To, Message)| {
        if let UniqueMessage::Entry { entry, .. } = it { Some(entry.clone()) } else { None }
    };
    said.iter().filter_map(vote).collect()
}

pub(super) fn blocks_in(said: &[(To, Message)]) -> Vec<CBlock> {
    let block = |(_, it): &(To, Message)| match it {
        UniqueMessage::Own(ArtemisMessage::CBlock(block)) => Some(block.clone()),
        _ => None,
    };
    said.iter().filter_map(block).collect()
}

/// Returns the peers that are asked for blocks, with the last block of each path.
pub(super) fn wants_in(said: &[(To, Message)]) -> Vec<(To, BlockId)> {
    let want = |(to, it): &(To, Message)| match it {
        UniqueMessage::Own(ArtemisMessage::WantBlocks { id, .. }) => Some((*to, *id)),
        _ => None,
    };
    said.iter().filter_map(want).collect()
}

/// Returns the position of the first line with this beginning.
pub(super) fn line(lines: &[String], start: &str) -> usize {
    let found = lines.iter().position(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start}: {lines:#?}"))
}
