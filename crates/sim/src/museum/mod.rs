//! The museum: published failures, each as a small broken variant that the exam has to catch.
//!
//! Here are those that no protocol is needed for: what is broken is a disk, a restart, a service, a client. Variants of
//! protocols stand with the protocols, made with `quorate_consensus::flawed::Flawed`; both are [`Exhibit`]s.

mod oracle_mutations;

pub use oracle_mutations::ORACLE_MUTATIONS;

use crate::disk::DiskFlaw;
use crate::exam::ShortRun;
use crate::fault::Fault;
use crate::instrumented_store::StoreFlaw;
use crate::oracles::{Failure, Oracle};
use crate::report::Report;
use crate::settings::BadSettings;
use crate::trace::Trace;
use crate::world::{Plan, Survives, World};
use crate::{Byzantine, ms, secs};
use quorate_consensus::Entry;
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;

/// A published failure and a variant that has it.
#[derive(Clone, Copy, Debug)]
pub struct Exhibit {
    /// Its number in the catalogue.
    pub id: &'static str,
    /// What went wrong, where it was published.
    pub failure: &'static str,
    /// What is broken here.
    pub variant: &'static str,
    /// Any of these oracles has caught it.
    pub caught_by: &'static [Oracle],
    /// Seeds within which it must be caught.
    pub within: u64,
    /// A run of the variant.
    pub run: fn(&Entry, u64) -> Result<Report, BadSettings>,
}

/// What became of an exhibit.
#[derive(Clone, PartialEq, Debug)]
pub struct Caught {
    /// Runs until it was caught, that one included.
    pub seeds: u64,
    /// What was found.
    pub failure: Failure,
}

impl Exhibit {
    /// Runs it, seed after seed, until it is caught.
    ///
    /// # Errors
    /// When the protocol does not suit.
    pub fn catch(&self, entry: &Entry) -> Result<Option<Caught>, BadSettings> {
        for seed in 0..self.within {
            let failure = (self.run)(entry, seed)?.failure;
            if let Some(failure) = failure.filter(|failure| self.caught_by.contains(&failure.oracle)) {
                return Ok(Some(Caught { seeds: seed.saturating_add(1), failure }));
            }
        }
        Ok(None)
    }
}

/// Those that no protocol is needed for.
pub const EXHIBITS: &[Exhibit] = &[
    Exhibit {
        id: "M15",
        failure: "a vote leaves before it is on disk; after a restart another one is cast",
        variant: "syncs are reported and not done; machines lose power",
        caught_by: &[Oracle::Held],
        within: 20,
        run: votes_leave_early,
    },
    Exhibit {
        id: "M15b",
        failure: "the same, noticed by its consequence",
        variant: "as above, with a blind eye for what leaves early: two votes for one slot",
        caught_by: &[Oracle::SameSlot],
        within: 200,
        run: votes_are_forgotten,
    },
    Exhibit {
        id: "M16",
        failure: "the service is ahead of the log when it is opened again",
        variant: "what is executed first after a restart is applied twice",
        caught_by: &[Oracle::ExactlyOnce],
        within: 50,
        run: service_is_ahead,
    },
    Exhibit {
        id: "M17",
        failure: "a torn tail is taken for damage, and a replica that lost power never comes back",
        variant: "a log that ends in the middle of a write is refused",
        caught_by: &[Oracle::Stopped],
        within: 100,
        run: tail_is_damage,
    },
    Exhibit {
        id: "M17b",
        failure: "damage in the middle is taken for the end of the log",
        variant: "a log that is damaged is cut off there, without a word",
        caught_by: &[Oracle::SameSlot, Oracle::Agreement, Oracle::Links, Oracle::Held],
        within: 200,
        run: damage_is_tail,
    },
    Exhibit {
        id: "M26",
        failure: "the guard against signing twice looks one entry short",
        variant: "the newest entries of the guard are not there after a restart, and whatever was synced with them",
        caught_by: &[Oracle::SameSlot, Oracle::Agreement, Oracle::Durability],
        within: 500,
        run: guard_is_one_short,
    },
    Exhibit {
        id: "M29",
        failure: "two replies of one replica count as two",
        variant: "clients take whatever one replica says for the word of two; one replica lies to them",
        caught_by: &[Oracle::Results, Oracle::Linearizable, Oracle::Durability],
        within: 50,
        run: replies_count_twice,
    },
];

fn short(entry: &Entry, seed: u64) -> Result<ShortRun, BadSettings> {
    ShortRun::new((entry, crate::smallest(entry, 1), seed), Trace::default(), |settings, _| {
        settings.conditions.loss_ppm = 5_000;
    })
}

/// One machine after the other loses power in the middle of its work and comes back.
fn power_cuts(world: &mut World, rng: &mut Rng, survives: Survives) -> Result<(), Failure> {
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

fn with_disk_flaw(
    entry: &Entry,
    seed: u64,
    disk_flaw: DiskFlaw,
    blind: &[Oracle],
) -> Result<Report, BadSettings> {
    let mut short = short(entry, seed)?;
    let world = short.world();
    blind.iter().for_each(|oracle| world.tolerate(*oracle));
    for id in world.replicas() {
        world.break_disk(id, disk_flaw);
    }
    // Disks lie from the next start on.
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

fn votes_leave_early(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::Sync, &[])
}

fn votes_are_forgotten(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::Sync, &[Oracle::Held, Oracle::Links])
}

fn tail_is_damage(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::TailIsDamage, &[])
}

fn guard_is_one_short(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    with_disk_flaw(entry, seed, DiskFlaw::LosesLast, &[Oracle::Links, Oracle::Held])
}

fn damage_is_tail(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
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

fn service_is_ahead(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = short(entry, seed)?;
    let world = short.world();
    for id in world.replicas() {
        world.break_service(id, StoreFlaw::AgainAfterRestart);
    }
    Ok(short.run(|world, rng| power_cuts(world, rng, Survives::Nothing)))
}

fn replies_count_twice(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let n = crate::smallest(entry, 1);
    let last = ReplicaId(u16::try_from(n.saturating_sub(1)).unwrap_or(0));
    let mut short = ShortRun::new((entry, n, seed), Trace::default(), |settings, _| {
        settings.byzantine.insert(last, Byzantine::Clients);
    })?;
    short.world().make_clients_credulous();
    Ok(short.run(|world, _| world.run_for(secs(8))))
}
