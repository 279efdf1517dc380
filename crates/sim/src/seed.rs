//! The standard run that a seed names: so that "seeds" is a unit.
//!
//! The smallest committee that tolerates one fault (or as many replicas as asked for), four clients, at least 400
//! operations; 40 s of virtual time with faults of at least four classes, among them a crash with a restart; then
//! everything heals and at least 20 s follow in which the protocol has to do what it promises.

use crate::disk::Costs;
use crate::front::{Change, Front, Places};
use crate::history::History;
use crate::oracles::{Failure, Oracle};
use crate::settings::{BadSettings, Settings, Transport};
use crate::weather::Weather;
use crate::world::{Plan, Survives, World};
use crate::{Workload, ms, secs};
use quorate_consensus::{Entry, Healed};
use quorate_crypto::Scheme;
use quorate_types::rng::Rng;
use quorate_types::{Digest, ReplicaId, Time};
use std::fmt;

/// When everything heals.
const HEAL_NS: u64 = secs(40);
/// When a run ends at the earliest.
const END_NS: u64 = secs(60);
/// How long replicas may take to come to the same height once all clients have their answers.
const SETTLE_NS: u64 = secs(20);
/// How much more log is kept for laggards where votes are signed: nobody may fall behind what is kept, as long as
/// there is no transfer of state.
const SIGNED_LOG_FACTOR: u32 = 8;
/// Faults last between these.
const FAULT_NS: (u64, u64) = (ms(300), secs(7));
/// Operations that each client has before and after the heal.
const OPERATIONS_BEFORE: (u64, u64) = (92, 110);
const OPERATIONS_AFTER: u32 = 12;
/// Every so-manyth seed replays what its replicas go through: it costs such a run about a quarter more.
const REPLAY_EVERY: u64 = 10;

/// A class of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Some connections become slow.
    Slow,
    /// Delays become so different that messages overtake each other.
    Reorder,
    /// Messages are lost.
    Loss,
    /// Messages arrive twice.
    Duplication,
    /// The replicas are cut in two.
    Partition,
    /// One replica is cut off from all others.
    Isolation,
    /// Messages pass in one direction only.
    OneWay,
    /// Connections fill up and deliver everything later.
    Clog,
    /// Clients are cut off from some replicas.
    ClientCut,
    /// A replica's machine loses power and comes back.
    Crash,
    /// A replica's machine loses power in the middle of a turn and comes back.
    CrashInTurn,
    /// All machines lose power at once and come back.
    CrashOfAll,
}

impl Class {
    /// Those that are drawn from; a crash comes in every run.
    const ALL: [Self; 12] = [
        Self::Slow,
        Self::Reorder,
        Self::Loss,
        Self::Duplication,
        Self::Partition,
        Self::Isolation,
        Self::OneWay,
        Self::Clog,
        Self::ClientCut,
        Self::Crash,
        Self::CrashInTurn,
        Self::CrashOfAll,
    ];
    const CRASHES: [Self; 3] = [Self::Crash, Self::CrashInTurn, Self::CrashOfAll];
}

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
    /// Keys whose history was too hard to judge without asking replicas.
    pub undecided: usize,
    /// From the heal to the first height that was executed after it.
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

/// One standard run, ready to begin.
pub struct Standard {
    world: World,
    classes: Vec<Class>,
    workload: Workload,
    outage_ns: u64,
}

impl Standard {
    /// The run of a seed.
    ///
    /// # Errors
    /// When so many replicas do not suit the protocol.
    pub fn new(entry: &Entry, n: Option<usize>, seed: u64) -> Result<Self, BadSettings> {
        let mut rng = Rng::new(seed ^ 0x5eed_5eed_5eed_5eed);
        let mut settings = draw_settings(entry, seed, &mut rng);
        if let Some(n) = n {
            settings = settings.with_n(n);
        }
        let mut world = World::new(settings)?;
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
        let classes = faults.plan(&mut world);
        Ok(Self { outage_ns: HEAL_NS.saturating_sub(faults.first.0), world, classes, workload })
    }

    /// The world, for who wants to read along.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Runs it.
    #[must_use]
    pub fn run(mut self) -> Report {
        let mut recovered_ns = 0;
        // The first failure stays in the world.
        let _: Result<(), Failure> = self.go(&mut recovered_ns);
        let world = &mut self.world;
        let transitions = world.trace().count();
        Report {
            seed: world.settings().seed,
            failure: world.failure().cloned(),
            requests: u64::try_from(world.history().records().len()).unwrap_or(u64::MAX),
            failed_requests: world.failed_ops(),
            undecided: world.undecided(),
            virtual_ns: world.now().0,
            heights: world.height().0,
            classes: self.classes,
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
        let height = world.height();
        world.load_all(Workload { operations: OPERATIONS_AFTER, pause_ns: ms(100), ..self.workload });
        world
            .run_while("something was executed after the heal", bound.0, |world| world.height() == height)?;
        *recovered_ns = world.now().since(Time(HEAL_NS));
        world.run_while("all clients have their answers", END_NS, |world| !world.all_done())?;
        world.run_while("all replicas are at the same height", SETTLE_NS, |world| !is_level(world))?;
        world.run_until(Time(END_NS))?;
        world.read_back(secs(10))?;
        world.run_while("all replicas have executed the reads", SETTLE_NS, |world| !is_level(world))?;
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

fn is_level(world: &World) -> bool {
    let height = world.height();
    world.replicas().all(|id| world.executed(id) == height)
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
    settings.keep_bytes = rng.between(384 << 10, 1 << 20);
    if entry.spec.votes_are_signed {
        // Each view change writes certificates for all of the window: for the same heights the log takes more room,
        // and one record does.
        settings.keep_bytes = settings.keep_bytes.saturating_mul(u64::from(SIGNED_LOG_FACTOR));
        settings.segment_bytes = settings.segment_bytes.saturating_mul(SIGNED_LOG_FACTOR);
    }
    settings.snapshot_every_bytes = rng.between(128 << 10, 512 << 10);
    settings.replay = seed.is_multiple_of(REPLAY_EVERY);
    settings
}

/// Draws faults and plans them.
struct Faults {
    n: usize,
    clients: usize,
    rng: Rng,
    next: u64,
    first: Time,
}

impl Faults {
    fn plan(&mut self, world: &mut World) -> Vec<Class> {
        let mut pool = Class::ALL;
        self.rng.shuffle(&mut pool);
        let distinct = usize::try_from(self.rng.between(4, 7)).unwrap_or(4);
        let mut classes: Vec<Class> = pool.into_iter().take(distinct).collect();
        if !classes.iter().any(|class| Class::CRASHES.contains(class)) {
            classes.pop();
            classes.extend(self.rng.pick(&Class::CRASHES));
        }
        let again = self.rng.between(1, 5);
        for _ in 0..again {
            let more = self.rng.pick(&classes).copied();
            classes.extend(more);
        }
        for class in &classes {
            self.one(world, *class);
        }
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    fn one(&mut self, world: &mut World, class: Class) {
        let span = self.rng.between(FAULT_NS.0, FAULT_NS.1);
        let from = Time(self.rng.between(secs(1), HEAL_NS.saturating_sub(span)));
        let to = from.plus(span);
        self.first = self.first.min(from);
        match class {
            Class::Crash => self.crash(world, from, to),
            Class::CrashInTurn => self.crash_in_turn(world, from, to),
            Class::CrashOfAll => self.crash_of_all(world, from),
            weather => {
                let front = self.front(weather, to);
                let number = self.next;
                self.next = number.saturating_add(1);
                world.plan(from, Plan::Begin(number, front));
                world.plan(to, Plan::End(number));
            }
        }
    }

    fn replica(&mut self) -> ReplicaId {
        ReplicaId(u16::try_from(self.rng.index(self.n)).unwrap_or(0))
    }

    fn survives(&mut self) -> Survives {
        match self.rng.below(3) {
            0 => Survives::Nothing,
            1 => Survives::Some,
            _ => Survives::Everything,
        }
    }

    fn crash(&mut self, world: &mut World, from: Time, to: Time) {
        let (id, survives) = (self.replica(), self.survives());
        world.plan(from, Plan::Crash(id, survives));
        world.plan(to, Plan::Start(id));
    }

    fn crash_in_turn(&mut self, world: &mut World, from: Time, to: Time) {
        let (id, survives, steps) = (self.replica(), self.survives(), self.rng.between(1, 60));
        world.plan(from, Plan::CrashAtStep(id, steps, survives));
        // The first start may come before the fuse has burnt down, or while opening burns it down.
        for start in [to, to.plus(secs(1)), to.plus(secs(3))] {
            world.plan(start, Plan::Start(id));
        }
    }

    fn crash_of_all(&mut self, world: &mut World, from: Time) {
        for id in world.replicas() {
            let survives = self.survives();
            // All at one moment, or all within a blink.
            let at = from.plus(if self.rng.chance(500_000) { 0 } else { self.rng.below(ms(5)) });
            world.plan(at, Plan::Crash(id, survives));
            world.plan(at.plus(self.rng.between(ms(100), secs(3))), Plan::Start(id));
        }
    }

    /// Some replicas, not none and not all.
    fn some(&mut self) -> Places {
        let mut ids: Vec<usize> = (0..self.n).collect();
        self.rng.shuffle(&mut ids);
        let count = self.rng.between(1, u64::try_from(self.n.saturating_sub(1)).unwrap_or(1));
        Places::of(ids.into_iter().take(usize::try_from(count).unwrap_or(1)))
    }

    fn front(&mut self, class: Class, until: Time) -> Front {
        let replicas = Places::of(0..self.n);
        let one = Places::one(self.rng.index(self.n));
        let some = self.some();
        let (from, to, both_ways) = match class {
            Class::Partition => (some, Places(replicas.0 & some.others().0), true),
            Class::Isolation => (one, one.others(), true),
            Class::OneWay => (one, Places(replicas.0 & one.others().0), false),
            Class::ClientCut => (Places::of(self.n..self.n.saturating_add(self.clients)), some, true),
            _ if self.rng.chance(500_000) => (one, Places::ALL, true),
            _ => (Places::ALL, Places::ALL, false),
        };
        let change = match class {
            Class::Slow => Change::Slow {
                delay_ns: self.rng.between(ms(5), ms(300)),
                jitter_ns: self.rng.between(ms(1), ms(100)),
            },
            Class::Reorder => Change::Slow { delay_ns: 0, jitter_ns: self.rng.between(ms(10), ms(200)) },
            Class::Loss => Change::Lossy(u32::try_from(self.rng.between(10_000, 350_000)).unwrap_or(0)),
            Class::Duplication => {
                Change::Twice(u32::try_from(self.rng.between(50_000, 500_000)).unwrap_or(0))
            }
            Class::Clog => Change::Clogged(until),
            _ => Change::Cut,
        };
        Front { from, to, both_ways, change }
    }
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
    let n = n.map(|n| format!(" --n {n}")).unwrap_or_default();
    format!("cargo run --release -- sim --protocol {protocol}{n} --seed {seed}")
}

/// Whether a failure is about what a protocol promises only after a heal.
#[must_use]
pub fn is_liveness(failure: &Failure) -> bool {
    failure.oracle == Oracle::Liveness
}
