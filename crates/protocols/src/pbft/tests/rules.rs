use super::*;
use crate::pbft::{
    COMMIT, MissingAtHeight, NEW_VIEW, PRE_PREPARE, PREPARE, StatusReport, Timer, VIEW_CHANGE,
};
use quorate_consensus::harness::Cluster;
use quorate_consensus::{Alarm, Message, OpenError, Ready};
use quorate_types::ReplicaSet;

#[test]
fn p1_one_pre_prepare_per_view_and_height() {
    let mut backup = open(1, 4);
    // Only one proposal is kept, also while the body is missing and nothing is promised yet.
    backup.answer_otherwise(None);
    take(&mut backup, 0, pre_prepare(1, 7));
    refuse(&mut backup, 0, pre_prepare(1, 8), Reject::Equivocation);
    refuse(&mut backup, 0, pre_prepare(1, 7), Reject::Duplicate);
    backup.ready(block(1, 8).id(), Ready::Valid);
    backup.ready(block(1, 7).id(), Ready::Valid);
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 7)]));
    refuse(&mut backup, 0, pre_prepare(1, 8), Reject::Equivocation);
    assert_eq!(backup.block_count(), 1, "a refused block is not kept");
}

#[test]
fn p2_proposal_with_wrong_fields_is_refused() {
    let mut backup = open(1, 4);
    refuse(&mut backup, 2, pre_prepare(1, 7), Reject::WrongSender);
    let good = block(1, 7);
    for bad in [
        Block { parent: block(1, 1).id(), ..good.clone() },
        Block { extra: Digest([1; 32]), ..good.clone() },
        Block { view: View(1), ..good.clone() },
        Block { proposer: ReplicaId(1), ..good.clone() },
    ] {
        let message = PbftMessage::PrePrepare { view: View::ZERO, block: bad };
        refuse(&mut backup, 0, message, Reject::Invalid("block"));
    }
    // The leader of view 1, in view 0.
    let early = Block { view: View(1), proposer: ReplicaId(1), ..good.clone() };
    let mut other = open(2, 4);
    refuse(&mut other, 1, PbftMessage::PrePrepare { view: View(1), block: early }, Reject::Early);
    // The block's height is the only one in the message.
    let message = PbftMessage::PrePrepare { view: View::ZERO, block: good };
    assert_eq!(message.auth().statement().unwrap().height, Height(1));
    take(&mut backup, 0, message);
}

#[test]
fn p3_messages_outside_the_window_are_refused() {
    let mut backup = open(1, 4);
    let last = setup(4).window;
    backup.decide(Height(8), block(8, 8).id());
    backup.checkpoint(Height(8));
    let inside = 9..=8 + last;
    assert_eq!(backup.window().heights, Height(9)..Height(9 + last));
    for (height, why) in
        [(8, Reject::Stale), (0, Reject::Stale), (9 + last, Reject::Early), (u64::MAX, Reject::Early)]
    {
        refuse(&mut backup, 0, pre_prepare(height, 1), why);
        refuse(&mut backup, 2, prepare(height, 1), why);
        refuse(&mut backup, 2, commit(0, height, 1), why);
    }
    for height in [*inside.start(), *inside.end()] {
        take(&mut backup, 0, pre_prepare(height, 1));
        take(&mut backup, 2, prepare(height, 1));
        take(&mut backup, 2, commit(0, height, 1));
    }
    for view in [9, u64::MAX] {
        refuse(&mut backup, 3, PbftMessage::Prepare(vote(view, 9, 1)), Reject::Early);
        refuse(&mut backup, 3, commit(view, 9, 1), Reject::Early);
    }
    assert_eq!(backup.window().views, View::ZERO..View(9));
}

#[test]
fn p4_prepare_only_when_ready_and_valid() {
    let mut backup = open(1, 4);
    backup.answer_otherwise(None);
    take(&mut backup, 0, pre_prepare(1, 7));
    assert_eq!(backup.wanted(), [(block(1, 7).id(), LEADER)]);
    backup.settle();
    assert_eq!(sent(&mut backup), [], "the body is missing");
    backup.ready(block(1, 7).id(), Ready::Valid);
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 7)]));
    backup.ready(block(1, 7).id(), Ready::Valid);
    backup.settle();
    assert_eq!(sent(&mut backup), [], "once");

    backup.answer_otherwise(Some(Ready::Invalid));
    take(&mut backup, 0, pre_prepare(2, 7));
    for from in [2, 3] {
        take(&mut backup, from, prepare(2, 7));
    }
    backup.settle();
    let suspect = PbftMessage::Suspect { view: View::ZERO, on: true };
    assert_eq!(sent(&mut backup), to_all([suspect]), "no PREPARE and no COMMIT for an invalid block");
    assert!(backup.lines().contains(&"note invalid proposal v0 h2".to_owned()));
}

#[test]
fn p5_unvouched_needs_f_plus_1() {
    let mut backup = open(1, 7);
    backup.answer_otherwise(Some(Ready::Unvouched));
    take(&mut backup, 2, PbftMessage::Prepare(vote(0, 1, 8)));
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 3, prepare(1, 7));
    refuse(&mut backup, 3, prepare(1, 7), Reject::Duplicate);
    backup.settle();
    assert_eq!(sent(&mut backup), [], "the leader and one more are two of three");
    take(&mut backup, 4, prepare(1, 7));
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 7)]));

    // The PREPAREs may arrive before the proposal.
    take(&mut backup, 3, prepare(2, 7));
    take(&mut backup, 4, prepare(2, 7));
    take(&mut backup, 0, pre_prepare(2, 7));
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(2, 7)]));
}

#[test]
fn p6_prepared_needs_exactly_q_minus_1() {
    // Q = 5 of 7: the own PREPARE and three others are Q - 1.
    let mut backup = open(1, 7);
    take(&mut backup, 0, pre_prepare(1, 7));
    backup.settle();
    take(&mut backup, 2, prepare(1, 7));
    take(&mut backup, 3, prepare(1, 7));
    refuse(&mut backup, 3, prepare(1, 7), Reject::Duplicate);
    take(&mut backup, 4, prepare(1, 8)); // Another block.
    take(&mut backup, 5, PbftMessage::Prepare(vote(2, 1, 7))); // Another view.
    refuse(&mut backup, 4, prepare(1, 7), Reject::Equivocation);
    backup.settle();
    assert_eq!(
        sent(&mut backup),
        to_all([prepare(1, 7)]),
        "the own PREPARE and those of 2 and 3 are one too few"
    );
    take(&mut backup, 6, prepare(1, 7));
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([commit(0, 1, 7)]));
    take(&mut backup, 5, prepare(1, 7));
    backup.settle();
    assert_eq!(sent(&mut backup), [], "once");

    // No number of PREPAREs suffices without the PRE-PREPARE or without the body.
    for from in [2, 3, 4, 5, 6] {
        take(&mut backup, from, prepare(2, 7));
    }
    backup.settle();
    assert_eq!(sent(&mut backup), []);
    backup.answer_otherwise(None);
    take(&mut backup, 0, pre_prepare(2, 7));
    backup.settle();
    assert_eq!(sent(&mut backup), []);
    backup.ready(block(2, 7).id(), Ready::Valid);
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(2, 7), commit(0, 2, 7)]));
}

#[test]
fn p7_prepare_of_the_leader_is_refused() {
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(1, 7));
    backup.settle();
    sent(&mut backup);
    // The own PREPARE and the leader's would be Q - 1 = 2.
    refuse(&mut backup, 0, prepare(1, 7), Reject::WrongSender);
    // The leader of another view must not send PREPARE in that view either.
    refuse(&mut backup, 2, PbftMessage::Prepare(vote(2, 1, 7)), Reject::WrongSender);
    backup.settle();
    assert_eq!(sent(&mut backup), []);

    let mut leader = open(0, 4);
    leader.offer([payload(7)]);
    leader.settle();
    assert_eq!(sent(&mut leader), to_all([pre_prepare(1, 7)]), "and no PREPARE");
    take(&mut leader, 1, prepare(1, 7));
    leader.settle();
    assert_eq!(sent(&mut leader), [], "the own PRE-PREPARE is not one of the Q - 1");
    take(&mut leader, 2, prepare(1, 7));
    leader.settle();
    assert_eq!(sent(&mut leader), to_all([commit(0, 1, 7)]));
}

#[test]
fn p8_decided_needs_q_in_one_view() {
    let mut backup = open(1, 4);
    take(&mut backup, 0, commit(0, 1, 7));
    take(&mut backup, 2, commit(0, 1, 7));
    refuse(&mut backup, 2, commit(0, 1, 7), Reject::Duplicate);
    refuse(&mut backup, 2, commit(0, 1, 8), Reject::Equivocation);
    assert_eq!(decided(&mut backup), [], "two of three");
    take(&mut backup, 3, commit(1, 1, 7));
    assert_eq!(decided(&mut backup), [], "one COMMIT is of another view");
    take(&mut backup, 3, commit(0, 1, 7));
    assert_eq!(decided(&mut backup), [(1, block(1, 7).id())], "without PRE-PREPARE, body and own vote");
    assert_eq!(backup.status().committed, Height(1));

    // A view above the current one.
    for from in [0, 2, 3] {
        assert_eq!(decided(&mut backup), []);
        take(&mut backup, from, commit(3, 2, 7));
    }
    assert_eq!(decided(&mut backup), [(2, block(2, 7).id())]);

    // Different blocks do not add up.
    take(&mut backup, 0, commit(0, 3, 7));
    take(&mut backup, 2, commit(0, 3, 7));
    take(&mut backup, 3, commit(0, 3, 8));
    assert_eq!(decided(&mut backup), []);

    // Further COMMITs do not decide again; a quorum for another block raises the alarm.
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 2, prepare(1, 7));
    backup.settle();
    take(&mut backup, 3, commit(2, 1, 7));
    assert_eq!(decided(&mut backup), []);
    assert_eq!(backup.alarms(), []);
    for from in [0, 2, 3] {
        take(&mut backup, from, commit(5, 1, 8));
    }
    let (first, second) = (block(1, 7).id(), block(1, 8).id());
    assert_eq!(backup.alarms(), [Alarm::SafetyBroken { height: Height(1), first, second }]);
    assert_eq!(decided(&mut backup), []);
}

#[test]
fn p8_quorums_are_q_and_not_2f_plus_1() {
    // n = 6, f = 1: Q = 4 although 2f + 1 = 3.
    let mut backup = open(1, 6);
    for from in [0, 2, 3] {
        take(&mut backup, from, commit(0, 1, 7));
    }
    assert_eq!(decided(&mut backup), []);
    take(&mut backup, 4, commit(0, 1, 7));
    assert_eq!(decided(&mut backup).len(), 1);
}

#[test]
fn p9_own_messages_count_from_the_own_copy() {
    // n = 4: the own PREPARE and one more are Q - 1, but only when the own one is durable.
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 2, prepare(1, 7));
    assert!(!backup.lines().contains(&"note prepared v0 h1".to_owned()));
    backup.sync();
    assert!(backup.lines().contains(&"note prepared v0 h1".to_owned()));
    // The own COMMIT also counts only from its own copy.
    take(&mut backup, 2, commit(0, 1, 7));
    take(&mut backup, 3, commit(0, 1, 7));
    assert_eq!(decided(&mut backup), []);
    backup.sync();
    assert_eq!(decided(&mut backup).len(), 1);

    // PREPAREs that arrive before the own copy of the leader's PRE-PREPARE wait for it.
    let mut leader = open(0, 4);
    leader.offer([payload(7)]);
    take(&mut leader, 1, prepare(1, 7));
    take(&mut leader, 2, prepare(1, 7));
    assert!(!leader.lines().contains(&"note prepared v0 h1".to_owned()));
    leader.sync();
    assert!(leader.lines().contains(&"note prepared v0 h1".to_owned()));
}

#[test]
fn p10_executed_heights_still_take_part() {
    let mut backup = open(1, 4);
    for from in [0, 2, 3] {
        take(&mut backup, from, commit(0, 1, 7));
    }
    assert_eq!(decided(&mut backup).len(), 1);
    backup.execute(Height(1));
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 2, prepare(1, 7));
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 7), commit(0, 1, 7)]), "a laggard needs the votes");
    assert_eq!(decided(&mut backup), [], "no height is decided twice");
    // A height that others have decided is not decided here as well.
    backup.decide(Height(2), block(2, 7).id());
    for from in [0, 2, 3] {
        take(&mut backup, from, commit(0, 2, 7));
    }
    assert_eq!(decided(&mut backup), []);
    // A conflicting decision of others raises the alarm.
    assert_eq!(backup.alarms(), []);
    backup.decide(Height(1), block(1, 8).id());
    let (first, second) = (block(1, 7).id(), block(1, 8).id());
    assert_eq!(backup.alarms(), [Alarm::SafetyBroken { height: Height(1), first, second }]);
}

#[test]
fn p11_pipeline_is_bounded() {
    let params = PbftParams { blocks_in_flight: 3, ..PbftParams::default() };
    let mut leader = Harness::<Pbft>::open(LEADER, setup(4), &params).unwrap();
    leader.offer((1..=40).map(payload));
    leader.settle();
    assert_eq!(sent(&mut leader), to_all((1..=3).map(|height| pre_prepare(height, height))));
    let commit_all = |leader: &mut Harness<Pbft>, height: u64| {
        for from in 1..=3 {
            take(leader, from, commit(0, height, height));
        }
        leader.settle();
    };
    commit_all(&mut leader, 2);
    assert_eq!(sent(&mut leader), [], "height 1 blocks the pipeline");
    commit_all(&mut leader, 1);
    assert_eq!(sent(&mut leader), to_all([pre_prepare(4, 4), pre_prepare(5, 5)]));
    for height in 3..=16 {
        commit_all(&mut leader, height);
    }
    assert_eq!(sent(&mut leader).last(), Some(&(To::All, pre_prepare(16, 16))), "L = 16 ends it");
    leader.checkpoint(Height(8));
    leader.settle();
    assert_eq!(sent(&mut leader), to_all((17..=19).map(|height| pre_prepare(height, height))));
}

#[test]
fn p12_checkpoint_moves_the_window() {
    let mut backup = open(1, 4);
    for height in 1..=9 {
        take(&mut backup, 0, pre_prepare(height, height));
        take(&mut backup, 2, prepare(height, height));
        backup.settle();
        for from in [0, 2] {
            take(&mut backup, from, commit(0, height, height));
        }
        backup.execute(Height(height));
        backup.log_decided(Height(height), block(height, height).id());
    }
    assert_eq!(backup.records().len(), 18, "Q and P of each height stay until a checkpoint");
    backup.checkpoint(Height(8));
    assert_eq!(backup.protocol().instances.keys().copied().collect::<Vec<_>>(), [Height(9)]);
    assert!(backup.protocol().instances[&Height(9)].prepared.is_some(), "heights above the checkpoint stay");
    let floors = backup.floors();
    assert_eq!(floors.height, Height(9));
    let kinds = [PRE_PREPARE, PREPARE, COMMIT, VIEW_CHANGE, NEW_VIEW];
    assert_eq!(floors.views, kinds.map(|kind| (kind, View::ZERO)));
    // An older checkpoint does not move the window back.
    backup.checkpoint(Height(4));
    assert_eq!(backup.floors().height, Height(9));
    // A checkpoint far above (state transfer) drops all heights.
    backup.checkpoint(Height(64));
    assert!(backup.protocol().instances.is_empty());
    take(&mut backup, 0, pre_prepare(65, 1));
}

#[test]
fn p13_votes_of_a_peer_take_bounded_room() {
    let mut backup = open(1, 4);
    // Two votes per height are kept of a peer, those of its newest views, whatever it sends.
    for view in 0..=8 {
        take(&mut backup, 3, commit(view, 1, 7));
    }
    refuse(&mut backup, 3, commit(5, 1, 7), Reject::Stale);
    for from in [0, 2] {
        take(&mut backup, from, commit(5, 1, 7));
    }
    assert_eq!(decided(&mut backup), [], "the COMMIT of view 5 was dropped");
    for from in [0, 2] {
        take(&mut backup, from, commit(8, 1, 7));
    }
    assert_eq!(decided(&mut backup).len(), 1);
    // Heights: at most those of the window.
    for height in 0..100 {
        let _ = backup.deliver(ReplicaId(3), prepare(height, 1));
        let _ = backup.deliver(ReplicaId(3), commit(0, height, 1));
    }
    assert_eq!(backup.protocol().instances.len() as u64, setup(4).window);
    // Proposals: one block per height of the window.
    for height in 0..100 {
        for number in 0..5 {
            let _ = backup.deliver(LEADER, pre_prepare(height, number));
        }
    }
    assert_eq!(backup.block_count() as u64, setup(4).window);
    // A STATUS full of lies leads to a STATUS of bounded length.
    let missing = (0..64).map(|i| MissingAtHeight {
        height: Height(i * 1_000),
        proposal: true,
        prepares: ReplicaSet::EMPTY,
        commits: ReplicaSet::EMPTY,
    });
    let lies = StatusReport {
        view: View(u64::MAX),
        normal: false,
        stable: Height::MAX,
        executed: Height::MAX,
        missing: missing.collect(),
    };
    take(&mut backup, 3, PbftMessage::Status(lies));
    assert!(backup.protocol().progress.known <= Height(setup(4).window));
    backup.advance(1_000 * MS);
    let Some((To::All, PbftMessage::Status(standing))) = backup.sent().pop() else { panic!("no STATUS") };
    assert!(standing.missing.len() as u64 <= setup(4).window);
}

/// Returns the position of a line that contains `text`.
fn position(lines: &[String], text: &str) -> usize {
    lines.iter().position(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text} in {lines:#?}"))
}

#[test]
fn q1_q_is_recorded_before_pre_prepare_and_prepare() {
    let mut leader = open(0, 4);
    leader.lines();
    leader.offer([payload(7)]);
    let lines = leader.lines();
    assert!(position(&lines, "record 1 h1") < position(&lines, "hold All: pre-prepare v0 h1"), "{lines:?}");
    assert_eq!(sent(&mut leader), [], "nothing leaves before the record is durable");
    let mut backup = open(1, 4);
    backup.lines();
    take(&mut backup, 0, pre_prepare(1, 7));
    let lines = backup.lines();
    assert!(position(&lines, "record 1 h1") < position(&lines, "hold All: prepare v0 h1"), "{lines:?}");
    assert_eq!(sent(&mut backup), []);
}

#[test]
fn q2_p_is_recorded_before_commit() {
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 2, prepare(1, 7));
    backup.lines();
    backup.sync();
    let lines = backup.lines();
    assert!(position(&lines, "record 2 h1") < position(&lines, "hold All: commit v0 h1"), "{lines:?}");
    assert_eq!(sent(&mut backup), to_all([prepare(1, 7)]), "the COMMIT waits for the next sync");
}

#[test]
fn p_and_q_survive_restart_and_checkpoint() {
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 0, pre_prepare(2, 7));
    take(&mut backup, 2, prepare(1, 7));
    backup.settle();
    let check = |backup: &Harness<Pbft>| {
        let instances = &backup.protocol().instances;
        let (one, two) = (&instances[&Height(1)], &instances[&Height(2)]);
        assert_eq!(one.pre_prepared, [(block(1, 7).id(), View::ZERO)]);
        assert_eq!(one.prepared, Some((block(1, 7).id(), View::ZERO)));
        assert_eq!(two.pre_prepared, [(block(2, 7).id(), View::ZERO)]);
        assert_eq!(two.prepared, None);
    };
    check(&backup);
    assert_eq!(backup.status().locked, Height(1));
    backup.crash().unwrap();
    check(&backup);
}

#[test]
fn open_refuses_unsuitable_committee_and_parameters() {
    let open = |setup: Setup, params: PbftParams| Harness::<Pbft>::open(LEADER, setup, &params).err();
    for (n, f) in [(3, 1), (6, 2), (1, 1)] {
        let refused = open(Setup { f, ..setup(n) }, PbftParams::default());
        assert!(matches!(refused, Some(OpenError::Committee(_))), "n = {n}, f = {f}: {refused:?}");
    }
    for (n, f) in [(1, 0), (4, 1), (7, 2), (7, 1)] {
        assert_eq!(open(Setup { f, ..setup(n) }, PbftParams::default()), None);
    }
    let fine = PbftParams::default();
    for (field, params) in [
        ("blocks_in_flight", PbftParams { blocks_in_flight: 0, ..fine.clone() }),
        ("blocks_in_flight", PbftParams { blocks_in_flight: 17, ..fine.clone() }),
        ("status_ms", PbftParams { status_ms: 9, ..fine.clone() }),
        ("idle_status_ms", PbftParams { idle_status_ms: 999, ..fine.clone() }),
        ("treq_ms", PbftParams { treq_ms: 9, ..fine.clone() }),
        ("t0_ms", PbftParams { t0_ms: 60_001, ..fine.clone() }),
        ("cap_ms", PbftParams { cap_ms: 399, ..fine.clone() }),
    ] {
        let refused = open(setup(4), params);
        assert!(matches!(&refused, Some(OpenError::Params { name, .. }) if name == field), "{refused:?}");
    }
}

#[test]
fn one_replica_alone_decides() {
    let mut cluster = Cluster::<Pbft>::open(setup(1), &PbftParams::default()).unwrap();
    cluster.at(LEADER).offer((1..=20).map(payload));
    cluster.run();
    assert_eq!(cluster.executed(LEADER), Height(20));
}

#[test]
fn idle_replica_wakes_up_rarely() {
    let mut backup = open(1, 4);
    // All heights are decided: one STATUS in ten seconds.
    assert_eq!(backup.advance(60_000 * MS), 6);
    take(&mut backup, 0, pre_prepare(1, 7));
    assert_eq!(backup.advance(5_000 * MS), 5, "a height is undecided: STATUS every second");
    for from in [0, 2, 3] {
        take(&mut backup, from, commit(0, 1, 7));
    }
    backup.execute(Height(1));
    assert!((1..=2).contains(&backup.advance(11_000 * MS)));
    assert_eq!(backup.deadline().map(|at| at.since(backup.now()) > 1_000 * MS), Some(true));
    assert_eq!(format!("{:?}", Timer::Status), "Status");
}
