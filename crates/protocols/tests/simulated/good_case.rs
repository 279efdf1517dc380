//! Runs without faults, or with so few that no client notices them.

use crate::support::{
    DELAY_NS, TRANSPORTS, ask, begin, both, constant_of, drop_frames, go, incr, latency, put, r, settle,
    short_window, wait_for, world_of,
};
use quorate_consensus::Entry;
use quorate_protocols::pbft::{ENTRY, NEW_VIEW, VIEW_CHANGE};
use quorate_sim::{KvResult, Op, World, ms, secs};
use quorate_types::{Height, Kind};

both! {
    s01_thousand_requests_lead_to_one_state
    s01_two_syncs_for_each_block
    s02_one_silent_backup_changes_nothing
    s02_two_silent_backups_stop_progress_until_one_recovers
    s17_one_withheld_checkpoint_does_no_harm
    s17_two_withheld_checkpoints_fill_the_window
    idle_replicas_hardly_wake_up
}

/// Scenario 1: after 1,000 requests, with one or 100 in a bundle, all replicas have the same state.
fn s01_thousand_requests_lead_to_one_state(entry: &Entry) {
    for together in [1, 100] {
        let mut world = world_of(entry, 1, |settings| {
            settings.bodies.bundle_requests_max = 100;
            settings.client.in_flight_max = 4;
            settings.storage.keep_bytes = 4 << 20;
        });
        begin(&mut world);
        let mut ids = Vec::new();
        for bundle in 0..1_000 / together {
            let ops: Vec<Op> = (0..together).map(|op| incr(&format!("n{}", (bundle + op) % 7))).collect();
            ids.extend(world.submit(bundle % 4, &ops));
            go(world.run_for(ms(2)), &world);
        }
        wait_for(&mut world, &ids, secs(20));
        assert_eq!((ids.len(), world.applied()), (1_000, 1_000), "{together} together");
        settle(&mut world);
    }
}

/// At depth 1 each replica syncs at most twice for a block, once for each of its messages.
fn s01_two_syncs_for_each_block(entry: &Entry) {
    let mut world = constant_of(entry, 4);
    begin(&mut world);
    go(world.run_for(secs(1)), &world);
    let syncs: Vec<u64> = world.replicas().map(|id| world.syncs(id)).collect();
    ask(&mut world, 0, put("k", 1));
    let taken: Vec<u64> =
        world.replicas().map(|id| world.syncs(id)).zip(syncs).map(|(now, then)| now - then).collect();
    assert!(taken.iter().all(|syncs| *syncs <= 2), "{taken:?}");
}

/// Scenario 2: one backup is silent. Progress continues, and no request takes longer.
fn s02_one_silent_backup_changes_nothing(entry: &Entry) {
    let mut world = constant_of(entry, 5);
    begin(&mut world);
    drop_frames(&mut world, |frame| frame.from == r(3));
    for value in 0..50 {
        let id = ask(&mut world, value % 4, put("k", value));
        assert_eq!(latency(&world, id), 5 * DELAY_NS);
    }
}

/// Scenario 2: two backups are silent. No operation is executed, and no client receives a reply. Progress resumes when
/// one of them has recovered.
fn s02_two_silent_backups_stop_progress_until_one_recovers(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 6, |settings| settings.transport = transport);
        begin(&mut world);
        settle(&mut world);
        let height = world.height();
        drop_frames(&mut world, |frame| frame.from >= r(2));
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        go(world.run_for(secs(30)), &world);
        assert_eq!(world.height(), height, "nothing is executed");
        assert!(ids.iter().all(|id| world.history().get(*id).unwrap().answered.is_none()));
        drop_frames(&mut world, |frame| frame.from == r(3));
        wait_for(&mut world, &ids, secs(10));
        assert_eq!(world.history().get(ids[1]).unwrap().result, Some(KvResult::Number(2)));
        world.unhook();
        settle(&mut world);
    }
}

/// Scenario 17: one replica withholds its CHECKPOINTs. A quorum makes the checkpoints stable all the same.
fn s17_one_withheld_checkpoint_does_no_harm(entry: &Entry) {
    let mut world = short_world(entry, 7);
    let checkpoint = Kind::new("host.checkpoint");
    drop_frames(&mut world, move |frame| frame.from == r(1) && frame.content.kind == checkpoint);
    for value in 0..100 {
        ask(&mut world, value % 4, put("k", value));
    }
    assert!(world.height() > Height(100));
    let stable = world.status(r(0)).unwrap().stable;
    assert!(world.height().since(stable) <= world.settings().window, "stable {stable}");
}

/// Scenario 17: two replicas withhold their CHECKPOINTs, so the window fills and progress stops. Progress resumes when
/// the CHECKPOINTs arrive.
fn s17_two_withheld_checkpoints_fill_the_window(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 8, |settings| {
            settings.transport = transport;
            short_window(settings);
        });
        begin(&mut world);
        let checkpoint = Kind::new("host.checkpoint");
        let proof = Kind::new("host.proof");
        drop_frames(&mut world, move |frame| {
            // A view change carries the proof as well.
            let shows = [checkpoint, proof, VIEW_CHANGE, NEW_VIEW, ENTRY];
            let withheld = shows.contains(&frame.content.kind);
            withheld && frame.from <= r(1)
        });
        let mut ids = Vec::new();
        for value in 0..40 {
            ids.extend(world.submit(value % 4, &[put("k", value)]));
            go(world.run_for(ms(20)), &world);
        }
        go(world.run_for(secs(20)), &world);
        // Two replicas that receive only each other's CHECKPOINTs have no quorum. The two that withhold theirs have
        // one.
        let stable = world.status(r(2)).unwrap().stable;
        assert_eq!(world.height(), stable.plus(8), "the window is full");
        assert!(!world.all_done());
        world.unhook();
        wait_for(&mut world, &ids, secs(60));
        settle(&mut world);
    }
}

fn short_world(entry: &Entry, seed: u64) -> World {
    let mut world = world_of(entry, seed, short_window);
    begin(&mut world);
    world
}

/// Idle replicas seldom wake up: they send only a STATUS now and then.
fn idle_replicas_hardly_wake_up(entry: &Entry) {
    let mut world = world_of(entry, 9, |settings| settings.parameters.exam = false);
    begin(&mut world);
    ask(&mut world, 0, put("k", 1));
    go(world.run_for(secs(5)), &world);
    let before: Vec<u64> = world.replicas().map(|id| world.turns(id)).collect();
    go(world.run_for(secs(100)), &world);
    for (id, before) in world.replicas().zip(before) {
        let turns = world.turns(id) - before;
        assert!(turns <= 5 * 100, "replica {id} woke up {turns} times in 100 s");
    }
}
