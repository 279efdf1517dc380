//! Tests of the rotating form, one for each sentence of §11, named after the rules of the module's table. Further tests cover
//! claims, encodings, crashes and floods.

mod attacks;
mod bounds;
mod claims;
mod codec;
mod commit;
mod leaders;
mod random;
mod records;
mod recovery;
mod shows;
mod views;
mod votes;

use super::super::statements::{VOTE, blame};
use super::super::tests::{self, TestBlock, TestForm};
pub(super) use super::super::tests::{
    Attacker, CONFLICT, CommitRule, N, SIGNATURE, delta, heartbeat, is_own_statement, line, quarter, r,
    to_one,
};
use super::{Answer, Header, Rotating, RotatingMessage, ViewEvidence, vote};
use quorate_consensus::harness::payload;
use quorate_consensus::parts::chain::{Tip, bind_certificate, empty_payload};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Certificate, Message, Reject, Signed, To};
use quorate_types::{Block, BlockId, Height, Incarnation, ReplicaId, Time, View};

pub(super) type Bench = tests::Bench<Rotating>;

pub(super) const GENESIS: Tip = Tip::GENESIS;
/// Leader of views 5 and 10.
pub(super) const ME: u16 = 4;

pub(super) fn leads(view: u64) -> ReplicaId {
    tests::leads(N, view)
}

/// Returns the proposal of an honest leader on top of a block, with a payload; `number` distinguishes blocks.
pub(super) fn header(view: u64, on: Tip, number: u64) -> Header {
    let block = Block {
        parent: on.id,
        height: on.height.next(),
        view: View(view),
        proposer: leads(view),
        time_ns: number,
        payload: payload(number).id,
        extra: bind_certificate(on.view, on.id),
    };
    Header { block, parent_view: on.view }
}

/// Returns the same with an empty payload.
pub(super) fn empty(view: u64, on: Tip, number: u64) -> Header {
    let mut header = header(view, on, number);
    header.block.payload = empty_payload();
    header
}

/// Returns headers of consecutive views, each on top of the last.
pub(super) fn chain(first: u64, mut on: Tip, count: u64) -> Vec<Header> {
    let next = |view| {
        let next = header(view, on, view);
        on = tip(&next);
        next
    };
    (first..first + count).map(next).collect()
}

pub(super) fn id(header: &Header) -> BlockId {
    header.block.id()
}

pub(super) fn tip(header: &Header) -> Tip {
    Tip::of(&header.block, id(header))
}

/// Returns the header with its leader's signature.
pub(super) fn signed(header: &Header) -> Signed<Header> {
    Signed { body: header.clone(), by: header.block.proposer, signature: SIGNATURE }
}

/// Returns a vote.
pub(super) fn voted(header: &Header) -> RotatingMessage {
    RotatingMessage::Vote(signed(header))
}

/// Returns a certificate with votes of replicas 0, 1, … for a block in a view.
pub(super) fn certificate(view: u64, block: BlockId, signers: u16) -> Certificate {
    let votes: Vec<_> = (0..signers).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(vote(View(view), block), &votes)
}

/// Returns a certificate of f + 1 votes for a block.
pub(super) fn certified(header: &Header) -> Certificate {
    certificate(header.block.view.0, id(header), 3)
}

pub(super) fn shows(header: &Header) -> RotatingMessage {
    RotatingMessage::Certified(certified(header))
}

/// Returns the proposal of a header, with the certificate of its parent.
pub(super) fn proposal(header: &Header) -> RotatingMessage {
    let (view, parent) = (header.parent_view, header.block.parent);
    let is_first = view == View::ZERO;
    let parent = if is_first { Certificate::genesis(VOTE) } else { certificate(view.0, parent, 3) };
    RotatingMessage::Propose { header: header.clone(), parent }
}

pub(super) fn status(view: u64, lock: Certificate) -> RotatingMessage {
    RotatingMessage::Status { view: View(view), lock }
}

/// Returns blames of f + 1 replicas.
pub(super) fn blames(view: u64) -> Certificate {
    let votes: Vec<_> = (0..3).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(blame(View(view)), &votes)
}

pub(super) fn blamed(view: u64) -> RotatingMessage {
    RotatingMessage::Evidence(ViewEvidence::Blames(blames(view)))
}

/// Returns two proposals of a leader as evidence.
pub(super) fn conflict(first: &Header, second: &Header) -> ViewEvidence {
    ViewEvidence::Conflict(Box::new((signed(first), signed(second))))
}

/// Returns an answer that reports nothing but its sender's stage.
pub(super) fn stands(stage: RecoveryStage) -> Answer {
    Answer::bare(Incarnation::ZERO, stage)
}

pub(super) fn claims_hold(message: &RotatingMessage) -> Result<(), &'static str> {
    tests::claims_hold::<Rotating>(message)
}

impl TestForm for Rotating {
    const ME: u16 = ME;
    // Long enough after the start that no time is cut off at zero.
    const WARM_UP: u64 = 20 * 50_000_000;
    type Answer = Answer;

    fn answer_with(incarnation: Incarnation, stage: RecoveryStage) -> Answer {
        Answer::bare(incarnation, stage)
    }
    fn answer_message(answer: Answer) -> RotatingMessage {
        RotatingMessage::Answer(Box::new(answer))
    }
    fn stage_in(message: &RotatingMessage) -> Option<RecoveryStage> {
        if let RotatingMessage::Answer(answer) = message { Some(answer.stage) } else { None }
    }
    fn question(incarnation: Incarnation) -> RotatingMessage {
        RotatingMessage::Ask { incarnation }
    }
    fn is_question(message: &RotatingMessage) -> bool {
        matches!(message, RotatingMessage::Ask { .. })
    }
    fn is_status(message: &RotatingMessage) -> bool {
        matches!(message, RotatingMessage::Status { .. })
    }
    fn blamed(_: u16, view: u64) -> RotatingMessage {
        blamed(view)
    }
    fn blocks(count: u64) -> Vec<TestBlock<RotatingMessage>> {
        let block = |header: &Header| TestBlock {
            block: header.block.clone(),
            proposal: proposal(header),
            vote: voted(header),
        };
        chain(1, GENESIS, count).iter().map(block).collect()
    }
}

impl Bench {
    /// The leader proposes a header.
    pub(super) fn propose(&mut self, header: &Header) {
        self.take(header.block.proposer.0, proposal(header));
    }

    /// These replicas vote for a header.
    pub(super) fn vote(&mut self, voters: impl IntoIterator<Item = u16>, header: &Header) {
        for voter in voters {
            let _ = self.deliver(voter, voted(header));
        }
    }

    /// Proposes these headers one after the other. This replica and f others vote for each.
    pub(super) fn grow(&mut self, headers: &[Header]) {
        for header in headers {
            self.propose(header);
            self.replica.settle();
            self.vote(self.few(), header);
            assert_eq!(self.view(), header.block.view.0 + 1);
        }
    }

    /// Returns the blocks of its votes.
    pub(super) fn votes(&mut self) -> Vec<BlockId> {
        votes_in(&self.said())
    }

    /// Returns commits by timers since the last call. There are no others.
    pub(super) fn timer_commits(&mut self) -> Vec<BlockId> {
        let commits = self.committed();
        assert!(commits.iter().all(|(_, rule)| *rule == CommitRule::Timer), "{commits:?}");
        commits.into_iter().map(|(id, _)| id).collect()
    }
}

pub(super) fn votes_in(said: &[RotatingMessage]) -> Vec<BlockId> {
    said.iter()
        .filter_map(|it| if let RotatingMessage::Vote(header) = it { Some(id(&header.body)) } else { None })
        .collect()
}

pub(super) fn evidence_in(said: &[RotatingMessage]) -> Vec<ViewEvidence> {
    said.iter()
        .filter_map(|it| if let RotatingMessage::Evidence(it) = it { Some(it.clone()) } else { None })
        .collect()
}

pub(super) fn certified_in(said: &[RotatingMessage]) -> Vec<BlockId> {
    said.iter()
        .filter_map(|it| if let RotatingMessage::Certified(it) = it { Some(it.block()) } else { None })
        .collect()
}

/// Returns the view and parent of each proposal.
pub(super) fn proposed_in(said: &[RotatingMessage]) -> Vec<(View, BlockId)> {
    said.iter()
        .filter_map(|it| {
            let RotatingMessage::Propose { header, parent } = it else { return None };
            assert_eq!((header.parent_view, header.block.parent), (parent.view(), parent.block()));
            Some((header.block.view, parent.block()))
        })
        .collect()
}
