//! Tests of the stable form, one for each sentence of the papers, named after the rules of the family's table. Further tests
//! cover claims, encodings, crashes and floods.

mod attacks;
mod bounds;
mod claims;
mod codec;
mod commit;
mod floods;
mod locks;
mod missed_heights;
mod normal;
mod optimistic;
mod proposals;
mod random;
mod records;
mod recovery;
mod split;
mod view_change;

use super::super::replica::End;
use super::super::statements::blame;
pub(super) use super::super::tests::{
    Attacker, Bench, CONFLICT, CommitRule, N, SIGNATURE, delta, heartbeat, is_own_statement, leads, line,
    quarter, r, to_one, weak,
};
use super::super::tests::{TestBlock, TestForm, claims_hold};
use super::super::{SyncHotStuff, VOTE};
use super::{
    Answer, Header, LeaderStatement, Lock, Optimistic, Plain, QuitEvidence, SyncMessage, SyncNewView,
    Variant, bind_base, vote,
};
use quorate_consensus::harness::{Harness, Setup};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Certificate, Message, Reject, Signed, To};
use quorate_types::{Block, BlockId, Height, Incarnation, Time, View};

/// End of the chain that the first view extends.
pub(super) const GENESIS: End = (Height::ZERO, BlockId::ZERO);
/// Leader of view 4.
pub(super) const ME: u16 = 3;

/// Tests of rules that both variants have.
macro_rules! both {
    ($($name:ident;)*) => {
        mod plain {
            $(#[test] fn $name() { super::$name::<super::Plain>(); })*
        }
        mod optimistic {
            $(#[test] fn $name() { super::$name::<super::Optimistic>(); })*
        }
    };
}
pub(super) use both;

/// Returns the proposal of an honest leader on top of a block; `number` distinguishes blocks.
pub(super) fn header(n: u16, view: u64, base: BlockId, parent: End, number: u64) -> Header {
    let block = Block {
        parent: parent.1,
        height: parent.0.next(),
        view: View(view),
        proposer: leads(n, view),
        time_ns: number,
        payload: empty_payload(),
        extra: bind_base(base),
    };
    Header { block, base }
}

/// Returns headers of a view, each on top of the last, above its base.
pub(super) fn chain(n: u16, view: u64, base: End, numbers: &[u64]) -> Vec<Header> {
    chain_on(n, view, base.1, base, numbers)
}

/// Returns headers of a view, each on top of the last, above a block.
pub(super) fn chain_on(n: u16, view: u64, base: BlockId, mut parent: End, numbers: &[u64]) -> Vec<Header> {
    let next = |number: &u64| {
        let next = header(n, view, base, parent, *number);
        parent = end(&next);
        next
    };
    numbers.iter().map(next).collect()
}

pub(super) fn id(header: &Header) -> BlockId {
    header.block.id()
}

pub(super) fn end(header: &Header) -> End {
    (header.block.height, header.block.id())
}

/// Returns the header with its leader's signature.
pub(super) fn signed(header: &Header) -> Signed<Header> {
    Signed { body: header.clone(), by: header.block.proposer, signature: SIGNATURE }
}

/// Returns a vote.
pub(super) fn voted(header: &Header) -> SyncMessage {
    SyncMessage::Vote(signed(header))
}

/// Returns a certificate with votes of replicas 0, 1, … for a block in a view.
pub(super) fn certificate(view: u64, (height, block): End, signers: u16) -> Certificate {
    let votes: Vec<_> = (0..signers).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(vote(View(view), height, block), &votes)
}

/// Returns a certificate of f + 1 votes for a block in its own view.
pub(super) fn certified(n: u16, header: &Header) -> Certificate {
    certificate(header.block.view.0, end(header), weak(n))
}

/// Returns the proposal of a header, with the certificate of its parent.
pub(super) fn proposal(n: u16, header: &Header) -> SyncMessage {
    let (view, parent) = (header.block.view.0, (header.block.height.minus(1), header.block.parent));
    let is_first = view == 1 && parent == GENESIS;
    let parent = if is_first { Certificate::genesis(VOTE) } else { certificate(view, parent, weak(n)) };
    SyncMessage::Propose { header: header.clone(), parent }
}

/// Returns a lock of Sync HotStuff.
pub(super) fn lock(tip: Certificate) -> Lock {
    Lock { responsive: None, tip }
}

pub(super) fn new_view(view: u64, lock: &Lock) -> SyncMessage {
    SyncMessage::NewView { view: View(view), lock: lock.clone() }
}

/// Returns a forwarded NEW-VIEW.
pub(super) fn forward(n: u16, view: u64, lock: &Lock) -> SyncMessage {
    let body = SyncNewView { view: View(view), lock: lock.clone() };
    SyncMessage::Forward { new_view: Signed { body, by: leads(n, view), signature: SIGNATURE } }
}

pub(super) fn first_vote(view: u64, (height, base): End) -> SyncMessage {
    SyncMessage::FirstVote { view: View(view), height, base }
}

/// Returns blames of f + 1 replicas.
pub(super) fn blames(n: u16, view: u64) -> QuitEvidence {
    let votes: Vec<_> = (0..weak(n)).map(|id| (r(id), SIGNATURE)).collect();
    QuitEvidence::Blames(Certificate::of(blame(View(view)), &votes))
}

/// Returns an answer that reports nothing but its sender's stage.
pub(super) fn stands(stage: RecoveryStage) -> Answer {
    Answer::bare(Incarnation::ZERO, stage)
}

impl<V: Variant> TestForm for V {
    const ME: u16 = ME;
    const WARM_UP: u64 = 0;
    type Answer = Answer;

    fn answer_with(incarnation: Incarnation, stage: RecoveryStage) -> Answer {
        Answer::bare(incarnation, stage)
    }
    fn answer_message(answer: Answer) -> SyncMessage {
        SyncMessage::Answer(Box::new(answer))
    }
    fn stage_in(message: &SyncMessage) -> Option<RecoveryStage> {
        if let SyncMessage::Answer(answer) = message { Some(answer.stage) } else { None }
    }
    fn question(incarnation: Incarnation) -> SyncMessage {
        SyncMessage::Ask { incarnation, above: Height(0) }
    }
    fn is_question(message: &SyncMessage) -> bool {
        matches!(message, SyncMessage::Ask { .. })
    }
    fn is_status(message: &SyncMessage) -> bool {
        matches!(message, SyncMessage::Status { .. })
    }
    fn blamed(n: u16, view: u64) -> SyncMessage {
        SyncMessage::Evidence(blames(n, view))
    }
    fn blocks(count: u64) -> Vec<TestBlock<SyncMessage>> {
        let headers = chain(N, 1, GENESIS, &(1..=count).collect::<Vec<_>>());
        let block = |header: &Header| TestBlock {
            block: header.block.clone(),
            proposal: proposal(N, header),
            vote: voted(header),
        };
        headers.iter().map(block).collect()
    }
}

impl<V: Variant> Bench<V> {
    /// The leader proposes a header.
    pub(super) fn propose(&mut self, header: &Header) {
        self.take(header.block.proposer.0, proposal(self.n, header));
    }

    /// These replicas vote for a header.
    pub(super) fn vote(&mut self, voters: impl IntoIterator<Item = u16>, header: &Header) {
        for voter in voters {
            self.take(voter, voted(header));
        }
    }

    /// Proposes these headers one after the other. This replica and f others vote for each.
    pub(super) fn grow(&mut self, headers: &[Header]) {
        for header in headers {
            self.propose(header);
            self.replica.settle();
            self.vote(self.few(), header);
        }
    }

    /// f + 1 replicas blame the current view.
    pub(super) fn blame(&mut self) {
        let (view, peer) = (self.view(), self.peers()[0]);
        self.take(peer, SyncMessage::Evidence(blames(self.n, view)));
    }

    /// Lets time pass. Nothing is written.
    pub(super) fn wait(&mut self, ns: u64) {
        self.replica.advance(ns);
    }

    /// Returns the blocks of its votes in the steady state.
    pub(super) fn votes(&mut self) -> Vec<BlockId> {
        votes_in(&self.said())
    }

    /// Returns the bases of its first votes.
    pub(super) fn first_votes(&mut self) -> Vec<BlockId> {
        let said = self.said();
        said.iter()
            .filter_map(|it| if let SyncMessage::FirstVote { base, .. } = it { Some(*base) } else { None })
            .collect()
    }

    pub(super) fn alarms(&self) -> Vec<String> {
        self.replica.alarms().iter().map(|alarm| format!("{alarm:?}")).collect()
    }
}

pub(super) fn votes_in(said: &[SyncMessage]) -> Vec<BlockId> {
    said.iter()
        .filter_map(|it| if let SyncMessage::Vote(header) = it { Some(id(&header.body)) } else { None })
        .collect()
}

pub(super) fn evidence_in(said: &[SyncMessage]) -> Vec<QuitEvidence> {
    said.iter()
        .filter_map(|it| if let SyncMessage::Evidence(it) = it { Some(it.clone()) } else { None })
        .collect()
}

/// Returns two statements of a leader as evidence.
pub(super) fn conflict(first: Signed<LeaderStatement>, second: Signed<LeaderStatement>) -> QuitEvidence {
    QuitEvidence::Conflict(Box::new((first, second)))
}
