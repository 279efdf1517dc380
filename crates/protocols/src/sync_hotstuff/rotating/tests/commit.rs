//! R9 to R12: commits by timers.

use super::*;
use quorate_consensus::Alarm;
use quorate_consensus::LinkEvent;

/// Returns a replica that has voted for the first block, and knows its certificate.
fn one() -> (Bench, Header) {
    let mut bench = Bench::new();
    let first = header(1, GENESIS, 1);
    bench.grow(std::slice::from_ref(&first));
    (bench, first)
}

#[test]
fn r9_view_after_an_uncertified_one_commits_with_its_descendant() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.grow(std::slice::from_ref(&first));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&first)], "the first view follows genesis");
    bench.next_view();
    let third = header(3, tip(&first), 3);
    bench.grow(std::slice::from_ref(&third));
    bench.pass(delta(20));
    assert_eq!(bench.timer_commits(), [], "a replica may be locked on a block of view 2, and have refused");
    let fourth = header(4, tip(&third), 4);
    bench.grow(std::slice::from_ref(&fourth));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&fourth)]);
    assert_eq!(bench.replica.status().committed, Height(3));
}

/// Scenario 18: a stalled disk delays the beginning of the wait.
#[test]
fn r10_wait_begins_at_the_own_copy() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.vote([0, 1, 2], &first);
    assert_eq!(bench.view(), 2, "the view was left before the own vote was durable");
    bench.replica.advance(delta(3));
    assert_eq!(bench.timer_commits(), []);
    bench.replica.settle();
    bench.replica.advance(delta(2) - 1);
    assert_eq!(bench.timer_commits(), []);
    bench.replica.advance(1);
    assert_eq!(bench.timer_commits(), [id(&first)]);
    assert_eq!(bench.doubts(), Vec::<&str>::new());
    // A leader waits as long.
    let mut bench = Bench::running(0, N);
    bench.replica.offer([payload(1)]);
    bench.replica.settle();
    let said = bench.sent();
    let own = said
        .iter()
        .find_map(|it| if let RotatingMessage::Vote(header) = it { Some(header.body.clone()) } else { None });
    let own = own.unwrap();
    bench.vote([1, 2], &own);
    bench.replica.advance(delta(2) - 1);
    assert_eq!(bench.timer_commits(), []);
    bench.replica.advance(1);
    assert_eq!(bench.timer_commits(), [id(&own)]);
}

#[test]
fn r10_waits_survive_the_end_of_their_view_by_a_certificate() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    assert_eq!(bench.view(), 4);
    bench.pass(delta(2) - 1);
    assert_eq!(bench.timer_commits(), []);
    bench.pass(1);
    assert_eq!(bench.timer_commits(), [id(&blocks[2])], "the highest commits all");
    // Blames of a later view end no wait of an earlier one either.
    let (mut bench, first) = one();
    bench.take(0, blamed(2));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&first)]);
    let (mut bench, first) = one();
    bench.take(0, blamed(4));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&first)]);
}

#[test]
fn r10_only_running_replicas_wait() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::opened(ME, N);
    bench.answers(&stands(RecoveryStage::Silent));
    assert_eq!(bench.stage(), RecoveryStage::Voting);
    bench.clear();
    bench.grow(&blocks[..1]);
    assert_eq!(bench.votes(), [id(&blocks[0])]);
    bench.answers(&stands(RecoveryStage::Voting));
    assert_eq!(bench.stage(), RecoveryStage::Running);
    bench.pass(delta(4));
    assert_eq!(bench.timer_commits(), []);
    bench.grow(&blocks[1..]);
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&blocks[1])]);
}

/// Scenario 12. Blocks of earlier votes commit with the block of a new vote.
#[test]
fn r10_restart_ends_commit_timers() {
    for stays_silent in [delta(2) - 1, delta(5)] {
        let first = header(1, GENESIS, 1);
        let mut bench = Bench::new();
        bench.propose(&first);
        bench.replica.settle();
        bench.pass(delta(1));
        bench.replica.crash().unwrap();
        bench.pass(stays_silent);
        let mut answer = stands(RecoveryStage::Running);
        answer.header = Some(signed(&first));
        bench.answers(&answer);
        bench.pass(delta(2));
        assert_eq!(bench.stage(), RecoveryStage::Running);
        assert_eq!(bench.votes(), [id(&first)], "it repeats its last vote and casts no other");
        bench.vote([0, 1], &first);
        bench.pass(delta(6));
        assert_eq!(bench.timer_commits(), []);
        let second = header(2, tip(&first), 2);
        bench.grow(std::slice::from_ref(&second));
        bench.pass(delta(2));
        assert_eq!(bench.timer_commits(), [id(&second)]);
    }
}

#[test]
fn r10_silence_ends_commit_timers() {
    // The 2 Δ run, or the guard holds the block back, or the vote is on its way to the disk.
    for stage in 0..3 {
        let first = header(1, GENESIS, 1);
        let mut bench = Bench::new();
        bench.propose(&first);
        if stage > 0 {
            bench.replica.settle();
        }
        bench.vote([0, 1, 2], &first);
        bench.replica.answer_sound(None, Time::ZERO);
        if stage > 0 {
            bench.pass(if stage == 1 { delta(2) - 1 } else { delta(2) });
        }
        for peer in [0, 1, 2] {
            bench.replica.link(r(peer), LinkEvent::Gap);
        }
        assert_eq!(bench.stage(), RecoveryStage::Silent);
        bench.replica.sound(None, Time::MAX);
        bench.answers(&stands(RecoveryStage::Running));
        bench.replica.advance(delta(2));
        assert_eq!(bench.stage(), RecoveryStage::Running);
        bench.pass(delta(6));
        bench.replica.sound(None, Time::MAX);
        assert_eq!(bench.timer_commits(), [], "{stage}");
        let second = header(2, tip(&first), 2);
        bench.grow(std::slice::from_ref(&second));
        bench.pass(delta(2));
        assert_eq!(bench.timer_commits(), [id(&second)]);
    }
}

/// Every proof of an equivocation counts: before the 2 Δ, during them, and after them while the guard holds back.
#[test]
fn r11_broken_silence_commits_nothing() {
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 2));
    let mut answer = stands(RecoveryStage::Running);
    answer.header = Some(signed(&other));
    let certificates = ViewEvidence::Certificates(Box::new((certified(&first), certified(&other))));
    let noises = [
        ("a proposal", 0, proposal(&other)),
        ("a vote", 2, voted(&other)),
        ("an answer", 2, RotatingMessage::Answer(Box::new(answer))),
        ("two headers", 2, RotatingMessage::Evidence(conflict(&first, &other))),
        ("two certificates", 2, RotatingMessage::Evidence(certificates)),
        ("another certificate", 2, shows(&other)),
        ("blames", 2, blamed(1)),
    ];
    for (what, from, noise) in &noises {
        // Before the vote has left.
        let mut bench = Bench::new();
        bench.propose(&first);
        let _ = bench.deliver(*from, noise.clone());
        bench.replica.settle();
        bench.vote([0, 1, 2], &first);
        bench.pass(delta(3));
        assert_eq!(bench.timer_commits(), [], "{what}");
        // At the last moment of the wait, in the next view.
        let (mut bench, first) = one();
        bench.pass(delta(2) - 1);
        let _ = bench.deliver(*from, noise.clone());
        bench.pass(delta(3));
        assert_eq!(bench.timer_commits(), [], "{what}");
        assert_eq!(bench.doubts(), Vec::<&str>::new(), "{what}: nobody has relied on it");
        // The block commits with a descendant.
        let view = bench.view();
        let next = header(view, tip(&first), 7);
        bench.take(next.block.proposer.0, proposal(&next));
        bench.replica.settle();
        bench.vote(bench.few(), &next);
        let after = header(view + 1, tip(&next), 8);
        bench.grow(std::slice::from_ref(&after));
        bench.pass(delta(2));
        assert_eq!(bench.timer_commits(), [id(&after)], "{what}");
        // While the guard holds the block back.
        let (mut bench, _) = one();
        bench.replica.answer_sound(None, Time::ZERO);
        bench.pass(delta(2));
        let _ = bench.deliver(*from, noise.clone());
        bench.replica.sound(None, Time::MAX);
        bench.pass(delta(3));
        assert_eq!(bench.timer_commits(), [], "{what}");
    }
    // A proof of another view changes nothing.
    let (mut bench, first) = one();
    bench
        .take(2, RotatingMessage::Evidence(conflict(&header(2, tip(&first), 3), &header(2, tip(&first), 4))));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&first)]);
}

/// The own block is certified as well, as the block above it shows.
#[test]
fn r11_certificate_that_conflicts_with_the_vote_ends_the_wait() {
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 2));
    let second = header(2, tip(&first), 2);
    for beside in [false, true] {
        let mut bench = Bench::new();
        bench.propose(&first);
        bench.replica.settle();
        if beside {
            bench.take(2, shows(&other));
        }
        bench.replica.fetched(second.block.clone());
        bench.take(2, shows(&second));
        bench.pass(delta(3));
        assert_eq!(bench.timer_commits().is_empty(), beside);
    }
}

#[test]
fn r11_equivocation_is_broadcast_at_once_and_once() {
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 2));
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.sent();
    assert_eq!(bench.deliver(2, voted(&other)), Err(CONFLICT));
    // The evidence leaves whatever the disk does.
    assert_eq!(evidence_in(&bench.sent()), [conflict(&first, &other)]);
    assert!(bench.replica.lines().iter().any(|line| line.starts_with("accuse")), "the leader");
    let _ = bench.deliver(3, voted(&header(1, GENESIS, 3)));
    let _ = bench.deliver(3, RotatingMessage::Evidence(conflict(&other, &first)));
    assert_eq!(evidence_in(&bench.sent()), []);
    // Every receiver hands it on, also for near later views.
    for view in 1..=4 {
        let pair = conflict(&header(view, GENESIS, 1), &header(view, GENESIS, 2));
        let mut bench = Bench::new();
        bench.take(2, RotatingMessage::Evidence(pair.clone()));
        assert_eq!(evidence_in(&bench.sent()), [pair]);
    }
    // The same for two certificates.
    let mut bench = Bench::new();
    bench.take(2, shows(&first));
    bench.take(2, shows(&other));
    assert!(matches!(&evidence_in(&bench.sent())[..], [ViewEvidence::Certificates(_)]));
}

#[test]
fn r11_view_broken_before_it_began_has_no_wait() {
    let blocks = chain(1, GENESIS, 2);
    let other = header(2, tip(&blocks[0]), 9);
    let mut bench = Bench::new();
    bench.take(2, voted(&blocks[1]));
    let _ = bench.deliver(3, voted(&other));
    bench.grow(&blocks);
    bench.pass(delta(3));
    assert_eq!(bench.timer_commits(), [id(&blocks[0])]);
}

#[test]
fn r12_timer_commits_nothing_without_a_certificate() {
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.replica.settle();
    bench.vote([0], &first);
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), []);
    assert_eq!(bench.doubts(), ["a commit timer ended without a certificate"]);
    // Also if one forms later.
    bench.vote([1], &first);
    bench.replica.sound(None, Time::MAX);
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), []);
    let second = header(2, tip(&first), 2);
    bench.grow(std::slice::from_ref(&second));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&second)]);
    // A certificate of a block above is enough.
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.replica.settle();
    bench.replica.fetched(second.block.clone());
    bench.take(2, shows(&second));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&first)]);
}

#[test]
fn r12_ancestors_are_committed_with_a_block() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.grow(&blocks[..2]);
    bench.pass(delta(1));
    bench.grow(&blocks[2..]);
    bench.pass(delta(1));
    assert_eq!(bench.timer_commits(), [id(&blocks[1])]);
    assert_eq!(bench.replica.status().committed, Height(2));
    bench.pass(delta(1));
    assert_eq!(bench.timer_commits(), [id(&blocks[2])]);
    bench.pass(delta(4));
    assert_eq!(bench.timer_commits(), []);
}

#[test]
fn r12_conflicting_block_is_not_committed() {
    let (mut bench, first) = one();
    let second = header(2, tip(&first), 2);
    bench.grow(std::slice::from_ref(&second));
    let other = header(1, GENESIS, 9);
    bench.replica.fetched(other.block.clone());
    bench.replica.decide(Height(1), id(&other));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), []);
    let (first, second) = (id(&other), id(&first));
    assert_eq!(bench.replica.alarms(), [Alarm::SafetyBroken { height: Height(1), first, second }]);
}

#[test]
fn r12_commit_needs_fresh_answers() {
    let (mut bench, first) = one();
    let fresh = bench.now().plus(delta(1));
    bench.replica.answer_sound(None, fresh.minus(1));
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), []);
    assert!(bench.replica.asked_fresh().contains(&fresh), "the host must probe once more");
    bench.replica.sound(None, fresh.minus(1));
    assert_eq!(bench.timer_commits(), []);
    bench.replica.sound(None, fresh);
    assert_eq!(bench.timer_commits(), [id(&first)], "as soon as it holds");
}

#[test]
fn r12_commit_needs_a_long_time_without_doubt() {
    let check = |before: u64, after: u64, commits: bool| {
        let (mut bench, _) = one();
        let since = bench.now();
        let doubt = Some(since.minus(before).plus(after));
        bench.replica.answer_sound(doubt, Time::MAX);
        bench.pass(delta(2));
        bench.replica.sound(doubt, Time::MAX);
        bench.pass(delta(40));
        assert_eq!(!bench.timer_commits().is_empty(), commits, "doubt {before} before, {after} after");
    };
    check(delta(16) + 1, 0, true);
    check(delta(16), 0, false);
    check(delta(1), 0, false);
    check(0, 1, false);
    check(0, delta(2) - 1, false);
}

/// Scenario 13, at one replica.
#[test]
fn broken_silence_raises_the_alarm_after_a_commit() {
    let why = "a statement conflicts with a block that a timer has committed";
    let other = header(1, GENESIS, 9);
    let proof = RotatingMessage::Evidence(conflict(&header(1, GENESIS, 1), &other));
    for late in [voted(&other), shows(&other), proof.clone(), blamed(1)] {
        let (mut bench, first) = one();
        bench.pass(delta(2));
        assert_eq!(bench.timer_commits(), [id(&first)]);
        bench.take(0, blamed(2));
        bench.pass(delta(1));
        let _ = bench.deliver(1, late.clone());
        assert_eq!(bench.doubts().first(), Some(&why), "{late:?}");
        assert!(!bench.is_quiet(), "the leader may have lied late: the replica continues");
        assert!(bench.replica.window().views.start <= View(1), "its messages must be verified");
    }
    // Not if no commit relied on it, and not for the same statement again.
    let (mut bench, first) = one();
    bench.take(1, proof);
    bench.pass(delta(2));
    assert_eq!((bench.timer_commits(), bench.doubts()), (vec![], vec![]));
    let (mut bench, _) = one();
    bench.pass(delta(2));
    let _ = bench.deliver(3, voted(&first));
    let _ = bench.deliver(3, shows(&first));
    assert_eq!(bench.doubts(), Vec::<&str>::new());
}
