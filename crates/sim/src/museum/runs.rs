//! Runs of broken variants.

use crate::byzantine_kind::Byzantine;
use crate::client::Workload;
use crate::disk::{DiskFlaw, Survives};
use crate::exam::ShortRun;
use crate::fault::Fault;
use crate::instrumented_store::StoreFlaw;
use crate::oracles::{Failure, Oracle};
use crate::report::Report;
use crate::settings::BadSettings;
use crate::trace::Trace;
use crate::world::{Plan, World};
use crate::{ms, secs};
use quorate_consensus::Entry;
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;

/// Makes a short run without the ignored oracles.
pub(super) fn short(entry: &Entry, seed: u64, ignored: &[Oracle]) -> Result<ShortRun, BadSettings> {
    let mut short = ShortRun::new((entry, entry.smallest(1), seed), Trace::default(), |settings, _| {
        settings.conditions.loss_ppm = 5_000;
    })?;
    ignored.iter().for_each(|oracle| short.world().tolerate(*oracle));
    Ok(short)
}

/// Plans a crash of a replica now, and its start after some milliseconds.
pub(super) fn restart(world: &mut World, id: ReplicaId, survives: Survives, after_ms: u64) {
    world.plan(world.now(), Plan::Crash(id, survives));
    world.plan(world.now().plus(ms(after_ms)), Plan::Start(id));
}

/// Cuts the power of one machine after the other in the middle of its work, and starts each again.
pub(super) fn power_cuts(world: &mut World, rng: &mut Rng, survives: Survives) -> Result<(), Failure> {
    let first = u64::from(!world.settings().entry.spec.replaces_leader);
    for _ in 0..8 {
        let n = u64::try_from(world.settings().n).unwrap_or(1);
        let id = ReplicaId(u16::try_from(rng.between(first, n.saturating_sub(1))).unwrap_or(0));
        world.plan(world.now(), Plan::CrashAtStep(id, rng.between(1, 60), survives));
        world.run_for(rng.between(ms(50), ms(600)))?;
        world.disarm();
        world.plan(world.now(), Plan::Start(id));
        world.run_for(ms(40))?;
    }
    Ok(())
}

/// Runs flawed disks: each flaw begins with the start of its replica. Afterwards `happens` runs.
fn flawed_disks(
    entry: &Entry,
    seed: u64,
    disk_flaw: DiskFlaw,
    ignored: &[Oracle],
    happens: impl FnOnce(&mut World, &mut Rng) -> Result<(), Failure>,
) -> Result<Report, BadSettings> {
    let mut short = short(entry, seed, ignored)?;
    let world = short.world();
    world.replicas().for_each(|id| world.break_disk(id, disk_flaw));
    Ok(short.run(|world, rng| {
        for id in world.replicas() {
            restart(world, id, Survives::Everything, 5);
            world.run_for(ms(30))?;
        }
        happens(world, rng)
    }))
}

pub(super) fn with_disk_flaw(
    entry: &Entry,
    seed: u64,
    disk_flaw: DiskFlaw,
    ignored: &[Oracle],
) -> Result<Report, BadSettings> {
    let survives = if disk_flaw == DiskFlaw::TailIsDamage { Survives::Some } else { Survives::Nothing };
    flawed_disks(entry, seed, disk_flaw, ignored, |world, rng| power_cuts(world, rng, survives))
}

pub(super) fn votes_leave_early(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::Sync, &[])
}

pub(super) fn votes_are_forgotten(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::Sync, &[Oracle::Held, Oracle::Links])
}

pub(super) fn tail_is_damage(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::TailIsDamage, &[])
}

pub(super) fn guard_is_one_short(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::LosesLast, &[Oracle::Links, Oracle::Held])
}

pub(super) fn damage_is_tail(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    flawed_disks(entry, seed, DiskFlaw::DamageIsTail, &[], |world, rng| {
        for _ in 0..4 {
            world.run_for(rng.between(ms(50), ms(500)))?;
            let id = ReplicaId(u16::try_from(rng.index(world.settings().n)).unwrap_or(0));
            world.plan(world.now().plus(1), Plan::Damage(id, Fault::RotInLog));
            restart(world, id, Survives::Everything, 2);
        }
        world.run_for(ms(500))
    })
}

pub(super) fn service_is_ahead(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = short(entry, seed, &[])?;
    let world = short.world();
    world.replicas().for_each(|id| world.break_service(id, StoreFlaw::AgainAfterRestart));
    Ok(short.run(|world, rng| power_cuts(world, rng, Survives::Nothing)))
}

/// The last replica is off until no other keeps its next height, and receives a state.
pub(super) fn block_again_after_transfer(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let n = entry.smallest(1);
    let last = ReplicaId(u16::try_from(n.saturating_sub(1)).unwrap_or(0));
    let mut short = ShortRun::new((entry, n, seed), Trace::default(), |settings, _| {
        settings.storage.segment_bytes = 32 << 10;
        settings.storage.keep_bytes = 32 << 10;
        settings.storage.snapshot_every_bytes = 24 << 10;
    })?;
    let world = short.world();
    world.break_service(last, StoreFlaw::AgainAfterRestore);
    world.plan(world.now().plus(ms(1)), Plan::Crash(last, Survives::Everything));
    Ok(short.run(|world, _| {
        world.run_while("all operations are answered", secs(60), |world| !world.all_done())?;
        world.load_all(Workload { operations: 200, pause_ns: ms(5), ..AFTER });
        world.run_while("all operations are answered", secs(60), |world| !world.all_done())?;
        world.plan(world.now(), Plan::Start(last));
        world.run_for(secs(2))?;
        world.load_all(AFTER);
        world.run_for(secs(2))
    }))
}

/// The operations after a transfer.
const AFTER: Workload =
    Workload { operations: 20, pause_ns: ms(20), together_max: 3, outstanding_max: 4, keys: 4 };

pub(super) fn replies_count_twice(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let n = entry.smallest(1);
    let last = ReplicaId(u16::try_from(n.saturating_sub(1)).unwrap_or(0));
    let mut short = ShortRun::new((entry, n, seed), Trace::default(), |settings, _| {
        settings.byzantine.replicas.insert(last, Byzantine::Clients);
    })?;
    short.world().make_clients_credulous();
    Ok(short.run(|world, _| world.run_for(secs(8))))
}
