//! Applications that are not deterministic, and wrong clocks. Replicas report both, and name the replica at fault.

use crate::support::{ask, begin, drop_frames, go, put, r, restart, short_window, world_of};
use quorate_protocols::find;
use quorate_sim::{OpId, Oracle, Plan, Quorum, World, ms};
use quorate_types::{Height, Kind};

const YEAR_NS: i64 = 365 * 86_400 * 1_000_000_000;

/// Returns a world in which no replica receives a state, and each of these replicas leaves out an operation of its own after it was decided. Checkpoints
/// come every 4 heights.
fn astray(protocol: &str, who: &[u16]) -> World {
    let mut world = world_of(find(protocol).unwrap(), 90, short_window);
    let noticed = [Oracle::Agreement, Oracle::Stopped, Oracle::Liveness, Oracle::Results, Oracle::Durability];
    for oracle in noticed {
        world.tolerate(oracle);
    }
    begin(&mut world);
    drop_frames(&mut world, |frame| frame.content.kind == Kind::new("host.state"));
    let next = world.history().records().len() as u64;
    for (id, op) in who.iter().zip(next..) {
        restart(&mut world, r(*id), |world| world.skip_operation(r(*id), OpId(op)));
    }
    // All operations are in one bundle, so no checkpoint comes between them.
    let puts: Vec<_> = ["a", "b"].iter().zip(who).map(|(key, _)| put(key, 1)).collect();
    world.submit(0, &puts);
    for round in 0..12 {
        world.submit(1, &[put("k", round)]);
        go(world.run_for(ms(200)), &world);
    }
    world
}

/// At the first later checkpoint all replicas know the different states and the signers of each. The checkpoint does
/// not become stable.
#[test]
fn states_without_a_quorum_are_reported_at_the_first_differing_checkpoint() {
    for protocol in ["pbft", "pbft-signed", "hotstuff", "jolteon"] {
        let world = astray(protocol, &[1, 2]);
        let stable = world.status(r(0)).unwrap().stable;
        for id in world.replicas() {
            let differing = world.differing(id);
            let first =
                differing.first().unwrap_or_else(|| panic!("{protocol}: replica {id} reports no states"));
            assert_eq!(first.quorum, Quorum::Never, "{protocol}: {first}");
            assert!(first.height > stable && first.height.since(stable) <= 4, "{protocol}: {first}");
            let states = first.states.iter().map(|(checkpoint, _)| checkpoint.state);
            assert!(states.collect::<std::collections::BTreeSet<_>>().len() >= 3, "{protocol}: {first}");
            let own = first.states.iter().filter(|(_, who)| who.contains(id)).count();
            assert!(
                own == 1 && first.to_string().contains(&format!("this one ({id})")),
                "{protocol}: {first}"
            );
            assert!(world.executed(id) <= stable.plus(8), "{protocol}: the window ends there");
        }
    }
}

/// A replica whose state differs from a quorum's stops, and the others name it.
#[test]
fn replica_with_a_different_state_is_named_by_the_others() {
    for protocol in ["pbft", "hotstuff", "jolteon", "sync-hotstuff"] {
        let world = astray(protocol, &[2]);
        for id in world.replicas().filter(|id| *id != r(2)) {
            let differing = world.differing(id);
            let [one] = &differing[..] else { panic!("{protocol}: replica {id} knows of {differing:?}") };
            assert_eq!((one.quorum, one.states.len()), (Quorum::Reached, 2), "{protocol}: {one}");
            assert!(one.to_string().contains("quorum has signed: replica 2 signed "), "{protocol}: {one}");
            assert!(world.status(id).unwrap().stable > Height::ZERO);
        }
    }
}

#[test]
fn equal_states_are_not_reported() {
    let world = astray("pbft", &[]);
    assert!(world.status(r(0)).unwrap().stable > Height::ZERO);
    assert!(world.replicas().all(|id| world.differing(id).is_empty()));
}

/// The time of a block is its leader's clock, and the application's time never decreases. Every replica shows both.
#[test]
fn application_time_keeps_the_lead_of_a_clock_that_was_ahead() {
    let mut world = world_of(find("pbft").unwrap(), 91, |_| {});
    world.plan(world.now(), Plan::WallClock(r(0), 10 * YEAR_NS));
    restart(&mut world, r(0), |_| {});
    begin(&mut world);
    ask(&mut world, 0, put("k", 1));
    let ahead = |ns: u64, world: &World| ns > world.wall_ns() + 9 * YEAR_NS as u64;
    let stamp = *world.stamps(r(3)).iter().find(|stamp| stamp.proposer == r(0)).unwrap();
    assert!(ahead(stamp.block_ns, &world) && ahead(stamp.application_ns, &world));
    // The clock is repaired.
    world.plan(world.now(), Plan::WallClock(r(0), 0));
    restart(&mut world, r(0), |_| {});
    ask(&mut world, 0, put("k", 2));
    let stamp = *world.stamps(r(3)).iter().max_by_key(|stamp| stamp.height).unwrap();
    assert!(!ahead(stamp.block_ns, &world) && ahead(stamp.application_ns, &world));
}
