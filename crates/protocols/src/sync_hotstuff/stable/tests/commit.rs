//! S6 to S9: commits by silence.

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

fn by_timer(header: &Header) -> (BlockId, Basis) {
    (id(header), Basis::Timer)
}

fn doubts(bench: &Bench<impl Variant>) -> Vec<&'static str> {
    let why = |alarm: &Alarm| match alarm {
        Alarm::SynchronyDoubt { why, .. } => *why,
        other => panic!("{other}"),
    };
    bench.replica.alarms().iter().map(why).collect()
}

/// Scenario 18: a disk that stalls makes the wait begin later.
fn s6_wait_begins_at_the_own_copy<V: Variant>() {
    let mut bench = Bench::<V>::new();
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.propose(&blocks[0]);
    bench.vote(bench.few(), &blocks[0]);
    bench.replica.advance(delta(3));
    assert_eq!(bench.committed(), [], "its own vote has not left");
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
    // Its own vote is on its way to the disk when the view ends.
    bench.blame();
    assert_eq!(bench.deliver(2, voted(&blocks[0])), Err(Reject::Stale));
    bench.replica.settle();
    bench.replica.advance(delta(4));
    assert_eq!(bench.committed(), []);
}

/// Scenario 12. What was voted for before commits with what is voted for now.
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
        assert_eq!(bench.votes(), [id(&blocks[0])], "its last vote again, and no other");
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
    // Nor one whose time was over, and that the guard has held back.
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

/// Blocks whose certificates have left, to all.
fn shown(bench: &mut Bench<impl Variant>) -> Vec<BlockId> {
    let certified = |(to, message)| match (to, message) {
        (To::All, SyncMessage::Certified(certificate)) => Some(certificate.block()),
        _ => None,
    };
    bench.replica.sent().into_iter().filter_map(certified).collect()
}

/// §8, Lemma 1 c: whoever does not vote, for whatever reason, has it when it enters the next view.
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
    // Where all have voted, all have it.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks[..1]);
    let (others, last) = (2..=bench.n - 2, bench.n - 1);
    for voter in others.chain([last]).filter(|voter| *voter != ME) {
        let _ = bench.deliver(voter, voted(&blocks[0]));
    }
    bench.pass(delta(2));
    assert_eq!((shown(&mut bench), bench.committed().len()), (vec![], 1));
}

/// §8, Lemma 1 c: Δ after it was shown all have it. Whoever has left the view before has said so by then.
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

/// §8: also where one forms later.
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
    // Two waits are over: the higher one says it for both.
    assert_eq!(bench.committed(), [by_timer(&blocks[1])]);
    assert_eq!(bench.replica.status().committed, Height(2));
    bench.pass(delta(1));
    assert_eq!(bench.committed(), [by_timer(&blocks[2])]);
    bench.pass(delta(4));
    assert_eq!(bench.committed(), []);
}

/// Else somebody who has missed the header votes beside it so late that a wait for what lies above is over before that is heard:
/// where the own wait had no certificate, and where there was none because this replica did not run yet.
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
    // A wait that runs shows it in time.
    let mut bench = Bench::<V>::new();
    bench.propose(&blocks[0]);
    bench.replica.settle();
    bench.propose(&blocks[1]);
    assert_eq!(shown(&mut bench), []);
}

/// Where only what lies above is known as certified, others may not know yet that it lies there.
fn s7_silence_counts_later_after_a_skipped_header<V: Variant>() {
    let blocks = chain(9, 1, GENESIS, &[1, 2, 3]);
    // Among fewer a liar would make one replica commit later than others for nothing.
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
    // Where no votes decide at once it matters to nobody.
    let is_later = V::responsive_quorum(9).is_some();
    bench.pass(delta(if is_later { 4 } else { 2 }) - 1);
    assert_eq!(bench.committed(), if is_later { vec![] } else { vec![by_timer(&blocks[1])] });
    bench.pass(1);
    assert_eq!(bench.committed(), [by_timer(&blocks[2])]);
    // As where something was voted on top of that others alone have voted for.
    let mut bench = Bench::<V>::running(ME, 9);
    bench.grow(&blocks[..1]);
    bench.pass(delta(2));
    assert_eq!(bench.committed(), [by_timer(&blocks[0])]);
    bench.replica.fetched(blocks[1].block.clone());
    bench.clear();
    bench.grow(&blocks[2..]);
    bench.replica.advance(2 * quarter());
    assert_eq!(shown(&mut bench), [id(&blocks[1]), id(&blocks[2])], "the second one no later than ever");
    bench.pass(delta(if is_later { 5 } else { 2 }) - 2 * quarter() - 1);
    assert_eq!(bench.committed(), []);
    bench.pass(1);
    assert_eq!(bench.committed(), [by_timer(&blocks[2])]);
}

/// Headers are kept 16 windows ahead: so whoever waits for longer, or for headers that it has skipped, hears all the same what
/// those vote for who commit before it.
fn s2_votes_reach_less_far_if_some_replicas_commit_later<V: Variant>() {
    for n in [5, 8, 9] {
        let bench = Bench::<V>::running(ME, n);
        let windows = if n == 9 && V::responsive_quorum(9).is_some() { 4 } else { 8 };
        let protocol = bench.replica.protocol();
        assert_eq!(protocol.highest_voted_for(), Height(windows * protocol.window));
    }
}

/// Nor has what was to be shown been shown where silence has ended all waits.
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

/// Something may come just when a certificate is due to be shown, before the timer goes off.
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

/// What is certified above or beside the own vote has to lie on one chain with it.
fn s8_timer_commits_nothing_that_conflicts_with_a_certified_block<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = chain(N, 1, GENESIS, &[8, 9]);
    let beside = other[1].clone();
    // One of a block that is not known holds up nothing: there may be a later one at any time.
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

/// Long enough since the start that nothing is cut off at zero.
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
    assert!(bench.replica.asked_fresh().contains(&fresh), "the host has to probe once more");
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
        "the one below was voted for at 16 delta, not later"
    );
}

/// Scenario 13, at one replica.
fn broken_silence_raises_the_alarm_after_a_commit<V: Variant>() {
    let why = "a leader contradicted itself in a view in which a timer has committed";
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let as_word = |header: &Header| Signed {
        body: LeaderStatement::Header(header.clone()),
        by: header.block.proposer,
        signature: SIGNATURE,
    };
    let proof = SyncMessage::Evidence(conflict(as_word(&blocks[0]), as_word(&other)));
    for late in [voted(&other), proof.clone()] {
        let mut bench = Bench::<V>::new();
        bench.grow(&blocks[..1]);
        bench.pass(delta(2));
        assert_eq!(bench.committed(), [by_timer(&blocks[0])]);
        let _ = bench.deliver(1, late.clone());
        assert_eq!(bench.doubts(), [why], "{late:?}");
        assert!(bench.is_quiet(), "it may be a leader that lies late: the replica goes on");
    }
    // Not where nothing rested on it.
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
    assert_eq!(bench.doubts(), ["a late certificate contradicts what is committed"]);
}
