//! Tests of the rules of Jolteon.

use super::kit::{Bench, after, on, qc, r};
use super::shared;
use crate::chained::{ChainedParams, Content, Jolteon};
use quorate_consensus::parts::leaders::LeaderPolicy;
use quorate_consensus::parts::votes::BlockVote;
use quorate_types::View;

#[test]
fn j1_commits_need_consecutive_views() {
    shared::commits_need_consecutive_views::<Jolteon>();
}

#[test]
fn j3_no_vote_after_a_timeout_and_a_restart() {
    shared::no_vote_after_a_timeout::<Jolteon>(true);
}

#[test]
fn j4_listed_certificate_is_durable_before_the_timeout() {
    shared::n2_timeouts_carry_the_highest_certificate::<Jolteon>();
}

/// Two certified views of a chain; then view 3 fails.
fn gap() -> Bench<Jolteon> {
    let mut bench = Bench::<Jolteon>::new();
    for view in [1, 2, 3] {
        bench.block_in(view);
    }
    bench.sent();
    bench
}

/// After a failed view a vote needs a certificate at least as high as all that the proposal's timeouts list. The intake
/// refuses others as well; the handler does not rely on it.
#[test]
fn j2_vote_needs_the_highest_listed_certificate() {
    for (listed, votes) in [([1, 1, 1], 1), ([0, 1, 0], 1), ([1, 2, 1], 0), ([0, 0, 2], 0)] {
        let mut bench = gap();
        let first = qc(&bench.blocks[0]);
        let block = on(&first, 2, 4);
        let proof = after(&first, 3, listed);
        bench.deliver(r(0), Content::Propose(block, proof)).unwrap();
        assert_eq!(bench.votes().len(), votes, "{listed:?}");
    }
}

/// A higher certificate that the replica itself knows does not matter: the proposal's timeouts decide.
#[test]
fn j2_proposal_is_judged_by_its_own_timeouts() {
    let mut bench = gap();
    let first = qc(&bench.blocks[0]);
    let block = on(&first, 2, 4);
    let proof = after(&first, 3, [1, 1, 1]);
    bench.deliver(r(0), Content::Propose(block.clone(), proof)).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(4), block: block.id() }]);
}

/// A timeout after a vote is allowed. A vote after a timeout is not.
#[test]
fn j3_timeout_may_follow_a_vote() {
    let mut bench = Bench::<Jolteon>::new();
    bench.busy();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), Content::Propose(block, proof)).unwrap();
    bench.sent();
    bench.expire();
    let sent = bench.sent();
    assert!(matches!(&sent[..], [Content::Timeout(View(1), _, Some(_))]), "{sent:?}");
}

/// With terms a timeout may skip views, and bars all of them.
#[test]
fn j3_skipped_views_are_barred() {
    let params =
        ChainedParams { leader_policy: LeaderPolicy::Terms, views_per_leader: 4, ..ChainedParams::default() };
    let mut bench = Bench::<Jolteon>::with(3, &params);
    bench.busy();
    bench.expire();
    bench.sent();
    // The certificate of view 1 comes late: view 2 belongs to the failed term.
    let mut one = bench.next(1);
    one.proposer = r(0);
    bench.replica.fetched(one.clone());
    bench.certify(&one);
    let (mut two, proof) = (bench.next(2), bench.proof(2));
    two.proposer = r(0);
    bench.deliver(r(0), Content::Propose(two.clone(), proof)).unwrap();
    assert_eq!((bench.view(), bench.votes()), (View(2), vec![]));
    // The next term is not barred.
    bench.certify(&two);
    let mut three = bench.next(4);
    three.proposer = r(1);
    let proof = after(&bench.qc.clone(), 3, [2, 2, 2]);
    bench.deliver(r(1), Content::Propose(three.clone(), proof)).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(4), block: three.id() }]);
}
