//! R4, R8 and R13: end and beginning of views.

use super::*;
use quorate_consensus::LinkEvent;

fn blames_said(said: &[RotatingMessage]) -> Vec<u64> {
    said.iter()
        .filter_map(|it| if let RotatingMessage::Blame(view) = it { Some(view.0) } else { None })
        .collect()
}

#[test]
fn r4_lock_is_frozen_on_entering() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.grow(&blocks[..1]);
    bench.next_view();
    assert_eq!(bench.replica.protocol().state.lock.block(), id(&blocks[0]));
    // Force-locking: a certificate that is shown to this replica alone during the view prevents no vote.
    bench.replica.fetched(blocks[1].block.clone());
    bench.take(1, shows(&blocks[1]));
    assert_eq!(bench.replica.protocol().state.lock.block(), id(&blocks[0]));
    let next = header(3, tip(&blocks[0]), 7);
    bench.clear();
    bench.propose(&next);
    assert_eq!(bench.votes(), [id(&next)]);
    // The certificate counts in the next view.
    bench.next_view();
    assert_eq!(bench.replica.protocol().state.lock.block(), id(&blocks[1]));
    assert_eq!(bench.replica.status().locked, Height(2));
}

#[test]
fn r4_lock_is_recorded_with_the_view() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = Bench::new();
    bench.grow(&blocks);
    let lines = bench.replica.lines();
    assert!(lines.iter().filter(|line| line.starts_with("record 1")).count() == 2, "{lines:#?}");
    bench.next_view();
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!((bench.view(), bench.is_quiet()), (4, true));
    assert_eq!(bench.replica.protocol().state.lock.block(), id(&blocks[1]));
}

#[test]
fn r8_leader_of_an_uncertified_view_is_blamed() {
    for votes in [false, true] {
        let mut bench = Bench::new();
        if votes {
            bench.propose(&header(1, GENESIS, 1));
        }
        // The view was entered when the replica began to run.
        bench.pass(delta(5) + heartbeat() - 1);
        assert_eq!(blames_said(&bench.sent()), [0; 0]);
        bench.pass(1);
        assert_eq!(blames_said(&bench.sent()), [0; 0], "the way into the view is durable first");
        assert_eq!(blames_said(&bench.said()), [1], "a vote ends nothing");
        assert!(!bench.is_quiet(), "voting continues");
        bench.pass(delta(5) + heartbeat());
        assert_eq!(blames_said(&bench.said()), [1], "again");
    }
    // A certificate ends the view, and the next one has its whole time.
    let mut bench = Bench::new();
    bench.pass(delta(4));
    bench.grow(&chain(1, GENESIS, 1));
    bench.pass(delta(5) + heartbeat() - 1);
    assert_eq!(blames_said(&bench.sent()), [0; 0]);
    bench.pass(1);
    assert_eq!(blames_said(&bench.said()), [2]);
    // Nobody blames a view that f + 1 have blamed.
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.replica.answer_sound(Some(Time::MAX), Time::MAX);
    bench.pass(delta(12) + heartbeat());
    assert_eq!(blames_said(&bench.sent()), [0; 0]);
}

#[test]
fn r13_f_plus_1_blames_end_a_view() {
    let mut bench = Bench::new();
    bench.take(0, RotatingMessage::Blame(View(1)));
    bench.take(0, RotatingMessage::Blame(View(1)));
    bench.take(1, RotatingMessage::Blame(View(1)));
    assert!(!bench.is_quiet(), "f are not enough");
    bench.sent();
    bench.take(2, RotatingMessage::Blame(View(1)));
    assert!(bench.is_quiet());
    assert_eq!(
        evidence_in(&bench.sent()),
        [ViewEvidence::Blames(blames(1))],
        "at once, whatever the disk does"
    );
    assert_eq!(bench.deliver(3, RotatingMessage::Blame(View(1))), Err(Reject::Stale));
    // The own blame counts.
    let mut bench = Bench::new();
    bench.take(0, RotatingMessage::Blame(View(1)));
    bench.take(1, RotatingMessage::Blame(View(1)));
    bench.pass(delta(5) + heartbeat());
    bench.replica.settle();
    assert!(bench.is_quiet());
    // Evidence from any replica ends the view as well, and so do blames of a later view.
    for view in [1, 4] {
        let mut bench = Bench::new();
        bench.take(3, blamed(view));
        assert_eq!((bench.view(), bench.is_quiet()), (view, true));
        assert_eq!(evidence_in(&bench.sent()).len(), 1);
        assert_eq!(bench.deliver(0, blamed(view)), Err(Reject::Stale));
        assert_eq!(evidence_in(&bench.sent()).len(), 0, "once");
        bench.pass(delta(1));
        assert_eq!((bench.view(), bench.is_quiet()), (view + 1, false));
    }
    // Two statements of a leader alone end no view: a certificate may still form.
    let mut bench = Bench::new();
    bench.take(3, RotatingMessage::Evidence(conflict(&header(1, GENESIS, 1), &header(1, GENESIS, 2))));
    assert_eq!((bench.view(), bench.is_quiet()), (1, false));
}

#[test]
fn r13_next_view_is_entered_after_delta() {
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.pass(delta(1) - 1);
    assert_eq!(bench.view(), 1);
    bench.pass(1);
    assert_eq!(bench.view(), 2);
    // Votes for the view count in the meantime, and their certificate is the lock.
    let first = header(1, GENESIS, 1);
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.vote([0, 1, 2], &first);
    assert_eq!((bench.view(), bench.replica.protocol().state.lock.block()), (2, id(&first)));
}

#[test]
fn r13_no_view_is_entered_in_doubt() {
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    let over = bench.now().plus(delta(1));
    bench.replica.answer_sound(None, over.minus(1));
    bench.pass(delta(3));
    assert_eq!(bench.view(), 1);
    assert!(bench.replica.asked_fresh().contains(&over), "the host must probe once more");
    bench.replica.sound(None, over);
    assert_eq!(bench.view(), 2);
    // After a doubt it waits for 10 Δ without doubt, asks all, and waits for 2 Δ.
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.replica.answer_sound(Some(bench.now()), Time::MAX);
    bench.pass(delta(1));
    bench.sent();
    let asked = |bench: &mut Bench| {
        bench.sent().iter().filter(|it| matches!(it, RotatingMessage::Ask { .. })).count()
    };
    bench.pass(delta(9));
    assert_eq!((bench.view(), asked(&mut bench)), (1, 0));
    bench.pass(delta(1));
    assert_eq!((bench.view(), asked(&mut bench)), (1, 1));
    bench.pass(delta(2) - 1);
    assert_eq!(bench.view(), 1);
    bench.pass(1);
    assert_eq!(bench.view(), 2);
    // The entry by a certificate asks nobody.
    let mut bench = Bench::new();
    bench.replica.answer_sound(Some(Time::MAX), Time::ZERO);
    bench.grow(&chain(1, GENESIS, 1));
    assert_eq!(bench.view(), 2);
}

#[test]
fn r13_wait_begins_when_silence_is_over() {
    let mut bench = Bench::new();
    bench.take(0, blamed(1));
    bench.pass(delta(1) - 1);
    for peer in [0, 1, 2] {
        bench.replica.link(r(peer), LinkEvent::Gap);
    }
    bench.pass(delta(4));
    bench.replica.sound(None, Time::MAX);
    assert_eq!(bench.view(), 1);
    bench.answers(&stands(RecoveryStage::Running));
    bench.pass(delta(1) - 1);
    assert_eq!(bench.view(), 1);
    bench.pass(1);
    assert_eq!(bench.view(), 2);
}
