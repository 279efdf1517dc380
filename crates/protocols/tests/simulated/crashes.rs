//! Machines lose power and come back.

use crate::support::{
    SURVIVES, TRANSPORTS, ask, begin, both, go, incr, latency, no_view_change, put, r, settle, short_window,
    wait_for, world_of,
};
use quorate_consensus::Entry;
use quorate_sim::{KvResult, Op, OpId, Oracle, ReplicaState, Survives, Transport, Workload, World, ms, secs};
use quorate_types::{Height, ReplicaId};

both! {
    s12_power_cut_at_every_step
    s12_power_cut_while_opening
    s13_all_restart_at_once
    s11_off_for_long_and_back
    s11_off_for_too_long
    s18_a_replica_whose_state_went_astray_stops_itself
    who_is_killed_again_and_again_writes_a_snapshot_all_the_same
    snapshots_write_no_more_than_the_log
}

/// A short run that has everything in it that is written to disk: promises of leaders and backups, bodies,
/// decided heights, checkpoints and their proofs, a new segment of the log with its base, a snapshot.
fn short_run(entry: &Entry, seed: u64, transport: Transport) -> World {
    let mut world = world_of(entry, seed, |settings| {
        settings.transport = transport;
        short_window(settings);
        settings.storage.segment_bytes = 16 << 10;
        settings.bodies.bundle_bytes_max = 6 << 10;
        settings.bodies.block_bytes_max = 8 << 10;
        settings.bodies.block_bundles_max = 8;
        settings.storage.snapshot_every_bytes = 12 << 10;
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

/// Scenario 12: kill -9 at every write, sync and flush of a leader and of a backup: never two statements for one
/// slot, nothing acknowledged is lost, everything goes on.
fn s12_power_cut_at_every_step(entry: &Entry) {
    for (id, transport) in [(r(0), TRANSPORTS[0]), (r(2), TRANSPORTS[0]), (r(0), TRANSPORTS[1])] {
        let steps = steps_of(entry, id, transport);
        assert!(steps > 60, "{steps} steps of {id} are too few to be a test");
        for step in 1..=steps {
            // All three at each step where links carry it all; one at each for what has the same code below.
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

/// As above, and the power goes again while the replica is being opened, at each of the first steps of that.
fn s12_power_cut_while_opening(entry: &Entry) {
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

/// Scenario 13: all four lose power at once in the middle of everything: what was acknowledged survives, what was
/// not completes after the clients have asked again.
fn s13_all_restart_at_once(entry: &Entry) {
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

/// Scenario 11, first half: a replica that was off for long catches up from the others' logs while they keep what
/// it lacks.
fn s11_off_for_long_and_back(entry: &Entry) {
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
        // And it is needed again: the others alone are no quorum.
        world.crash(r(1), Survives::Some);
        ask(&mut world, 0, put("k", "last"));
    }
}

/// Scenario 11, first half: when nobody keeps what it lacks it stays out and says so; the others do not care.
fn s11_off_for_too_long(entry: &Entry) {
    let mut world = world_of(entry, 15, |settings| {
        short_window(settings);
        settings.storage.keep_bytes = 64 << 10;
        settings.storage.snapshot_every_bytes = 32 << 10;
    });
    begin(&mut world);
    world.crash(r(3), Survives::Some);
    many(&mut world, 400);
    let at = world.height();
    let kept = world.status(r(0)).unwrap().kept;
    assert!(kept > Height(50), "the others have let go of old heights: they keep {kept} and later");
    world.start(r(3)).unwrap();
    go(world.run_for(secs(10)), &world);
    let status = world.status(r(3)).unwrap();
    assert_eq!(status.state, ReplicaState::Out, "{status}");
    assert!(status.executed < kept, "{status}");
    ask(&mut world, 0, put("k", "still going"));
    assert!(world.height() > at);
}

/// Between two kills the log never grows enough for a snapshot. What was executed again at the start counts as well, or
/// each start would take longer than the one before.
fn who_is_killed_again_and_again_writes_a_snapshot_all_the_same(entry: &Entry) {
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
    assert!(snapshots > 0, "{written} bytes in 12 lives, and none of them long enough");
}

/// All of a large state changes between two snapshots, and the log grows by little: the next one waits until it has grown
/// as much as the last has written.
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

/// Scenario 18, first half: what a replica has executed is not what the others have. At the next checkpoint it notices
/// and stops itself; the others go on as if nothing had happened, and nobody ever believes it.
fn s18_a_replica_whose_state_went_astray_stops_itself(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 16, |settings| {
            settings.transport = transport;
            short_window(settings);
        });
        begin(&mut world);
        settle(&mut world);
        let astray = OpId(world.history().records().len() as u64);
        world.crash(r(2), Survives::Everything);
        go(world.run_for(ms(100)), &world);
        world.skip_operation(r(2), astray);
        world.start(r(2)).unwrap();
        go(world.run_for(secs(1)), &world);
        world.tolerate(Oracle::Agreement);
        world.tolerate(Oracle::Stopped);
        ask(&mut world, 0, incr("n"));
        let at = world.height();
        let checkpoint = Height(at.0.div_ceil(4) * 4);
        let mut stopped = None;
        for value in 2..40 {
            let id = ask(&mut world, value % 4, incr("n"));
            let result = world.history().get(id).unwrap().result.clone();
            assert_eq!(result, Some(KvResult::Number(value as i64)), "the others' answer");
            assert!(latency(&world, id) < ms(50), "the others do not notice: {}", latency(&world, id));
            if !world.is_running(r(2)) {
                stopped.get_or_insert(world.height());
            }
        }
        let Some(stopped) = stopped else { panic!("it goes on") };
        assert!((checkpoint..=checkpoint.plus(2)).contains(&stopped), "{at}, {checkpoint}, {stopped}");
        let others = [0, 1, 3].map(|id| world.status(r(id)).unwrap());
        assert!(others.iter().all(|status| status.stable > stopped), "their checkpoints are stable");
        no_view_change(&world);
        // Whoever starts it again gets no further: what is on its disk is what went astray.
        world.start(r(2)).unwrap();
        go(world.run_for(secs(5)), &world);
        let at = world.height();
        for value in 40..52 {
            let id = ask(&mut world, value % 4, incr("n"));
            assert_eq!(world.history().get(id).unwrap().result, Some(KvResult::Number(value as i64)));
        }
        assert!(world.height() >= at.plus(12) && !world.is_running(r(2)), "it stops again");
        no_view_change(&world);
        let left = |world: &World| [0, 1, 3].map(|id| world.executed(r(id)));
        let apart = |world: &World| left(world) != [world.height(); 3];
        go(world.run_while("the others are at one height", secs(1), apart), &world);
        go(world.read_back(), &world);
    }
}

fn many(world: &mut World, bundles: usize) -> u64 {
    let height = world.height();
    for value in 0..bundles {
        let op: Op = put(&format!("k{}", value % 5), format!("{value:0>200}"));
        ask(world, value % 4, op);
    }
    world.height().since(height)
}
