//! Suspicion of leaders, and the view timer (§11).

use super::selection::change;
use super::views::{STATUS, T0, empty, leaves, new_view, stands, suspect, unsuspect, with_height_1};
use super::*;
use crate::pbft::StatusReport;
use quorate_consensus::Ready;
use quorate_types::Time;

#[test]
fn t2_overdue_bundle_raises_a_suspicion_that_can_be_withdrawn() {
    let mut backup = open(1, 4);
    backup.waits(Some(Time(0)), false);
    backup.advance(T0 - 1);
    assert_eq!(sent(&mut backup), []);
    backup.advance(1);
    assert_eq!(sent(&mut backup), to_all([suspect(0)]));
    assert_eq!(stands(&backup), (0, true), "voting goes on");
    take(&mut backup, 0, pre_prepare(1, 7));
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 7)]));
    backup.advance(STATUS);
    assert_eq!(sent(&mut backup), to_all([suspect(0)]), "again");
    // The bundle was executed.
    backup.waits(None, false);
    assert_eq!(sent(&mut backup), to_all([unsuspect(0)]));
    backup.advance(STATUS);
    assert_eq!(sent(&mut backup), []);
    // The next bundle has a deadline of its own.
    let now = backup.now();
    backup.waits(Some(now), false);
    backup.advance(T0 - 1);
    assert_eq!(sent(&mut backup), []);
    backup.advance(1);
    assert_eq!(sent(&mut backup), to_all([suspect(0)]));
    // The leader does not suspect itself.
    let mut leader = open(0, 4);
    leader.waits(Some(Time(0)), false);
    leader.advance(10 * STATUS);
    assert_eq!(sent(&mut leader), []);
}

#[test]
fn t3_overload_does_not_raise_a_suspicion_but_silence_does() {
    let mut backup = open(1, 4);
    backup.waits(Some(Time(0)), true);
    for height in 1..=20 {
        backup.advance(T0 / 2);
        backup.log_decided(Height(height), block(height, 7).id());
        backup.execute(Height(height));
    }
    backup.settle();
    let suspects = |replica: &mut Harness<Pbft>| {
        sent(replica).into_iter().filter(|(_, message)| *message == suspect(0)).count()
    };
    assert_eq!(suspects(&mut backup), 0, "it moves");
    backup.advance(T0);
    assert_eq!(suspects(&mut backup), 1, "no height is decided or executed any more");
}

/// Returns the time at which a replica suspects the leader while a height is decided twice in each timeout. `None` means not
/// within ten timeouts.
fn first_suspicion(backup: &mut Harness<Pbft>) -> Option<Time> {
    let is_suspect = |(_, message): &(To, PbftMessage)| *message == suspect(0);
    (1..=20).find_map(|height| {
        backup.advance(T0 / 2);
        if sent(backup).iter().any(is_suspect) {
            return Some(backup.now());
        }
        backup.log_decided(Height(height), block(height, 7).id());
        backup.execute(Height(height));
        None
    })
}

/// A leader decides just enough heights to seem alive, and never the bundle that this replica waits for.
#[test]
fn t3_overload_excuses_a_leader_for_a_bounded_time() {
    let params = PbftParams { cap_ms: 4 * T0 / MS, ..PbftParams::default() };
    let mut backup = Harness::open(ReplicaId(1), setup(4), &params).unwrap();
    backup.waits(Some(Time(0)), true);
    assert_eq!(first_suspicion(&mut backup), Some(Time(4 * T0)));
}

/// The admitted bundles take half of the patience at the rate of the last second. A slower cluster takes longer without any
/// fault of the leader, but slowness excuses it for a bounded time only.
#[test]
fn t3_long_queue_gives_a_working_leader_four_timeouts() {
    for (backlog_ms, expected) in [(T0 / 4 / MS, 4 * T0), (T0 / 4 / MS - 1, T0)] {
        let mut backup = open(1, 4);
        backup.backlog(backlog_ms * MS);
        backup.waits(Some(Time(0)), false);
        assert_eq!(first_suspicion(&mut backup), Some(Time(expected)), "{backlog_ms} ms");
    }
    let mut backup = open(1, 4);
    backup.backlog(T0);
    backup.waits(Some(Time(0)), false);
    backup.advance(T0);
    assert_eq!(sent(&mut backup), to_all([suspect(0)]), "nothing moves");
}

/// A lagging replica gives its leader more time as long as it catches up, and little more otherwise.
#[test]
fn t7_lagging_replica_is_patient_while_it_catches_up() {
    let mut backup = open(1, 4);
    let executed = |height| {
        PbftMessage::Status(StatusReport {
            view: View(0),
            normal: true,
            stable: Height(0),
            executed: Height(height),
            missing: Vec::new(),
        })
    };
    backup.waits(Some(Time(0)), false);
    for from in [2, 3] {
        take(&mut backup, from, executed(9));
    }
    let suspects = |replica: &mut Harness<Pbft>| {
        sent(replica).into_iter().filter(|(_, message)| *message == suspect(0)).count()
    };
    for height in 1..=5 {
        backup.advance(3 * T0);
        backup.log_decided(Height(height), block(height, 7).id());
        backup.execute(Height(height));
    }
    assert_eq!(suspects(&mut backup), 0, "it comes nearer");
    backup.advance(4 * T0 - MS);
    assert_eq!(suspects(&mut backup), 0);
    backup.advance(MS);
    assert_eq!(suspects(&mut backup), 1, "the replica no longer catches up");
}

#[test]
fn t4_f_plus_1_suspicions_end_a_view() {
    let mut backup = open(1, 7);
    for from in [2, 3] {
        take(&mut backup, from, suspect(0));
        take(&mut backup, from, suspect(0));
    }
    take(&mut backup, 4, suspect(3));
    assert_eq!(stands(&backup), (0, true), "two of three SUSPECTs, and one of another view");
    take(&mut backup, 3, unsuspect(0));
    take(&mut backup, 5, suspect(0));
    assert_eq!(stands(&backup), (0, true), "one SUSPECT was withdrawn");
    // The own SUSPECT counts.
    backup.waits(Some(Time(0)), false);
    backup.advance(T0);
    assert_eq!(stands(&backup), (0, true), "not before the own copy");
    backup.settle();
    assert_eq!(stands(&backup), (1, false));
    assert_eq!(backup.status().last_view_change, "request overdue");
    refuse(&mut backup, 6, suspect(0), Reject::Stale);
}

#[test]
fn t4_replica_that_left_the_view_counts_as_a_suspicion() {
    // One replica has left for view 1 after SUSPECTs that only it received; one waits. Neither would go on without the other.
    let mut leader = open(0, 4);
    take(&mut leader, 2, leaves(change(1, &[], &[])));
    assert_eq!(stands(&leader), (0, true));
    take(&mut leader, 2, suspect(0));
    assert_eq!(stands(&leader), (0, true), "one replica counts once");
    take(&mut leader, 1, suspect(0));
    assert_eq!(stands(&leader), (1, false));
    let mut other = open(1, 4);
    take(&mut other, 3, suspect(0));
    take(&mut other, 2, leaves(change(5, &[], &[])));
    assert_eq!(
        stands(&other),
        (1, false),
        "the next view only: one replica alone cannot carry others further"
    );
}

#[test]
fn t4_invalid_proposal_raises_a_suspicion_at_once() {
    let mut backup = open(1, 4);
    backup.answer_otherwise(Some(Ready::Invalid));
    take(&mut backup, 0, pre_prepare(1, 7));
    assert_eq!(sent(&mut backup), to_all([suspect(0)]));
    backup.waits(None, false);
    backup.settle();
    assert_eq!(sent(&mut backup), [], "the SUSPECT is not withdrawn");
    take(&mut backup, 3, suspect(0));
    assert_eq!(stands(&backup), (1, false));
}

#[test]
fn t5_view_timer_runs_until_the_first_execution() {
    let mut backup = open(2, 4);
    take(&mut backup, 1, new_view(1, with_height_1(1), &[(1, block(1, 7).id())]));
    backup.settle();
    sent(&mut backup);
    // Without a waiting bundle no timer runs.
    backup.advance(10 * STATUS);
    assert_eq!(stands(&backup), (1, true));
    let now = backup.now();
    backup.waits(Some(now), false);
    backup.advance(T0 - 1);
    assert_eq!((stands(&backup), sent(&mut backup)), ((1, true), vec![]), "no deadline, no suspicion");
    backup.log_decided(Height(1), block(1, 7).id());
    backup.execute(Height(1));
    // Deadlines count from this execution on.
    backup.advance(T0 - 1);
    assert_eq!((stands(&backup), sent(&mut backup)), ((1, true), vec![]));
    backup.advance(1);
    assert_eq!((stands(&backup), sent(&mut backup)), ((1, true), to_all([suspect(1)])));
    // Without an execution the replica leaves the view.
    let mut other = open(2, 4);
    take(&mut other, 1, new_view(1, with_height_1(1), &[(1, block(1, 7).id())]));
    other.waits(Some(Time(0)), false);
    other.advance(T0);
    assert_eq!(stands(&other), (2, false));
}

#[test]
fn t5_deadlines_grow_with_each_view_that_had_worked() {
    // Replica 3 of 4: views 0, 1 and 2 work, and are left because of an overdue deadline.
    let mut backup = open(3, 4);
    for (view, deadline) in [(0u64, T0), (1, 2 * T0), (2, 4 * T0)] {
        backup.log_decided(Height(view + 1), block(view + 1, 7).id());
        backup.execute(Height(view + 1));
        let now = backup.now();
        backup.waits(Some(now), false);
        backup.settle();
        sent(&mut backup);
        backup.advance(deadline - 1);
        assert_eq!(sent(&mut backup), [], "view {view}");
        backup.advance(1);
        assert_eq!(sent(&mut backup), to_all([suspect(view)]), "view {view}");
        backup.settle();
        take(&mut backup, 0, suspect(view));
        backup.settle();
        assert_eq!(stands(&backup), (view + 1, false));
        if view < 2 {
            let leader = u16::try_from(view + 1).unwrap();
            take(&mut backup, leader, new_view(view + 1, empty(view + 1, &[0, 1, 2]), &[]));
        }
    }
    // After half a minute without a suspicion deadlines are short again.
    take(&mut backup, 2, new_view(6, empty(6, &[0, 1, 2]), &[]));
    backup.waits(None, false);
    backup.advance(30 * STATUS);
    backup.log_decided(Height(4), block(4, 7).id());
    backup.execute(Height(4));
    let now = backup.now();
    backup.waits(Some(now), false);
    backup.settle();
    sent(&mut backup);
    backup.advance(T0);
    assert_eq!(sent(&mut backup), to_all([suspect(6)]));
}

#[test]
fn t7_lagging_replica_is_patient_for_a_bounded_time() {
    let mut backup = open(2, 4);
    take(&mut backup, 1, new_view(1, empty(1, &[0, 1, 3]), &[]));
    let ahead = || {
        PbftMessage::Status(StatusReport {
            view: View(1),
            normal: true,
            stable: Height::ZERO,
            executed: Height(5),
            missing: Vec::new(),
        })
    };
    backup.waits(Some(Time(0)), false);
    take(&mut backup, 3, ahead());
    take(&mut backup, 1, ahead());
    backup.advance(10_000 * MS - 1);
    assert_eq!(stands(&backup), (1, true), "f + 1 have executed more");
    backup.advance(1);
    assert_eq!(stands(&backup), (2, false), "patience ends after C");
    // The report of one peer alone does not count.
    let mut other = open(2, 4);
    take(&mut other, 1, new_view(1, empty(1, &[0, 1, 3]), &[]));
    other.waits(Some(Time(0)), false);
    take(&mut other, 3, ahead());
    other.advance(T0);
    assert_eq!(stands(&other), (2, false));
}
