//! A disk that is full at each point at which a replica needs space: the replica stops before it promises more, and goes on when
//! there is room.

use crate::side_by_side::run_all;
use crate::support::{ask, begin, go, put, r, settle, short_window, world_of};
use quorate_consensus::Entry;
use quorate_protocols::find;
use quorate_sim::{ReplicaState, World, ms};

/// One protocol of each family.
const FAMILIES: [&str; 5] = ["pbft", "jolteon", "optsync", "apollo", "artemis"];
/// Requests of a run.
const REQUESTS: usize = 90;

fn world(entry: &Entry) -> World {
    let mut world = world_of(entry, 1, |settings| {
        short_window(settings);
        settings.storage.segment_bytes = 32 << 10;
        settings.storage.keep_bytes = 32 << 10;
        settings.storage.snapshot_every_bytes = 24 << 10;
    });
    begin(&mut world);
    world
}

/// Runs with a disk that has this room. Returns whether it was full. Some time later it has room again.
fn runs_full(entry: &Entry, room: u64) -> bool {
    let (mut world, id) = (world(entry), r(1));
    world.limit_disk(id, Some(room));
    let mut full_at = None;
    for value in 0..REQUESTS {
        ask(&mut world, value % 4, put(&format!("k{}", value % 5), format!("{value:0>300}")));
        let is_full = full_at.is_none() && world.status(id).is_none();
        if is_full {
            full_at = Some(value);
        }
        if full_at.is_some_and(|at| value == at + 5) {
            world.limit_disk(id, None);
            world.start(id).unwrap();
        }
    }
    go(world.run_for(ms(100)), &world);
    world.limit_disk(id, None);
    if world.status(id).is_none() {
        full_at.get_or_insert(REQUESTS);
        world.start(id).unwrap();
    }
    settle(&mut world);
    let status = world.status(id).unwrap();
    assert_eq!(status.state, ReplicaState::Current, "{}, room {room}: {status}", entry.spec.name);
    full_at.is_some()
}

#[test]
fn replica_stops_on_a_full_disk_at_any_point_and_goes_on_when_there_is_room() {
    run_all(&[0, 1, 2, 3, 4], |place| {
        let entry = find(FAMILIES[place as usize]).unwrap();
        let points = (0..).take_while(|room| runs_full(entry, *room)).count();
        assert!(points > 8, "{}: the run needs space {points} times only", entry.spec.name);
    });
}
