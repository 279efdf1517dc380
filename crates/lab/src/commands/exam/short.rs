//! The exam that goes with every change: the same seeds each time, and some that nobody has seen before.

use crate::commands::names::protocol;
use crate::commands::seeds::{Run, RunOptions, many};
use crate::commands::workers::WorkProgress;
use quorate_consensus::Entry;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_protocols::REGISTRY;
use quorate_sim::exam::{EXAM_SCENARIOS, ExamScenario, Regression, sizes};
use std::ops::Range;

/// Fixed seeds, shared among all protocols.
const FIXED: u64 = 200;
/// Seeds for each protocol that are others each time.
const FRESH: u64 = 40;
/// Fresh seeds of each other scenario, at each size, where it does not need more.
const FRESH_OF_OTHERS: u64 = 2;
/// Fresh seeds are drawn below this: short enough to be typed.
const FRESH_BELOW: u64 = 1_000_000_000_000;

/// Runs the short exam and returns the number of failures.
pub(super) fn run() -> Result<u64, Failure> {
    let standard = EXAM_SCENARIOS.first().ok_or_else(|| Failure::run("there is no scenario"))?;
    let protocols = u64::try_from(REGISTRY.len()).unwrap_or(1).max(1);
    let drawn = getrandom::u64().map_err(|error| Failure::run(format_args!("no random seed: {error}")))?;
    let fresh = drawn.checked_rem(FRESH_BELOW).unwrap_or(0);
    let mut failures = 0u64;
    for (place, entry) in (0u64..).zip(REGISTRY) {
        for n in sizes(entry) {
            failures = failures.saturating_add(others(entry, n, fresh)?);
        }
        let Some(n) = sizes(entry).first().copied() else { continue };
        let share = |place: u64| FIXED.saturating_mul(place).checked_div(protocols).unwrap_or(0);
        for seeds in [share(place)..share(place.saturating_add(1)), fresh..fresh.saturating_add(FRESH)] {
            let title = format!("{} n = {n}, seeds {}..{}", entry.spec.name, seeds.start, seeds.end);
            let run = |seed| run_scenario(entry, n, seed, standard);
            let again = |seed| again(entry.spec.name.as_str(), n, seed, standard);
            failures = failures.saturating_add(all(&title, seeds, run, &again)?);
        }
    }
    let once = Regression::all().map_err(Failure::run)?;
    let found = |place: u64| usize::try_from(place).ok().and_then(|place| once.get(place));
    let run = |place| {
        let run = found(place).ok_or_else(|| "no such run".to_owned())?;
        let entry = protocol(run.protocol).map_err(|failure| failure.to_string())?;
        run_scenario(entry, run.n, run.seed, run.scenario)
    };
    let again =
        |place| found(place).map(|run| run.scenario.again(run.protocol, run.n, run.seed)).unwrap_or_default();
    let count = u64::try_from(once.len()).unwrap_or(u64::MAX);
    failures = failures.saturating_add(all("runs that have failed once", 0..count, run, &again)?);
    Ok(failures)
}

/// The scenarios beside the standard one.
fn others(entry: &'static Entry, n: usize, fresh: u64) -> Result<u64, Failure> {
    let mut chosen: Vec<(&ExamScenario, u64)> = Vec::new();
    for scenario in EXAM_SCENARIOS.get(1..).unwrap_or_default() {
        let count = scenario.seeds_min.max(FRESH_OF_OTHERS);
        chosen.extend((0..count).map(|place| (scenario, fresh.saturating_add(place))));
    }
    let of = |place: u64| usize::try_from(place).ok().and_then(|place| chosen.get(place)).copied();
    let run = |place| {
        let (scenario, seed) = of(place).ok_or_else(|| "no such scenario".to_owned())?;
        run_scenario(entry, n, seed, scenario)
    };
    let name = entry.spec.name.as_str();
    let again = |place| of(place).map(|(scenario, seed)| again(name, n, seed, scenario)).unwrap_or_default();
    let title = format!("{name} n = {n}, all other scenarios, seeds from {fresh}");
    all(&title, 0..u64::try_from(chosen.len()).unwrap_or(u64::MAX), run, &again)
}

fn run_scenario(entry: &Entry, n: usize, seed: u64, scenario: &ExamScenario) -> Run {
    scenario.run(entry, n, seed).map_err(|error| error.to_string())
}

fn again(protocol: &str, n: usize, seed: u64, scenario: &ExamScenario) -> String {
    let keep = Regression::line(protocol, n, seed, scenario);
    format!("{}\n    keep it in crates/sim/regressions/seeds.txt: {keep}", scenario.again(protocol, n, seed))
}

/// Runs all of them. How many fail.
fn all(
    title: &str,
    seeds: Range<u64>,
    run: impl Fn(u64) -> Run + Sync,
    again: &(dyn Fn(u64) -> String + Sync),
) -> Result<u64, Failure> {
    let count = seeds.end.saturating_sub(seeds.start);
    // Before anything happens: whoever hangs is known.
    out::line(format!("{title}: {count} runs"))?;
    let how = RunOptions { failed_before: 0, keep_going: true, again };
    let total = many(&how, &mut WorkProgress::new(count, "runs", false), seeds, run);
    if total.failures() > 0 {
        out::line(format!("    {} of them failed", total.failures()))?;
    }
    Ok(total.failures())
}
