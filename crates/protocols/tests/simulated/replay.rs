//! A replica is a pure function of its inputs. Its recorded inputs lead a second replica to the same outputs, byte for
//! byte.

use crate::support::{begin, go, pbft, r, settle, world, world_of};
use quorate_consensus::Entry;
use quorate_sim::{Failure, Oracle, Survives, Workload, World, ms, secs};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs a small cluster through all events of a replica: checkpoints, a crash, catching up, and snapshots.
fn small_run(world: &mut World) {
    begin(world);
    world.load_all(Workload {
        operations: 60,
        pause_ns: ms(20),
        together_max: 4,
        outstanding_max: 4,
        keys: 3,
    });
    go(world.run_for(secs(1)), world);
    world.crash(r(2), Survives::Nothing);
    go(world.run_for(secs(2)), world);
    world.start(r(2)).unwrap();
    go(world.run_while("all clients have their answers", secs(60), |world| !world.all_done()), world);
    settle(world);
}

#[test]
fn run_is_replayed_byte_for_byte_and_replaying_changes_nothing() {
    for seed in [70, 71] {
        let hash = |replay| {
            let mut world = world(seed, |settings| settings.replay = replay);
            small_run(&mut world);
            assert!(world.height().0 > 40, "checkpoints were passed: {}", world.height());
            world.trace_hash()
        };
        assert_eq!(hash(true), hash(false), "seed {seed}");
    }
}

/// PBFT with an ambient input: every second replica that the process opens sends its status earlier.
fn impure() -> Entry {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    Entry {
        open: |env, params, past| {
            let mut params = params.clone();
            if OPENED.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                params.insert("status_ms".to_owned(), 10.into());
            }
            (pbft().open)(env, &params, past)
        },
        ..*pbft()
    }
}

#[test]
fn replay_oracle_notices_outputs_that_do_not_follow_from_the_inputs() {
    let mut world = world_of(&impure(), 72, |settings| settings.replay = true);
    let Err(Failure { oracle, what, .. }) = world.run_for(secs(30)) else {
        panic!("the oracle has not noticed the ambient input")
    };
    assert_eq!(oracle, Oracle::Replay, "{what}");
    // The failure has both outputs: the recorded one and the present one.
    assert!(what.contains("recorded was") && what.contains("and the same inputs give"), "{what}");
}
