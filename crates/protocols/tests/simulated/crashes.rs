//! Replicas that lose power and recover.

use crate::support::{
    SURVIVES, TRANSPORTS, ask, begin, both, go, incr, latency, many, no_view_change, put, r, restart, settle,
    short_window, wait_for, world_of,
};
use quorate_consensus::Entry;
use quorate_sim::{KvResult, OpId, Oracle, ReplicaState, Survives, Transport, Workload, World, ms, secs};
use quorate_types::{Height, Incarnation, ReplicaId};

both! {
    s12_power_cut_at_every_step_loses_nothing
    s12_power_cuts_while_opening_lose_nothing
    s13_acknowledged_requests_survive_a_restart_of_all
    s11_replica_that_was_off_for_long_catches_up
    s11_replica_that_was_off_for_too_long_receives_a_state
    s18_replica_with_a_different_state_receives_another_one
    replica_that_crashes_repeatedly_still_writes_a_snapshot
    snapshots_write_no_more_than_the_log
}

/// Returns a short run in which replicas write all kinds of data: promises of leaders and backups, bodies, decided
/// heights, checkpoints and their proofs, a new segment of the log with its base, and a snapshot.
fn short_run(entry: &Entry, seed: u64, transport: Transport) -> World {
    let mut world = world_of(entry, seed, |settings| {
        settings.transport = transport;
        short_window(settings);
        settings.storage.segment_bytes = 16 << 10;
        settings.bodies.bundle_bytes_max = 6 << 10;
        settings.bodies.block_bytes_max = 8 << 10;
        settings.bodies.block_bundles_max = 8;
        settings.storage.snapshot_every_bytes = 6 << 10;
        settings.client.retry_ns = ms(300);
        settings.client.retry_ns_max = ms(600);
    });
    begin(&mut world);
    world
}

fn load(world: &mut World) -> Vec<OpId> {
    let mut ids = Vec::new();
    for value in 0..8 {
        ids.extend(world.submit(value % 4, &[put("k", value), incr("n")]));
        go(world.run_for(ms(3)), world);
    }
    ids
}

fn steps_of(entry: &Entry, id: ReplicaId, transport: Transport) -> u64 {
    let mut world = short_run(entry, 12, transport);
    let before = world.steps(id);
    let ids = load(&mut world);
    wait_for(&mut world, &ids, secs(10));
    go(world.run_for(ms(500)), &world);
    let (segments, snapshots) = world.disk_parts(id);
    let stable = world.status(id).unwrap().stable;
    assert!(segments > 1 && snapshots > 0 && stable >= Height(8), "{segments}, {snapshots}, stable {stable}");
    world.steps(id) - before
}

/// Scenario 12: the power of a leader or of a backup is cut at every write, sync and flush. No replica signs two
/// statements for one slot, no acknowledged request is lost, and progress continues.
fn s12_power_cut_at_every_step_loses_nothing(entry: &Entry) {
    for (id, transport) in [(r(0), TRANSPORTS[0]), (r(2), TRANSPORTS[0]), (r(0), TRANSPORTS[1])] {
        let steps = steps_of(entry, id, transport);
        assert!(steps > 60, "{steps} steps of {id} are too few to be a test");
        for step in 1..=steps {
            // With links, each step has all three kinds of survival. Otherwise each step has one, because the code
            // below is the same.
            let is_first = transport == Transport::Links && !entry.spec.votes_are_signed;
            let one = (step % 3) as usize;
            for survives in if is_first { &SURVIVES[..] } else { &SURVIVES[one..=one] } {
                cut_at(entry, transport, (id, step, *survives));
            }
        }
    }
}

fn cut_at(entry: &Entry, transport: Transport, (id, step, survives): (ReplicaId, u64, Survives)) {
    let mut world = short_run(entry, 12, transport);
    world.crash_at_step(id, step, survives);
    let ids = load(&mut world);
    go(world.run_while("the power goes", secs(10), |world| world.is_running(id)), &world);
    go(world.run_for(ms(50)), &world);
    world.start(id).unwrap_or_else(|why| panic!("step {step} of {id}, {survives:?}: {why}"));
    wait_for(&mut world, &ids, secs(20));
    settle(&mut world);
}

/// The power is cut, and cut again while the replica is opened, at each of the first steps of its opening.
fn s12_power_cuts_while_opening_lose_nothing(entry: &Entry) {
    for step in 1..=12 {
        let mut world = short_run(entry, 13, Transport::Links);
        let ids = load(&mut world);
        world.crash(r(1), Survives::Some);
        go(world.run_for(ms(20)), &world);
        world.crash_at_step(r(1), step, Survives::Some);
        world.start(r(1)).unwrap();
        go(world.run_for(ms(200)), &world);
        world.disarm();
        world.start(r(1)).unwrap();
        wait_for(&mut world, &ids, secs(20));
        settle(&mut world);
    }
}

/// Scenario 13: all four replicas lose power at once under load. Acknowledged requests survive, and the others complete
/// after the clients have sent them again.
fn s13_acknowledged_requests_survive_a_restart_of_all(entry: &Entry) {
    for transport in TRANSPORTS {
        for survives in SURVIVES {
            for seed in 0..8 {
                let mut world = world_of(entry, 100 + seed, |settings| settings.transport = transport);
                begin(&mut world);
                world.load_all(Workload {
                    operations: 40,
                    pause_ns: ms(4),
                    together_max: 3,
                    outstanding_max: 4,
                    keys: 3,
                });
                go(world.run_for(ms(60) + seed * 700_001), &world);
                for id in world.replicas() {
                    world.crash(id, survives);
                }
                go(world.run_for(ms(30)), &world);
                for id in world.replicas() {
                    world.start(id).unwrap();
                    go(world.run_for(seed * ms(40)), &world);
                }
                settle(&mut world);
                assert_eq!(world.failed_ops(), 0, "seed {seed}");
            }
        }
    }
}

/// Scenario 11, first half: a replica that was off for long catches up from the logs of the others, as long as they
/// keep the missing heights.
fn s11_replica_that_was_off_for_long_catches_up(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 14, |settings| {
            settings.transport = transport;
            short_window(settings);
            settings.storage.keep_bytes = 4 << 20;
        });
        begin(&mut world);
        world.crash(r(3), Survives::Some);
        let missed = many(&mut world, 150);
        assert!(missed > 10 * world.settings().window, "{missed} heights");
        world.start(r(3)).unwrap();
        settle(&mut world);
        assert_eq!(world.status(r(3)).unwrap().state, ReplicaState::Current);
        // The replica is needed again: the others alone are no quorum.
        world.crash(r(1), Survives::Some);
        ask(&mut world, 0, put("k", "last"));
    }
}

/// Scenario 11: a replica whose missing heights no peer keeps any more receives a state, and takes part again.
fn s11_replica_that_was_off_for_too_long_receives_a_state(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 15, |settings| {
            settings.transport = transport;
            short_window(settings);
            settings.storage.keep_bytes = 64 << 10;
            settings.storage.snapshot_every_bytes = 32 << 10;
        });
        begin(&mut world);
        world.crash(r(3), Survives::Some);
        many(&mut world, 400);
        let kept = world.status(r(0)).unwrap().kept;
        assert!(kept > Height(50), "the others have dropped old heights: they keep {kept} and later");
        world.start(r(3)).unwrap();
        settle(&mut world);
        let status = world.status(r(3)).unwrap();
        assert_eq!(status.state, ReplicaState::Current, "{status}");
        assert!(status.executed >= kept && status.incarnation == Incarnation(3), "{status}");
        // The replica is needed again: the others alone are no quorum.
        world.crash(r(1), Survives::Some);
        ask(&mut world, 0, put("k", "last"));
    }
}

/// Between two crashes the log never grows enough for a snapshot. Operations that the start executes again count as
/// well. Otherwise each start would take longer than the one before.
fn replica_that_crashes_repeatedly_still_writes_a_snapshot(entry: &Entry) {
    let every = 64 << 10;
    let mut world = world_of(entry, 17, |settings| {
        short_window(settings);
        settings.storage.snapshot_every_bytes = every;
    });
    begin(&mut world);
    let mut written = 0;
    for round in 0..12 {
        let before = world.ledger(r(3)).log_bytes;
        many(&mut world, 5);
        let grown = world.ledger(r(3)).log_bytes.saturating_sub(before);
        assert!(grown < every / 2, "round {round}: {grown} bytes at once prove nothing");
        written += grown;
        go(world.run_for(ms(500)), &world);
        world.crash(r(3), Survives::Everything);
        go(world.run_for(ms(50)), &world);
        world.start(r(3)).unwrap();
        go(world.run_for(ms(500)), &world);
    }
    let (_, snapshots) = world.disk_parts(r(3));
    assert!(snapshots > 0, "no snapshot after {written} bytes in 12 incarnations");
}

/// All of a large state changes between two snapshots, and the log grows by little. The next snapshot waits until the
/// log has grown by as much as the last snapshot has written.
fn snapshots_write_no_more_than_the_log(entry: &Entry) {
    let mut world = world_of(entry, 18, |settings| {
        short_window(settings);
        settings.storage.snapshot_every_bytes = 4 << 10;
    });
    begin(&mut world);
    let before = world.ledger(r(1));
    for round in 0..40 {
        let ops: Vec<_> = (0..16).map(|key| put(&format!("k{}", round * 16 + key), key)).collect();
        let ids = world.submit(0, &ops);
        wait_for(&mut world, &ids, secs(10));
    }
    let cost = world.ledger(r(1)).since(&before);
    let (log, state) = (cost.log_bytes, cost.snapshot_bytes);
    assert!(state > log / 4, "{log} bytes of log and {state} of state prove nothing");
    assert!(state < log, "{state} bytes of state for {log} of log");
}

/// Scenario 18: the state of one replica differs from that of the others. The replica notices it at the next
/// checkpoint, drops its state, receives one from the others, and takes part again. The others are not affected.
fn s18_replica_with_a_different_state_receives_another_one(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 16, |settings| {
            settings.transport = transport;
            short_window(settings);
        });
        begin(&mut world);
        settle(&mut world);
        let astray = OpId(world.history().records().len() as u64);
        restart(&mut world, r(2), |world| world.skip_operation(r(2), astray));
        go(world.run_for(secs(1)), &world);
        for oracle in [Oracle::Agreement, Oracle::Stopped] {
            world.tolerate(oracle);
        }
        ask(&mut world, 0, incr("n"));
        let (at, opened) = (world.height(), world.status(r(2)).unwrap().incarnation);
        let checkpoint = Height(at.0.div_ceil(4) * 4);
        let mut noticed = None;
        for value in 2..60 {
            let id = ask(&mut world, value % 4, incr("n"));
            let result = world.history().get(id).unwrap().result.clone();
            assert_eq!(result, Some(KvResult::Number(value as i64)), "the others reply");
            assert!(latency(&world, id) < ms(50), "the others are not delayed: {}", latency(&world, id));
            if world.status(r(2)).is_some_and(|status| status.incarnation > opened) {
                noticed.get_or_insert(world.height());
            }
        }
        let Some(noticed) = noticed else { panic!("{at}: the replica with the different state goes on") };
        assert!((checkpoint..=checkpoint.plus(15)).contains(&noticed), "{at}, {checkpoint}, {noticed}");
        no_view_change(&world);
        settle(&mut world);
        let status = world.status(r(2)).unwrap();
        assert!(status.state == ReplicaState::Current && status.executed > noticed, "{status}");
        // The replica is needed again, with the right state.
        world.crash(r(3), Survives::Everything);
        for value in 60..70 {
            let id = ask(&mut world, value % 4, incr("n"));
            assert_eq!(world.history().get(id).unwrap().result, Some(KvResult::Number(value as i64)));
        }
        assert_eq!(world.differing(r(0)), [], "all replicas agree at later checkpoints");
    }
}
