//! Honest replicas meet in one view again after any loss.

use super::selection::change;
use super::*;
use quorate_consensus::harness::Cluster;
use quorate_consensus::{Examined, Healed};
use quorate_types::Time;
use quorate_types::rng::Rng;

fn params() -> PbftParams {
    PbftParams {
        status_ms: 50,
        idle_status_ms: 200,
        treq_ms: 40,
        t0_ms: 40,
        cap_ms: 320,
        ..PbftParams::default()
    }
}

/// Ticks until each of `ids` has executed a new height, at most for the recovery time of the protocol.
fn heal(cluster: &mut Cluster<Pbft>, n: usize, ids: &[u16], what: &str) {
    let healed = Healed { delta_ns: 0, outage_ns: 0, client_retry_ns: 0, fetch_ns: 0, restarted: 0 };
    let bound = <Pbft>::recovery(&params(), &setup(n).committee::<Pbft>(), &healed).0;
    let top = ids.iter().map(|id| cluster.executed(ReplicaId(*id))).max().unwrap();
    for (number, id) in ids.iter().enumerate() {
        cluster.at(ReplicaId(*id)).offer([payload(9_000 + number as u64)]);
    }
    let mut spent = 0;
    while ids.iter().any(|id| cluster.executed(ReplicaId(*id)) <= top) {
        assert!(spent <= bound, "{what}: not recovered in time: {:#?}", cluster.trace());
        for id in ids {
            let now = cluster.at(ReplicaId(*id)).now();
            let before = cluster.executed(ReplicaId(*id));
            if before <= top {
                // One bundle waits since the heal.
                let since = Time(now.0 - spent);
                cluster.at(ReplicaId(*id)).waits(Some(since), false);
            }
        }
        cluster.tick(5 * MS);
        cluster.serve_laggards();
        spent += 5 * MS;
    }
}

/// Scenario 22: n = 7, two silent replicas, one honest replica two views ahead of the others. The four others need its
/// view change for their timer, because it will not return to their view.
#[test]
fn s22_one_replica_two_views_ahead() {
    let mut cluster = Cluster::<Pbft>::open(setup(7), &params()).unwrap();
    cluster.run();
    for silent in [5, 6] {
        cluster.stop(ReplicaId(silent));
    }
    for from in [3, 5, 6] {
        let ahead = PbftMessage::ViewChange(Box::new(change(2, &[], &[])));
        assert_eq!(cluster.at(ReplicaId(4)).deliver(ReplicaId(from), ahead), Ok(()));
    }
    assert_eq!(cluster.at(ReplicaId(4)).status().view, View(2));
    cluster.stop(LEADER);
    cluster.restart(LEADER).unwrap();
    // The leader of view 0 has no bundle and proposes nothing.
    for id in 0..4 {
        cluster.at(ReplicaId(id)).waits(Some(Time(0)), false);
    }
    heal(&mut cluster, 7, &[1, 2, 3, 4], "one ahead");
}

#[test]
fn random_loss_restarts_and_leaders_that_die_recover() {
    for seed in 0..250 {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::<Pbft>::open(setup(4), &params()).unwrap();
        let mut number = 0;
        for _ in 0..30 {
            for id in 0..4 {
                if rng.chance(500_000) {
                    number += 1;
                    cluster.at(ReplicaId(id)).offer([payload(number)]);
                }
                let now = cluster.at(ReplicaId(id)).now();
                let oldest = rng.chance(700_000).then_some(Time(now.0.saturating_sub(rng.below(60) * MS)));
                cluster.at(ReplicaId(id)).waits(oldest, rng.chance(100_000));
            }
            if rng.chance(150_000) {
                let id = ReplicaId(u16::try_from(rng.below(4)).unwrap());
                cluster.restart(id).unwrap();
            }
            let loss = [0, 100_000, 400_000, 900_000][rng.index(4)];
            cluster.run_where(|_, _, _| !rng.chance(loss));
            for id in 0..4 {
                cluster.at(ReplicaId(id)).advance(rng.below(80) * MS);
            }
        }
        cluster.run();
        heal(&mut cluster, 4, &[0, 1, 2, 3], &format!("seed {seed}"));
    }
}

/// Scenario 9, in small: each leader of the first three views of ten is silent.
#[test]
fn silent_leaders_in_a_row_are_passed_over() {
    let mut cluster = Cluster::<Pbft>::open(setup(10), &params()).unwrap();
    cluster.run();
    for silent in 0..3 {
        cluster.stop(ReplicaId(silent));
    }
    let others: Vec<u16> = (3..10).collect();
    heal(&mut cluster, 10, &others, "three silent leaders");
    for id in others {
        assert_eq!(cluster.at(ReplicaId(id)).status().view, View(3));
    }
}
