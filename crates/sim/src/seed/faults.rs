//! The faults of a standard run: of the network and of power. They meet honest and Byzantine replicas alike, and
//! are over when the run heals.

use super::HEAL_NS;
use crate::front::{Change, Front, Places};
use crate::world::{Plan, Survives, World};
use crate::{ms, secs};
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;
use std::fmt;

/// Faults last between these.
const FAULT_NS: (u64, u64) = (ms(300), secs(7));

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
    pub const ALL: [Self; 12] = [
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

    /// As printed facts call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Reorder => "reordering",
            Self::Loss => "loss",
            Self::Duplication => "duplication",
            Self::Partition => "partition",
            Self::Isolation => "isolation",
            Self::OneWay => "one way",
            Self::Clog => "clog",
            Self::ClientCut => "clients cut off",
            Self::Crash => "crash",
            Self::CrashInTurn => "crash in turn",
            Self::CrashOfAll => "crash of all",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Draws faults and plans them.
pub(super) struct Faults {
    pub(super) n: usize,
    pub(super) clients: usize,
    pub(super) rng: Rng,
    pub(super) next: u64,
    /// When the first of them begins.
    pub(super) first: Time,
}

impl Faults {
    /// Plans all of a run. How many of each class.
    pub(super) fn plan(&mut self, world: &mut World) -> BTreeMap<Class, u32> {
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
        let mut counts = BTreeMap::new();
        for class in classes {
            let count: &mut u32 = counts.entry(class).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    fn one(&mut self, world: &mut World, class: Class) {
        let span = self.rng.between(FAULT_NS.0, FAULT_NS.1);
        let latest = HEAL_NS.saturating_sub(span);
        // Half of them last until everything heals: without, there would be nothing left to recover from.
        let from = Time(if self.rng.chance(500_000) { latest } else { self.rng.between(secs(1), latest) });
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
