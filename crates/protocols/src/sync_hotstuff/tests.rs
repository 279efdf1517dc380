//! Sentences of the papers, one test each, named after the rules of the module's table; and what may break them: claims,
//! encodings, crashes, floods.

pub(super) mod attacks;
mod bounds;
mod claims;
mod codec;
mod coming_back;
mod commit;
mod floods;
mod locks;
mod missed;
mod normal;
mod optimistic;
mod proposals;
mod random;
mod records;
mod split;
mod view_change;

use super::message::{Answer, SyncMessage};
use super::normal::End;
use super::words::{Evidence, Header, Lock, Word, bind_base, blame, vote};
use super::{NewViewWord, Optimistic, Plain, SyncHotStuff, VOTE, Variant, noted};
use quorate_consensus::harness::{Harness, Setup};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Certificate, Claims, Commit, Message, Reject, Signed, To};
use quorate_types::{Block, BlockId, Height, Incarnation, ReplicaId, Signature, Time, View};

pub(super) const SIGNATURE: Signature = Signature([0; 64]);
/// The end of the chain on which the first view goes on.
pub(super) const GENESIS: End = (Height::ZERO, BlockId::ZERO);
/// Somebody has handed on two words of a leader that contradict each other.
pub(super) const CONTRADICTED: Reject = Reject::NotNow("its leader has contradicted itself");
/// f = 2, f + 1 = 3, q_R = 4.
pub(super) const N: u16 = 5;
/// Leads view 4.
pub(super) const ME: u16 = 3;

/// The rule by which a replica has committed, as its note in the trace names it.
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

/// A test of a rule that both variants have.
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

pub(super) fn leads(n: u16, view: u64) -> ReplicaId {
    r(u16::try_from((view - 1) % u64::from(n)).unwrap())
}

/// f + 1.
pub(super) fn weak(n: u16) -> u16 {
    (n - 1) / 2 + 1
}

/// What an honest leader of a view proposes on top of a block; `number` tells blocks apart.
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

/// Headers of a view, one on top of the other, above its base.
pub(super) fn chain(n: u16, view: u64, base: End, numbers: &[u64]) -> Vec<Header> {
    chain_on(n, view, base.1, base, numbers)
}

/// Headers of a view, one on top of the other, above a block.
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

/// As its leader has signed it.
pub(super) fn signed(header: &Header) -> Signed<Header> {
    Signed { body: header.clone(), by: header.block.proposer, signature: SIGNATURE }
}

/// Somebody's vote.
pub(super) fn voted(header: &Header) -> SyncMessage {
    SyncMessage::Vote(signed(header))
}

/// Votes of replicas 0, 1, … for a block in a view.
pub(super) fn certificate(view: u64, (height, block): End, signers: u16) -> Certificate {
    let votes: Vec<_> = (0..signers).map(|id| (r(id), SIGNATURE)).collect();
    Certificate::of(vote(View(view), height, block), &votes)
}

/// f + 1 votes for a block in its own view.
pub(super) fn certified(n: u16, header: &Header) -> Certificate {
    certificate(header.block.view.0, end(header), weak(n))
}

/// The proposal of a header, with the certificate of its parent.
pub(super) fn proposal(n: u16, header: &Header) -> SyncMessage {
    let (view, parent) = (header.block.view.0, (header.block.height.minus(1), header.block.parent));
    let is_first = view == 1 && parent == GENESIS;
    let parent = if is_first { Certificate::genesis(VOTE) } else { certificate(view, parent, weak(n)) };
    SyncMessage::Propose { header: header.clone(), parent }
}

/// The lock of Sync HotStuff.
pub(super) fn lock(tip: Certificate) -> Lock {
    Lock { responsive: None, tip }
}

pub(super) fn new_view(view: u64, lock: &Lock) -> SyncMessage {
    SyncMessage::NewView { view: View(view), lock: lock.clone() }
}

/// What a view's leader has said, handed on.
pub(super) fn forward(n: u16, view: u64, lock: &Lock) -> SyncMessage {
    let body = NewViewWord { view: View(view), lock: lock.clone() };
    SyncMessage::Forward { word: Signed { body, by: leads(n, view), signature: SIGNATURE } }
}

pub(super) fn first_vote(view: u64, (height, base): End) -> SyncMessage {
    SyncMessage::FirstVote { view: View(view), height, base }
}

/// f + 1 replicas blame a view.
pub(super) fn blames(n: u16, view: u64) -> Evidence {
    let votes: Vec<_> = (0..weak(n)).map(|id| (r(id), SIGNATURE)).collect();
    Evidence::Blames(Certificate::of(blame(View(view)), &votes))
}

/// An answer that tells nothing but where its sender stands.
pub(super) fn stands(standing: Standing) -> Answer {
    Answer::bare(Incarnation::ZERO, standing)
}

/// What the intake says of what a message claims, before it looks at any signature.
pub(super) fn claims_hold<V: Variant>(message: &SyncMessage) -> Result<(), &'static str> {
    let committee = Setup::of::<SyncHotStuff<V>>(usize::from(N)).committee::<SyncHotStuff<V>>();
    let mut claims = Claims::new(&committee, usize::from(weak(N)));
    message.claims(&mut claims);
    claims.finish().map(|_| ())
}

/// One replica, and what it hears.
pub(super) struct Bench<V: Variant> {
    pub(super) replica: Harness<SyncHotStuff<V>>,
    pub(super) n: u16,
}

impl<V: Variant> Bench<V> {
    /// Opened, and silent.
    pub(super) fn opened(me: u16, n: u16) -> Self {
        let setup = Setup::of::<SyncHotStuff<V>>(usize::from(n));
        let replica = Harness::open(r(me), setup, &SynchronyParams::default()).unwrap();
        Self { replica, n }
    }

    /// Opened, and running.
    pub(super) fn running(me: u16, n: u16) -> Self {
        let mut bench = Self::opened(me, n);
        bench.run();
        bench.clear();
        bench
    }

    /// The usual replica of five.
    pub(super) fn new() -> Self {
        Self::running(ME, N)
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
            self.take(peer, SyncMessage::Answer(Box::new(answer.clone())));
        }
        if self.standing() == Standing::Silent {
            // Whoever was reached has its time to answer.
            self.replica.advance(delta(2));
        }
    }

    pub(super) fn peers(&self) -> Vec<u16> {
        (0..self.n).filter(|id| r(*id) != self.replica.me()).collect()
    }

    pub(super) fn deliver(&mut self, from: u16, message: SyncMessage) -> Result<(), Reject> {
        self.replica.deliver(r(from), message)
    }

    /// Delivers what must be taken.
    pub(super) fn take(&mut self, from: u16, message: SyncMessage) {
        let words = format!("{message:?}");
        assert_eq!(self.deliver(from, message), Ok(()), "{words}");
    }

    /// Its leader proposes a header.
    pub(super) fn propose(&mut self, header: &Header) {
        self.take(header.block.proposer.0, proposal(self.n, header));
    }

    /// Votes of these replicas for a header.
    pub(super) fn vote(&mut self, voters: impl IntoIterator<Item = u16>, header: &Header) {
        for voter in voters {
            self.take(voter, voted(header));
        }
    }

    /// f peers: with this replica they are enough for a certificate, and too few for one of q_R votes.
    pub(super) fn few(&self) -> Vec<u16> {
        self.peers()[..usize::from(weak(self.n)) - 1].to_vec()
    }

    /// These headers are proposed one after the other, and voted for by this replica and by few others.
    pub(super) fn grow(&mut self, headers: &[Header]) {
        for header in headers {
            self.propose(header);
            self.replica.settle();
            self.vote(self.few(), header);
        }
    }

    /// f + 1 blame the current view.
    pub(super) fn blame(&mut self) {
        let (view, peer) = (self.view(), self.peers()[0]);
        self.take(peer, SyncMessage::Evidence(blames(self.n, view)));
    }

    /// f + 1 blame the current view, and the next one begins.
    pub(super) fn next_view(&mut self) {
        let view = self.view();
        self.blame();
        self.pass(delta(V::WAIT));
        self.replica.settle();
        assert_eq!(self.view(), view + 1);
    }

    /// Time passes. The disk keeps up.
    pub(super) fn pass(&mut self, ns: u64) {
        self.replica.settle();
        self.replica.advance(ns);
    }

    /// Time passes, and nothing is written.
    pub(super) fn wait(&mut self, ns: u64) {
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
    pub(super) fn said(&mut self) -> Vec<SyncMessage> {
        self.replica.settle();
        self.sent()
    }

    /// What has left.
    pub(super) fn sent(&mut self) -> Vec<SyncMessage> {
        self.replica.sent().into_iter().map(|(_, message)| message).collect()
    }

    /// The blocks that it votes for in the steady state.
    pub(super) fn votes(&mut self) -> Vec<BlockId> {
        votes_in(&self.said())
    }

    /// The bases that it votes for.
    pub(super) fn first_votes(&mut self) -> Vec<BlockId> {
        let said = self.said();
        said.iter()
            .filter_map(|it| if let SyncMessage::FirstVote { base, .. } = it { Some(*base) } else { None })
            .collect()
    }

    /// What was committed since the last call.
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

    /// Forgets what happened so far.
    pub(super) fn clear(&mut self) {
        self.replica.settle();
        self.replica.sent();
        self.replica.lines();
        self.replica.wanted();
        self.replica.committed();
        self.replica.notes();
        self.replica.asked_fresh();
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

pub(super) fn evidence_in(said: &[SyncMessage]) -> Vec<Evidence> {
    said.iter()
        .filter_map(|it| if let SyncMessage::Evidence(it) = it { Some(it.clone()) } else { None })
        .collect()
}

/// Where a line stands that begins so.
pub(super) fn line(lines: &[String], start: &str) -> usize {
    let found = lines.iter().position(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start}: {lines:#?}"))
}

/// A message to one replica.
pub(super) fn to_one(sent: Vec<(To, SyncMessage)>) -> Vec<(u16, SyncMessage)> {
    let one = |(to, message)| if let To::One(peer) = to { Some((peer.0, message)) } else { None };
    sent.into_iter().filter_map(one).collect()
}

/// Two words of a leader, as evidence.
pub(super) fn conflict(first: Signed<Word>, second: Signed<Word>) -> Evidence {
    Evidence::Conflict(Box::new((first, second)))
}
