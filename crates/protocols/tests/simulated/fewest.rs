//! The smallest number of running replicas with which each protocol decides, at a size where f + 1, the quorum and n - f differ.

use crate::support::{go, put, wait_for, world_of};
use quorate_consensus::{Entry, Model};
use quorate_protocols::REGISTRY;
use quorate_sim::{Settings, Survives, World, ms, secs};

const N: usize = 6;

/// Returns the number of voters that decide: f + 1 of 6 with f = 2, or the quorum of 6 with f = 1.
fn needed(entry: &Entry) -> usize {
    if entry.spec.model == Model::Synchrony { 3 } else { 4 }
}

/// Crashes replicas until so many run, and leaders first if others can replace them.
fn crash_until(world: &mut World, running: usize) {
    let replaces = world.settings().entry.spec.replaces_leader;
    let mut up: Vec<_> = world.replicas().filter(|id| world.is_running(*id)).collect();
    if !replaces {
        up.reverse();
    }
    let gone = up.len() - running;
    up.into_iter().take(gone).for_each(|id| world.crash(id, Survives::Everything));
}

fn decide_with_the_fewest(entry: &Entry) {
    let name = entry.spec.name;
    let mut world = world_of(entry, 5, |settings| {
        *settings = settings.clone().with_n(N);
        fast(settings);
    });
    let ids = world.submit(0, &[put("k", 1)]);
    wait_for(&mut world, &ids, secs(5));
    crash_until(&mut world, needed(entry));
    let before = world.highest();
    let ids = world.submit(1, &[put("k", 2)]);
    wait_for(&mut world, &ids, secs(20));
    assert!(world.highest() > before, "{name}");
    // Nothing is decided by one fewer, however long they wait.
    crash_until(&mut world, needed(entry) - 1);
    go(world.run_for(ms(200)), &world);
    let before = world.highest();
    world.submit(2, &[put("k", 3)]);
    go(world.run_for(secs(3)), &world);
    assert_eq!(world.highest(), before, "{name}");
}

fn fast(settings: &mut Settings) {
    settings.client.retry_ns = ms(200);
    settings.client.retry_ns_max = ms(400);
}

#[test]
fn each_protocol_decides_with_exactly_the_voters_of_its_rule() {
    REGISTRY.iter().for_each(decide_with_the_fewest);
}
