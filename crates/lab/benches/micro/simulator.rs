//! The simulator: a fixed run of each family of protocols, without faults. `items` are the turns of all replicas.

use divan::Bencher;
use divan::counter::ItemsCount;
use quorate_protocols::find;
use quorate_sim::{Settings, Workload, World, ms, secs};

/// Operations of each client.
const OPERATIONS: u32 = 100;

#[divan::bench(args = ["pbft", "hotstuff", "jolteon", "sync-hotstuff", "apollo"], sample_count = 10, sample_size = 1)]
fn run(bencher: Bencher<'_, '_>, protocol: &str) {
    let turns = run_once(protocol);
    bencher.counter(ItemsCount::new(turns)).bench(|| assert_eq!(run_once(protocol), turns));
}

/// Runs four clients to their end, and returns the turns of all replicas.
fn run_once(protocol: &str) -> u64 {
    let mut world = World::new(Settings::new(find(protocol).unwrap(), 1)).unwrap();
    let keys = 8;
    world.load_all(Workload {
        operations: OPERATIONS,
        pause_ns: ms(5),
        together_max: 3,
        outstanding_max: 4,
        keys,
    });
    world.run_while("all clients have their answers", secs(60), |world| !world.all_done()).unwrap();
    world.replicas().map(|id| world.turns(id)).sum()
}
