//! Replicas that lose power in the middle of a view change.

use crate::support::{
    SURVIVES, begin, both, drop_frames, go, incr, put, r, recovery, sent, settle, view, wait_for, world_of,
};
use quorate_consensus::Entry;
use quorate_protocols::pbft::{COMMIT, NEW_VIEW, VIEW_CHANGE};
use quorate_sim::{KvResult, OpId, Survives, World, ms, secs};
use quorate_types::{ReplicaId, View};

both! {
    s12_view_begins_after_a_power_cut_at_every_step_of_a_view_change
}

/// Returns a world whose leader has crashed, and the open operations. The leader's last proposal has prepared and is
/// decided nowhere. The next view has to take it over, and needs all three replicas that are left.
fn without_leader(entry: &Entry, seed: u64) -> (World, Vec<OpId>) {
    let mut world = world_of(entry, seed, |settings| {
        settings.client.retry_ns = ms(100);
        settings.client.retry_ns_max = ms(400);
    });
    begin(&mut world);
    settle(&mut world);
    drop_frames(&mut world, |frame| frame.content.kind == COMMIT && frame.content.view == View(0));
    let mut ids = Vec::new();
    for client in 0..4 {
        ids.extend(world.submit(client, &[put("k", client), incr("n")]));
        go(world.run_for(ms(3)), &world);
    }
    go(world.run_for(ms(20)), &world);
    world.crash(r(0), Survives::Everything);
    (world, ids)
}

/// Returns the number of steps of a replica from the crash of the leader until the new view works.
fn steps_of(entry: &Entry, seed: u64, id: ReplicaId) -> u64 {
    let (mut world, ids) = without_leader(entry, seed);
    let before = world.steps(id);
    assert_eq!(sent(&world, VIEW_CHANGE), 0);
    wait_for(&mut world, &ids, secs(5));
    go(world.run_for(ms(20)), &world);
    assert_eq!(view(&world, id), View(1));
    // Each of the three sends it to the three others, once. The new leader sends the NEW-VIEW.
    assert_eq!((sent(&world, VIEW_CHANGE), sent(&world, NEW_VIEW)), (9, 3), "one view change and no more");
    world.steps(id) - before
}

/// Scenario 12: the power of the next leader or of a backup is cut at every write, sync and flush of a view change. The
/// replica sends its earlier messages again, byte for byte, as the oracles check. The view begins, which is impossible
/// without that replica.
fn s12_view_begins_after_a_power_cut_at_every_step_of_a_view_change(entry: &Entry) {
    for id in [r(1), r(2)] {
        // The rest of a torn write is drawn, so one run is not enough.
        let ways = SURVIVES.into_iter().map(|survives| (120, survives));
        let torn = (121..137).map(|seed| (seed, Survives::Some));
        for (seed, survives) in ways.chain(torn) {
            let steps = steps_of(entry, seed, id);
            assert!(steps >= 10, "{steps} steps of {id} are too few to be a test");
            for step in 1..=steps {
                cut_at(entry, seed, (id, step, survives));
            }
        }
    }
}

fn cut_at(entry: &Entry, seed: u64, (id, step, survives): (ReplicaId, u64, Survives)) {
    let (mut world, ids) = without_leader(entry, seed);
    world.crash_at_step(id, step, survives);
    go(world.run_while("the power goes", secs(5), |world| world.is_running(id)), &world);
    go(world.run_for(ms(50)), &world);
    let case = format!("{} seed {seed}: step {step} of {id}, {survives:?}", entry.spec.name);
    world.start(id).unwrap_or_else(|why| panic!("{case}: {why}"));
    let bound = recovery(&world, secs(1));
    let waits = |world: &World| ids.iter().any(|id| world.history().get(*id).unwrap().answered.is_none());
    if let Err(failure) = world.run_while("operations are answered", bound, waits) {
        panic!("{case}: {failure}");
    }
    assert!([1, 2, 3].iter().all(|id| view(&world, r(*id)) > View(0)), "{case}");
    let last = ids.iter().filter_map(|id| match world.history().get(*id).unwrap().result {
        Some(KvResult::Number(number)) => Some(number),
        _ => None,
    });
    assert_eq!(last.max(), Some(4), "{case}: each once");
    world.unhook();
    world.start(r(0)).unwrap();
    settle(&mut world);
}
