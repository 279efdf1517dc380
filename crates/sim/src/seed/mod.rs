//! The standard run of a seed, which makes seeds a unit of testing.
//!
//! A run has the smallest committee that tolerates one fault (or the requested number of replicas), four clients, and
//! at least 400 operations. For 40 s of virtual time it has faults of at least four classes, among them a crash with
//! a restart. Then everything heals, and for at least 20 s the protocol has to keep its promises.
//!
//! In half of the seeds f replicas are Byzantine from the beginning to the end. Faults may affect all others as well,
//! because safety has to survive that. After the heal all of them run and reach each other.

mod bounded_faults;
mod byzantine_choice;
mod faults;
pub(crate) mod synchrony;

pub use byzantine_choice::{ByzantineChoice, ByzantineHosts};

use crate::disk::Costs;
use crate::fault::Fault;
use crate::link_conditions::LinkConditions;
use crate::oracles::{Failure, Oracle};
use crate::report::Report;
use crate::settings::{BadSettings, Settings, Transport, is_synchronous};
use crate::trace::Trace;
use crate::world::{Plan, World};
use crate::{Workload, ms, secs};
use faults::{FaultPlanner, HEAL_NS};
use quorate_client::core::Audience;
use quorate_consensus::Entry;
use quorate_crypto::Scheme;
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;
use synchrony::{BoundedFaults, draw_bound, draw_delays};

/// Earliest end of a run.
const END_NS: u64 = secs(60);
/// Longest time until all replicas are at one height once all clients have their answers.
const SETTLE_NS: u64 = secs(20);
/// Time after a heal in which leaders may still be replaced, and the following time in which they may not.
const CALM_NS: u64 = secs(4);
/// The least kept log with which replicas that were off catch up from blocks.
const LONG_LOG_BYTES: u64 = 3 << 19;
/// Factor for the kept log where votes are signed, or where a quorum is large.
const LARGE_LOG_FACTOR: u32 = 8;
/// Smallest and largest number of operations of each of the four clients before the heal.
const OPERATIONS_BEFORE: (u64, u64) = (88, 94);
const OPERATIONS_AFTER: u32 = 12;
/// Interval between seeds that replay their replicas. Such a run takes about a quarter longer.
const REPLAY_EVERY: u64 = 10;

/// A standard run before its first event.
pub struct StandardRun {
    world: World,
    faults: BTreeMap<Fault, u32>,
    workload: Workload,
    outage_ns: u64,
}

impl StandardRun {
    /// Prepares the run of a seed.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn new(entry: &Entry, n: Option<usize>, seed: u64) -> Result<Self, BadSettings> {
        Self::with(entry, n, ByzantineChoice::Drawn, seed)
    }

    /// Prepares the run of a seed with this choice of Byzantine hosts.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn with(
        entry: &Entry,
        n: Option<usize>,
        hosts: ByzantineChoice,
        seed: u64,
    ) -> Result<Self, BadSettings> {
        Self::with_trace(entry, n, hosts, seed, Trace::default())
    }

    /// Prepares the run with a trace that may have a reader.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn with_trace(
        entry: &Entry,
        n: Option<usize>,
        hosts: ByzantineChoice,
        seed: u64,
        trace: Trace,
    ) -> Result<Self, BadSettings> {
        let mut rng = Rng::new(seed ^ 0x5eed_5eed_5eed_5eed);
        let mut settings = draw_settings(entry, seed, &mut rng);
        if let Some(n) = n {
            settings = settings.with_n(n);
        }
        // Each view change writes a NEW-VIEW with a quorum of view changes. With signed votes, each of these has
        // certificates for all of the window. The same heights then need more log, and so does one record.
        if entry.spec.votes_are_signed || settings.n > 4 {
            if settings.storage.keep_bytes >= LONG_LOG_BYTES {
                settings.storage.keep_bytes =
                    settings.storage.keep_bytes.saturating_mul(u64::from(LARGE_LOG_FACTOR));
            }
            settings.storage.segment_bytes = settings.storage.segment_bytes.saturating_mul(LARGE_LOG_FACTOR);
        }
        // A leader that cannot be replaced has to be honest.
        let spared = u16::from(!entry.spec.replaces_leader);
        let drawn = hosts.draw(seed, settings.n, settings.f, spared);
        (settings.byzantine.replicas, settings.byzantine.coalition) = (drawn.who, drawn.as_one);
        settings.byzantine.clients = 1;
        if is_synchronous(entry) {
            draw_delays(&mut settings, &mut rng);
        }
        let mut world = World::with_trace(settings, trace)?;
        let operations = rng.between(OPERATIONS_BEFORE.0, OPERATIONS_BEFORE.1);
        // A bundle has one to this many operations. Smaller bundles mean more heights, which cost time.
        let together_max = rng.between(3, 10);
        // The workload lasts about as long as the faults.
        let bundles = operations.saturating_mul(2) / together_max.saturating_add(1);
        let workload = Workload {
            operations: u32::try_from(operations).unwrap_or(u32::MAX),
            pause_ns: HEAL_NS / bundles.max(1),
            together_max: u32::try_from(together_max).unwrap_or(1),
            outstanding_max: 6,
            keys: rng.between(2, 6),
        };
        world.load_all(workload);
        let bounded = is_synchronous(entry).then(|| BoundedFaults::draw(world.settings(), &mut rng));
        let may_forget = match &bounded {
            // The wiped replica is one of the f.
            _ if drawn.wiped.is_some() => Vec::new(),
            Some(bounded) => bounded.may_forget(world.settings()),
            None => may_forget(&world, spared, &mut rng),
        };
        if let Some(id) = drawn.wiped {
            plan_wipe(&mut world, id, &mut rng);
        }
        // With a bound on delays every further fault would need a further replica that may fail.
        let has_faults = drawn.wiped.is_none() || bounded.is_none();
        let mut faults = FaultPlanner {
            n: world.settings().n,
            clients: world.settings().clients,
            transport: world.settings().transport,
            rng,
            next: 1,
            first: Time(HEAL_NS),
            may_forget,
            bounded,
        };
        let planned = if has_faults { faults.plan(&mut world) } else { BTreeMap::new() };
        let began = if world.settings().byzantine.replicas.is_empty() { faults.first } else { Time::ZERO };
        Ok(Self { outage_ns: HEAL_NS.saturating_sub(began.0), world, faults: planned, workload })
    }

    /// Returns the number of replicas and of clients in the run of a seed.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn size(
        entry: &Entry,
        n: Option<usize>,
        hosts: ByzantineChoice,
        seed: u64,
    ) -> Result<(usize, usize), BadSettings> {
        let world = Self::with(entry, n, hosts, seed)?.world;
        Ok((world.settings().n, world.settings().clients.saturating_add(1)))
    }

    /// Returns the world, for a test that wants to change or observe it.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Runs the seed.
    #[must_use]
    pub fn run(self) -> Report {
        let Self { world, faults, workload, outage_ns } = self;
        Report::of(world, faults, |world, recovered_ns| run_phases(world, workload, outage_ns, recovered_ns))
    }
}

/// Plans the loss of a replica's disk, its start on an empty one, and a restart soon after.
fn plan_wipe(world: &mut World, id: ReplicaId, rng: &mut Rng) {
    let at = Time(rng.between(secs(2), secs(15)));
    let back = at.plus(rng.between(ms(20), secs(3)));
    world.plan(at, Plan::Wipe(id));
    world.plan(back, Plan::Start(id));
    let again = back.plus(rng.between(ms(10), secs(6)));
    world.plan(again, Plan::Crash(id, crate::disk::Survives::Some));
    world.plan(again.plus(rng.between(ms(20), secs(1))), Plan::Start(id));
}

/// Runs the phases: faults, heal, recovery.
fn run_phases(
    world: &mut World,
    workload: Workload,
    outage_ns: u64,
    recovered_ns: &mut u64,
) -> Result<(), Failure> {
    world.run_until(Time(HEAL_NS))?;
    let bound = world.recovery(outage_ns, secs(2));
    heal(
        world,
        Workload { operations: OPERATIONS_AFTER, pause_ns: ms(100), ..workload },
        bound,
        recovered_ns,
    )?;
    check_leaders_stay(world)?;
    world.run_until(Time(END_NS))?;
    finish(world)
}

/// Heals everything. A new operation has to be answered within the bound, and then all of them.
pub(crate) fn heal(
    world: &mut World,
    workload: Workload,
    bound: Time,
    recovered_ns: &mut u64,
) -> Result<(), Failure> {
    let healed_at = world.now();
    world.heal();
    world.disarm();
    world.watch_for_livelock();
    for id in world.replicas() {
        world.plan(world.now(), Plan::Start(id));
    }
    let before = world.history().records().len();
    world.load_all(workload);
    // Operations in flight may end by themselves, so the bound is about a new one.
    let is_new =
        |world: &World| world.history().records().iter().skip(before).any(|record| record.answered.is_some());
    world.run_while("a new operation is answered", bound.0, |world| !is_new(world))?;
    *recovered_ns = world.now().since(healed_at);
    let rest = bound.0.saturating_add(SETTLE_NS);
    world.run_while("all clients have their answers", rest, |world| !world.all_done())?;
    world.check_none_failed()?;
    world.run_while("all sound replicas are at the same height", SETTLE_NS, |world| !world.is_level())
}

/// Checks that leaders are not replaced once everything has healed and every replica is sound.
pub(crate) fn check_leaders_stay(world: &mut World) -> Result<(), Failure> {
    let are_all_sound = |world: &World| world.sound().count() >= world.settings().n;
    world.run_for(CALM_NS)?;
    if !are_all_sound(world) {
        return Ok(());
    }
    let before = world.view_changes();
    world.run_for(CALM_NS)?;
    // An adaptive host may corrupt a leader just now.
    if !are_all_sound(world) {
        return Ok(());
    }
    let changes = world.view_changes().saturating_sub(before);
    let what = format!("leaders are not replaced without a fault: {changes} view changes in {CALM_NS} ns");
    world.check(Oracle::Liveness, &what, changes == 0)
}

/// Ends a run: a fresh client reads every key, and all replicas have the same state.
pub(crate) fn finish(world: &mut World) -> Result<(), Failure> {
    world.read_back()?;
    world.run_while("all sound replicas have executed the reads", SETTLE_NS, |world| !world.is_level())?;
    world.check_settled()
}

/// Returns honest replicas that may lose durable data. Together with the Byzantine ones there are at most f.
fn may_forget(world: &World, spared: u16, rng: &mut Rng) -> Vec<ReplicaId> {
    let settings = world.settings();
    let left = settings.f.saturating_sub(settings.byzantine.replicas.len());
    let is_free = |id: &ReplicaId| id.0 >= spared && !settings.byzantine.replicas.contains_key(id);
    let mut ids: Vec<ReplicaId> = world.replicas().filter(is_free).collect();
    rng.shuffle(&mut ids);
    ids.truncate(left);
    ids
}

/// Draws the settings of a seed.
fn draw_settings(entry: &Entry, seed: u64, rng: &mut Rng) -> Settings {
    let mut settings = Settings::new(entry, seed);
    if is_synchronous(entry) {
        draw_bound(&mut settings, rng);
    } else {
        settings.transport = if rng.chance(500_000) { Transport::Links } else { Transport::Datagrams };
    }
    settings.scheme = if rng.chance(10_000) { Scheme::Ed25519 } else { Scheme::Cheap };
    if !is_synchronous(entry) {
        settings.conditions = LinkConditions {
            delay_ns: rng.between(50_000, ms(3)),
            jitter_ns: rng.between(20_000, ms(2)),
            delay_ns_max: settings.parameters.delta_ns,
            ..LinkConditions::GOOD
        };
        settings.costs =
            Costs { sync_ns: rng.between(50_000, ms(2)), wake_ns: rng.between(0, ms(2)), ..Costs::USUAL };
    }
    settings.checkpoint_every = rng.between(4, 24);
    settings.window = settings.checkpoint_every.saturating_mul(rng.between(2, 4));
    if rng.chance(500_000) {
        // Replicas that were off receive a state.
        settings.storage.keep_bytes = rng.between(16 << 10, 128 << 10);
        settings.storage.snapshot_every_bytes = rng.between(16 << 10, 96 << 10);
    } else {
        // They catch up from the log of their peers. View changes take room.
        settings.storage.keep_bytes = rng.between(LONG_LOG_BYTES, 4 << 20);
        settings.storage.snapshot_every_bytes = rng.between(128 << 10, 512 << 10);
    }
    settings.replay = seed.is_multiple_of(REPLAY_EVERY);
    settings.client.audience = match rng.between(0, 3) {
        0 => Audience::All,
        1 => Audience::One(ReplicaId(u16::try_from(rng.index(settings.n)).unwrap_or(0))),
        _ => Audience::Leader,
    };
    for choice in entry.choices {
        if let Some(value) = rng.pick(choice.values) {
            settings.set(choice.name, *value);
        }
    }
    settings
}

/// Runs a seed.
///
/// # Errors
/// Returns an error when the protocol does not support this number of replicas.
pub fn run(entry: &Entry, n: Option<usize>, seed: u64) -> Result<Report, BadSettings> {
    Ok(StandardRun::new(entry, n, seed)?.run())
}

/// Returns the command that repeats the run of a seed.
#[must_use]
pub fn again(protocol: &str, n: Option<usize>, seed: u64) -> String {
    again_with(protocol, n, ByzantineChoice::Drawn, seed)
}

/// Returns the command that repeats the run of a seed with this choice of Byzantine hosts.
#[must_use]
pub fn again_with(protocol: &str, n: Option<usize>, hosts: ByzantineChoice, seed: u64) -> String {
    let n = n.map(|n| format!(" --n {n}")).unwrap_or_default();
    let hosts = if hosts == ByzantineChoice::Drawn { String::new() } else { format!(" --byzantine {hosts}") };
    format!("cargo run --release -- sim --protocol {protocol}{n}{hosts} --seed {seed}")
}
