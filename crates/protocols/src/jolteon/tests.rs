//! Tests of the rules in the module's table, by hand.

use super::{Jolteon, JolteonMessage, JolteonParams};
use crate::chained::{self, Bench, Chained, Said, given_up, on, qc, r};
use quorate_consensus::parts::leaders::LeaderPolicy;
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_types::View;

impl Chained for Jolteon {
    const LINKS: u64 = 2;

    fn round_robin() -> JolteonParams {
        JolteonParams { leader_policy: LeaderPolicy::RoundRobin, ..JolteonParams::default() }
    }
}

macro_rules! rules {
    ($($name:ident: $test:expr;)*) => {
        $(#[test] fn $name() { $test; })*
    };
}

rules! {
    j1_certificates_count_first: chained::certificates_count_first::<Jolteon>();
    j2_proposals_must_fit: chained::proposals_must_fit::<Jolteon>();
    j2_heights_rise_no_faster_than_views: chained::heights_rise_no_faster_than_views::<Jolteon>();
    j3_commits_want_consecutive_views: chained::commits_want_consecutive_views::<Jolteon>();
    j3_commits_extend_what_is_committed: chained::commits_extend_what_is_committed::<Jolteon>();
    j4_one_proposal_in_a_view: chained::one_proposal_in_a_view::<Jolteon>();
    j4_a_leader_to_be_reserves_its_view: chained::a_leader_to_be_reserves_its_view::<Jolteon>();
    j5_one_vote_in_a_view: chained::one_vote_in_a_view::<Jolteon>();
    j5_votes_are_for_what_is_ready_and_valid: chained::votes_are_for_what_is_ready_and_valid::<Jolteon>();
    n2_no_vote_after_giving_up: chained::no_vote_after_giving_up::<Jolteon>(false);
    n2_no_vote_after_giving_up_and_a_restart: chained::no_vote_after_giving_up::<Jolteon>(true);
    j7_j10_votes_survive_a_crash: chained::votes_survive_a_crash::<Jolteon>();
    j7_votes_go_to_the_next_leader: chained::votes_go_to_the_next_leader::<Jolteon>();
    j7_a_vote_that_was_lost_is_said_again: chained::a_vote_that_was_lost_is_said_again::<Jolteon>();
    j7_votes_are_verified_while_they_may_count: chained::votes_are_verified_while_they_may_count::<Jolteon>();
    j8_own_votes_count_from_own_copies: chained::own_votes_count_from_own_copies::<Jolteon>();
    j9_certificates_take_distinct_voters: chained::certificates_take_distinct_voters::<Jolteon>();
    n1_views_change_by_certificate_only: chained::views_change_by_certificate_only::<Jolteon>();
    n3_complaints_show_the_highest_certificate: chained::complaints_show_the_highest_certificate::<Jolteon>();
    n3_a_skipped_view_must_be_shown: chained::a_skipped_view_must_be_shown::<Jolteon>();
    n3_proofs_are_checked: chained::proofs_are_checked::<Jolteon>();
    n3_complaints_show_how_their_view_was_reached: chained::complaints_show_how_their_view_was_reached::<Jolteon>();
    n4_complaints_carry_the_last_vote: chained::complaints_carry_the_last_vote::<Jolteon>();
    n5_laggards_are_shown_the_way: chained::laggards_are_shown_the_way::<Jolteon>();
    n6_f_plus_1_complaints_are_joined: chained::f_plus_1_complaints_are_joined::<Jolteon>();
    n7_timers_and_proposals_follow_what_waits: chained::timers_and_proposals_follow_what_waits::<Jolteon>();
    n8_an_idle_leader_announces_once: chained::an_idle_leader_announces_once::<Jolteon>();
    n9_timers_double_until_a_commit: chained::timers_double_until_a_commit::<Jolteon>();
    n10_slow_execution_is_no_reason_to_complain: chained::slow_execution_is_no_reason_to_complain::<Jolteon>();
}

/// Two views of a chain, certified; then view 3 is given up.
fn gap() -> Bench<Jolteon> {
    let mut bench = Bench::<Jolteon>::new();
    for view in [1, 2, 3] {
        bench.block_in(view);
    }
    bench.said();
    bench
}

/// After a view that was given up, a proposal rests on a certificate at least as high as all that the timeouts list. The
/// intake refuses others as well; the handler does not rely on it.
#[test]
fn j6_a_proposal_rests_on_the_highest_that_is_listed() {
    for (listed, votes) in [([1, 1, 1], 1), ([0, 1, 0], 1), ([1, 2, 1], 0), ([0, 0, 2], 0)] {
        let mut bench = gap();
        let first = qc::<Jolteon>(&bench.blocks[0]);
        let block = on(&first, 2, 4);
        let proof = ViewProof { qc: first, timeouts: Some(given_up(3, listed)) };
        bench.deliver(r(0), JolteonMessage::Propose { block, proof }).unwrap();
        assert_eq!(bench.votes().len(), votes, "{listed:?}");
    }
}

/// What a replica itself knows to be higher is no reason against a vote: the timeouts decide.
#[test]
fn j6_the_shown_timeouts_decide() {
    let mut bench = gap();
    let first = qc::<Jolteon>(&bench.blocks[0]);
    let block = on(&first, 2, 4);
    let proof = ViewProof { qc: first, timeouts: Some(given_up(3, [1, 1, 1])) };
    bench.deliver(r(0), JolteonMessage::Propose { block: block.clone(), proof }).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(4), block: block.id() }]);
}

/// Voted, then timed out: allowed. The other way round is not.
#[test]
fn n2_a_vote_may_be_followed_by_a_timeout() {
    let mut bench = Bench::<Jolteon>::new();
    bench.busy();
    let (block, proof) = (bench.next(1), bench.proof(1));
    bench.deliver(r(1), JolteonMessage::Propose { block, proof }).unwrap();
    bench.said();
    bench.expire();
    let said = bench.said();
    assert!(matches!(&said[..], [Said::GiveUp(View(1), _, Some(_))]), "{said:?}");
}

/// With terms a timeout may skip views: no vote in any of them.
#[test]
fn n2_skipped_views_are_barred() {
    use quorate_consensus::harness::{Harness, Setup};
    let params =
        JolteonParams { leader_policy: LeaderPolicy::Terms, views_per_leader: 4, ..JolteonParams::default() };
    let mut bench = Bench::<Jolteon>::new();
    bench.replica = Harness::open(r(3), Setup::of::<Jolteon>(4), &params).unwrap();
    bench.busy();
    bench.expire();
    bench.said();
    // The certificate of view 1 comes late: view 2 belongs to the term that was given up.
    let mut one = bench.next(1);
    one.proposer = r(0);
    bench.replica.fetched(one.clone());
    bench.certify(&one);
    let (mut two, proof) = (bench.next(2), bench.proof(2));
    two.proposer = r(0);
    bench.deliver(r(0), JolteonMessage::Propose { block: two.clone(), proof }).unwrap();
    assert_eq!((bench.view(), bench.votes()), (View(2), vec![]));
    // The next term is nobody's past.
    bench.certify(&two);
    let mut three = bench.next(4);
    three.proposer = r(1);
    let proof = ViewProof { qc: bench.qc.clone(), timeouts: Some(given_up(3, [2, 2, 2])) };
    bench.deliver(r(1), JolteonMessage::Propose { block: three.clone(), proof }).unwrap();
    assert_eq!(bench.votes(), [BlockVote { view: View(4), block: three.id() }]);
}
