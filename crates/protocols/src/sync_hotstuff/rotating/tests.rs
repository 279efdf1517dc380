//! Sentences of §11, one test each, named after the rules of the module's table; and what may break them: claims,
//! encodings, crashes, floods.

mod bounds;
mod claims;
mod codec;
mod coming_back;
mod commit;
mod deceit;
mod leaders;
mod random;
mod records;
mod shows;
mod views;
mod votes;

use super::super::words::blame;
use super::message::{Answer, RotatingMessage};
use super::words::{Evidence, Header, vote};
use super::{RotatingSyncHotStuff, leader};
use quorate_consensus::harness::{Harness, Setup, payload};
use quorate_consensus::parts::chain::{Tip, bind_certificate, empty_payload};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Alarm, Certificate, Claims, Commit, Message, Reject, Signed, To};
use quorate_types::{Block, BlockId, Height, Incarnation, ReplicaId, Signature, Time, View};

pub(super) const SIGNATURE: Signature = Signature([0; 64]);
pub(super) const GENESIS: Tip = Tip::GENESIS;
/// Somebody has handed on two words of a leader that contradict each other.
pub(super) const CONTRADICTED: Reject = Reject::NotNow("its leader has contradicted itself");
/// f = 2, f + 1 = 3.
pub(super) const N: u16 = 5;
/// Leads view 5, and 10.
pub(super) const ME: u16 = 4;

pub(super) fn r(id: u16) -> ReplicaId {
    ReplicaId(id)
}

/// So many Δ, as a timer.
pub(super) fn delta(count: u64) -> u64 {
    SynchronyParams::default().delta().times(count)
}

/// A quarter of Δ.
pub(super) fn quarter() -> u64 {
    SynchronyParams::default().delta().quarter()
}

/// τ.
pub(super) fn heartbeat() -> u64 {
    SynchronyParams::default().heartbeat_ns()
}

pub(super) fn leads(view: u64) -> ReplicaId {
    r(u16::try_from((view - 1) % u64::from(N)).unwrap())
}

/// What an honest leader of a view proposes on top of a block; `number` tells blocks apart. It carries something.
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

/// The same, and it carries nothing.
pub(super) fn empty(view: u64, on: Tip, number: u64) -> Header {
    let mut header = header(view, on, number);
    header.block.payload = empty_payload();
    header
}

/// Headers of one view after the other, each on top of the last.
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

/// As its leader has signed it.
pub(super) fn signed(header: &Header) -> Signed<Header> {
    Signed { body: header.clone(), by: header.block.proposer, signature: SIGNATURE }
}

/// Somebody's vote.
pub(super) fn voted(header: &Header) -> RotatingMessage {
    RotatingMessage::Vote(signed(header))
}

/// Votes of replicas 0, 1, … for a block in a view.
pub(super) fn certificate(view: u64, block: BlockId, signers: u16) -> Certificate {
    let votes: Vec<_> = (0..signers).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(vote(View(view), block), &votes)
}

/// f + 1 votes for a block.
pub(super) fn certified(header: &Header) -> Certificate {
    certificate(header.block.view.0, id(header), 3)
}

pub(super) fn shows(header: &Header) -> RotatingMessage {
    RotatingMessage::Certified(certified(header))
}

/// The proposal of a header, with the certificate of its parent.
pub(super) fn proposal(header: &Header) -> RotatingMessage {
    let (view, parent) = (header.parent_view, header.block.parent);
    let is_first = view == View::ZERO;
    let parent = if is_first { Certificate::genesis(super::VOTE) } else { certificate(view.0, parent, 3) };
    RotatingMessage::Propose { header: header.clone(), parent }
}

pub(super) fn status(view: u64, lock: Certificate) -> RotatingMessage {
    RotatingMessage::Status { view: View(view), lock }
}

/// f + 1 replicas blame a view.
pub(super) fn blames(view: u64) -> Certificate {
    let votes: Vec<_> = (0..3).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(blame(View(view)), &votes)
}

pub(super) fn blamed(view: u64) -> RotatingMessage {
    RotatingMessage::Evidence(Evidence::Blames(blames(view)))
}

/// Two proposals of a leader, as evidence.
pub(super) fn conflict(first: &Header, second: &Header) -> Evidence {
    Evidence::Conflict(Box::new((signed(first), signed(second))))
}

/// An answer that tells nothing but where its sender stands.
pub(super) fn stands(standing: Standing) -> Answer {
    Answer::bare(Incarnation::ZERO, standing)
}

/// What the intake says of what a message claims, before it looks at any signature.
pub(super) fn claims_hold(message: &RotatingMessage) -> Result<(), &'static str> {
    let committee = Setup::of::<RotatingSyncHotStuff>(usize::from(N)).committee::<RotatingSyncHotStuff>();
    let mut claims = Claims::new(&committee, 3);
    message.claims(&mut claims);
    claims.finish().map(|_| ())
}

/// One replica, and what it hears.
pub(super) struct Bench {
    pub(super) replica: Harness<RotatingSyncHotStuff>,
}

impl Bench {
    /// Opened, and silent.
    pub(super) fn opened(me: u16) -> Self {
        let setup = Setup::of::<RotatingSyncHotStuff>(usize::from(N));
        Self { replica: Harness::open(r(me), setup, &SynchronyParams::default()).unwrap() }
    }

    /// Opened, and running, long enough after the start that nothing is cut off at zero.
    pub(super) fn running(me: u16) -> Self {
        let mut bench = Self::opened(me);
        bench.replica.advance(delta(20));
        bench.run();
        bench.clear();
        bench
    }

    /// The usual replica of five.
    pub(super) fn new() -> Self {
        Self::running(ME)
    }

    /// All peers answer, and then say that they run.
    pub(super) fn run(&mut self) {
        self.answers(&stands(Standing::Silent));
        self.answers(&stands(Standing::Running));
        assert_eq!(self.standing(), Standing::Running);
    }

    /// All peers say the same.
    pub(super) fn answers(&mut self, answer: &Answer) {
        for peer in self.peers() {
            self.take(peer, RotatingMessage::Answer(Box::new(answer.clone())));
        }
        if self.standing() == Standing::Silent {
            // Whoever was reached has its time to answer.
            self.replica.advance(delta(2));
        }
    }

    pub(super) fn peers(&self) -> Vec<u16> {
        (0..N).filter(|id| r(*id) != self.replica.me()).collect()
    }

    pub(super) fn deliver(&mut self, from: u16, message: RotatingMessage) -> Result<(), Reject> {
        self.replica.deliver(r(from), message)
    }

    /// Delivers what must be taken.
    pub(super) fn take(&mut self, from: u16, message: RotatingMessage) {
        let words = format!("{message:?}");
        assert_eq!(self.deliver(from, message), Ok(()), "{words}");
    }

    /// Its leader proposes a header.
    pub(super) fn propose(&mut self, header: &Header) {
        self.take(header.block.proposer.0, proposal(header));
    }

    /// Votes of these replicas for a header.
    pub(super) fn vote(&mut self, voters: impl IntoIterator<Item = u16>, header: &Header) {
        for voter in voters {
            let _ = self.deliver(voter, voted(header));
        }
    }

    /// f peers: with this replica they are enough for a certificate.
    pub(super) fn few(&self) -> Vec<u16> {
        self.peers()[..2].to_vec()
    }

    /// These headers are proposed one after the other, and voted for by this replica and by few others.
    pub(super) fn grow(&mut self, headers: &[Header]) {
        for header in headers {
            self.propose(header);
            self.replica.settle();
            self.vote(self.few(), header);
            assert_eq!(self.view(), header.block.view.0 + 1);
        }
    }

    /// f + 1 blame the current view, and the next one begins.
    pub(super) fn next_view(&mut self) {
        let view = self.view();
        self.take(0, blamed(view));
        self.pass(delta(1));
        self.replica.settle();
        assert_eq!(self.view(), view + 1);
    }

    /// Time passes. The disk keeps up.
    pub(super) fn pass(&mut self, ns: u64) {
        self.replica.settle();
        self.replica.advance(ns);
    }

    pub(super) fn view(&self) -> u64 {
        self.replica.status().view.0
    }

    /// Whether the view was left, or nothing may be said.
    pub(super) fn is_quiet(&self) -> bool {
        !self.replica.status().normal
    }

    pub(super) fn standing(&self) -> Standing {
        self.replica.protocol().returning.standing()
    }

    pub(super) fn now(&self) -> Time {
        self.replica.now()
    }

    /// What leaves when the disk has everything.
    pub(super) fn said(&mut self) -> Vec<RotatingMessage> {
        self.replica.settle();
        self.sent()
    }

    /// What has left.
    pub(super) fn sent(&mut self) -> Vec<RotatingMessage> {
        self.replica.sent().into_iter().map(|(_, message)| message).collect()
    }

    /// The blocks that it votes for.
    pub(super) fn votes(&mut self) -> Vec<BlockId> {
        votes_in(&self.said())
    }

    /// What was committed since the last call.
    pub(super) fn committed(&mut self) -> Vec<BlockId> {
        let committed = self.replica.committed().into_iter();
        let chains = committed.map(|what| match what {
            Commit::Chain(id) => id,
            Commit::At(..) => panic!("chains commit with their ancestors"),
        });
        chains.collect()
    }

    /// Forgets what happened so far.
    pub(super) fn clear(&mut self) {
        self.replica.settle();
        self.replica.sent();
        self.replica.lines();
        self.replica.wanted();
        self.replica.committed();
        self.replica.asked_fresh();
    }

    pub(super) fn doubts(&self) -> Vec<&'static str> {
        let why = |alarm: &Alarm| match alarm {
            Alarm::SynchronyDoubt { why, .. } => *why,
            other => panic!("{other}"),
        };
        self.replica.alarms().iter().map(why).collect()
    }
}

pub(super) fn votes_in(said: &[RotatingMessage]) -> Vec<BlockId> {
    said.iter()
        .filter_map(|it| if let RotatingMessage::Vote(header) = it { Some(id(&header.body)) } else { None })
        .collect()
}

pub(super) fn evidence_in(said: &[RotatingMessage]) -> Vec<Evidence> {
    said.iter()
        .filter_map(|it| if let RotatingMessage::Evidence(it) = it { Some(it.clone()) } else { None })
        .collect()
}

pub(super) fn certified_in(said: &[RotatingMessage]) -> Vec<BlockId> {
    said.iter()
        .filter_map(|it| if let RotatingMessage::Certified(it) = it { Some(it.block()) } else { None })
        .collect()
}

/// What was proposed, and on what.
pub(super) fn proposed_in(said: &[RotatingMessage]) -> Vec<(View, BlockId)> {
    said.iter()
        .filter_map(|it| {
            let RotatingMessage::Propose { header, parent } = it else { return None };
            assert_eq!((header.parent_view, header.block.parent), (parent.view(), parent.block()));
            Some((header.block.view, parent.block()))
        })
        .collect()
}

/// Where a line stands that begins so.
pub(super) fn line(lines: &[String], start: &str) -> usize {
    let found = lines.iter().position(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start}: {lines:#?}"))
}

/// A message to one replica.
pub(super) fn to_one(sent: Vec<(To, RotatingMessage)>) -> Vec<(u16, RotatingMessage)> {
    let one = |(to, message)| if let To::One(peer) = to { Some((peer.0, message)) } else { None };
    sent.into_iter().filter_map(one).collect()
}

#[test]
fn leaders_take_turns() {
    let committee = Setup::of::<RotatingSyncHotStuff>(usize::from(N)).committee::<RotatingSyncHotStuff>();
    let leads: Vec<u16> = (1..=7).map(|view| leader(&committee, View(view)).0).collect();
    assert_eq!(leads, [0, 1, 2, 3, 4, 0, 1]);
}
