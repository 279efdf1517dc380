//! Replicas that have lost their disk, for every protocol: they come back, and never contradict what they have forgotten.

use crate::side_by_side::run_all;
use crate::support::{ask, begin, go, many, put, r, recovery, settle, short_window, wait_for, world_of};
use quorate_consensus::Entry;
use quorate_protocols::{REGISTRY, find};
use quorate_sim::{LinkConditions, ReplicaState, Survives, World, ms, secs};
use quorate_types::ReplicaId;

/// All protocols whose leader can be replaced.
pub(crate) fn names() -> Vec<&'static str> {
    let all = REGISTRY.iter().filter(|entry| entry.spec.replaces_leader);
    all.map(|entry| entry.spec.name.as_str()).collect()
}

pub(crate) fn with_each(names: &[&str], scenario: impl Fn(&'static Entry) + Sync) {
    let places: Vec<u64> = (0..names.len() as u64).collect();
    run_all(&places, |place| scenario(find(names[place as usize]).unwrap()));
}

/// Returns a world with one spare fault: the wiped replica is one of two that may fail.
pub(crate) fn world_with_spare(entry: &Entry, seed: u64) -> World {
    let mut world = world_of(entry, seed, |settings| {
        *settings = settings.clone().with_n(entry.smallest(2));
        short_window(settings);
    });
    begin(&mut world);
    many(&mut world, 20);
    world
}

pub(crate) fn is_back(world: &World, id: ReplicaId) -> bool {
    world.status(id).is_some_and(|status| status.amnesia.is_none())
}

/// Makes requests until the replica is back.
pub(crate) fn load_until_back(world: &mut World, id: ReplicaId, spans: usize) {
    for _ in 0..spans {
        if is_back(world, id) {
            return;
        }
        many(world, 4);
        go(world.run_for(ms(500)), world);
    }
    panic!("{}: {}", world.settings().entry.spec.name, world.status(id).unwrap());
}

/// The wiped replica comes back under load, and takes part as before.
#[test]
fn wiped_replica_comes_back_under_every_protocol() {
    with_each(&names(), |entry| {
        for id in [r(0), r(1)] {
            let mut world = world_with_spare(entry, 1);
            world.wipe(id);
            many(&mut world, 10);
            world.start(id).unwrap();
            assert_eq!(world.status(id).unwrap().state, ReplicaState::Amnesiac);
            load_until_back(&mut world, id, 120);
            many(&mut world, 20);
            settle(&mut world);
            // The replica is needed again.
            for other in world.replicas().filter(|other| *other != id).take(2).collect::<Vec<_>>() {
                world.crash(other, Survives::Some);
            }
            ask(&mut world, 0, put("k", "last"));
        }
    });
}

/// A cluster without clients lets its amnesiac back too: heights and views move for it.
#[test]
fn wiped_replica_comes_back_in_an_idle_cluster() {
    with_each(&names(), |entry| {
        let mut world = world_with_spare(entry, 2);
        let id = world.replicas().last().unwrap();
        world.wipe(id);
        world.start(id).unwrap();
        go(world.run_while("the replica is back", secs(120), |world| !is_back(world, id)), &world);
        settle(&mut world);
    });
}

/// n - f others show all that they know before the replica knows what it may have forgotten: fewer may all have missed it.
#[test]
fn wiped_replica_waits_for_n_minus_f_others() {
    const N: usize = 6;
    with_each(&names(), |entry| {
        let name = entry.spec.name;
        let mut world = world_of(entry, 4, |settings| {
            *settings = settings.clone().with_n(N);
            short_window(settings);
        });
        begin(&mut world);
        many(&mut world, 10);
        let needed = N - world.settings().f;
        let (id, others) = (r(5), needed - 1);
        (others..N - 1).for_each(|gone| world.crash(r(gone as u16), Survives::Everything));
        world.wipe(id);
        world.start(id).unwrap();
        go(world.run_for(secs(5)), &world);
        let amnesia = world.status(id).unwrap().amnesia.unwrap();
        assert_eq!((amnesia.shown, amnesia.stable), (others, None), "{name}");
        world.start(r(others as u16)).unwrap();
        let knows =
            |world: &World| world.status(id).unwrap().amnesia.is_none_or(|amnesia| amnesia.stable.is_some());
        go(world.run_while("the replica knows its bounds", secs(60), |world| !knows(world)), &world);
    });
}

/// A restart while it is away, or just after it is back, changes nothing.
#[test]
fn wiped_replica_that_is_killed_again_and_again_comes_back() {
    with_each(&names(), |entry| {
        let mut world = world_with_spare(entry, 3);
        let id = r(1);
        world.wipe(id);
        for span in 0..12 {
            world.start(id).unwrap();
            many(&mut world, 3);
            go(world.run_for(ms(200 * span)), &world);
            world.crash(id, [Survives::Nothing, Survives::Some, Survives::Everything][span as usize % 3]);
            go(world.run_for(ms(50)), &world);
        }
        world.start(id).unwrap();
        load_until_back(&mut world, id, 120);
        many(&mut world, 20);
        go(world.run_for(secs(1)), &world);
        world.crash(id, Survives::Nothing);
        go(world.run_for(ms(50)), &world);
        world.start(id).unwrap();
        assert!(is_back(&world, id), "it stays back");
        settle(&mut world);
    });
}

/// Replicas that have shown a peer their knowledge keep a promise about it on disk. After a restart it binds no other
/// statements: the first leader goes on where it can.
#[test]
fn cluster_that_has_helped_a_wiped_replica_starts_cold() {
    with_each(&names(), |entry| {
        let mut world = world_with_spare(entry, 5);
        let id = world.replicas().last().unwrap();
        world.wipe(id);
        world.start(id).unwrap();
        load_until_back(&mut world, id, 120);
        many(&mut world, 20);
        settle(&mut world);
        let all: Vec<ReplicaId> = world.replicas().collect();
        all.iter().for_each(|id| world.crash(*id, Survives::Everything));
        go(world.run_for(ms(50)), &world);
        all.iter().for_each(|id| world.start(*id).unwrap());
        let span_ns = recovery(&world, ms(50));
        for value in 0..6 {
            let id = world.submit(value % 4, &[put("k", value)])[0];
            wait_for(&mut world, &[id], span_ns);
        }
        // A stable coordinator stays: nothing but its own promises could have replaced it.
        let coordinator = world.status(r(0)).unwrap().leader;
        assert!(entry.spec.name.as_str() != "artemis" || coordinator == r(0), "{coordinator:?}");
        settle(&mut world);
    });
}

/// Answers that take longer than the pause between two questions count as well.
#[test]
fn wiped_replica_comes_back_over_slow_links() {
    with_each(&["pbft", "hotstuff", "jolteon", "hotstuff2"], |entry| {
        let mut world = world_of(entry, 6, |settings| {
            *settings = settings.clone().with_n(entry.smallest(2));
            short_window(settings);
            settings.conditions = LinkConditions::constant(ms(280));
            settings.client.retry_ns = secs(8);
            settings.client.retry_ns_max = secs(16);
        });
        begin(&mut world);
        many(&mut world, 10);
        let id = r(1);
        world.wipe(id);
        world.start(id).unwrap();
        load_until_back(&mut world, id, 40);
    });
}
