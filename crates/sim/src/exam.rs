//! The exam: a fixed list of scenarios that every registered protocol has to pass, at several sizes and with many
//! seeds.
//!
//! A registered protocol is examined automatically, because nothing here knows a protocol. `quorate exam --short` is a
//! test of the program. Long runs keep a ledger of finished runs by hash of the code.

mod bound;
mod short_run;

pub use short_run::{ShortRun, replaceable};

use crate::byzantine_kind::Byzantine;
use crate::disk::Survives;
use crate::fault::Fault;
use crate::network_fault::{Change, NetworkFault};
use crate::oracles::Oracle;
use crate::places::Places;
use crate::report::Report;
use crate::seed::{self, ByzantineChoice, StandardRun};
use crate::settings::{BadSettings, is_synchronous};
use crate::trace::Trace;
use crate::world::Plan;
use crate::{Delays, ms, secs};
use bound::at_least;
use quorate_consensus::Entry;
use quorate_types::{ReplicaId, Time};
use short_run::some_of;

/// A function that runs a scenario with a protocol, a number of replicas, a seed and a trace.
type RunScenario = fn(&Entry, usize, u64, Trace) -> Result<Report, BadSettings>;

/// One scenario of the exam. The seed decides everything that the scenario leaves open.
#[derive(Clone, Copy, Debug)]
pub struct ExamScenario {
    /// Name on the command line and in ledgers.
    pub name: &'static str,
    /// Summary in a sentence.
    pub about: &'static str,
    /// Smallest number of seeds that covers every variant of the scenario.
    pub seeds_min: u64,
    run_with: RunScenario,
}

/// All scenarios. The first is the standard run of a seed.
pub const EXAM_SCENARIOS: &[ExamScenario] = &[
    ExamScenario {
        name: "standard",
        about: "faults of every class for 40 s, f Byzantine replicas in half of the seeds, then a heal",
        seeds_min: 1,
        run_with: standard,
    },
    ExamScenario {
        name: "good day",
        about: "no fault: every replica executes everything",
        seeds_min: 1,
        run_with: good_day,
    },
    ExamScenario {
        name: "f silent",
        about: "f replicas are down until the heal: the others continue without them",
        seeds_min: 1,
        run_with: f_silent,
    },
    ExamScenario {
        name: "liars",
        about: "f replicas of one Byzantine kind, the kinds in turn, on good links",
        seeds_min: 12,
        run_with: liars,
    },
    ExamScenario {
        name: "power cut",
        about: "one machine loses power at any step of its work, twice, with any part of its writes left",
        seeds_min: 1,
        run_with: power_cut,
    },
    ExamScenario {
        name: "cold starts",
        about: "all machines lose power at once, three times in a row",
        seeds_min: 1,
        run_with: cold_starts,
    },
    ExamScenario {
        name: "no quorum",
        about: "f + 1 replicas stop: nothing is decided; they recover, and decisions continue",
        seeds_min: 1,
        run_with: no_quorum,
    },
    ExamScenario {
        name: "cut off",
        about: "one replica after the other is cut off for seconds, and reconnected",
        seeds_min: 1,
        run_with: cut_off,
    },
    ExamScenario {
        name: "beyond delta",
        about: "messages take up to ten times the protocol's bound, until the heal",
        seeds_min: 1,
        run_with: beyond_delta,
    },
];

impl ExamScenario {
    /// Returns the scenario of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        EXAM_SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Returns the command that repeats one run.
    #[must_use]
    pub fn again(&self, protocol: &str, n: usize, seed: u64) -> String {
        if EXAM_SCENARIOS.first().is_some_and(|first| first.name == self.name) {
            return seed::again(protocol, Some(n), seed);
        }
        format!(
            "cargo run --release -- sim --protocol {protocol} --n {n} --scenario {:?} --seed {seed}",
            self.name
        )
    }

    /// Runs the scenario.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn run(&self, entry: &Entry, n: usize, seed: u64) -> Result<Report, BadSettings> {
        self.run_traced(entry, n, seed, Trace::default())
    }

    /// Runs the scenario with a trace that may have a reader.
    ///
    /// # Errors
    /// Returns an error when the protocol does not support this number of replicas.
    pub fn run_traced(
        &self,
        entry: &Entry,
        n: usize,
        seed: u64,
        trace: Trace,
    ) -> Result<Report, BadSettings> {
        (self.run_with)(entry, n, seed, trace)
    }
}

/// Returns the sizes of the exam: the smallest for one, two and three faults. These are 4, 7 and 10 where n is 3 f +
/// 1.
#[must_use]
pub fn sizes(entry: &Entry) -> Vec<usize> {
    [1, 2, 3].into_iter().map(|f| entry.smallest(f)).collect()
}

/// A run that has failed once, as listed in `crates/sim/regressions/seeds.txt`.
#[derive(Clone, Copy, Debug)]
pub struct Regression {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// Number of replicas.
    pub n: usize,
    /// The seed.
    pub seed: u64,
    /// The scenario.
    pub scenario: &'static ExamScenario,
    /// The cause of the failure.
    pub found: &'static str,
}

impl Regression {
    /// Returns all regressions.
    ///
    /// # Errors
    /// Returns the line that does not parse.
    pub fn all() -> Result<Vec<Self>, String> {
        let lines = include_str!("../regressions/seeds.txt").lines();
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut all = Vec::new();
        for line in lines {
            all.extend(Self::of_line(line).ok_or_else(|| format!("a line that is no regression: {line}"))?);
        }
        Ok(all)
    }

    fn of_line(line: &'static str) -> Option<Vec<Self>> {
        let (which, found) = line.split_once(": ")?;
        let mut words = which.splitn(4, ' ');
        let (protocol, n, seeds) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        let scenario = ExamScenario::find(words.next()?)?;
        let run = |seed: &str| Some(Self { protocol, n, seed: seed.parse().ok()?, scenario, found });
        seeds.split(',').map(run).collect()
    }

    /// Returns the line to add for a failed run.
    #[must_use]
    pub fn line(protocol: &str, n: usize, seed: u64, scenario: &ExamScenario) -> String {
        format!("{protocol} {n} {seed} {}: what it was", scenario.name)
    }
}

fn standard(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    Ok(StandardRun::with_trace(entry, Some(n), ByzantineChoice::Drawn, seed, trace)?.run())
}

fn good_day(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let short = ShortRun::new((entry, n, seed), trace, |settings, _| settings.replay = true)?;
    Ok(short
        .run(|world, _| world.run_while("all operations are answered", secs(20), |world| !world.all_done())))
}

fn f_silent(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let short = ShortRun::new((entry, n, seed), trace, |_, _| {})?;
    Ok(short.run(|world, rng| {
        for id in some_of(world, rng, world.settings().f) {
            world.crash(id, Survives::Nothing);
        }
        // Each crashed leader costs its view.
        world.run_while("all operations are answered", secs(60), |world| !world.all_done())?;
        world.run_for(secs(1))
    }))
}

fn liars(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let kinds = u64::try_from(Byzantine::ALL.len()).unwrap_or(1);
    let place = usize::try_from(seed.checked_rem(kinds).unwrap_or(0)).unwrap_or(0);
    let kind = Byzantine::ALL.get(place).copied().unwrap_or(Byzantine::Twin);
    let short = ShortRun::new((entry, n, seed), trace, |settings, rng| {
        let spared = u16::from(!settings.entry.spec.replaces_leader);
        let drawn = ByzantineChoice::All(kind).draw(seed, settings.n, settings.f, spared);
        (settings.byzantine.replicas, settings.byzantine.coalition) = (drawn.who, rng.chance(500_000));
    })?;
    Ok(short.run(|world, _| world.run_for(secs(12))))
}

fn power_cut(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let short = ShortRun::new((entry, n, seed), trace, |settings, _| {
        settings.storage.segment_bytes = 64 << 10;
        settings.storage.snapshot_every_bytes = 12 << 10;
    })?;
    Ok(short.run(|world, rng| {
        for id in some_of(world, rng, 2) {
            let survives = [Survives::Nothing, Survives::Some, Survives::Everything];
            let survives = rng.pick(&survives).copied().unwrap_or(Survives::Nothing);
            let at = world.now().plus(rng.between(0, secs(2)));
            world.plan(at, Plan::CrashAtStep(id, rng.between(1, 200), survives));
            world.run_for(secs(3))?;
            world.disarm();
            world.plan(world.now(), Plan::Start(id));
            // A replica that has not recovered yet counts among the f.
            world.run_for(at_least(world, ms(200), 10))?;
        }
        Ok(())
    }))
}

fn cold_starts(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let short = ShortRun::new((entry, n, seed), trace, |_, _| {})?;
    Ok(short.run(|world, rng| {
        // With bounded delays, a message sent before the first crash does not arrive before the last one.
        let link_ns = Delays::link_ns(world.settings().parameters.delta_ns);
        let blink_ns = if is_synchronous(&world.settings().entry) { link_ns } else { ms(3) };
        for _ in 0..3 {
            world.run_for(rng.between(ms(50), secs(1)))?;
            for id in world.replicas() {
                let survives = if rng.chance(500_000) { Survives::Nothing } else { Survives::Some };
                world.plan(world.now().plus(rng.below(blink_ns)), Plan::Crash(id, survives));
                world.plan(world.now().plus(rng.between(ms(10), ms(500))), Plan::Start(id));
            }
            world.run_for(ms(600))?;
        }
        Ok(())
    }))
}

fn no_quorum(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let short = ShortRun::new((entry, n, seed), trace, |_, _| {})?;
    Ok(short.run(|world, rng| {
        world.run_for(secs(1))?;
        let gone = some_of(world, rng, world.settings().f.saturating_add(1));
        for id in &gone {
            world.crash(*id, Survives::Some);
        }
        // Messages in flight at the crash may still lead to a decision. Where leaders take turns, the next ones may be idle, and
        // speak after a second only.
        let in_flight = at_least(world, ms(200), 6);
        world.run_for(if is_synchronous(entry) { in_flight.max(secs(3)) } else { in_flight })?;
        let before = world.highest();
        world.run_for(secs(4))?;
        let stands = world.highest() == before;
        world.check(Oracle::Agreement, "nothing is decided without a quorum", stands)?;
        for id in &gone {
            world.plan(world.now(), Plan::Start(*id));
        }
        world.run_for(ms(100))
    }))
}

fn cut_off(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    if is_synchronous(entry) {
        return bound::cut_off(entry, n, seed, trace);
    }
    let short = ShortRun::new((entry, n, seed), trace, |_, _| {})?;
    Ok(short.run(|world, rng| {
        for _ in 0..3 {
            let place = Places::of(some_of(world, rng, 1).into_iter().map(ReplicaId::index));
            let change = Change::Cut;
            let both_ways = rng.chance(700_000);
            let cut = world.begin_fault(NetworkFault {
                from: place,
                to: place.others(),
                both_ways,
                change,
                fault: Some(Fault::Isolation),
            });
            world.run_for(rng.between(ms(200), secs(3)))?;
            world.end_fault(cut);
            world.run_for(rng.between(ms(1), ms(500)))?;
        }
        world.run_until(Time(secs(12)).max(world.now()))
    }))
}

fn beyond_delta(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    if is_synchronous(entry) {
        return bound::beyond_delta(entry, n, seed, trace);
    }
    let short = ShortRun::new((entry, n, seed), trace, |_, _| {})?;
    Ok(short.run(|world, rng| {
        let delta_ns = world.settings().parameters.delta_ns;
        for _ in 0..4 {
            let delay_ns = rng.between(delta_ns, delta_ns.saturating_mul(10));
            let change = Change::Slow { delay_ns, jitter_ns: rng.between(1, delta_ns) };
            // Either every message is slow, or every message of one replica.
            let all = rng.chance(500_000);
            let from = if all { Places::ALL } else { Places::one(rng.index(n)) };
            let fault = Some(Fault::BeyondDelta);
            let slow =
                world.begin_fault(NetworkFault { from, to: Places::ALL, both_ways: false, change, fault });
            world.run_for(rng.between(ms(500), secs(3)))?;
            world.end_fault(slow);
            world.run_for(rng.between(ms(1), ms(500)))?;
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn scenario_names_are_unique() {
        let names: BTreeSet<&str> = EXAM_SCENARIOS.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), EXAM_SCENARIOS.len());
        for scenario in EXAM_SCENARIOS {
            assert!(ExamScenario::find(scenario.name).is_some() && !scenario.about.is_empty());
        }
        let liars = ExamScenario::find("liars").unwrap();
        assert_eq!(liars.seeds_min, Byzantine::ALL.len() as u64, "each kind has its turn");
        assert!(ExamScenario::find("cribbing").is_none());
    }

    #[test]
    fn regressions_parse_as_they_are_written() {
        let all = Regression::all().unwrap();
        assert!(
            all.iter()
                .any(|run| (run.protocol, run.n, run.seed, run.scenario.name)
                    == ("pbft", 4, 9_090, "standard"))
        );
        let line = Regression::line("pbft", 7, 12, ExamScenario::find("cold starts").unwrap());
        let run = &Regression::of_line(line.leak()).unwrap()[0];
        assert_eq!((run.protocol, run.n, run.seed, run.scenario.name), ("pbft", 7, 12, "cold starts"));
        for bad in [
            "",
            "pbft",
            "pbft 4 1 standard",
            "pbft four 1 standard: x",
            "pbft 4 1,b standard: x",
            "pbft 4 1 cribbing: x",
        ] {
            assert!(Regression::of_line(bad).is_none(), "{bad}");
        }
    }
}
