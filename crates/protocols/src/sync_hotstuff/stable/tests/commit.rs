//! S6 to S9: commits by timers.

use super::*;
use quorate_consensus::{Alarm, LinkEvent};

both! {
    s6_wait_begins_at_the_own_copy;
    s6_only_running_replicas_wait;
    s6_left_view_has_no_wait;
    s6_restart_ends_commit_timers;
    s6_silence_ends_commit_timers;
    s7_timer_commits_nothing_without_a_certificate;
    s7_certificate_without_all_votes_is_broadcast;
    s7_late_certificate_extends_the_wait;
    s7_certificate_without_a_wait_is_broadcast_before_the_next_vote;
    s7_silence_counts_later_after_a_skipped_header;
    s2_votes_reach_less_far_if_some_replicas_commit_later;
    s7_certificate_held_by_silence_is_broadcast_after_it;
    s7_due_certificate_is_not_postponed;
    s8_ancestors_are_committed_with_a_block;
    s8_conflicting_block_is_not_committed;
    s8_timer_commits_nothing_that_conflicts_with_a_certified_block;
    s9_commit_needs_fresh_answers;
    s9_commit_needs_a_long_time_without_doubt;
    s9_descendant_commits_a_block_that_the_guard_held_back;
    broken_silence_raises_the_alarm_after_a_commit;
    late_certificates_and_votes_raise_the_alarm;
}

fn by_timer(header: &Header) -> (BlockId, CommitRule) {
    (id(header), CommitRule::Timer)
}

/// Scenario 18: a stalled disk delays the beginning of the wait.
fn s6_wait_begins_at_the_own_copy<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.propose(&blocks[0]);
    bench.vote(bench.few(), &blocks[0]);
    bench.replica.advance(delta(3));
    assert_eq!(bench.committed(), [], "the own vote has not left");
    bench.replica.settle();
    bench.replica.advance(delta(2) - 1);
    assert_eq!(bench.committed(), []);
    bench.replica.advance(1);
    assert_eq!(bench.committed(), [by_timer(&blocks[0])]);
    assert_eq!(bench.doubts(), Vec::<&str>::new());
    // §13, 6: a leader waits as long.
    let mut leader = Bench::<V>::running(0, N);
    leader.propose(&blocks[0]);
    leader.replica.settle();
    leader.vote([1, 2], &blocks[0]);
    leader.replica.advance(delta(2) - 1);
    assert_eq!(leader.committed(), []);
    leader.replica.advance(1);
    assert_eq!(leader.committed(), [by_timer(&blocks[0])]);
}

fn s6_only_running_replicas_wait<V: Variant>() {
    let mut bench = Bench::<V>::opened(ME, N);
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.answers(&stands(RecoveryStage::Silent));
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    bench.clear();
    bench.grow(&blocks[..1]);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    bench.answers(&stands(RecoveryStage::Voting));
    assert_eq!(bench.stage(), RecoveryStage::Running);
    bench.pass(delta(4));
    assert_eq!(bench.committed(), []);
    bench.grow(&blocks[1..]);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [by_timer(&blocks[1])]);
}

fn s6_left_view_has_no_wait<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.propose(&blocks[0]);
    bench.vote(bench.few(), &blocks[0]);
    // The own vote is on its way to the disk when the view ends.
    bench.blame();
    assert_eq!(bench.deliver(2, voted(&blocks[0])), Err(Reject::Stale));
    bench.replica.settle();
    bench.replica.advance(delta(4));
    assert_eq!(bench.committed(), []);
}

/// Scenario 12. Blocks of earlier votes commit with the block of a new vote.
fn s6_restart_ends_commit_timers<V: Variant>() {
    for stays_silent in [delta(2) - 1, delta(5)] {
        let mut bench = Bench::<V>::new();
        let blocks = chain(N, 1, GENESIS, &[1, 2]);
        bench.grow(&blocks[..1]);
        bench.pass(delta(1));
        bench.replica.crash().unwrap();
        bench.pass(stays_silent);
        let mut answer = stands(RecoveryStage::Running);
        answer.headers = vec![signed(&blocks[0])];
        answer.certificates = vec![certified(N, &blocks[0])];
        bench.answers(&answer);
        assert_eq!(bench.stage(), RecoveryStage::Running);
        assert_eq!(bench.votes(), [id(&blocks[0])], "it repeats its last vote and casts no other");
        bench.pass(delta(6));
        assert_eq!(bench.committed(), []);
        assert_eq!(bench.doubts(), Vec::<&str>::new());
        bench.grow(&blocks[1..]);
        bench.pass(delta(2));
        assert_eq!(bench.committed(), [by_timer(&blocks[1])]);
    }
}

fn s6_silence_ends_commit_timers<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.grow(&blocks[..1]);
    bench.pass(delta(2) - 1);
    for peer in [0, 1, 2] {
        bench.replica.link(r(peer), LinkEvent::Gap);
    }
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    bench.answers(&stands(RecoveryStage::Running));
    assert_eq!(bench.stage(), RecoveryStage::Running);
    bench.pass(delta(6));
    assert_eq!(bench.committed(), []);
    bench.grow(&blocks[1..]);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [by_timer(&blocks[1])]);
    // The same holds for a wait that was over and that the guard has held back.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.replica.answer_sound(None, Time::ZERO);
    bench.pass(delta(2));
    for peer in [0, 1, 2] {
        bench.replica.link(r(peer), LinkEvent::Gap);
    }
    bench.replica.sound(None, Time::MAX);
    bench.answers(&stands(RecoveryStage::Running));
    bench.replica.sound(None, Time::MAX);
    bench.pass(delta(6));
    assert_eq!(bench.committed(), []);
}

/// Returns the blocks whose certificates were broadcast.
fn shown(bench: &mut Bench<impl Variant>) -> Vec<BlockId> {
    let certified = |(to, message)| match (to, message) {
        (To::All, SyncMessage::Certified(certificate)) => Some(certificate.block()),
        _ => None,
    };
    bench.replica.sent().into_iter().filter_map(certified).collect()
}

/// §8, Lemma 1 c: a replica that does not vote has the certificate when it enters the next view.
fn s7_certificate_without_all_votes_is_broadcast<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.pass(2 * quarter() - 1);
    assert_eq!(shown(&mut bench), []);
    bench.pass(1);
    assert_eq!(shown(&mut bench), [id(&blocks[2])], "one for all of them");
    bench.pass(delta(2) - 2 * quarter());
    assert_eq!(bench.committed(), [by_timer(&blocks[2])]);
    assert_eq!(shown(&mut bench), []);
    // After votes of all, all have it.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    let (others, last) = (2..=bench.n - 2, bench.n - 1);
    for voter in others.chain([last]).filter(|voter| *voter != ME) {
        let _ = bench.deliver(voter, voted(&blocks[0]));
    }
    bench.pass(delta(2));
    assert_eq!((shown(&mut bench), bench.committed().len()), (vec![], 1));
}

/// Four votes of five are a quorum, and one replica may still lack the certificate.
#[test]
fn s7_certificate_with_all_votes_but_one_is_broadcast() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<Plain>::new();
    bench.grow(&blocks);
    let _ = bench.deliver(2, voted(&blocks[0]));
    bench.pass(2 * quarter());
    assert_eq!(shown(&mut bench), [id(&blocks[0])]);
}

/// §8, Lemma 1 c: all have it Δ after it was shown. Evidence of replicas that have left the view before has arrived by then.
fn s7_late_certificate_extends_the_wait<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<V>::new();
    bench.propose(&blocks[0]);
    bench.pass(2 * delta(1) - 1);
    bench.vote(bench.few(), &blocks[0]);
    assert_eq!(shown(&mut bench), [id(&blocks[0])], "at once");
    bench.pass(delta(1) - 1);
    assert_eq!(bench.committed(), []);
    bench.pass(1);
    assert_eq!(bench.committed(), [by_timer(&blocks[0])]);
    assert_eq!(bench.doubts(), Vec::<&str>::new());
}

/// §8: also if one forms later.
fn s7_timer_commits_nothing_without_a_certificate<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.propose(&blocks[0]);
    bench.replica.settle();
    bench.vote([0], &blocks[0]);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), []);
    assert_eq!(bench.doubts(), ["a commit timer ended without a certificate"]);
    bench.vote([1], &blocks[0]);
    bench.replica.sound(None, Time::MAX);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), []);
    bench.grow(&blocks[1..]);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [by_timer(&blocks[1])]);
}

fn s8_ancestors_are_committed_with_a_block<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    bench.grow(&blocks[..2]);
    bench.pass(delta(1));
    bench.grow(&blocks[2..]);
    bench.pass(delta(1));
    // Two waits are over: the higher one commits both.
    assert_eq!(bench.committed(), [by_timer(&blocks[1])]);
    assert_eq!(bench.replica.status().committed, Height(2));
    bench.pass(delta(1));
    assert_eq!(bench.committed(), [by_timer(&blocks[2])]);
    bench.pass(delta(4));
    assert_eq!(bench.committed(), []);
}

/// Otherwise a replica that has missed the header may cast a conflicting vote so late that a wait for a block above ends first.
/// The own wait had no certificate, or there was no wait because this replica did not run yet.
fn s7_certificate_without_a_wait_is_broadcast_before_the_next_vote<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let goes_on = |bench: &mut Bench<V>| {
        assert_eq!(shown(bench), []);
        bench.propose(&blocks[1]);
        bench.replica.settle();
        let order: Vec<_> = bench
            .sent()
            .iter()
            .filter_map(|it| match it {
                SyncMessage::Certified(it) => Some((false, it.block())),
                SyncMessage::Vote(header) => Some((true, id(&header.body))),
                _ => None,
            })
            .collect();
        assert_eq!(order, [(false, id(&blocks[0])), (true, id(&blocks[1]))]);
    };
    let mut bench = Bench::<V>::new();
    bench.propose(&blocks[0]);
    bench.pass(delta(2));
    assert_eq!(bench.doubts(), ["a commit timer ended without a certificate"]);
    goes_on(&mut bench);
    let mut bench = Bench::<V>::opened(ME, N);
    bench.answers(&stands(RecoveryStage::Silent));
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    bench.propose(&blocks[0]);
    bench.clear();
    goes_on(&mut bench);
    // A running wait shows it in time.
    let mut bench = Bench::<V>::new();
    bench.propose(&blocks[0]);
    bench.replica.settle();
    bench.propose(&blocks[1]);
    assert_eq!(shown(&mut bench), []);
}

/// If only a block above is certified, others may not know yet which blocks it extends.
fn s7_silence_counts_later_after_a_skipped_header<V: Variant>() {
    let blocks = chain(9, 1, GENESIS, &[1, 2, 3]);
    // Among fewer replicas a liar could delay the commits of one replica for nothing.
    let mut few = Bench::<V>::new();
    few.propose(&blocks[0]);
    few.pass(delta(2));
    few.take(4, voted(&blocks[1]));
    few.take(4, SyncMessage::Certified(certified(N, &blocks[1])));
    few.grow(&blocks[2..]);
    few.pass(delta(2));
    assert_eq!(few.committed(), [by_timer(&blocks[2])]);
    let mut bench = Bench::<V>::running(ME, 9);
    bench.propose(&blocks[0]);
    bench.pass(delta(2));
    bench.clear();
    bench.take(4, voted(&blocks[1]));
    bench.take(4, SyncMessage::Certified(certified(9, &blocks[1])));
    assert_eq!(shown(&mut bench), [id(&blocks[1])]);
    bench.pass(delta(1));
    bench.grow(&blocks[2..]);
    // Without votes that decide at once it does not matter.
    let is_later = V::responsive_quorum(9).is_some();
    bench.pass(delta(if is_later { 4 } else { 2 }) - 1);
    assert_eq!(bench.committed(), if is_later { vec![] } else { vec![by_timer(&blocks[1])] });
    bench.pass(1);
    assert_eq!(bench.committed(), [by_timer(&blocks[2])]);
    // The same holds for a vote on top of a block that only others have voted for.
    let mut bench = Bench::<V>::running(ME, 9);
    bench.grow(&blocks[..1]);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [by_timer(&blocks[0])]);
    bench.replica.fetched(blocks[1].block.clone());
    bench.clear();
    bench.grow(&blocks[2..]);
    bench.replica.advance(2 * quarter());
    assert_eq!(shown(&mut bench), [id(&blocks[1]), id(&blocks[2])], "the second one no later than before");
    bench.pass(delta(if is_later { 5 } else { 2 }) - 2 * quarter() - 1);
    assert_eq!(bench.committed(), []);
    bench.pass(1);
    assert_eq!(bench.committed(), [by_timer(&blocks[2])]);
}

/// Headers are kept 16 windows ahead. So a replica that waits longer, or for skipped headers, still handles the votes of
/// replicas that commit earlier.
fn s2_votes_reach_less_far_if_some_replicas_commit_later<V: Variant>() {
    for n in [5, 8, 9] {
        let bench = Bench::<V>::running(ME, n);
        let windows = if n == 9 && V::responsive_quorum(9).is_some() { 4 } else { 8 };
        let protocol = bench.replica.protocol();
        assert_eq!(protocol.highest_voted_for(), Height(windows * protocol.window));
    }
}

/// A silence that ends all waits also delays certificates that were due to be shown.
fn s7_certificate_held_by_silence_is_broadcast_after_it<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..2]);
    for peer in [0, 1, 2] {
        bench.replica.link(r(peer), LinkEvent::Gap);
    }
    assert_eq!(bench.stage(), RecoveryStage::Silent);
    bench.clear();
    bench.answers(&stands(RecoveryStage::Running));
    assert_eq!(bench.stage(), RecoveryStage::Running);
    assert_eq!(shown(&mut bench), []);
    bench.replica.settle();
    assert_eq!(shown(&mut bench), [id(&blocks[0]), id(&blocks[1])]);
}

/// A message may arrive just when a certificate is due, before the timer.
fn s7_due_certificate_is_not_postponed<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.clear();
    bench.replica.stand_still(2 * quarter());
    bench.propose(&blocks[1]);
    bench.replica.settle();
    assert_eq!(shown(&mut bench), [id(&blocks[0])]);
}

fn s8_conflicting_block_is_not_committed<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 2, GENESIS.1, GENESIS, 9);
    bench.grow(&blocks);
    bench.replica.fetched(other.block.clone());
    bench.replica.decide(Height(1), id(&other));
    bench.pass(delta(2));
    assert_eq!(bench.committed(), []);
    let (first, second) = (id(&other), id(&blocks[0]));
    assert_eq!(bench.replica.alarms(), [Alarm::SafetyBroken { height: Height(1), first, second }]);
}

/// Every certified block must be on one chain with the own vote.
fn s8_timer_commits_nothing_that_conflicts_with_a_certified_block<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = chain(N, 1, GENESIS, &[8, 9]);
    let beside = other[1].clone();
    // A certificate of an unknown block delays nothing: a later one may arrive at any time.
    for (certified_too, is_known, commits) in
        [(&blocks[1], true, true), (&blocks[1], false, true), (&beside, false, true), (&beside, true, false)]
    {
        let mut bench = Bench::<V>::new();
        bench.grow(&blocks[..1]);
        bench.take(4, SyncMessage::Certified(certified(N, certified_too)));
        if is_known {
            bench.replica.fetched(other[0].block.clone());
            bench.replica.fetched(certified_too.block.clone());
        }
        bench.pass(delta(2));
        assert_eq!(!bench.committed().is_empty(), commits);
        assert_eq!(bench.doubts(), Vec::<&str>::new());
    }
}

/// Returns a replica so long after the start that no time is cut off at zero.
fn settled<V: Variant>() -> Bench<V> {
    let mut bench = Bench::<V>::opened(ME, N);
    bench.replica.advance(delta(20));
    bench.run();
    bench.clear();
    bench
}

fn s9_commit_needs_fresh_answers<V: Variant>() {
    let mut bench = settled::<V>();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.grow(&blocks);
    let since = bench.now();
    let fresh = since.plus(delta(1));
    bench.replica.answer_sound(None, fresh.minus(1));
    bench.pass(delta(2));
    assert_eq!(bench.committed(), []);
    assert!(bench.replica.asked_fresh().contains(&fresh), "the host must probe once more");
    bench.replica.sound(None, fresh.minus(1));
    assert_eq!(bench.committed(), []);
    bench.replica.sound(None, fresh);
    assert_eq!(bench.committed(), [by_timer(&blocks[0])], "as soon as it holds");
}

fn s9_commit_needs_a_long_time_without_doubt<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let check = |before: u64, after: u64, commits: bool| {
        let mut bench = settled::<V>();
        bench.grow(&blocks);
        let since = bench.now();
        bench.replica.answer_sound(Some(since.minus(before).plus(after)), Time::MAX);
        bench.pass(delta(2));
        bench.replica.sound(Some(since.minus(before).plus(after)), Time::MAX);
        bench.pass(delta(40));
        assert_eq!(!bench.committed().is_empty(), commits, "doubt {before} before, {after} after");
    };
    check(delta(16) + 1, 0, true);
    check(delta(16), 0, false);
    check(delta(1), 0, false);
    check(0, 1, false);
    check(0, delta(2) - 1, false);
}

fn s9_descendant_commits_a_block_that_the_guard_held_back<V: Variant>() {
    let mut bench = settled::<V>();
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    bench.grow(&blocks[..1]);
    let doubted = bench.now();
    bench.replica.answer_sound(Some(doubted), Time::MAX);
    bench.pass(delta(16));
    bench.grow(&blocks[1..2]);
    bench.pass(1);
    bench.grow(&blocks[2..]);
    bench.pass(delta(2));
    assert_eq!(
        bench.committed(),
        [by_timer(&blocks[2])],
        "the vote for the block below was cast at 16 delta, not later"
    );
}

/// Scenario 13, at one replica.
fn broken_silence_raises_the_alarm_after_a_commit<V: Variant>() {
    let why = "a leader equivocated in a view in which a timer has committed";
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let statement = |header: &Header| Signed {
        body: LeaderStatement::Header(header.clone()),
        by: header.block.proposer,
        signature: SIGNATURE,
    };
    let proof = SyncMessage::Evidence(conflict(statement(&blocks[0]), statement(&other)));
    for late in [voted(&other), proof.clone()] {
        let mut bench = Bench::<V>::new();
        bench.grow(&blocks[..1]);
        bench.pass(delta(2));
        assert_eq!(bench.committed(), [by_timer(&blocks[0])]);
        let _ = bench.deliver(1, late.clone());
        assert_eq!(bench.doubts(), [why], "{late:?}");
        assert!(bench.is_quiet(), "the leader may have lied late: the replica continues");
    }
    // Not if no commit relied on it.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    bench.take(1, proof);
    bench.pass(delta(2));
    assert_eq!((bench.committed(), bench.doubts()), (vec![], vec![]));
}

fn late_certificates_and_votes_raise_the_alarm<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    bench.grow(&blocks);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [by_timer(&blocks[1])]);
    assert_eq!(bench.deliver(4, voted(&blocks[0])), Err(Reject::Stale));
    assert_eq!(bench.doubts(), ["a vote came more than 2 delta after this replica's own"]);
    let mut bench = Bench::<V>::new();
    bench.next_view();
    bench.replica.fetched(blocks[0].block.clone());
    bench.replica.decide(Height(1), id(&blocks[0]));
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[0])));
    assert_eq!(bench.doubts(), Vec::<&str>::new());
    let mut bench = Bench::<V>::new();
    bench.next_view();
    bench.replica.fetched(blocks[0].block.clone());
    bench.replica.decide(Height(1), id(&blocks[0]));
    bench.take(4, SyncMessage::Certified(certified(N, &other)));
    assert_eq!(bench.doubts(), ["a late certificate conflicts with the committed block"]);
}
