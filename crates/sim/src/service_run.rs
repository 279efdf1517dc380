//! A short run with load and restarts, for a service that runs in simulated replicas as a [`Companion`](crate::Companion).

use crate::disk::Survives;
use crate::oracles::Failure;
use crate::{BadSettings, Plan, Settings, Workload, World, ms, secs};
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;

/// Crashes of one replica each in a run.
const CRASHES: u64 = 4;
/// Operations of each client.
const OPERATIONS: u32 = 80;

/// Offers load and restarts one replica after the other, at times that the seed decides.
///
/// # Errors
/// Returns an error when a world with these settings is impossible. The inner result is the first finding of an oracle.
pub fn run_with_restarts(settings: Settings) -> Result<Result<(), Failure>, BadSettings> {
    let (replaces_leader, seed) = (settings.entry.spec.replaces_leader, settings.seed);
    let mut world = World::new(settings)?;
    Ok(drive(&mut world, replaces_leader, seed))
}

fn drive(world: &mut World, replaces_leader: bool, seed: u64) -> Result<(), Failure> {
    let mut rng = Rng::new(seed ^ 0x5e41_1ce5);
    world.load_all(Workload {
        operations: OPERATIONS,
        pause_ns: ms(40),
        together_max: 3,
        outstanding_max: 4,
        keys: 4,
    });
    let replicas: Vec<ReplicaId> = world.replicas().collect();
    for _ in 0..CRASHES {
        world.run_for(ms(rng.between(100, 600)))?;
        // A leader without replacement must keep running.
        let first = usize::from(!replaces_leader);
        let Some(id) = rng.pick(replicas.get(first..).unwrap_or_default()).copied() else { break };
        world.crash(id, Survives::Everything);
        world.run_for(ms(rng.between(50, 400)))?;
        world.plan(world.now(), Plan::Start(id));
        world.run_for(secs(2))?;
    }
    world.run_while("all clients have their answers", secs(60), |world| !world.all_done())?;
    world.run_for(secs(2))
}
