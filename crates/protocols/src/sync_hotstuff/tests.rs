//! Helpers of the tests of all forms, and tests that all forms have in common.

mod attacks;
mod bounds;
mod leaders;
mod records;
mod recovery;
pub(super) mod strategies;

use super::replica::{Form, noted};
use super::rotating::Rotating;
use super::statements::leader;
use super::{Optimistic, Plain, SyncHotStuff};
pub(super) use attacks::Attacker;
use quorate_consensus::harness::{Harness, Setup};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Alarm, Claims, Commit, Message, Reject, To};
use quorate_types::{Block, BlockId, Incarnation, ReplicaId, Signature, Time, View};

pub(super) const SIGNATURE: Signature = Signature([0; 64]);
/// Verdict on a replica that has handed on two conflicting statements of a leader.
pub(super) const CONFLICT: Reject = Reject::NotNow("its leader has equivocated");
/// f = 2, f + 1 = 3, q_R = 4.
pub(super) const N: u16 = 5;

/// Tests of rules that all forms have. Each has a name for the stable forms and one for the rotating form.
macro_rules! every_form {
    ($($stable:ident / $rotating:ident: $body:ident;)*) => {
        mod plain {
            $(#[test] fn $stable() { super::$body::<super::Plain>(); })*
        }
        mod optimistic {
            $(#[test] fn $stable() { super::$body::<super::Optimistic>(); })*
        }
        mod rotating {
            $(#[test] fn $rotating() { super::$body::<super::Rotating>(); })*
        }
    };
}
use every_form;

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

/// Returns the leader of a view among n replicas.
pub(super) fn leads(n: u16, view: u64) -> ReplicaId {
    r(u16::try_from((view - 1) % u64::from(n)).unwrap())
}

/// Returns f + 1.
pub(super) fn weak(n: u16) -> u16 {
    (n - 1) / 2 + 1
}

/// Returns the position of the first line with this beginning.
pub(super) fn line(lines: &[String], start: &str) -> usize {
    let found = lines.iter().position(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start}: {lines:#?}"))
}

/// Returns messages to one replica.
pub(super) fn to_one<M>(sent: Vec<(To, M)>) -> Vec<(u16, M)> {
    let one = |(to, message)| if let To::One(peer) = to { Some((peer.0, message)) } else { None };
    sent.into_iter().filter_map(one).collect()
}

/// Whether a message has a statement of its sender.
pub(super) fn is_own_statement<M: Message>(message: &M) -> bool {
    message.auth().statement().is_some()
}

/// Returns the verdict of the intake on the claims of a message, before any signature is verified.
pub(super) fn claims_hold<F: Form>(message: &F::Message) -> Result<(), &'static str> {
    let committee = Setup::of::<SyncHotStuff<F>>(usize::from(N)).committee::<SyncHotStuff<F>>();
    let mut claims = Claims::new(&committee, usize::from(weak(N)));
    message.claims(&mut claims);
    claims.finish().map(|_| ())
}

/// Rule of a commit, as its note in the trace names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommitRule {
    /// Silence for 2 Δ.
    Timer,
    /// q_R votes.
    Votes,
}

impl CommitRule {
    fn of(note: &str) -> Option<Self> {
        match note {
            noted::COMMITTED => Some(Self::Timer),
            noted::COMMITTED_BY_VOTES => Some(Self::Votes),
            _ => None,
        }
    }
}

/// A block with the messages that propose it and vote for it.
pub(super) struct TestBlock<M> {
    pub(super) block: Block,
    pub(super) proposal: M,
    pub(super) vote: M,
}

/// Messages of a form.
pub(super) trait TestForm: Form {
    /// The usual replica under test.
    const ME: u16;
    /// Time before the usual replica runs.
    const WARM_UP: u64;
    /// Content of an ANSWER.
    type Answer: Clone;

    /// Returns an answer that reports nothing but its sender's stage.
    fn answer_with(incarnation: Incarnation, stage: RecoveryStage) -> Self::Answer;
    /// Returns the message with this answer.
    fn answer_message(answer: Self::Answer) -> Self::Message;
    /// Returns the stage in an ANSWER.
    fn stage_in(message: &Self::Message) -> Option<RecoveryStage>;
    /// Returns the question of a recovering peer.
    fn question(incarnation: Incarnation) -> Self::Message;
    /// Whether a message is such a question.
    fn is_question(message: &Self::Message) -> bool;
    /// Whether a message reports a lock.
    fn is_status(message: &Self::Message) -> bool;
    /// Returns evidence that f + 1 of n replicas blame a view.
    fn blamed(n: u16, view: u64) -> Self::Message;
    /// Returns the first blocks of a chain that honest leaders propose from the first view on.
    fn blocks(count: u64) -> Vec<TestBlock<Self::Message>>;
}

/// One replica under test.
pub(super) struct Bench<F: TestForm> {
    pub(super) replica: Harness<SyncHotStuff<F>>,
    pub(super) n: u16,
}

impl<F: TestForm> Bench<F> {
    /// Returns a replica that was opened and is silent.
    pub(super) fn opened(me: u16, n: u16) -> Self {
        let setup = Setup::of::<SyncHotStuff<F>>(usize::from(n));
        let replica = Harness::open(r(me), setup, &SynchronyParams::default()).unwrap();
        Self { replica, n }
    }

    /// Returns a replica that runs.
    pub(super) fn running(me: u16, n: u16) -> Self {
        let mut bench = Self::opened(me, n);
        bench.replica.advance(F::WARM_UP);
        bench.run();
        bench.clear();
        bench
    }

    /// Returns the usual running replica of five.
    pub(super) fn new() -> Self {
        Self::running(F::ME, N)
    }

    /// All peers answer, and then report that they run.
    pub(super) fn run(&mut self) {
        for stage in [RecoveryStage::Silent, RecoveryStage::Running] {
            self.answers(&F::answer_with(Incarnation::ZERO, stage));
        }
        assert_eq!(self.stage(), RecoveryStage::Running);
    }

    /// All peers send the same answer.
    pub(super) fn answers(&mut self, answer: &F::Answer) {
        for peer in self.peers() {
            self.take(peer, F::answer_message(answer.clone()));
        }
        if self.stage() == RecoveryStage::Silent {
            // Peers that were reached have their time to answer.
            self.replica.advance(delta(2));
        }
    }

    /// A peer reports its stage.
    pub(super) fn report(&mut self, peer: u16, stage: RecoveryStage) {
        self.take(peer, F::answer_message(F::answer_with(Incarnation::ZERO, stage)));
    }

    pub(super) fn peers(&self) -> Vec<u16> {
        (0..self.n).filter(|id| r(*id) != self.replica.me()).collect()
    }

    /// Returns f peers: with this replica they suffice for a certificate, but not for one of q_R votes.
    pub(super) fn few(&self) -> Vec<u16> {
        self.peers()[..usize::from(weak(self.n)) - 1].to_vec()
    }

    pub(super) fn deliver(&mut self, from: u16, message: F::Message) -> Result<(), Reject> {
        self.replica.deliver(r(from), message)
    }

    /// Delivers a message that must be accepted.
    pub(super) fn take(&mut self, from: u16, message: F::Message) {
        let text = format!("{message:?}");
        assert_eq!(self.deliver(from, message), Ok(()), "{text}");
    }

    /// Proposes these blocks one after the other. This replica and f others vote for each.
    pub(super) fn extend(&mut self, blocks: &[TestBlock<F::Message>]) {
        for TestBlock { block, proposal, vote } in blocks {
            self.take(block.proposer.0, proposal.clone());
            self.replica.settle();
            for voter in self.few() {
                self.take(voter, vote.clone());
            }
        }
    }

    /// f + 1 replicas blame the current view, and the next one begins.
    pub(super) fn next_view(&mut self) {
        let (view, peer) = (self.view(), self.peers()[0]);
        self.take(peer, F::blamed(self.n, view));
        self.pass(delta(F::WAIT));
        self.replica.settle();
        assert_eq!(self.view(), view + 1);
    }

    /// Lets time pass. The disk keeps up.
    pub(super) fn pass(&mut self, ns: u64) {
        self.replica.settle();
        self.replica.advance(ns);
    }

    pub(super) fn view(&self) -> u64 {
        self.replica.status().view.0
    }

    /// Whether the view was left, or nothing may be signed.
    pub(super) fn is_quiet(&self) -> bool {
        !self.replica.status().normal
    }

    pub(super) fn stage(&self) -> RecoveryStage {
        self.replica.protocol().recovery.stage()
    }

    pub(super) fn now(&self) -> Time {
        self.replica.now()
    }

    /// Returns messages that have left when the disk has everything.
    pub(super) fn said(&mut self) -> Vec<F::Message> {
        self.replica.settle();
        self.sent()
    }

    /// Returns messages that have left.
    pub(super) fn sent(&mut self) -> Vec<F::Message> {
        self.replica.sent().into_iter().map(|(_, message)| message).collect()
    }

    /// Returns statements of this replica.
    pub(super) fn own_statements(&mut self) -> Vec<F::Message> {
        self.said().into_iter().filter(is_own_statement).collect()
    }

    /// Returns commits since the last call.
    pub(super) fn committed(&mut self) -> Vec<(BlockId, CommitRule)> {
        let rules: Vec<CommitRule> =
            self.replica.notes().iter().filter_map(|note| CommitRule::of(note.what)).collect();
        let committed = self.replica.committed();
        assert_eq!(committed.len(), rules.len(), "each commit is noted with its rule");
        let chains = committed.into_iter().zip(rules).map(|(what, rule)| match what {
            Commit::Chain(id) => (id, rule),
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

    /// Returns the reasons of all alarms, which are doubts of the bound.
    pub(super) fn doubts(&self) -> Vec<&'static str> {
        let why = |alarm: &Alarm| match alarm {
            Alarm::SynchronyDoubt { why, .. } => *why,
            other => panic!("{other}"),
        };
        self.replica.alarms().iter().map(why).collect()
    }

    /// Returns the length of the state as text: a measure of the memory.
    pub(super) fn size(&self) -> usize {
        format!("{:?}", self.replica.protocol()).len()
    }
}

#[test]
fn leaders_take_turns() {
    let committee = Setup::of::<SyncHotStuff<Plain>>(usize::from(N)).committee::<SyncHotStuff<Plain>>();
    for view in 1..=7 {
        assert_eq!(leader(&committee, View(view)), leads(N, view));
    }
    assert_eq!([1, 5, 6, 7].map(|view| leads(N, view).0), [0, 4, 0, 1]);
}
