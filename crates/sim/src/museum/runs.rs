//! Runs of broken variants.

use crate::byzantine_kind::Byzantine;
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

pub(super) fn short(entry: &Entry, seed: u64) -> Result<ShortRun, BadSettings> {
    ShortRun::new((entry, crate::smallest(entry, 1), seed), Trace::default(), |settings, _| {
        settings.conditions.loss_ppm = 5_000;
    })
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

pub(super) fn with_disk_flaw(
    entry: &Entry,
    seed: u64,
    disk_flaw: DiskFlaw,
    ignored: &[Oracle],
) -> Result<Report, BadSettings> {
    let mut short = short(entry, seed)?;
    let world = short.world();
    ignored.iter().for_each(|oracle| world.tolerate(*oracle));
    for id in world.replicas() {
        world.break_disk(id, disk_flaw);
    }
    // The disk's flaw begins with the next start.
    Ok(short.run(|world, rng| {
        for id in world.replicas() {
            world.plan(world.now(), Plan::Crash(id, Survives::Everything));
            world.plan(world.now().plus(ms(5)), Plan::Start(id));
            world.run_for(ms(30))?;
        }
        let survives = if disk_flaw == DiskFlaw::TailIsDamage { Survives::Some } else { Survives::Nothing };
        power_cuts(world, rng, survives)
    }))
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
    let mut short = short(entry, seed)?;
    let world = short.world();
    for id in world.replicas() {
        world.break_disk(id, DiskFlaw::DamageIsTail);
    }
    Ok(short.run(|world, rng| {
        for id in world.replicas() {
            world.plan(world.now(), Plan::Crash(id, Survives::Everything));
            world.plan(world.now().plus(ms(5)), Plan::Start(id));
            world.run_for(ms(30))?;
        }
        for _ in 0..4 {
            world.run_for(rng.between(ms(50), ms(500)))?;
            let id = ReplicaId(u16::try_from(rng.index(world.settings().n)).unwrap_or(0));
            world.plan(world.now(), Plan::Crash(id, Survives::Everything));
            world.plan(world.now().plus(1), Plan::Damage(id, Fault::RotInLog));
            world.plan(world.now().plus(ms(2)), Plan::Start(id));
        }
        world.run_for(ms(500))
    }))
}

pub(super) fn service_is_ahead(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = short(entry, seed)?;
    let world = short.world();
    for id in world.replicas() {
        world.break_service(id, StoreFlaw::AgainAfterRestart);
    }
    Ok(short.run(|world, rng| power_cuts(world, rng, Survives::Nothing)))
}

pub(super) fn replies_count_twice(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let n = crate::smallest(entry, 1);
    let last = ReplicaId(u16::try_from(n.saturating_sub(1)).unwrap_or(0));
    let mut short = ShortRun::new((entry, n, seed), Trace::default(), |settings, _| {
        settings.byzantine.replicas.insert(last, Byzantine::Clients);
    })?;
    short.world().make_clients_credulous();
    Ok(short.run(|world, _| world.run_for(secs(8))))
}
