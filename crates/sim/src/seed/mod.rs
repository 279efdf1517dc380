//! The standard run that a seed names: so that "seeds" is a unit.
//!
//! The smallest committee that tolerates one fault (or as many replicas as asked for), four clients, at least 400
//! operations; 40 s of virtual time with faults of at least four classes, among them a crash with a restart; then
//! everything heals and at least 20 s follow in which the protocol has to do what it promises. In half of the seeds
//! f replicas are Byzantine, from the beginning to the end; faults may meet all the others as well, because safety
//! has to survive that, and all of them run and reach each other after the heal.

mod cast;
mod faults;

pub use cast::{Cast, Drawn};
pub use faults::Class;

use crate::byzantine::Byzantine;
use crate::disk::Costs;
use crate::history::History;
use crate::oracles::{Failure, Oracle};
use crate::settings::{BadSettings, Settings, Transport};
use crate::trace::Trace;
use crate::weather::Weather;
use crate::world::{Plan, World};
use crate::{Workload, ms, secs};
use faults::Faults;
use quorate_consensus::{Entry, Healed};
use quorate_crypto::Scheme;
use quorate_types::rng::Rng;
use quorate_types::{Digest, ReplicaId, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// When everything heals.
const HEAL_NS: u64 = secs(40);
/// When a run ends at the earliest.
const END_NS: u64 = secs(60);
/// How long replicas may take to come to the same height once all clients have their answers.
const SETTLE_NS: u64 = secs(20);
/// How much more log is kept for laggards where votes are signed, or many make up a quorum.
const LARGE_LOG_FACTOR: u32 = 8;
/// Operations that each client has before and after the heal.
const OPERATIONS_BEFORE: (u64, u64) = (92, 110);
const OPERATIONS_AFTER: u32 = 12;
/// Every so-manyth seed replays what its replicas go through: it costs such a run about a quarter more.
const REPLAY_EVERY: u64 = 10;

/// What a run came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What an oracle found.
    pub failure: Option<Failure>,
    /// Operations that clients called.
    pub requests: u64,
    /// Operations without an answer for good: their session was lost.
    pub failed_requests: u64,
    /// Virtual time that passed.
    pub virtual_ns: u64,
    /// Heights that were decided.
    pub heights: u64,
    /// Classes of faults, in their order.
    pub classes: Vec<Class>,
    /// How many faults of each class there were.
    pub faults: BTreeMap<Class, u32>,
    /// Who was Byzantine, and how.
    pub byzantine: BTreeMap<ReplicaId, Byzantine>,
    /// Keys whose history was too hard to judge without asking replicas.
    pub undecided: usize,
    /// From the heal to the first answer to an operation that was called after it.
    pub recovered_ns: u64,
    /// Promises that were looked for on disks.
    pub promises: u64,
    /// Transitions.
    pub transitions: u64,
    /// Hash of all transitions.
    pub trace_hash: Digest,
    /// What clients saw.
    pub history: History,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(failure) => write!(f, "seed {}: {failure}", self.seed),
            None => write!(
                f,
                "seed {}: {} requests, {} heights, {} transitions, trace {}",
                self.seed,
                self.requests,
                self.heights,
                self.transitions,
                self.trace_hash.short()
            ),
        }
    }
}

impl Report {
    /// What the run had to bear, for people: Byzantine hosts, and faults by class.
    #[must_use]
    pub fn facts(&self) -> String {
        let hosts: Vec<String> = self.byzantine.iter().map(|(id, kind)| format!("r{id} {kind}")).collect();
        let hosts = if hosts.is_empty() { "nobody".to_owned() } else { hosts.join(", ") };
        let faults: Vec<String> =
            self.faults.iter().map(|(class, count)| format!("{count} {class}")).collect();
        format!(
            "Byzantine: {hosts}; faults: {}; {} virtual s; recovered {} ms after the heal",
            faults.join(", "),
            self.virtual_ns / 1_000_000_000,
            self.recovered_ns / 1_000_000
        )
    }
}

/// One standard run, ready to begin.
pub struct Standard {
    world: World,
    faults: BTreeMap<Class, u32>,
    workload: Workload,
    outage_ns: u64,
}

impl Standard {
    /// The run of a seed.
    ///
    /// # Errors
    /// When so many replicas do not suit the protocol.
    pub fn new(entry: &Entry, n: Option<usize>, seed: u64) -> Result<Self, BadSettings> {
        Self::with(entry, n, Cast::Drawn, seed)
    }

    /// The run of a seed, with other Byzantine hosts than those that it draws.
    ///
    /// # Errors
    /// When so many replicas do not suit the protocol.
    pub fn with(entry: &Entry, n: Option<usize>, cast: Cast, seed: u64) -> Result<Self, BadSettings> {
        Self::with_trace(entry, n, cast, seed, Trace::default())
    }

    /// As [`Standard::with`], with a trace that somebody may be reading from the beginning.
    ///
    /// # Errors
    /// When so many replicas do not suit the protocol.
    pub fn with_trace(
        entry: &Entry,
        n: Option<usize>,
        cast: Cast,
        seed: u64,
        trace: Trace,
    ) -> Result<Self, BadSettings> {
        let mut rng = Rng::new(seed ^ 0x5eed_5eed_5eed_5eed);
        let mut settings = draw_settings(entry, seed, &mut rng);
        if let Some(n) = n {
            settings = settings.with_n(n);
        }
        // Each view change writes a NEW-VIEW of a quorum of view changes, and where votes are signed certificates for all
        // of the window in each of these: for the same heights the log takes more room, and one record does.
        if entry.spec.votes_are_signed || settings.n > 4 {
            settings.keep_bytes = settings.keep_bytes.saturating_mul(u64::from(LARGE_LOG_FACTOR));
            settings.segment_bytes = settings.segment_bytes.saturating_mul(LARGE_LOG_FACTOR);
        }
        // Where the leader cannot be replaced, it has to be honest.
        let spared = u16::from(!entry.spec.replaces_leader);
        settings.byzantine = cast.draw(seed, settings.n, settings.f, spared);
        let mut world = World::with_trace(settings, trace)?;
        let operations = rng.between(OPERATIONS_BEFORE.0, OPERATIONS_BEFORE.1);
        let together_max = rng.between(1, 10);
        // The workload goes on for about as long as the faults do.
        let bundles = operations.saturating_mul(2) / together_max.saturating_add(1);
        let workload = Workload {
            operations: u32::try_from(operations).unwrap_or(u32::MAX),
            pause_ns: HEAL_NS / bundles.max(1),
            together_max: u32::try_from(together_max).unwrap_or(1),
            outstanding_max: 6,
            keys: rng.between(2, 6),
        };
        world.load_all(workload);
        let mut faults = Faults {
            n: world.settings().n,
            clients: world.settings().clients,
            rng,
            next: 1,
            first: Time(HEAL_NS),
        };
        let planned = faults.plan(&mut world);
        let began = if world.settings().byzantine.is_empty() { faults.first } else { Time::ZERO };
        Ok(Self { outage_ns: HEAL_NS.saturating_sub(began.0), world, faults: planned, workload })
    }

    /// How many replicas and how many clients there are.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        (self.world.settings().n, self.world.settings().clients.saturating_add(1))
    }

    /// The world, for who wants to read along.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Runs it.
    #[must_use]
    pub fn run(mut self) -> Report {
        let mut recovered_ns = 0;
        // The first failure stays in the world. What is half done when something panics is not looked at again, but for
        // what the report says.
        let ran = catch_unwind(AssertUnwindSafe(|| self.go(&mut recovered_ns)));
        let world = &mut self.world;
        if let Err(what) = ran {
            let text = what.downcast_ref::<String>().cloned();
            let text = text.or_else(|| what.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            world.note_panic(text.unwrap_or_default());
        }
        let transitions = world.trace().count();
        Report {
            seed: world.settings().seed,
            failure: world.failure().cloned(),
            requests: u64::try_from(world.history().records().len()).unwrap_or(u64::MAX),
            failed_requests: world.failed_ops(),
            undecided: world.undecided(),
            virtual_ns: world.now().0,
            heights: world.height().0,
            classes: self.faults.keys().copied().collect(),
            faults: self.faults,
            byzantine: world.settings().byzantine.clone(),
            recovered_ns,
            promises: world.promises(),
            transitions,
            trace_hash: world.trace_hash(),
            history: world.history().clone(),
        }
    }

    fn go(&mut self, recovered_ns: &mut u64) -> Result<(), Failure> {
        let bound = self.bound();
        let world = &mut self.world;
        world.run_until(Time(HEAL_NS))?;
        world.heal();
        world.disarm();
        for id in world.replicas() {
            world.plan(world.now(), Plan::Start(id));
        }
        let before = world.history().records().len();
        world.load_all(Workload { operations: OPERATIONS_AFTER, pause_ns: ms(100), ..self.workload });
        // What was under way may end by itself: something new has to be answered.
        let is_new = |world: &World| {
            world.history().records().iter().skip(before).any(|record| record.answered.is_some())
        };
        world.run_while("a new operation is answered", bound.0, |world| !is_new(world))?;
        *recovered_ns = world.now().since(Time(HEAL_NS));
        let rest = bound.0.saturating_add(SETTLE_NS);
        world.run_while("all clients have their answers", rest, |world| !world.all_done())?;
        world.check_none_failed()?;
        world
            .run_while("all honest replicas are at the same height", SETTLE_NS, |world| !world.is_level())?;
        world.run_until(Time(END_NS))?;
        world.read_back(secs(10))?;
        world
            .run_while("all honest replicas have executed the reads", SETTLE_NS, |world| !world.is_level())?;
        world.check_settled()
    }

    /// What the protocol promises after a heal.
    fn bound(&self) -> Time {
        self.world.recovery(&Healed {
            delta_ns: self.world.settings().delta_ns,
            outage_ns: self.outage_ns,
            client_retry_ns: self.world.settings().client_retry_ns_max,
            fetch_ns: secs(2),
        })
    }
}

/// Settings that differ from seed to seed.
fn draw_settings(entry: &Entry, seed: u64, rng: &mut Rng) -> Settings {
    let mut settings = Settings::new(entry, seed);
    settings.transport = if rng.chance(500_000) { Transport::Links } else { Transport::Datagrams };
    settings.scheme = if rng.chance(10_000) { Scheme::Ed25519 } else { Scheme::Cheap };
    settings.weather = Weather {
        delay_ns: rng.between(50_000, ms(3)),
        jitter_ns: rng.between(20_000, ms(2)),
        delay_ns_max: settings.delta_ns,
        ..Weather::GOOD
    };
    settings.costs = Costs { sync_ns: rng.between(50_000, ms(2)), ..Costs::USUAL };
    settings.checkpoint_every = rng.between(4, 24);
    settings.window = settings.checkpoint_every.saturating_mul(rng.between(2, 4));
    // Nobody may fall behind what is kept, as long as there is no transfer of state, and view changes take room.
    settings.keep_bytes = rng.between(3 << 19, 4 << 20);
    settings.snapshot_every_bytes = rng.between(128 << 10, 512 << 10);
    settings.replay = seed.is_multiple_of(REPLAY_EVERY);
    settings
}

/// Runs a seed.
///
/// # Errors
/// When so many replicas do not suit the protocol.
pub fn run(entry: &Entry, n: Option<usize>, seed: u64) -> Result<Report, BadSettings> {
    Ok(Standard::new(entry, n, seed)?.run())
}

/// A failure that says how to see it again.
#[must_use]
pub fn again(protocol: &str, n: Option<usize>, seed: u64) -> String {
    again_with(protocol, n, Cast::Drawn, seed)
}

/// As [`again`], where other Byzantine hosts were asked for than the seed draws.
#[must_use]
pub fn again_with(protocol: &str, n: Option<usize>, cast: Cast, seed: u64) -> String {
    let n = n.map(|n| format!(" --n {n}")).unwrap_or_default();
    let cast = if cast == Cast::Drawn { String::new() } else { format!(" --byzantine {cast}") };
    format!("cargo run --release -- sim --protocol {protocol}{n}{cast} --seed {seed}")
}

/// Whether a failure is about what a protocol promises only after a heal.
#[must_use]
pub fn is_liveness(failure: &Failure) -> bool {
    failure.oracle == Oracle::Liveness
}
