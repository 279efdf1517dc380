//! Restarts in the middle of a step, and leaders and liars whose windows differ from that of this replica.

use super::selection::{change, id};
use super::views::{T0, empty, leaves, new_view, stands, suspect};
use super::*;
use crate::pbft::ViewChange;
use quorate_consensus::{CHECKPOINT_KIND, Certificate, Checkpoint, CheckpointProof, OpenError};

fn view_changes(replica: &mut Harness<Pbft>, view: u64) -> usize {
    let is_it = |message: &PbftMessage| matches!(message, PbftMessage::ViewChange(c) if c.view == View(view));
    sent(replica).iter().filter(|(_, message)| is_it(message)).count()
}

/// The log ends after the new view and before the own VIEW-CHANGE. The replica makes it once more: a view change may need
/// it.
#[test]
fn v1_view_change_missing_from_the_log_is_made_again() {
    let mut torn = 0;
    for records in 0.. {
        let mut backup = open(2, 4);
        take(&mut backup, 0, pre_prepare(1, 1));
        backup.settle();
        for from in [1, 3] {
            take(&mut backup, from, suspect(0));
        }
        if records > backup.unsynced() {
            break;
        }
        backup.crash_after(records).unwrap();
        backup.settle();
        let (view, normal) = stands(&backup);
        let count = view_changes(&mut backup, 1);
        assert_eq!(
            (view, normal),
            if count == 0 { (0, true) } else { (1, false) },
            "after {records} records"
        );
        torn += count;
        // The same bytes once more after a restart.
        backup.crash().unwrap();
        backup.settle();
        assert_eq!(view_changes(&mut backup, 1), count, "after {records} records");
    }
    assert_eq!(torn, 2, "with the first record, and with both");
}

/// The log of a new leader ends after any record of its NEW-VIEW. After the restart Q names all of X before the NEW-VIEW
/// leaves.
#[test]
fn v7_blocks_of_a_logged_new_view_are_in_q() {
    let picks = [(1, id(1)), (2, id(2)), (3, id(3))];
    let entries = picks.map(|(height, block)| (height, block, 0));
    let mut news = 0;
    for records in 0.. {
        let mut leader = open(1, 4);
        for from in [2, 3] {
            take(&mut leader, from, leaves(change(1, &entries, &entries)));
        }
        // The own VIEW-CHANGE is the third.
        leader.sync();
        if records > leader.unsynced() {
            break;
        }
        leader.crash_after(records).unwrap();
        for from in [2, 3] {
            take(&mut leader, from, leaves(change(1, &entries, &entries)));
        }
        leader.settle();
        let said: Vec<_> = sent(&mut leader)
            .into_iter()
            .filter_map(|(_, message)| match message {
                PbftMessage::NewView(new) => Some(new),
                _ => None,
            })
            .collect();
        assert!(!said.is_empty(), "after {records} records");
        news += 1;
        for new in said {
            for (height, block) in new.picks {
                let instance = &leader.protocol().instances[&height];
                assert!(instance.is_pre_prepared(block, View(1)), "{height} after {records} records");
            }
        }
        leader.crash().unwrap();
    }
    assert_eq!(news, 5, "before, between and after four records");
}

/// A stable checkpoint that all replicas but this one have.
fn ahead(height: u64) -> CheckpointProof {
    let checkpoint = Checkpoint { height: Height(height), ..Checkpoint::GENESIS };
    let statement = checkpoint.statement();
    CheckpointProof {
        checkpoint,
        certificate: Certificate { statement, ..Certificate::genesis(CHECKPOINT_KIND) },
    }
}

/// The NEW-VIEW would be a vote for heights that the own window does not reach, and that Q could not name.
#[test]
fn v7_leader_waits_for_the_newest_stable_checkpoint() {
    let mut leader = open(1, 4);
    let with = |p: &[(u64, BlockId, u64)], q: &[(u64, BlockId, u64)]| {
        leaves(ViewChange { proof: ahead(8), ..change(1, p, q) })
    };
    let entry = (20, id(7), 0);
    take(&mut leader, 2, with(&[entry], &[entry]));
    take(&mut leader, 3, with(&[], &[entry]));
    leader.settle();
    let is_new = |message: &(To, PbftMessage)| matches!(message.1, PbftMessage::NewView(_));
    assert!(!sent(&mut leader).iter().any(is_new), "the own window ends at 16");
    assert!(leader.lines().iter().any(|line| line.starts_with("catch up")));
    leader.checkpoint(Height(8));
    assert!(leader.lines().iter().any(|line| line.starts_with("record 1 h20")), "Q has it");
    leader.settle();
    assert!(sent(&mut leader).iter().any(is_new));
}

/// A restart between views does not shorten deadlines: until its first execution a view has the view timer alone.
#[test]
fn t5_restart_between_views_does_not_shorten_deadlines() {
    for restarts in [false, true] {
        let mut backup = open(2, 4);
        for from in [1, 3] {
            take(&mut backup, from, suspect(0));
        }
        backup.settle();
        if restarts {
            backup.crash().unwrap();
            backup.settle();
        }
        for from in [0, 3] {
            take(&mut backup, from, leaves(change(1, &[], &[])));
        }
        backup.advance(10 * MS);
        take(&mut backup, 1, new_view(1, empty(1, &[0, 1, 3]), &[]));
        backup.settle();
        assert_eq!(stands(&backup), (1, true));
        // No bundle waits for almost T0. Then one waits for a millisecond.
        backup.advance(T0 - 11 * MS);
        let now = backup.now();
        backup.waits(Some(now), false);
        backup.advance(2 * MS);
        assert_eq!(stands(&backup), (1, true), "restarted: {restarts}");
    }
}

/// A replica does not open with a window whose NEW-VIEW could not be sent or recorded.
#[test]
fn a_new_view_of_the_whole_window_fits_into_a_frame() {
    for (n, window, fits) in [(4, 256, true), (4, 100_000, false), (64, 256, true), (64, 1_024, false)] {
        let setup = Setup { window, ..setup(n) };
        let opened = Harness::<Pbft>::open(ReplicaId(1), setup, &PbftParams::default());
        let is_window = matches!(&opened, Err(OpenError::Params { name, .. }) if name == "window");
        assert_eq!((opened.is_ok(), is_window), (fits, !fits), "{n} replicas, window {window}");
    }
}
