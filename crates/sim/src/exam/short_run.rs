//! A short run of the exam.

use crate::client::Workload;
use crate::link_conditions::LinkConditions;
use crate::oracles::Failure;
use crate::report::Report;
use crate::seed::synchrony::{draw_bound, draw_delays};
use crate::seed::{check_leaders_stay, finish, heal};
use crate::settings::{BadSettings, Settings, Transport, is_synchronous};
use crate::trace::Trace;
use crate::world::World;
use crate::{ms, secs};
use quorate_consensus::Entry;
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;
use std::collections::BTreeMap;

/// A short run on good links with a client workload, shared by all scenarios but the standard run.
pub struct ShortRun {
    world: World,
    rng: Rng,
    workload: Workload,
}

impl ShortRun {
    /// Makes a run of a protocol. `change` may change settings that the seed leaves open.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn new(
        (entry, n, seed): (&Entry, usize, u64),
        trace: Trace,
        change: impl FnOnce(&mut Settings, &mut Rng),
    ) -> Result<Self, BadSettings> {
        let mut rng = Rng::new(seed ^ 0xe8a3_0e8a_30e8_a30e);
        let mut settings = Settings::new(entry, seed).with_n(n);
        if is_synchronous(entry) {
            draw_bound(&mut settings, &mut rng);
        } else {
            settings.transport = if rng.chance(500_000) { Transport::Links } else { Transport::Datagrams };
            settings.conditions = LinkConditions {
                delay_ns: rng.between(50_000, ms(2)),
                jitter_ns: rng.between(20_000, ms(1)),
                ..LinkConditions::GOOD
            };
        }
        settings.checkpoint_every = rng.between(4, 12);
        settings.window = settings.checkpoint_every.saturating_mul(2);
        settings.storage.keep_bytes = 4 << 20;
        settings.storage.segment_bytes = 512 << 10;
        change(&mut settings, &mut rng);
        if is_synchronous(entry) {
            draw_delays(&mut settings, &mut rng);
        }
        let workload = Workload {
            operations: 40,
            pause_ns: ms(60),
            together_max: u32::try_from(rng.between(1, 6)).unwrap_or(1),
            outstanding_max: 4,
            keys: rng.between(2, 6),
        };
        let mut world = World::with_trace(settings, trace)?;
        world.load_all(workload);
        Ok(Self { world, rng, workload })
    }

    /// Returns the world before its first event.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Runs `happens`, then heals everything and requires recovery.
    #[must_use]
    pub fn run(self, happens: impl FnOnce(&mut World, &mut Rng) -> Result<(), Failure>) -> Report {
        let Self { world, mut rng, workload } = self;
        Report::of(world, BTreeMap::new(), |world, recovered_ns| {
            happens(world, &mut rng)?;
            let bound = world.recovery(world.now().0, secs(2));
            heal(world, Workload { operations: 6, ..workload }, bound, recovered_ns)?;
            check_leaders_stay(world)?;
            finish(world)
        })
    }
}

/// Returns the replicas that may crash. A leader that cannot be replaced is not among them.
pub fn replaceable(world: &World) -> Vec<ReplicaId> {
    let first = u16::from(!world.settings().entry.spec.replaces_leader);
    world.replicas().filter(|id| id.0 >= first).collect()
}

pub(super) fn some_of(world: &World, rng: &mut Rng, count: usize) -> Vec<ReplicaId> {
    let mut ids = replaceable(world);
    rng.shuffle(&mut ids);
    ids.truncate(count);
    ids
}
