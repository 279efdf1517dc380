use super::*;
use crate::pbft::{MissingAtHeight, StatusReport};
use quorate_consensus::harness::Cluster;
use quorate_consensus::{Examined, Healed, LinkEvent, OpenError, Ready};
use quorate_types::ReplicaSet;
use quorate_types::rng::Rng;

const STATUS_MS: u64 = 100;

fn cluster() -> Cluster<Pbft> {
    let params = PbftParams { status_ms: STATUS_MS, idle_status_ms: 1_000, ..PbftParams::default() };
    Cluster::open(setup(4), &params).unwrap()
}

/// Ticks until every replica has executed all heights up to `height`, at most for `Examined::recovery`.
fn heal(cluster: &mut Cluster<Pbft>, height: Height, what: &str) {
    let params = PbftParams { status_ms: STATUS_MS, idle_status_ms: 1_000, ..PbftParams::default() };
    let healed = Healed { delta_ns: 0, outage_ns: 0, client_retry_ns: 0, fetch_ns: 0, restarted: 0 };
    let bound = <Pbft>::recovery(&params, &setup(4).committee::<Pbft>(), &healed).0;
    let mut spent = 0;
    cluster.run();
    while (0..4).any(|id| cluster.executed(ReplicaId(id)) < height) {
        assert!(spent <= bound, "{what}: not recovered in time: {:#?}", cluster.trace());
        cluster.tick(10 * MS);
        cluster.serve_laggards();
        spent += 10 * MS;
    }
}

#[test]
fn q3_restart_repeats_identical_messages_only() {
    // A backup. A PREPARE that was not durable has never left, so the replica may accept another block …
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(1, 7));
    backup.crash().unwrap();
    backup.settle();
    assert_eq!(sent(&mut backup), []);
    take(&mut backup, 0, pre_prepare(1, 8));
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 8)]));
    // … and a durable one is sent again and binds.
    backup.crash().unwrap();
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 8)]));
    refuse(&mut backup, 0, pre_prepare(1, 7), Reject::Equivocation);
    // The own PREPARE counts again, from its own copy; the proposal is known from Q.
    take(&mut backup, 2, prepare(1, 8));
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([commit(0, 1, 8)]));
    backup.crash().unwrap();
    backup.settle();
    assert_eq!(sent(&mut backup), to_all([prepare(1, 8), commit(0, 1, 8)]));
    // The own COMMIT counts again: two more decide.
    for from in [0, 3] {
        take(&mut backup, from, commit(0, 1, 8));
    }
    assert_eq!(decided(&mut backup), [(1, block(1, 8).id())]);
    // Messages of decided heights are not sent again; laggards ask for them.
    backup.log_decided(Height(1), block(1, 8).id());
    backup.sync();
    backup.crash().unwrap();
    backup.settle();
    assert_eq!(sent(&mut backup), []);
}

#[test]
fn q3_a_restarted_leader_proposes_the_same() {
    let mut leader = open(0, 4);
    leader.offer([payload(7), payload(8)]);
    leader.crash().unwrap();
    leader.settle();
    assert_eq!(sent(&mut leader), [], "a proposal that was not durable has never left");
    leader.offer([payload(9)]);
    leader.settle();
    assert_eq!(sent(&mut leader), to_all([pre_prepare(1, 9)]));
    leader.crash().unwrap();
    leader.settle();
    assert_eq!(sent(&mut leader), to_all([pre_prepare(1, 9)]));
    leader.offer([payload(10)]);
    leader.settle();
    assert_eq!(sent(&mut leader), to_all([pre_prepare(2, 10)]), "height 1 is taken");
    // Messages of a height that others have decided meanwhile are not sent again.
    leader.decide(Height(3), block(3, 1).id());
    leader.offer([payload(11)]);
    leader.settle();
    assert_eq!(sent(&mut leader), to_all([pre_prepare(4, 11)]));
    // The own proposal counts again: two PREPAREs are Q - 1.
    for from in [1, 3] {
        take(&mut leader, from, prepare(1, 9));
    }
    leader.settle();
    assert_eq!(sent(&mut leader), to_all([commit(0, 1, 9)]));
}

#[test]
fn open_refuses_a_log_without_the_own_proposal() {
    let mut leader = open(0, 4);
    leader.offer([payload(7)]);
    leader.settle();
    leader.lose_blocks();
    assert!(matches!(leader.crash(), Err(OpenError::Past(_))));
}

fn standing(missing: Vec<MissingAtHeight>) -> PbftMessage {
    PbftMessage::Status(StatusReport {
        view: View::ZERO,
        normal: true,
        stable: Height::ZERO,
        executed: Height::ZERO,
        missing,
    })
}

fn lacks(height: u64, proposal: bool, prepares: &[u16], commits: &[u16]) -> MissingAtHeight {
    let set = |ids: &[u16]| ids.iter().copied().map(ReplicaId).collect::<ReplicaSet>();
    MissingAtHeight { height: Height(height), proposal, prepares: set(prepares), commits: set(commits) }
}

#[test]
fn r1_status_is_answered_by_the_author() {
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(1, 7));
    take(&mut backup, 2, prepare(1, 7));
    backup.settle();
    assert_eq!(sent(&mut backup).len(), 2);
    let to_3 = |messages: Vec<PbftMessage>| -> Vec<(To, PbftMessage)> {
        messages.into_iter().map(|message| (To::One(ReplicaId(3)), message)).collect()
    };
    // Those own messages that replica 3 lacks; the proposal and the votes of others have other authors.
    take(&mut backup, 3, standing(vec![lacks(1, true, &[1, 2], &[0, 1, 2]), lacks(2, true, &[1], &[1])]));
    backup.settle();
    assert_eq!(sent(&mut backup), to_3(vec![prepare(1, 7), commit(0, 1, 7)]));
    // One answer in half a period.
    let again = || standing(vec![lacks(1, false, &[], &[1])]);
    assert_eq!(backup.deliver(ReplicaId(3), again()), Err(Reject::NotNow("status_too_soon")));
    backup.advance(500 * MS);
    take(&mut backup, 3, again());
    backup.settle();
    assert_eq!(sent(&mut backup), to_3(vec![commit(0, 1, 7)]), "only missing messages");
    backup.advance(500 * MS);
    take(&mut backup, 3, standing(vec![lacks(1, false, &[1], &[0])]));
    backup.settle();
    assert_eq!(sent(&mut backup), to_3(vec![prepare(1, 7)]), "only missing messages");
    // Proposals and PREPAREs do not count in another view.
    let elsewhere = || {
        let mut message = standing(vec![lacks(1, true, &[1], &[1])]);
        if let PbftMessage::Status(standing) = &mut message {
            standing.view = View(4);
        }
        message
    };
    backup.advance(500 * MS);
    take(&mut backup, 3, elsewhere());
    backup.settle();
    assert_eq!(sent(&mut backup), to_3(vec![commit(0, 1, 7)]));

    let mut leader = open(0, 4);
    leader.offer([payload(7)]);
    leader.settle();
    sent(&mut leader);
    take(&mut leader, 3, standing(vec![lacks(1, true, &[1, 2], &[0, 1, 2])]));
    leader.settle();
    assert_eq!(sent(&mut leader), to_3(vec![pre_prepare(1, 7)]));
    leader.advance(500 * MS);
    take(&mut leader, 3, elsewhere());
    leader.settle();
    assert_eq!(sent(&mut leader), []);
}

/// Returns the missing messages of the last STATUS that left.
fn last_missing(replica: &mut Harness<Pbft>) -> Vec<MissingAtHeight> {
    let mut statuses = replica.sent().into_iter().filter_map(|(_, message)| match message {
        PbftMessage::Status(standing) => Some(standing),
        _ => None,
    });
    statuses.next_back().expect("a STATUS").missing
}

#[test]
fn r1_status_names_missing_messages() {
    let mut backup = open(1, 4);
    // Height 2 is known, so height 1 must exist as well. Messages of a height known only just now may be on their way.
    take(&mut backup, 2, prepare(2, 7));
    take(&mut backup, 0, commit(0, 2, 7));
    backup.advance(1_000 * MS);
    assert_eq!(last_missing(&mut backup), []);
    backup.advance(1_000 * MS);
    let expected = vec![lacks(1, true, &[2, 3], &[0, 2, 3]), lacks(2, true, &[3], &[2, 3])];
    assert_eq!(last_missing(&mut backup), expected);
    // A prepared height needs no PREPAREs.
    take(&mut backup, 0, pre_prepare(2, 7));
    backup.settle();
    backup.advance(1_000 * MS);
    assert_eq!(
        last_missing(&mut backup),
        [lacks(1, true, &[2, 3], &[0, 2, 3]), lacks(2, false, &[], &[2, 3])]
    );
    // The STATUS of a peer that is stuck at a height saves a further period.
    take(&mut backup, 0, standing(vec![lacks(3, false, &[1, 2, 3], &[1, 2, 3])]));
    backup.advance(1_000 * MS);
    assert_eq!(last_missing(&mut backup).last(), Some(&lacks(3, true, &[2, 3], &[0, 2, 3])));
}

#[test]
fn r1_restarted_replica_sends_status_at_once() {
    let mut backup = open(1, 4);
    take(&mut backup, 0, pre_prepare(2, 7));
    backup.settle();
    backup.crash().unwrap();
    let expected = [lacks(1, true, &[2, 3], &[0, 2, 3]), lacks(2, false, &[2, 3], &[0, 2, 3])];
    assert_eq!(last_missing(&mut backup), expected);
}

#[test]
fn r1_status_has_bounded_length() {
    let setup = Setup { window: 256, checkpoint_every: 128, ..setup(4) };
    let mut backup = Harness::<Pbft>::open(ReplicaId(1), setup, &PbftParams::default()).unwrap();
    take(&mut backup, 2, commit(0, 200, 7));
    backup.advance(2_000 * MS);
    let missing = last_missing(&mut backup);
    assert_eq!(missing.len(), 64);
    assert_eq!(
        missing.last().map(|missing| missing.height),
        Some(Height(64)),
        "the lowest heights come first"
    );
}

#[test]
fn r2_message_loss_never_stalls() {
    // Every message of three heights, and every pair of neighbours, is lost once.
    let mut all = cluster();
    all.at(LEADER).offer((1..=3).map(payload));
    let mut count = 0;
    all.run_where(|_, _, _| {
        count += 1;
        true
    });
    assert!(count >= 72);
    for lost in 0..count {
        for width in [1, 2, 24] {
            let mut cluster = cluster();
            cluster.at(LEADER).offer((1..=3).map(payload));
            let mut at = 0;
            cluster.run_where(|_, _, _| {
                at += 1;
                !(lost..lost + width).contains(&(at - 1))
            });
            heal(&mut cluster, Height(3), &format!("messages {lost} to {} lost", lost + width));
        }
    }
}

#[test]
fn r2_every_kind_lost_for_a_while() {
    type Lost = fn(&PbftMessage) -> bool;
    let kinds: [(&str, Lost); 5] = [
        ("pre-prepare", |message| matches!(message, PbftMessage::PrePrepare { .. })),
        ("prepare", |message| matches!(message, PbftMessage::Prepare(_))),
        ("commit", |message| matches!(message, PbftMessage::Commit(_))),
        ("status", |message| matches!(message, PbftMessage::Status(_))),
        ("all", |_| true),
    ];
    for (kind, is_lost) in kinds {
        for victims in [vec![3], vec![0], vec![1, 2], vec![0, 1, 2, 3]] {
            let mut cluster = cluster();
            cluster.at(LEADER).offer((1..=5).map(payload));
            cluster.run_where(|_, to, message| !(victims.contains(&to.0) && is_lost(message)));
            heal(&mut cluster, Height(5), &format!("{kind} to {victims:?} lost"));
        }
    }
}

#[test]
fn r2_random_loss_and_restarts_recover() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut cluster = cluster();
        let mut number = 0;
        for _ in 0..30 {
            if rng.chance(500_000) {
                number += 2;
                cluster.at(LEADER).offer([payload(number), payload(number + 1)]);
            }
            if rng.chance(100_000) {
                let id = ReplicaId(u16::try_from(rng.below(4)).unwrap());
                cluster.restart(id).unwrap();
            }
            let loss = [0, 100_000, 400_000, 900_000][rng.index(4)];
            cluster.run_where(|_, _, _| !rng.chance(loss));
            for id in 0..4 {
                cluster.at(ReplicaId(id)).advance(rng.below(80) * MS);
            }
        }
        // One more request, so that the cluster has work to do.
        cluster.run();
        cluster.at(LEADER).offer([payload(1_000)]);
        let height = cluster.at(LEADER).protocol().progress.known;
        heal(&mut cluster, height, &format!("seed {seed}"));
    }
}

#[test]
fn r3_gap_is_answered_with_own_messages() {
    let mut backup = open(1, 4);
    for height in [1, 2, 3] {
        take(&mut backup, 0, pre_prepare(height, 7));
        backup.settle();
    }
    for height in [1, 3] {
        take(&mut backup, 2, prepare(height, 7));
        for from in [0, 2, 3] {
            take(&mut backup, from, commit(0, height, 7));
        }
    }
    backup.settle();
    sent(&mut backup);
    backup.link(ReplicaId(3), LinkEvent::Back);
    backup.settle();
    assert_eq!(sent(&mut backup), [], "nothing was lost");
    backup.link(ReplicaId(3), LinkEvent::Gap);
    backup.settle();
    assert_eq!(sent(&mut backup), [(To::One(ReplicaId(3)), prepare(2, 7))], "heights 1 and 3 are decided");

    let mut leader = open(0, 4);
    leader.offer([payload(7)]);
    leader.settle();
    sent(&mut leader);
    leader.link(ReplicaId(2), LinkEvent::Gap);
    leader.settle();
    assert_eq!(sent(&mut leader), [(To::One(ReplicaId(2)), pre_prepare(1, 7))]);
}

#[test]
fn r4_missing_block_is_requested_from_each_voter_in_turn() {
    let mut backup = open(1, 7);
    backup.answer_otherwise(None);
    let id = block(1, 7).id();
    for from in [0, 2, 4, 5, 6] {
        take(&mut backup, from, commit(0, 1, 7));
    }
    assert_eq!(decided(&mut backup), [(1, id)]);
    let mut asked: Vec<u16> = backup.wanted().into_iter().map(|(_, from)| from.0).collect();
    assert_eq!(asked.len(), 1, "one at once");
    for _ in 0..6 {
        backup.advance(1_000 * MS);
        asked.extend(backup.wanted().into_iter().map(|(_, from)| from.0));
    }
    assert_eq!(asked, [0, 2, 4, 5, 6, 0], "the first STATUS only notes stalled heights");
    backup.ready(id, Ready::Valid);
    backup.advance(3_000 * MS);
    assert_eq!(backup.wanted(), []);
    // A proposal whose bodies do not arrive from the leader is requested likewise.
    take(&mut backup, 0, pre_prepare(2, 7));
    take(&mut backup, 3, prepare(2, 7));
    backup.advance(4_000 * MS);
    let asked: Vec<u16> = backup.wanted().into_iter().map(|(_, from)| from.0).collect();
    assert_eq!(asked, [0, 3, 0, 3]);
}

#[test]
fn one_silent_backup_is_tolerated_and_two_stop_progress() {
    let mut cluster = cluster();
    cluster.stop(ReplicaId(3));
    cluster.at(LEADER).offer((1..=10).map(payload));
    cluster.run();
    for id in 0..3 {
        assert_eq!(cluster.executed(ReplicaId(id)), Height(10));
    }
    cluster.stop(ReplicaId(2));
    cluster.at(LEADER).offer([payload(11)]);
    for _ in 0..50 {
        cluster.tick(100 * MS);
    }
    assert_eq!(cluster.executed(LEADER), Height(10));
    cluster.restart(ReplicaId(2)).unwrap();
    for _ in 0..10 {
        cluster.tick(100 * MS);
    }
    assert_eq!(cluster.executed(ReplicaId(2)), Height(11), "{:#?}", cluster.trace());
}
