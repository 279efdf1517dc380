//! Tests of the rules in the module's table, by hand.

use super::{HotStuff, HotStuffMessage, HotStuffParams, VOTE};
use crate::chained::{self, Bench, Chained, follows, on, qc, r};
use quorate_consensus::Certificate;
use quorate_consensus::parts::leaders::LeaderPolicy;
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_types::{Height, View};

impl Chained for HotStuff {
    const LINKS: u64 = 3;

    fn round_robin() -> HotStuffParams {
        HotStuffParams { leader_policy: LeaderPolicy::RoundRobin, ..HotStuffParams::default() }
    }
}

macro_rules! rules {
    ($($name:ident: $test:expr;)*) => {
        $(#[test] fn $name() { $test; })*
    };
}

rules! {
    h1_certificates_count_first: chained::certificates_count_first::<HotStuff>();
    h2_proposals_must_fit: chained::proposals_must_fit::<HotStuff>();
    h2_heights_rise_no_faster_than_views: chained::heights_rise_no_faster_than_views::<HotStuff>();
    h4_commits_want_consecutive_views: chained::commits_want_consecutive_views::<HotStuff>();
    h5_commits_extend_what_is_committed: chained::commits_extend_what_is_committed::<HotStuff>();
    h6_one_proposal_in_a_view: chained::one_proposal_in_a_view::<HotStuff>();
    h6_a_leader_to_be_reserves_its_view: chained::a_leader_to_be_reserves_its_view::<HotStuff>();
    h8_one_vote_in_a_view: chained::one_vote_in_a_view::<HotStuff>();
    h8_votes_are_for_what_is_ready_and_valid: chained::votes_are_for_what_is_ready_and_valid::<HotStuff>();
    h8_no_vote_after_giving_up: chained::no_vote_after_giving_up::<HotStuff>(false);
    h10_h13_votes_survive_a_crash: chained::votes_survive_a_crash::<HotStuff>();
    h10_votes_go_to_the_next_leader: chained::votes_go_to_the_next_leader::<HotStuff>();
    h10_a_vote_that_was_lost_is_said_again: chained::a_vote_that_was_lost_is_said_again::<HotStuff>();
    h10_votes_are_verified_while_they_may_count: chained::votes_are_verified_while_they_may_count::<HotStuff>();
    h11_own_votes_count_from_own_copies: chained::own_votes_count_from_own_copies::<HotStuff>();
    h12_certificates_take_distinct_voters: chained::certificates_take_distinct_voters::<HotStuff>();
    n1_views_change_by_certificate_only: chained::views_change_by_certificate_only::<HotStuff>();
    n2_complaints_show_the_highest_certificate: chained::complaints_show_the_highest_certificate::<HotStuff>();
    n3_a_skipped_view_must_be_shown: chained::a_skipped_view_must_be_shown::<HotStuff>();
    n3_proofs_are_checked: chained::proofs_are_checked::<HotStuff>();
    n3_complaints_show_how_their_view_was_reached: chained::complaints_show_how_their_view_was_reached::<HotStuff>();
    n4_complaints_carry_the_last_vote: chained::complaints_carry_the_last_vote::<HotStuff>();
    n5_laggards_are_shown_the_way: chained::laggards_are_shown_the_way::<HotStuff>();
    n6_f_plus_1_complaints_are_joined: chained::f_plus_1_complaints_are_joined::<HotStuff>();
    n7_timers_and_proposals_follow_what_waits: chained::timers_and_proposals_follow_what_waits::<HotStuff>();
    n8_an_idle_leader_announces_once: chained::an_idle_leader_announces_once::<HotStuff>();
    n9_timers_double_until_a_commit: chained::timers_double_until_a_commit::<HotStuff>();
    n10_slow_execution_is_no_reason_to_complain: chained::slow_execution_is_no_reason_to_complain::<HotStuff>();
}

/// The head of a certified two-chain, of whatever views; never back.
#[test]
fn h3_the_lock_rises_with_two_chains() {
    let mut bench = Bench::<HotStuff>::new();
    let mut locks = Vec::new();
    for view in [1, 2, 5, 6, 7] {
        bench.block_in(view);
        locks.push(bench.replica.status().locked.0);
    }
    // A block brings its parent's certificate, and that locks the parent's parent.
    assert_eq!(locks, [0, 0, 1, 2, 3]);
    // An older certificate changes nothing.
    let old = follows(&qc::<HotStuff>(&bench.blocks[2]));
    let _ = bench.deliver(r(0), HotStuffMessage::NextView(old));
    assert_eq!(bench.replica.status().locked, Height(3));
}

/// Locked on the block of view 2. Views 4 and 5 fail; then somebody proposes beside the lock.
fn locked() -> Bench<HotStuff> {
    let mut bench = Bench::<HotStuff>::new();
    for view in [1, 2, 3, 4] {
        bench.block_in(view);
    }
    assert_eq!(bench.replica.status().locked, Height(2));
    bench.said();
    bench
}

#[test]
fn h9_no_vote_beside_the_lock() {
    let mut bench = locked();
    // On the block of view 1, with its certificate: older than the lock.
    let first = qc::<HotStuff>(&bench.blocks[0]);
    let beside = on(&first, 2, 6);
    let proof = ViewProof { qc: first.clone(), timeouts: Some(chained::given_up(5, [1, 1, 1])) };
    bench.deliver(r(2), HotStuffMessage::Propose { block: beside, proof }).unwrap();
    assert_eq!(bench.votes(), []);
    // A certificate newer than the lock is a reason to vote beside it: nothing on the lock can have been committed.
    let mut bench = locked();
    let first = qc::<HotStuff>(&bench.blocks[0]);
    let other = on(&first, 2, 6);
    bench.replica.fetched(other.clone());
    let certified = qc::<HotStuff>(&other);
    let beside = on(&certified, 3, 8);
    let proof = ViewProof { qc: certified, timeouts: Some(chained::given_up(7, [6, 6, 6])) };
    bench.deliver(r(0), HotStuffMessage::Propose { block: beside.clone(), proof }).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(8), block: beside.id() }]);
    // And what extends the lock is voted for, however old its certificate is.
    let mut bench = locked();
    let third = qc::<HotStuff>(&bench.blocks[2]);
    let extends = on(&third, 4, 6);
    let proof = ViewProof { qc: third, timeouts: Some(chained::given_up(5, [3, 3, 3])) };
    bench.deliver(r(2), HotStuffMessage::Propose { block: extends.clone(), proof }).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(6), block: extends.id() }]);
}

/// The certificate inside a proposal locks only when the headers below it are here: then before the vote.
#[test]
fn h7_the_lock_stands_before_the_vote() {
    let mut bench = Bench::<HotStuff>::new();
    let genesis = Certificate::genesis(VOTE);
    let one = on(&genesis, 1, 1);
    let two = on(&qc::<HotStuff>(&one), 2, 2);
    let three = on(&qc::<HotStuff>(&two), 3, 4);
    let proof = ViewProof { qc: qc::<HotStuff>(&two), timeouts: Some(chained::given_up(3, [2, 2, 2])) };
    bench.replica.answer(three.id(), None);
    bench.deliver(r(0), HotStuffMessage::Propose { block: three.clone(), proof }).unwrap();
    assert_eq!((bench.votes(), bench.replica.status().locked), (vec![], Height(0)), "headers are missing");
    bench.replica.fetched(one.clone());
    bench.replica.fetched(two);
    bench.replica.ready(three.id(), quorate_consensus::Ready::Valid);
    assert_eq!(bench.votes(), [BlockVote { view: View(4), block: three.id() }]);
    // What was written down with the vote has the lock.
    bench.replica.lose_blocks();
    bench.replica.crash().unwrap();
    assert_eq!(bench.replica.status().locked, one.height);
}
