//! Tests that hold for each rule set, named after the rules in the engine's table.

use super::kit::{Bench, MS, SIGNATURE, follows, on, qc, r, timeouts};
use crate::chained::{
    Chained, ChainedMessage, ChainedParams, Content, HotStuff, HotStuff2, Jolteon, Rules, Timer, VOTE,
};
use quorate_consensus::harness::{Harness, Setup, payload};
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::leaders::LeaderPolicy;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{
    Certificate, Claims, LinkEvent, Message, OpenError, Protocol, Ready, Reject, Signed, To,
};
use quorate_types::{Block, BlockId, Height, Kind, View};

/// Makes a test for each rule set out of each function.
macro_rules! for_each_rule_set {
    ($($name:ident)*) => {
        mod hotstuff {
            $(#[test] fn $name() { super::$name::<super::HotStuff>(); })*
        }
        mod jolteon {
            $(#[test] fn $name() { super::$name::<super::Jolteon>(); })*
        }
        mod hotstuff2 {
            $(#[test] fn $name() { super::$name::<super::HotStuff2>(); })*
        }
    };
}

for_each_rule_set! {
    c1_certificates_count_first
    c2_proposals_must_fit
    c2_heights_rise_no_faster_than_views
    n3_proposal_after_a_failed_view_needs_its_timeouts
    n3_proofs_are_checked
    c3_commits_extend_the_committed_block
    c4_one_proposal_in_a_view
    c4_next_leader_reserves_its_view
    c5_one_vote_in_a_view
    c5_votes_are_for_ready_and_valid_blocks
    c9_last_vote_alone_survives_a_crash
    c7_own_votes_count_from_own_copies
    c8_certificates_need_distinct_voters
    n1_certificate_alone_changes_the_view
    n3_timeouts_need_the_proof_of_their_view
    n2_timeouts_carry_the_highest_certificate
    n4_timeouts_carry_the_last_vote
    n5_replica_behind_receives_the_proof
    n6_f_plus_1_timeouts_make_a_replica_join
    n7_timers_and_proposals_need_waiting_work
    n8_idle_leader_announces_once
    n9_timers_double_until_a_commit
    n10_slow_execution_causes_no_timeout
    n11_current_leader_is_read_first
    n11_leader_of_many_views_becomes_urgent_once
    n11_leader_found_later_becomes_urgent_then
    c6_votes_are_verified_while_they_may_count
    c6_lost_vote_is_sent_again
    c6_votes_go_to_the_next_leader
    c5_no_vote_after_a_timeout
    open_refuses_more_than_a_third_of_faulty_replicas
}

fn c5_no_vote_after_a_timeout<R: Rules>() {
    no_vote_after_a_timeout::<R>(false);
}

fn open_refuses_more_than_a_third_of_faulty_replicas<R: Rules>() {
    let open = |n, f| {
        let setup = Setup { f, ..Setup::of::<Chained<R>>(n) };
        Harness::<Chained<R>>::open(r(0), setup, &ChainedParams::default()).err()
    };
    assert!([(1, 0), (4, 1), (6, 1), (7, 2)].iter().all(|(n, f)| open(*n, *f).is_none()));
    let bad = [(3, 1), (6, 2), (9, 3)];
    assert!(bad.iter().all(|(n, f)| matches!(open(*n, *f), Some(OpenError::Committee(_)))));
}

/// A certificate counts even if the message that carries it is wrong.
fn c1_certificates_count_first<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let first = bench.block_in(1);
    let mut wrong = bench.next(2);
    wrong.proposer = r(0);
    let proof = bench.proof(2);
    assert_eq!(bench.deliver(r(0), Content::Propose(wrong, proof)), Err(Reject::WrongSender));
    assert_eq!(bench.view(), View(2), "the certificate of {first:?} counts");
    // The certificate in an ADVANCE counts as well, and its block is fetched from the sender.
    let second = bench.next(2);
    let shown = follows(&qc(&second));
    bench.deliver(r(0), Content::Advance(shown)).unwrap();
    assert_eq!(bench.view(), View(3));
    assert_eq!(bench.replica.wanted().first().map(|(id, from)| (*id, *from)), Some((second.id(), r(0))));
}

/// A change that makes a value wrong.
type Change<T> = fn(&mut T);

/// Replicas vote for a proposal only if it is the leader's, fits its certificate, and proves its view.
fn c2_proposals_must_fit<R: Rules>() {
    let wrong: [(&str, Change<Block>); 6] = [
        ("parent", |block| block.parent = BlockId::null(Height(9))),
        ("height", |block| block.height = Height(7)),
        ("bound certificate", |block| block.extra = bind_certificate(View(0), block.parent)),
        ("view below its certificate", |block| block.view = View(1)),
        ("another leader's view", |block| block.view = View(3)),
        ("another proposer", |block| block.proposer = r(0)),
    ];
    for (what, change) in wrong {
        let mut bench = Bench::<R>::new();
        bench.block_in(1);
        bench.sent();
        let (mut block, proof) = (bench.next(2), bench.proof(2));
        change(&mut block);
        assert!(bench.deliver(r(2), Content::Propose(block, proof)).is_err(), "{what}");
        assert_eq!(bench.votes(), [], "{what}");
    }
    let mut bench = Bench::<R>::new();
    bench.block_in(1);
    bench.sent();
    let (block, proof) = (bench.next(2), bench.proof(2));
    assert!(
        bench.deliver(r(1), Content::Propose(block.clone(), proof.clone())).is_err(),
        "from another replica than the leader"
    );
    bench.deliver(r(2), Content::Propose(block.clone(), proof)).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(2), block: block.id() }]);
}

/// The parent is missing, so its height is unknown. A height that no chain can have is refused all the same: the block would
/// be kept for ever.
fn c2_heights_rise_no_faster_than_views<R: Rules>() {
    for (height, fits) in [(2, true), (3, false), (u64::MAX, false)] {
        let mut bench = Bench::<R>::new();
        let below = bench.next(1);
        bench.certify(&below);
        let (mut block, proof) = (bench.next(2), bench.proof(2));
        block.height = Height(height);
        let id = block.id();
        assert_eq!(bench.deliver(r(2), Content::Propose(block, proof)).is_ok(), fits, "{height}");
        assert_eq!(bench.replica.block(id).is_some(), fits, "{height}");
    }
}

/// A proposal after a view without a certificate carries that view's timeouts.
fn n3_proposal_after_a_failed_view_needs_its_timeouts<R: Rules>() {
    let mut bench = Bench::<R>::new();
    bench.block_in(1);
    bench.sent();
    let (block, proof) = (bench.next(3), bench.proof(3));
    let without = ViewProof { timeouts: None, ..proof.clone() };
    let earlier = ViewProof { timeouts: Some(timeouts(1, [0; 3])), ..proof.clone() };
    for wrong in [without, earlier] {
        assert!(bench.deliver(block.proposer, Content::Propose(block.clone(), wrong)).is_err());
        assert_eq!((bench.votes(), bench.view()), (vec![], View(2)));
    }
}

/// Proofs that cannot be valid are refused without cryptography.
fn n3_proofs_are_checked<R: Rules>() {
    let committee = Setup::of::<Chained<R>>(4).committee::<Chained<R>>();
    let block = on(&Certificate::genesis(VOTE), 1, 1);
    let refused = |proof: ViewProof| {
        let mut claims = Claims::new(&committee, 3);
        ChainedMessage::<R>::from(Content::Advance(proof)).claims(&mut claims);
        claims.finish().err()
    };
    let good = ViewProof { qc: qc(&block), timeouts: Some(timeouts(2, [1, 0, 1])) };
    assert_eq!(refused(good.clone()), None);
    assert_eq!(refused(ViewProof::genesis(VOTE)), None);
    let with = |change: Change<ViewProof>| {
        let mut proof = good.clone();
        change(&mut proof);
        refused(proof)
    };
    fn listed(proof: &mut ViewProof) -> &mut TimeoutCertificate {
        proof.timeouts.as_mut().unwrap()
    }
    let wrong: [(&str, Change<ViewProof>); 10] = [
        ("too few timeouts", |proof| listed(proof).listed.truncate(2)),
        ("one twice", |proof| listed(proof).listed[1] = listed(proof).listed[0]),
        ("a stranger", |proof| listed(proof).listed[2].by = r(4)),
        ("lists its own view", |proof| listed(proof).listed[2].body = View(2)),
        ("lists more than the certificate", |proof| {
            (listed(proof).view, listed(proof).listed[2].body) = (View(3), View(2));
        }),
        ("f + 1 votes", |proof| {
            let votes = [0, 1].map(|id| (r(id), SIGNATURE));
            proof.qc = Certificate::of(proof.qc.statement, &votes);
        }),
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

/// Blocks of consecutive views commit the first of them; other blocks wait for such.
pub(super) fn commits_need_consecutive_views<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let early: Vec<Block> = [5, 6, 8].map(|view| bench.block_in(view)).to_vec();
    let late: Vec<Block> = [9, 10, 11].map(|view| bench.block_in(view)).to_vec();
    let committed = bench.committed();
    if R::LINKS == 3 {
        // 5, 6, 8 commit nothing; 8, 9, 10 commit 8 and with it 5 and 6. The certificate of 10 comes with 11.
        assert_eq!(committed, [early[2].id()]);
    } else {
        // 5, 6 commit 5; 6, 8 nothing; then each commits its parent.
        assert_eq!(committed, [early[0].id(), early[2].id(), late[0].id()]);
    }
    assert_eq!(bench.replica.alarms(), []);
}

/// A commit that conflicts with a decided block stops the replica.
fn c3_commits_extend_the_committed_block<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let other = on(&Certificate::genesis(VOTE), 1, 9);
    bench.replica.fetched(other.clone());
    bench.replica.decide(Height(1), other.id());
    for view in [10, 11, 12, 13] {
        bench.block_in(view);
    }
    assert!(!bench.replica.alarms().is_empty() && bench.committed().is_empty());
}

/// A leader proposes once in a view, and records that first.
fn c4_one_proposal_in_a_view<R: Rules>() {
    let mut bench = Bench::<R>::of(1);
    bench.replica.lines();
    bench.replica.offer([payload(1)]);
    let lines = bench.replica.lines();
    let at = |what: &str| lines.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("record 1") < at("hold All: propose v1"), "{lines:#?}");
    assert!(bench.replica.sent().is_empty(), "no message leaves before the record is durable");
    bench.replica.sync();
    assert_eq!(bench.replica.sent().len(), 1);
    // The record is durable: after a crash the leader proposes no other block.
    bench.replica.crash().unwrap();
    bench.replica.offer([payload(2)]);
    assert!(bench.sent().iter().all(|content| !matches!(content, Content::Propose(..))));
}

/// The next leader records with its vote that it may propose. Its proposal then waits for no sync, and after a crash it does
/// not propose in that view.
fn c4_next_leader_reserves_its_view<R: Rules>() {
    let voted = || {
        let mut bench = Bench::<R>::of(2);
        let (block, proof) = (bench.next(1), bench.proof(1));
        bench.busy();
        bench.deliver(r(1), Content::Propose(block.clone(), proof)).unwrap();
        bench.replica.sync();
        bench.replica.lines();
        bench.replica.sent();
        (bench, BlockVote { view: View(1), block: block.id() })
    };
    let certify = |bench: &mut Bench<R>, vote| {
        bench.replica.offer([payload(1)]);
        for by in [0, 1, 3] {
            let _ = bench.deliver(r(by), Content::Vote(vote));
        }
        assert_eq!(bench.view(), View(2));
    };
    let (mut bench, vote) = voted();
    certify(&mut bench, vote);
    assert_eq!(bench.replica.sent().len(), 1, "at once: {:#?}", bench.replica.lines());
    bench.replica.crash().unwrap();
    let is_proposal = |content: &Content| matches!(content, Content::Propose(..));
    bench.replica.offer([payload(2)]);
    assert!(!bench.sent().iter().any(is_proposal), "it has proposed");
    let (mut bench, vote) = voted();
    bench.replica.crash().unwrap();
    certify(&mut bench, vote);
    assert!(!bench.sent().iter().any(is_proposal), "it may have proposed");
}

/// A replica votes for the first proposal of a view alone, and accuses a leader that equivocates.
fn c5_one_vote_in_a_view<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let (first, proof) = (bench.next(1), bench.proof(1));
    let second = Block { time_ns: 7, ..first.clone() };
    bench.deliver(r(1), Content::Propose(first.clone(), proof.clone())).unwrap();
    assert_eq!(bench.deliver(r(1), Content::Propose(second.clone(), proof)), Err(Reject::Equivocation));
    bench.replica.ready(second.id(), Ready::Valid);
    bench.replica.ready(first.id(), Ready::Valid);
    assert_eq!(bench.votes(), [BlockVote { view: View(1), block: first.id() }]);
    assert!(bench.replica.lines().iter().any(|line| line.starts_with("accuse")), "equivocation is reported");
}

/// A block gets no vote before it is ready, and none if it is invalid: then the replica times out.
fn c5_votes_are_for_ready_and_valid_blocks<R: Rules>() {
    let mut bench = Bench::<R>::new();
    bench.replica.answer_otherwise(None);
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), Content::Propose(block.clone(), proof.clone())).unwrap();
    assert_eq!(bench.votes(), []);
    assert_eq!(bench.replica.wanted(), [(block.id(), r(1))]);
    bench.replica.ready(block.id(), Ready::Valid);
    assert_eq!(bench.votes(), [BlockVote { view: View(1), block: block.id() }]);
    let mut bench = Bench::<R>::new();
    bench.replica.answer_otherwise(Some(Ready::Invalid));
    bench.deliver(r(1), Content::Propose(block, proof)).unwrap();
    let sent = bench.sent();
    assert!(matches!(&sent[..], [Content::Timeout(View(1), ..)]), "{sent:?}");
}

/// A replica does not vote after a timeout, nor after a restart if the rules record the timeout.
pub(super) fn no_vote_after_a_timeout<R: Rules>(restarts: bool) {
    let mut bench = Bench::<R>::new();
    bench.busy();
    bench.expire();
    bench.sent();
    let (block, proof) = (bench.next(1), bench.proof(1));
    if restarts {
        bench.replica.crash().unwrap();
    }
    bench.deliver(r(1), Content::Propose(block, proof)).unwrap();
    assert_eq!(bench.votes(), []);
}

/// A vote is recorded before it leaves. After a crash the replica sends the same vote again, and no other.
fn c9_last_vote_alone_survives_a_crash<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.replica.lines();
    bench.deliver(r(1), Content::Propose(block.clone(), proof.clone())).unwrap();
    let lines = bench.replica.lines();
    let at = |what: &str| lines.iter().position(|line| line.contains(what)).unwrap();
    assert!(at("record 1") < at(": vote v1"), "{lines:#?}");
    assert!(bench.replica.sent().is_empty());
    bench.replica.sync();
    bench.replica.crash().unwrap();
    let again = BlockVote { view: View(1), block: block.id() };
    assert_eq!(bench.votes(), [again], "the same vote");
    let other = Block { time_ns: 7, ..block };
    let _ = bench.deliver(r(1), Content::Propose(other, proof));
    assert_eq!(bench.votes(), []);
    // A vote that was not durable has not left, and does not bind.
    let mut bench = Bench::<R>::new();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), Content::Propose(block, proof)).unwrap();
    bench.replica.crash().unwrap();
    assert_eq!(bench.sent(), []);
}

/// The own vote counts from its own copy. Then the next leader has a certificate, and proposes.
fn c7_own_votes_count_from_own_copies<R: Rules>() {
    let mut bench = Bench::<R>::of(2);
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.busy();
    bench.deliver(r(1), Content::Propose(block.clone(), proof)).unwrap();
    let vote = BlockVote { view: View(1), block: block.id() };
    bench.deliver(r(0), Content::Vote(vote)).unwrap();
    bench.deliver(r(1), Content::Vote(vote)).unwrap();
    assert_eq!(bench.view(), View(1), "two votes, and one that is not durable");
    bench.replica.sync();
    assert_eq!(bench.view(), View(2));
    let sent = bench.sent();
    assert!(
        sent.iter().any(|content| matches!(content, Content::Propose(next, _) if next.parent == block.id())),
        "{sent:?}"
    );
}

/// A certificate needs votes of q distinct replicas for one block in one view.
fn c8_certificates_need_distinct_voters<R: Rules>() {
    let mut bench = Bench::<R>::of(2);
    let [a, b] =
        [1, 2].map(|time_ns| BlockVote { view: View(1), block: Block { time_ns, ..bench.next(1) }.id() });
    bench.deliver(r(0), Content::Vote(a)).unwrap();
    assert_eq!(bench.deliver(r(0), Content::Vote(a)), Err(Reject::Duplicate));
    bench.deliver(r(1), Content::Vote(b)).unwrap();
    assert_eq!(bench.deliver(r(1), Content::Vote(a)), Err(Reject::Equivocation));
    bench.deliver(r(3), Content::Vote(BlockVote { view: View(2), block: a.block })).unwrap();
    assert_eq!(bench.view(), View(1), "two votes for one block, one of another view");
    bench.deliver(r(3), Content::Vote(a)).unwrap();
    assert_eq!(bench.view(), View(1));
    let mut bench = Bench::<R>::of(2);
    for id in [0, 1, 3] {
        bench.deliver(r(id), Content::Vote(a)).unwrap();
    }
    assert_eq!(bench.view(), View(2));
}

/// A timeout of a replica that knows the chain of this bench.
fn timeout<R: Rules>(bench: &Bench<R>, view: u64) -> Content {
    Content::Timeout(View(view), bench.proof(view), None)
}

/// Neither a timer nor f + 1 timeouts change the view. q timeouts do, and all replicas receive them.
fn n1_certificate_alone_changes_the_view<R: Rules>() {
    let mut bench = Bench::<R>::new();
    bench.busy();
    bench.expire();
    bench.sent();
    assert_eq!(bench.view(), View(1), "its own timer");
    let message = timeout(&bench, 1);
    bench.deliver(r(0), message).unwrap();
    bench.sent();
    assert_eq!(bench.view(), View(1), "f + 1");
    let message = timeout(&bench, 1);
    bench.deliver(r(1), message).unwrap();
    assert_eq!(bench.view(), View(2), "q");
    let sent = bench.sent();
    let shown = sent
        .iter()
        .find_map(|content| if let Content::Advance(proof) = content { Some(proof) } else { None });
    let timeouts = shown.unwrap().timeouts.clone().unwrap();
    assert_eq!((timeouts.view, timeouts.listed.len()), (View(1), 3));
    // The same certificate alone lets another replica on.
    let mut late = Bench::<R>::of(0);
    late.deliver(r(3), Content::Advance(shown.unwrap().clone())).unwrap();
    assert_eq!(late.view(), View(2));
}

/// A timeout without the proof of its view moves no replica.
fn n3_timeouts_need_the_proof_of_their_view<R: Rules>() {
    let mut bench = Bench::<R>::new();
    for from in [0, 1, 2] {
        let message = Content::Timeout(View(1 << 60), bench.proof(1), None);
        assert!(bench.deliver(r(from), message).is_err());
    }
    assert_eq!(bench.view(), View(1));
}

/// A timeout carries the highest certificate, which is durable first.
pub(super) fn n2_timeouts_carry_the_highest_certificate<R: Rules>() {
    let mut bench = Bench::<R>::new();
    bench.busy();
    bench.block_in(1);
    let shown = follows(&bench.qc);
    bench.deliver(r(0), Content::Advance(shown)).unwrap();
    bench.sent();
    bench.replica.lines();
    bench.expire();
    let lines = bench.replica.lines();
    let at = |what: &str| lines.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(at("record 1") < at("hold All:"), "{lines:#?}");
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.busy();
    bench.expire();
    let sent = bench.sent();
    let is_it = |content: &Content| matches!(content, Content::Timeout(View(2), proof, _) if proof.qc.view() == View(1));
    assert!(sent.iter().any(is_it), "{sent:?}");
}

/// Timeouts carry votes whose collector has crashed, and all replicas build the certificate from them.
fn n4_timeouts_carry_the_last_vote<R: Rules>() {
    let mut bench = Bench::<R>::new();
    bench.busy();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), Content::Propose(block.clone(), proof.clone())).unwrap();
    bench.sent();
    bench.expire();
    let sent = bench.sent();
    let own =
        sent.iter().find_map(|content| if let Content::Timeout(_, _, vote) = content { *vote } else { None });
    let vote = BlockVote { view: View(1), block: block.id() };
    assert_eq!(own, Some(Signed { body: vote, by: r(3), signature: SIGNATURE }));
    for id in [0, 1] {
        let last = Signed { body: vote, by: r(id), signature: SIGNATURE };
        // The second timeout is stale: its vote has completed the certificate.
        let _ = bench.deliver(r(id), Content::Timeout(View(1), proof.clone(), Some(last)));
    }
    // The third vote is the replica's own, which counts from its own copy.
    assert_eq!(bench.view(), View(2));
    assert_eq!(bench.replica.protocol().status().view_changes, 0, "by a certificate, not by timeouts");
    let foreign = Signed { body: vote, by: r(2), signature: SIGNATURE };
    assert!(bench.deliver(r(0), Content::Timeout(View(1), proof, Some(foreign))).is_err());
}

/// A replica that is behind receives the proof of this replica's view, at a limited rate.
fn n5_replica_behind_receives_the_proof<R: Rules>() {
    let mut bench = Bench::<R>::new();
    for view in 1..=4 {
        bench.block_in(view);
    }
    bench.sent();
    let old = Content::Timeout(View(3), follows(&qc(&bench.blocks[1])), None);
    let proofs = |bench: &mut Bench<R>| {
        bench
            .sent()
            .iter()
            .filter(|content| matches!(content, Content::Advance(proof) if proof.qc.view() == View(3)))
            .count()
    };
    assert_eq!(bench.deliver(r(0), old), Err(Reject::Stale));
    assert_eq!(proofs(&mut bench), 1);
    let old = Content::Timeout(View(3), follows(&qc(&bench.blocks[1])), None);
    let _ = bench.deliver(r(0), old);
    assert_eq!(proofs(&mut bench), 0, "not again so soon");
    bench.replica.advance(200 * MS);
    let old = Content::Timeout(View(3), follows(&qc(&bench.blocks[1])), None);
    let _ = bench.deliver(r(0), old);
    assert_eq!(proofs(&mut bench), 1);
}

/// f + 1 timeouts make a replica join, f do not.
fn n6_f_plus_1_timeouts_make_a_replica_join<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let message = timeout(&bench, 1);
    bench.deliver(r(0), message).unwrap();
    assert_eq!(bench.sent(), []);
    let message = timeout(&bench, 1);
    bench.deliver(r(1), message).unwrap();
    let sent = bench.sent();
    assert!(sent.iter().any(|content| matches!(content, Content::Timeout(View(1), ..))), "{sent:?}");
}

/// Timers and proposals exist only while work waits.
fn n7_timers_and_proposals_need_waiting_work<R: Rules>() {
    let mut bench = Bench::<R>::of(1);
    assert_eq!((bench.replica.deadline(), bench.sent()), (None, vec![]));
    bench.replica.offer([payload(1)]);
    assert!(bench.replica.deadline().is_some());
    let sent = bench.sent();
    assert!(matches!(&sent[..], [Content::Propose(..), Content::Vote(_)]), "{sent:?}");
    let mut bench = Bench::<R>::new();
    bench.busy();
    assert!(bench.replica.deadline().is_some());
    bench.replica.waits(None, false);
    assert_eq!(bench.replica.deadline(), None);
}

/// A leader that has nothing to propose announces the certificate that it alone has, once.
fn n8_idle_leader_announces_once<R: Rules>() {
    let mut bench = Bench::<R>::of(2);
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), Content::Propose(block.clone(), proof)).unwrap();
    bench.sent();
    let vote = BlockVote { view: View(1), block: block.id() };
    for id in [0, 1, 3] {
        let _ = bench.deliver(r(id), Content::Vote(vote));
    }
    let sent = bench.sent();
    assert!(matches!(&sent[..], [Content::Advance(proof)] if proof.qc.block() == block.id()), "{sent:?}");
    bench.replica.waits(None, false);
    assert_eq!(bench.sent(), []);
}

/// Milliseconds until the timer of the view expires.
fn timer<R: Rules>(bench: &Bench<R>) -> u64 {
    bench.replica.timer(Timer::View).unwrap().since(bench.replica.now()) / MS
}

/// Timers double with each failed view, up to the cap, and are short again after a commit.
fn n9_timers_double_until_a_commit<R: Rules>() {
    let mut bench = Bench::<R>::new();
    bench.busy();
    let mut lengths = Vec::new();
    for view in 1..=8u64 {
        lengths.push(timer(&bench));
        let shown = ViewProof { qc: bench.qc.clone(), timeouts: Some(timeouts(view, [0; 3])) };
        bench.deliver(r(0), Content::Advance(shown)).unwrap();
    }
    assert_eq!(lengths, [400, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    let mut length = 0;
    for view in 9..=13u64 {
        if view == 10 {
            assert_eq!(timer(&bench), 10_000, "a certificate is no commit");
        }
        bench.block_in(view);
        length = timer(&bench);
    }
    assert_eq!(length, 400);
}

/// A replica whose own execution lags does not time out as long as the execution goes on.
fn n10_slow_execution_causes_no_timeout<R: Rules>() {
    let mut bench = Bench::<R>::new();
    bench.replica.lags(true);
    bench.busy();
    bench.replica.execute(Height(1));
    bench.expire();
    assert_eq!(bench.sent(), []);
    bench.expire();
    let sent = bench.sent();
    assert!(matches!(&sent[..], [Content::Timeout(..)]), "no block was executed since: {sent:?}");
}

/// The changes of the urgent peer since the last call.
fn urgent<R: Rules>(bench: &mut Bench<R>) -> Vec<String> {
    bench.replica.lines().into_iter().filter(|line| line.starts_with("urgent")).collect()
}

fn becomes_urgent(peer: Option<u16>) -> Vec<String> {
    vec![format!("urgent {:?}", peer.map(r))]
}

fn n11_current_leader_is_read_first<R: Rules>() {
    let mut bench = Bench::<R>::new();
    assert_eq!(urgent(&mut bench), becomes_urgent(Some(1)), "at the opening");
    bench.busy();
    let mut proposals = Vec::new();
    for view in 1..=4u64 {
        proposals.push(bench.block_in(view));
        bench.replica.settle();
        let changes = urgent(&mut bench);
        // This replica leads view 3. A vote changes nothing: the next leader is read first in the next view.
        let expected = [vec![], becomes_urgent(Some(2)), becomes_urgent(None), becomes_urgent(Some(0))];
        assert_eq!(changes, expected[usize::try_from(view - 1).unwrap()], "view {view}");
    }
    bench.replica.crash().unwrap();
    assert_eq!((bench.view(), urgent(&mut bench)), (View(4), becomes_urgent(Some(0))), "after a restart");
    let proof = ViewProof { qc: bench.qc.clone(), timeouts: Some(timeouts(5, [0; 3])) };
    bench.deliver(r(0), Content::Advance(proof)).unwrap();
    let changes = [becomes_urgent(Some(1)), becomes_urgent(Some(2))].concat();
    assert_eq!((bench.view(), urgent(&mut bench)), (View(6), changes), "after a certificate and timeouts");
    let mut leader = Bench::<R>::of(1);
    assert_eq!(urgent(&mut leader), Vec::<String>::new(), "it leads the first view");
}

fn n11_leader_of_many_views_becomes_urgent_once<R: Rules>() {
    let params = ChainedParams { leader_policy: LeaderPolicy::Terms, ..ChainedParams::default() };
    let mut bench = Bench::<R>::with(3, &params);
    assert_eq!(urgent(&mut bench), becomes_urgent(Some(0)));
    for view in 1..=8 {
        let block = bench.next(view);
        bench.certify(&block);
        bench.deliver(r(0), Content::Advance(follows(&bench.qc.clone()))).unwrap();
        let expected = if view == 7 { becomes_urgent(Some(1)) } else { vec![] };
        assert_eq!((bench.view(), urgent(&mut bench)), (View(view + 1), expected));
    }
}

/// The leader after a certificate may depend on blocks that arrive later.
fn n11_leader_found_later_becomes_urgent_then<R: Rules>() {
    let params = ChainedParams { leader_policy: LeaderPolicy::Stable, ..ChainedParams::default() };
    let mut bench = Bench::<R>::with(3, &params);
    assert_eq!(urgent(&mut bench), becomes_urgent(Some(0)));
    let block = bench.next(1);
    bench.deliver(r(0), Content::Advance(follows(&qc(&block)))).unwrap();
    assert_eq!((bench.view(), urgent(&mut bench)), (View(2), becomes_urgent(None)), "its header is missing");
    bench.busy();
    assert_eq!(urgent(&mut bench), Vec::<String>::new());
    bench.replica.fetched(block.clone());
    assert_eq!(urgent(&mut bench), becomes_urgent(Some(block.proposer.0)));
}

/// Votes of a certified view are not verified. Votes of a failed view are: they may still complete its certificate.
fn c6_votes_are_verified_while_they_may_count<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let first = bench.next(1);
    bench.certify(&first);
    bench.deliver(r(0), Content::Advance(bench.proof(2))).unwrap();
    assert_eq!((bench.view(), bench.replica.window().views.start), (View(2), View(2)));
    bench.deliver(r(0), Content::Advance(bench.proof(3))).unwrap();
    assert_eq!((bench.view(), bench.replica.window().views.start), (View(3), View(2)));
}

/// A vote is sent again to its collector alone after a gap in the link, unless the view has its certificate.
fn c6_lost_vote_is_sent_again<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let block = bench.block_in(1);
    let vote = BlockVote { view: View(1), block: block.id() };
    assert_eq!(bench.votes(), [vote]);
    for (peer, again) in [(0, vec![]), (2, vec![vote])] {
        bench.replica.link(r(peer), LinkEvent::Gap);
        assert_eq!(bench.votes(), again, "to {peer}");
    }
    bench.deliver(r(0), Content::Advance(follows(&bench.qc.clone()))).unwrap();
    bench.votes();
    bench.replica.link(r(2), LinkEvent::Gap);
    assert_eq!(bench.votes(), []);
}

/// A vote is sent to the next leader alone.
fn c6_votes_go_to_the_next_leader<R: Rules>() {
    let mut bench = Bench::<R>::new();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), Content::Propose(block, proof)).unwrap();
    bench.replica.sync();
    let to: Vec<To> = bench.replica.sent().iter().map(|(to, _)| *to).collect();
    assert_eq!(to, [To::One(r(2))]);
}
