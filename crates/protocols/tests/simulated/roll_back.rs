//! Replicas whose disk was replaced by an older one (DESIGN 9): a statement of its own that its log lacks stops the replica.

use crate::side_by_side::run_all;
use crate::support::{begin, go, many, r, short_window, world_of};
use quorate_consensus::Entry;
use quorate_protocols::REGISTRY;
use quorate_sim::{Oracle, Survives, Verdict, World, ms, secs};

/// Runs a cluster with one replica in each quorum, whose disk is then replaced by an older image. All others restart too, so no
/// link remembers what it has received. The replica's statements are lost: it can only ask and listen.
fn rolled_back(entry: &'static Entry, forgets: bool) -> World {
    let mut world = world_of(entry, 1, short_window);
    world.tolerate(Oracle::Links);
    begin(&mut world);
    many(&mut world, 10);
    let f = (entry.spec.faults)(world.replicas().count());
    let spare: Vec<_> = world.replicas().filter(|id| *id != r(1)).take(f).collect();
    for id in &spare {
        world.crash(*id, Survives::Everything);
    }
    let (old, height) = (world.image(r(1)).unwrap(), world.height());
    // Some protocols sign nothing but checkpoints, view changes and blames.
    while world.height() < height.plus(12) {
        many(&mut world, 4);
    }
    go(world.run_for(ms(200)), &world);
    for id in world.replicas().filter(|id| !spare.contains(id)).collect::<Vec<_>>() {
        world.crash(id, Survives::Everything);
    }
    go(world.run_for(ms(50)), &world);
    if forgets {
        world.roll_back_disk(r(1), old);
    }
    world.hook(|_, frame| {
        let is_statement = frame.from == r(1) && frame.content.statement.is_some();
        if is_statement { Verdict::Drop } else { Verdict::Pass }
    });
    for id in world.replicas().collect::<Vec<_>>() {
        world.start(id).unwrap();
    }
    world
}

fn stops_as_rolled_back(world: &mut World) -> bool {
    let found = world.run_for(secs(30)).err();
    found.is_some_and(|failure| {
        failure.oracle == Oracle::Stopped && failure.what.contains("its log does not have")
    })
}

#[test]
fn own_statement_that_the_log_lacks_stops_the_replica_under_every_protocol() {
    let names: Vec<&Entry> = REGISTRY.iter().filter(|entry| entry.spec.replaces_leader).collect();
    let places: Vec<u64> = (0..names.len() as u64).collect();
    run_all(&places, |place| {
        let entry = names[place as usize];
        let name = entry.spec.name;
        assert!(
            stops_as_rolled_back(&mut rolled_back(entry, true)),
            "{name}: a replica with an older disk goes on"
        );
        assert!(
            !stops_as_rolled_back(&mut rolled_back(entry, false)),
            "{name}: a replica with its own disk stops"
        );
    });
}
