//! The exam of every change: fixed seeds and new seeds.

use crate::commands::names::protocol;
use crate::commands::seeds::{RunOptions, RunResult, run_seeds};
use crate::commands::workers::WorkProgress;
use quorate_consensus::Entry;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_protocols::REGISTRY;
use quorate_sim::exam::{EXAM_SCENARIOS, ExamScenario, Regression, sizes};
use std::ops::Range;

/// Number of fixed seeds of all protocols together.
const FIXED: u64 = 200;
/// Number of new seeds of the standard scenario, for each protocol.
const FRESH: u64 = 40;
/// Number of new seeds of each other scenario, at each size, unless the scenario needs more.
const FRESH_OF_OTHERS: u64 = 2;
/// Upper bound on the first new seed, which keeps it short enough to type.
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
            failures = failures.saturating_add(other_scenarios(entry, n, fresh)?);
        }
        let Some(n) = sizes(entry).first().copied() else { continue };
        let share = |place: u64| FIXED.saturating_mul(place).checked_div(protocols).unwrap_or(0);
        for seeds in [share(place)..share(place.saturating_add(1)), fresh..fresh.saturating_add(FRESH)] {
            let title = format!("{} n = {n}, seeds {}..{}", entry.spec.name, seeds.start, seeds.end);
            let run = |seed| run_scenario(entry, n, seed, standard);
            let again = |seed| again(entry.spec.name.as_str(), n, seed, standard);
            failures = failures.saturating_add(run_all(&title, seeds, &run, &again)?);
        }
    }
    let regressions = Regression::all().map_err(Failure::run)?;
    let found = |place: u64| usize::try_from(place).ok().and_then(|place| regressions.get(place));
    let run = |place| {
        let run = found(place).ok_or_else(|| "no such run".to_owned())?;
        let entry = protocol(run.protocol).map_err(|failure| failure.to_string())?;
        run_scenario(entry, run.n, run.seed, run.scenario)
    };
    let again =
        |place| found(place).map(|run| run.scenario.again(run.protocol, run.n, run.seed)).unwrap_or_default();
    let count = u64::try_from(regressions.len()).unwrap_or(u64::MAX);
    failures = failures.saturating_add(run_all("runs that have failed before", 0..count, &run, &again)?);
    Ok(failures)
}

/// Runs all scenarios but the standard one. Returns the number of failures.
fn other_scenarios(entry: &'static Entry, n: usize, fresh: u64) -> Result<u64, Failure> {
    let mut chosen: Vec<(&ExamScenario, u64)> = Vec::new();
    for scenario in EXAM_SCENARIOS.get(1..).unwrap_or_default() {
        let count = scenario.seeds_min.max(FRESH_OF_OTHERS);
        chosen.extend((0..count).map(|place| (scenario, fresh.saturating_add(place))));
    }
    let nth = |place: u64| usize::try_from(place).ok().and_then(|place| chosen.get(place)).copied();
    let run = |place| {
        let (scenario, seed) = nth(place).ok_or_else(|| "no such scenario".to_owned())?;
        run_scenario(entry, n, seed, scenario)
    };
    let name = entry.spec.name.as_str();
    let again = |place| nth(place).map(|(scenario, seed)| again(name, n, seed, scenario)).unwrap_or_default();
    let title = format!("{name} n = {n}, all other scenarios, seeds from {fresh}");
    run_all(&title, 0..u64::try_from(chosen.len()).unwrap_or(u64::MAX), &run, &again)
}

fn run_scenario(entry: &Entry, n: usize, seed: u64, scenario: &ExamScenario) -> RunResult {
    scenario.run(entry, n, seed).map_err(|error| error.to_string())
}

fn again(protocol: &str, n: usize, seed: u64, scenario: &ExamScenario) -> String {
    let keep = Regression::line(protocol, n, seed, scenario);
    format!("{}\n    keep it in crates/sim/regressions/seeds.txt: {keep}", scenario.again(protocol, n, seed))
}

/// Runs all seeds or places. Returns the number of failures.
fn run_all(
    title: &str,
    seeds: Range<u64>,
    run: &(dyn Fn(u64) -> RunResult + Sync),
    again: &(dyn Fn(u64) -> String + Sync),
) -> Result<u64, Failure> {
    let count = seeds.end.saturating_sub(seeds.start);
    // The title is printed first, so that it shows which run hangs.
    out::line(format!("{title}: {count} runs"))?;
    let options = RunOptions { failed_before: 0, keep_going: true, again };
    let total = run_seeds(&options, &mut WorkProgress::new(count, "runs", false), seeds, run);
    if total.failures() > 0 {
        out::line(format!("    {} of them failed", total.failures()))?;
    }
    Ok(total.failures())
}
