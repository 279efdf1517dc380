//! Tests of rules that chained protocols have in common. Each protocol's own `tests.rs` names them after its rules.

use quorate_consensus::harness::{Harness, Setup, payload};
use quorate_consensus::parts::chain::{bind_certificate, empty_payload};
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
pub(crate) use quorate_consensus::parts::words::Said;
use quorate_consensus::parts::words::Words;
use quorate_consensus::{Certificate, Claims, LinkEvent, Message, Protocol, Ready, Reject, Signed, To};
use quorate_types::{Block, BlockId, Height, Kind, ReplicaId, Signature, Time, View};

const MS: u64 = 1_000_000;
pub(crate) const SIGNATURE: Signature = Signature([0; 64]);

/// How to speak a chained protocol.
pub(crate) trait Chained: Protocol<Message: Words> {
    /// Certificates in a row that commit.
    const LINKS: u64;
    const VOTE: Kind = Self::Message::VOTE;

    /// Parameters with another leader in each view, as in the paper: what the rules are tested with.
    fn round_robin() -> Self::Params;
    fn propose(block: Block, proof: ViewProof) -> Self::Message {
        Said::Propose(block, proof).into()
    }
    fn vote(vote: BlockVote) -> Self::Message {
        Said::Vote(vote).into()
    }
    fn give_up(view: View, proof: ViewProof, last_vote: Option<Signed<BlockVote>>) -> Self::Message {
        Said::GiveUp(view, proof, last_vote).into()
    }
    fn show(proof: ViewProof) -> Self::Message {
        Said::Show(proof).into()
    }
    fn heard(message: &Self::Message) -> Said {
        message.clone().into()
    }
}

pub(crate) fn r(id: u16) -> ReplicaId {
    ReplicaId(id)
}

/// Votes of replicas 0, 1 and 2 for a block.
pub(crate) fn qc<P: Chained>(block: &Block) -> Certificate {
    let vote = BlockVote { view: block.view, block: block.id() };
    Certificate::of(vote.statement(P::VOTE), &[0, 1, 2].map(|id| (r(id), SIGNATURE)))
}

/// A block on top of a certificate; round-robin says who proposes it.
pub(crate) fn on(qc: &Certificate, height: u64, view: u64) -> Block {
    Block {
        parent: qc.block(),
        height: Height(height),
        view: View(view),
        proposer: r(u16::try_from(view % 4).unwrap()),
        time_ns: 0,
        payload: empty_payload(),
        extra: bind_certificate(qc.view(), qc.block()),
    }
}

/// Replicas 0, 1 and 2 have given a view up, with certificates of these views.
pub(crate) fn given_up(view: u64, highs: [u64; 3]) -> TimeoutCertificate {
    let listed =
        (0..).zip(highs).map(|(id, high)| Signed { body: View(high), by: r(id), signature: SIGNATURE });
    TimeoutCertificate { view: View(view), listed: listed.collect() }
}

pub(crate) fn follows(qc: &Certificate) -> ViewProof {
    ViewProof { qc: qc.clone(), timeouts: None }
}

/// Replica 3 of four, and what it has heard.
pub(crate) struct Bench<P: Chained> {
    pub(crate) replica: Harness<P>,
    /// The chain so far: the certificate of its end, and its height.
    pub(crate) qc: Certificate,
    pub(crate) height: u64,
    pub(crate) blocks: Vec<Block>,
}

impl<P: Chained> Bench<P> {
    pub(crate) fn new() -> Self {
        Self::of(3)
    }

    pub(crate) fn of(me: u16) -> Self {
        let replica = Harness::open(r(me), Setup::of::<P>(4), &P::round_robin()).unwrap();
        Self { replica, qc: Certificate::genesis(P::VOTE), height: 0, blocks: Vec::new() }
    }

    /// The next block of the chain, in this view.
    pub(crate) fn next(&self, view: u64) -> Block {
        on(&self.qc, self.height + 1, view)
    }

    /// What lets into a view on top of the chain.
    pub(crate) fn proof(&self, view: u64) -> ViewProof {
        let timeouts = (self.qc.view().next() != View(view)).then(|| given_up(view - 1, [0; 3]));
        ViewProof { qc: self.qc.clone(), timeouts }
    }

    pub(crate) fn deliver(&mut self, from: ReplicaId, message: P::Message) -> Result<(), Reject> {
        self.replica.deliver(from, message)
    }

    /// The leader of a view proposes on top of the chain, and its block is certified.
    pub(crate) fn block_in(&mut self, view: u64) -> Block {
        let block = self.next(view);
        let proof = self.proof(view);
        self.deliver(block.proposer, P::propose(block.clone(), proof)).unwrap();
        self.certify(&block);
        block
    }

    pub(crate) fn certify(&mut self, block: &Block) {
        (self.qc, self.height) = (qc::<P>(block), block.height.0);
        self.blocks.push(block.clone());
    }

    /// Clients want something.
    pub(crate) fn busy(&mut self) {
        self.replica.waits(Some(Time(0)), false);
    }

    /// The timer of the view expires.
    pub(crate) fn expire(&mut self) {
        let at = self.replica.deadline().expect("a timer is set");
        let ns = at.since(self.replica.now());
        assert_eq!(self.replica.advance(ns), 1);
    }

    pub(crate) fn said(&mut self) -> Vec<Said> {
        self.replica.settle();
        self.replica.sent().iter().map(|(_, message)| P::heard(message)).collect()
    }

    pub(crate) fn votes(&mut self) -> Vec<BlockVote> {
        let said = self.said();
        said.into_iter()
            .filter_map(|said| if let Said::Vote(vote) = said { Some(vote) } else { None })
            .collect()
    }

    pub(crate) fn view(&self) -> View {
        self.replica.status().view
    }

    /// Ids of the chains that were committed.
    pub(crate) fn committed(&mut self) -> Vec<BlockId> {
        let committed = self.replica.committed();
        committed
            .into_iter()
            .map(|what| match what {
                quorate_consensus::Commit::Chain(id) => id,
                quorate_consensus::Commit::At(..) => panic!("chains commit with their ancestors"),
            })
            .collect()
    }
}

/// A certificate counts whatever is wrong with the message that carries it.
pub(crate) fn certificates_count_first<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let first = bench.block_in(1);
    let mut wrong = bench.next(2);
    wrong.proposer = r(0);
    let proof = bench.proof(2);
    assert_eq!(bench.deliver(r(0), P::propose(wrong, proof)), Err(Reject::WrongSender));
    assert_eq!(bench.view(), View(2), "the certificate of {first:?} has let it on");
    // Also from an old one, and from one that only shows.
    let second = bench.next(2);
    let shown = follows(&qc::<P>(&second));
    bench.deliver(r(0), P::show(shown)).unwrap();
    assert_eq!(bench.view(), View(3));
    assert_eq!(bench.replica.wanted().first().map(|(id, from)| (*id, *from)), Some((second.id(), r(0))));
}

/// What is made wrong of something.
type Change<T> = fn(&mut T);

/// Only the leader, only what fits, only with what lets into the view.
pub(crate) fn proposals_must_fit<P: Chained>() {
    let wrong: [(&str, Change<Block>); 6] = [
        ("parent", |block| block.parent = BlockId::null(Height(9))),
        ("height", |block| block.height = Height(7)),
        ("bound certificate", |block| block.extra = bind_certificate(View(0), block.parent)),
        ("view below its certificate", |block| block.view = View(1)),
        ("another leader's view", |block| block.view = View(3)),
        ("somebody else's", |block| block.proposer = r(0)),
    ];
    for (what, change) in wrong {
        let mut bench = Bench::<P>::new();
        bench.block_in(1);
        bench.said();
        let (mut block, proof) = (bench.next(2), bench.proof(2));
        change(&mut block);
        assert!(bench.deliver(r(2), P::propose(block, proof)).is_err(), "{what}");
        assert_eq!(bench.votes(), [], "{what}");
    }
    let mut bench = Bench::<P>::new();
    bench.block_in(1);
    bench.said();
    let (block, proof) = (bench.next(2), bench.proof(2));
    assert!(bench.deliver(r(1), P::propose(block.clone(), proof.clone())).is_err(), "from who does not lead");
    bench.deliver(r(2), P::propose(block.clone(), proof)).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(2), block: block.id() }]);
}

/// The block below is not here, so its height is not known: a height that no chain can have is refused all the same, or
/// the block would be kept for ever.
pub(crate) fn heights_rise_no_faster_than_views<P: Chained>() {
    for (height, fits) in [(2, true), (3, false), (u64::MAX, false)] {
        let mut bench = Bench::<P>::new();
        let below = bench.next(1);
        bench.certify(&below);
        let (mut block, proof) = (bench.next(2), bench.proof(2));
        block.height = Height(height);
        let id = block.id();
        assert_eq!(bench.deliver(r(2), P::propose(block, proof)).is_ok(), fits, "{height}");
        assert_eq!(bench.replica.block(id).is_some(), fits, "{height}");
    }
}

/// A proposal after a view without a certificate shows who has given it up.
pub(crate) fn a_skipped_view_must_be_shown<P: Chained>() {
    let mut bench = Bench::<P>::new();
    bench.block_in(1);
    bench.said();
    let (block, proof) = (bench.next(3), bench.proof(3));
    let without = ViewProof { timeouts: None, ..proof.clone() };
    let earlier = ViewProof { timeouts: Some(given_up(1, [0; 3])), ..proof.clone() };
    for wrong in [without, earlier] {
        assert!(bench.deliver(block.proposer, P::propose(block.clone(), wrong)).is_err());
        assert_eq!((bench.votes(), bench.view()), (vec![], View(2)));
    }
}

/// What a proof claims is refused where it could not be true.
pub(crate) fn proofs_are_checked<P: Chained>() {
    let committee = Setup::of::<P>(4).committee::<P>();
    let block = on(&Certificate::genesis(P::VOTE), 1, 1);
    let refused = |proof: ViewProof| {
        let mut claims = Claims::new(&committee, 3);
        P::show(proof).claims(&mut claims);
        claims.finish().err()
    };
    let good = ViewProof { qc: qc::<P>(&block), timeouts: Some(given_up(2, [1, 0, 1])) };
    assert_eq!(refused(good.clone()), None);
    assert_eq!(refused(ViewProof::genesis(P::VOTE)), None);
    let with = |change: Change<ViewProof>| {
        let mut proof = good.clone();
        change(&mut proof);
        refused(proof)
    };
    fn timeouts(proof: &mut ViewProof) -> &mut TimeoutCertificate {
        proof.timeouts.as_mut().unwrap()
    }
    let wrong: [(&str, Change<ViewProof>); 10] = [
        ("too few timeouts", |proof| timeouts(proof).listed.truncate(2)),
        ("one twice", |proof| timeouts(proof).listed[1] = timeouts(proof).listed[0]),
        ("a stranger", |proof| timeouts(proof).listed[2].by = r(4)),
        ("lists its own view", |proof| timeouts(proof).listed[2].body = View(2)),
        ("lists more than is shown", |proof| {
            (timeouts(proof).view, timeouts(proof).listed[2].body) = (View(3), View(2));
        }),
        ("too few votes", |proof| proof.qc = Certificate::of(proof.qc.statement, &[(r(0), SIGNATURE)])),
        ("another kind", |proof| proof.qc.statement.kind = Kind::new("other")),
        ("a height", |proof| proof.qc.statement.height = Height(1)),
        ("view 0", |proof| proof.qc.statement.view = View(0)),
        ("genesis of another block", |proof| {
            let mut genesis = Certificate::genesis(proof.qc.statement.kind);
            genesis.statement.subject = proof.qc.statement.subject;
            proof.qc = genesis;
        }),
    ];
    for (what, change) in wrong {
        assert!(with(change).is_some(), "{what}");
    }
}

/// Blocks of views in a row are committed by those that follow, others wait for such.
pub(crate) fn commits_want_consecutive_views<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let early: Vec<Block> = [5, 6, 8].map(|view| bench.block_in(view)).to_vec();
    let late: Vec<Block> = [9, 10, 11].map(|view| bench.block_in(view)).to_vec();
    let committed = bench.committed();
    if P::LINKS == 3 {
        // 5, 6, 8 commit nothing; 8, 9, 10 commit 8 and with it 5 and 6. The certificate of 10 comes with 11.
        assert_eq!(committed, [early[2].id()]);
    } else {
        // 5, 6 commit 5; 6, 8 nothing; then each commits its parent.
        assert_eq!(committed, [early[0].id(), early[2].id(), late[0].id()]);
    }
    assert_eq!(bench.replica.alarms(), []);
}

/// What contradicts something decided stops the replica.
pub(crate) fn commits_extend_what_is_committed<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let other = on(&Certificate::genesis(P::VOTE), 1, 9);
    bench.replica.fetched(other.clone());
    bench.replica.decide(Height(1), other.id());
    for view in [10, 11, 12, 13] {
        bench.block_in(view);
    }
    assert!(!bench.replica.alarms().is_empty() && bench.committed().is_empty());
}

/// One proposal in a view, and the record of it before it.
pub(crate) fn one_proposal_in_a_view<P: Chained>() {
    let mut bench = Bench::<P>::of(1);
    bench.replica.lines();
    bench.replica.offer([payload(1)]);
    let lines = bench.replica.lines();
    let at = |what: &str| lines.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("record 1") < at("hold All: propose v1"), "{lines:#?}");
    assert!(bench.replica.sent().is_empty(), "nothing leaves before the disk has it");
    bench.replica.sync();
    assert_eq!(bench.replica.sent().len(), 1);
    // The record is on disk: after a crash it proposes no other, whatever waits.
    bench.replica.crash().unwrap();
    bench.replica.offer([payload(2)]);
    assert!(bench.said().iter().all(|said| !matches!(said, Said::Propose(..))));
}

/// Who votes and leads next writes down with the vote that it may propose; the proposal then waits for no disk, and after
/// a crash, early or late, there is none in that view.
pub(crate) fn a_leader_to_be_reserves_its_view<P: Chained>() {
    let voted = || {
        let mut bench = Bench::<P>::of(2);
        let (block, proof) = (bench.next(1), bench.proof(1));
        bench.busy();
        bench.deliver(r(1), P::propose(block.clone(), proof)).unwrap();
        bench.replica.sync();
        bench.replica.lines();
        bench.replica.sent();
        (bench, BlockVote { view: View(1), block: block.id() })
    };
    let certify = |bench: &mut Bench<P>, vote| {
        bench.replica.offer([payload(1)]);
        for by in [0, 1, 3] {
            let _ = bench.deliver(r(by), P::vote(vote));
        }
        assert_eq!(bench.view(), View(2));
    };
    let (mut bench, vote) = voted();
    certify(&mut bench, vote);
    assert_eq!(bench.replica.sent().len(), 1, "at once: {:#?}", bench.replica.lines());
    bench.replica.crash().unwrap();
    let is_proposal = |said: &Said| matches!(said, Said::Propose(..));
    bench.replica.offer([payload(2)]);
    assert!(!bench.said().iter().any(is_proposal), "after it has proposed");
    let (mut bench, vote) = voted();
    bench.replica.crash().unwrap();
    certify(&mut bench, vote);
    assert!(!bench.said().iter().any(is_proposal), "nobody can tell whether it has");
}

/// One vote in a view, the first.
pub(crate) fn one_vote_in_a_view<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let (first, proof) = (bench.next(1), bench.proof(1));
    let second = Block { time_ns: 7, ..first.clone() };
    bench.deliver(r(1), P::propose(first.clone(), proof.clone())).unwrap();
    assert_eq!(bench.deliver(r(1), P::propose(second.clone(), proof)), Err(Reject::Equivocation));
    bench.replica.ready(second.id(), Ready::Valid);
    bench.replica.ready(first.id(), Ready::Valid);
    assert_eq!(bench.votes(), [BlockVote { view: View(1), block: first.id() }]);
    assert!(bench.replica.lines().iter().any(|line| line.starts_with("accuse")), "it can be shown");
}

/// No vote before a block is here, none for an invalid one, which ends the view for this replica.
pub(crate) fn votes_are_for_what_is_ready_and_valid<P: Chained>() {
    let mut bench = Bench::<P>::new();
    bench.replica.answer_otherwise(None);
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), P::propose(block.clone(), proof.clone())).unwrap();
    assert_eq!(bench.votes(), []);
    assert_eq!(bench.replica.wanted(), [(block.id(), r(1))]);
    bench.replica.ready(block.id(), Ready::Valid);
    assert_eq!(bench.votes(), [BlockVote { view: View(1), block: block.id() }]);
    let mut bench = Bench::<P>::new();
    bench.replica.answer_otherwise(Some(Ready::Invalid));
    bench.deliver(r(1), P::propose(block, proof)).unwrap();
    let said = bench.said();
    assert!(matches!(&said[..], [Said::GiveUp(View(1), ..)]), "{said:?}");
}

/// No vote in a view that was given up, also after a restart.
pub(crate) fn no_vote_after_giving_up<P: Chained>(survives: bool) {
    let mut bench = Bench::<P>::new();
    bench.busy();
    bench.expire();
    bench.said();
    let (block, proof) = (bench.next(1), bench.proof(1));
    if survives {
        bench.replica.crash().unwrap();
    }
    bench.deliver(r(1), P::propose(block, proof)).unwrap();
    assert_eq!(bench.votes(), []);
}

/// The record of a vote goes before it, and binds after a crash: the same again, and nothing else.
pub(crate) fn votes_survive_a_crash<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.replica.lines();
    bench.deliver(r(1), P::propose(block.clone(), proof.clone())).unwrap();
    let lines = bench.replica.lines();
    let at = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
    assert!(at("record 1") < at(": vote v1"), "{lines:#?}");
    assert!(bench.replica.sent().is_empty());
    bench.replica.sync();
    bench.replica.crash().unwrap();
    let again = BlockVote { view: View(1), block: block.id() };
    assert_eq!(bench.votes(), [again], "the same again");
    let other = Block { time_ns: 7, ..block };
    let _ = bench.deliver(r(1), P::propose(other, proof));
    assert_eq!(bench.votes(), []);
    // What was not on disk was not said, and does not bind.
    let mut bench = Bench::<P>::new();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), P::propose(block, proof)).unwrap();
    bench.replica.crash().unwrap();
    assert_eq!(bench.said(), []);
}

/// The own vote counts when its own copy is here; then the next leader has its certificate, and proposes.
pub(crate) fn own_votes_count_from_own_copies<P: Chained>() {
    let mut bench = Bench::<P>::of(2);
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.busy();
    bench.deliver(r(1), P::propose(block.clone(), proof)).unwrap();
    let vote = BlockVote { view: View(1), block: block.id() };
    bench.deliver(r(0), P::vote(vote)).unwrap();
    bench.deliver(r(1), P::vote(vote)).unwrap();
    assert_eq!(bench.view(), View(1), "two of them, and one that is not on disk");
    bench.replica.sync();
    assert_eq!(bench.view(), View(2));
    let said = bench.said();
    assert!(
        said.iter().any(|said| matches!(said, Said::Propose(next, _) if next.parent == block.id())),
        "{said:?}"
    );
}

/// A certificate takes q distinct replicas that voted for one block in one view.
pub(crate) fn certificates_take_distinct_voters<P: Chained>() {
    let mut bench = Bench::<P>::of(2);
    let [a, b] =
        [1, 2].map(|time_ns| BlockVote { view: View(1), block: Block { time_ns, ..bench.next(1) }.id() });
    bench.deliver(r(0), P::vote(a)).unwrap();
    assert_eq!(bench.deliver(r(0), P::vote(a)), Err(Reject::Duplicate));
    bench.deliver(r(1), P::vote(b)).unwrap();
    assert_eq!(bench.deliver(r(1), P::vote(a)), Err(Reject::Equivocation));
    bench.deliver(r(3), P::vote(BlockVote { view: View(2), block: a.block })).unwrap();
    assert_eq!(bench.view(), View(1), "two for one block, one of another view");
    bench.deliver(r(3), P::vote(a)).unwrap();
    assert_eq!(bench.view(), View(1));
    let mut bench = Bench::<P>::of(2);
    for id in [0, 1, 3] {
        bench.deliver(r(id), P::vote(a)).unwrap();
    }
    assert_eq!(bench.view(), View(2));
}

/// A complaint of a replica that stands where the chain of this bench does.
pub(crate) fn complaint<P: Chained>(bench: &Bench<P>, view: u64) -> P::Message {
    P::give_up(View(view), bench.proof(view), None)
}

/// Neither a timer nor f + 1 complaints change the view: q do, and everybody is told.
pub(crate) fn views_change_by_certificate_only<P: Chained>() {
    let mut bench = Bench::<P>::new();
    bench.busy();
    bench.expire();
    bench.said();
    assert_eq!(bench.view(), View(1), "its own timer");
    let message = complaint(&bench, 1);
    bench.deliver(r(0), message).unwrap();
    bench.said();
    assert_eq!(bench.view(), View(1), "f + 1");
    let message = complaint(&bench, 1);
    bench.deliver(r(1), message).unwrap();
    assert_eq!(bench.view(), View(2), "q");
    let said = bench.said();
    let shown = said.iter().find_map(|said| if let Said::Show(proof) = said { Some(proof) } else { None });
    let timeouts = shown.unwrap().timeouts.clone().unwrap();
    assert_eq!((timeouts.view, timeouts.listed.len()), (View(1), 3));
    // And the same certificate lets on whoever hears only that.
    let mut late = Bench::<P>::of(0);
    late.deliver(r(3), P::show(shown.unwrap().clone())).unwrap();
    assert_eq!(late.view(), View(2));
}

/// Nobody is moved by a complaint of a view that it cannot show to have been reached.
pub(crate) fn complaints_show_how_their_view_was_reached<P: Chained>() {
    let mut bench = Bench::<P>::new();
    for from in [0, 1, 2] {
        let message = P::give_up(View(1 << 60), bench.proof(1), None);
        assert!(bench.deliver(r(from), message).is_err());
    }
    assert_eq!(bench.view(), View(1));
}

/// A complaint shows the highest certificate, and it is on disk before.
pub(crate) fn complaints_show_the_highest_certificate<P: Chained>() {
    let mut bench = Bench::<P>::new();
    bench.busy();
    bench.block_in(1);
    let shown = follows(&bench.qc);
    bench.deliver(r(0), P::show(shown)).unwrap();
    bench.said();
    bench.replica.lines();
    bench.expire();
    let lines = bench.replica.lines();
    let at = |what: &str| lines.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("record 1") < at("hold All:"), "{lines:#?}");
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.busy();
    bench.expire();
    let said = bench.said();
    let is_it = |said: &Said| matches!(said, Said::GiveUp(View(2), proof, _) if proof.qc.view() == View(1));
    assert!(said.iter().any(is_it), "{said:?}");
}

/// Votes that went to a dead leader come with complaints, and make the certificate for everybody.
pub(crate) fn complaints_carry_the_last_vote<P: Chained>() {
    let mut bench = Bench::<P>::new();
    bench.busy();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), P::propose(block.clone(), proof.clone())).unwrap();
    bench.said();
    bench.expire();
    let said = bench.said();
    let own = said.iter().find_map(|said| if let Said::GiveUp(_, _, vote) = said { *vote } else { None });
    let vote = BlockVote { view: View(1), block: block.id() };
    assert_eq!(own, Some(Signed { body: vote, by: r(3), signature: SIGNATURE }));
    for id in [0, 1] {
        let last = Signed { body: vote, by: r(id), signature: SIGNATURE };
        // The second one is late: its vote has made the certificate.
        let _ = bench.deliver(r(id), P::give_up(View(1), proof.clone(), Some(last)));
    }
    // Its own one never reached it as a vote: it went to the next leader. Its own copy did.
    assert_eq!(bench.view(), View(2));
    assert_eq!(bench.replica.protocol().status().view_changes, 0, "by a certificate, not by complaints");
    let foreign = Signed { body: vote, by: r(2), signature: SIGNATURE };
    assert!(bench.deliver(r(0), P::give_up(View(1), proof, Some(foreign))).is_err());
}

/// Whoever is behind is shown why this replica is further: once in so long.
pub(crate) fn laggards_are_shown_the_way<P: Chained>() {
    let mut bench = Bench::<P>::new();
    for view in 1..=4 {
        bench.block_in(view);
    }
    bench.said();
    let old = P::give_up(View(3), follows(&qc::<P>(&bench.blocks[1])), None);
    let shows = |bench: &mut Bench<P>| {
        bench
            .said()
            .iter()
            .filter(|said| matches!(said, Said::Show(proof) if proof.qc.view() == View(3)))
            .count()
    };
    assert_eq!(bench.deliver(r(0), old), Err(Reject::Stale));
    assert_eq!(shows(&mut bench), 1);
    let old = P::give_up(View(3), follows(&qc::<P>(&bench.blocks[1])), None);
    let _ = bench.deliver(r(0), old);
    assert_eq!(shows(&mut bench), 0, "not again at once");
    bench.replica.advance(200 * MS);
    let old = P::give_up(View(3), follows(&qc::<P>(&bench.blocks[1])), None);
    let _ = bench.deliver(r(0), old);
    assert_eq!(shows(&mut bench), 1);
}

/// f + 1 complaints make others join in, f do not.
pub(crate) fn f_plus_1_complaints_are_joined<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let message = complaint(&bench, 1);
    bench.deliver(r(0), message).unwrap();
    assert_eq!(bench.said(), []);
    let message = complaint(&bench, 1);
    bench.deliver(r(1), message).unwrap();
    let said = bench.said();
    assert!(said.iter().any(|said| matches!(said, Said::GiveUp(View(1), ..))), "{said:?}");
}

/// Nothing waits: no timer, no proposal. Something waits: both, until nothing does.
pub(crate) fn timers_and_proposals_follow_what_waits<P: Chained>() {
    let mut bench = Bench::<P>::of(1);
    assert_eq!((bench.replica.deadline(), bench.said()), (None, vec![]));
    bench.replica.offer([payload(1)]);
    assert!(bench.replica.deadline().is_some());
    let said = bench.said();
    assert!(matches!(&said[..], [Said::Propose(..), Said::Vote(_)]), "{said:?}");
    let mut bench = Bench::<P>::new();
    bench.busy();
    assert!(bench.replica.deadline().is_some());
    bench.replica.waits(None, false);
    assert_eq!(bench.replica.deadline(), None);
}

/// A leader that has nothing to propose says so once, with the certificate that nobody else has.
pub(crate) fn an_idle_leader_announces_once<P: Chained>() {
    let mut bench = Bench::<P>::of(2);
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), P::propose(block.clone(), proof)).unwrap();
    bench.said();
    let vote = BlockVote { view: View(1), block: block.id() };
    for id in [0, 1, 3] {
        let _ = bench.deliver(r(id), P::vote(vote));
    }
    let said = bench.said();
    assert!(matches!(&said[..], [Said::Show(proof)] if proof.qc.block() == block.id()), "{said:?}");
    bench.replica.waits(None, false);
    assert_eq!(bench.said(), []);
}

/// Timers double with each view that is given up, up to the cap, and are short again when something is committed.
pub(crate) fn timers_double_until_a_commit<P: Chained>() {
    let mut bench = Bench::<P>::new();
    bench.busy();
    let mut lengths = Vec::new();
    for view in 1..=8u64 {
        let length = bench.replica.deadline().unwrap().since(bench.replica.now()) / MS;
        lengths.push(length);
        let shown = ViewProof { qc: bench.qc.clone(), timeouts: Some(given_up(view, [0; 3])) };
        bench.deliver(r(0), P::show(shown)).unwrap();
    }
    assert_eq!(lengths, [400, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    let mut length = 0;
    for view in 9..=13u64 {
        if view == 10 {
            let at = bench.replica.deadline().unwrap();
            assert_eq!(at.since(bench.replica.now()) / MS, 10_000, "a certificate is no commit");
        }
        bench.block_in(view);
        length = bench.replica.deadline().unwrap().since(bench.replica.now()) / MS;
    }
    assert_eq!(length, 400);
}

/// A replica that lags behind with its own execution is patient as long as it comes nearer.
pub(crate) fn slow_execution_is_no_reason_to_complain<P: Chained>() {
    let mut bench = Bench::<P>::new();
    bench.replica.lags(true);
    bench.busy();
    bench.replica.execute(Height(1));
    bench.expire();
    assert_eq!(bench.said(), []);
    bench.expire();
    let said = bench.said();
    assert!(matches!(&said[..], [Said::GiveUp(..)]), "nothing was executed since: {said:?}");
}

/// Votes of a view that has its certificate are not worth verifying; of one that was given up, they may make it yet.
pub(crate) fn votes_are_verified_while_they_may_count<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let first = bench.next(1);
    bench.certify(&first);
    bench.deliver(r(0), P::show(bench.proof(2))).unwrap();
    assert_eq!((bench.view(), bench.replica.window().views.start), (View(2), View(2)));
    bench.deliver(r(0), P::show(bench.proof(3))).unwrap();
    assert_eq!((bench.view(), bench.replica.window().views.start), (View(3), View(2)));
}

/// Who is to collect a vote and may have lost it hears it again, and nobody else does; nor when it is certified.
pub(crate) fn a_vote_that_was_lost_is_said_again<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let block = bench.block_in(1);
    let vote = BlockVote { view: View(1), block: block.id() };
    assert_eq!(bench.votes(), [vote]);
    for (peer, again) in [(0, vec![]), (2, vec![vote])] {
        bench.replica.link(r(peer), LinkEvent::Gap);
        assert_eq!(bench.votes(), again, "to {peer}");
    }
    bench.deliver(r(0), P::show(follows(&bench.qc.clone()))).unwrap();
    bench.votes();
    bench.replica.link(r(2), LinkEvent::Gap);
    assert_eq!(bench.votes(), []);
}

/// A vote goes to the next leader alone.
pub(crate) fn votes_go_to_the_next_leader<P: Chained>() {
    let mut bench = Bench::<P>::new();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), P::propose(block, proof)).unwrap();
    bench.replica.sync();
    let to: Vec<To> = bench.replica.sent().iter().map(|(to, _)| *to).collect();
    assert_eq!(to, [To::One(r(2))]);
}
