//! The exam that goes with every change: the same seeds each time, and some that nobody has seen before.

use crate::commands::seeds::{How, many};
use crate::exit::Failure;
use crate::out;
use quorate_consensus::Entry;
use quorate_protocols::REGISTRY;
use quorate_sim::exam::{PAPERS, Paper, Regression, sizes};
use std::ops::Range;

/// Fixed seeds, shared among all protocols.
const FIXED: u64 = 200;
/// Seeds for each protocol that are others each time.
const FRESH: u64 = 40;
/// Fresh seeds are drawn below this: short enough to be typed.
const FRESH_BELOW: u64 = 1_000_000_000_000;

/// One range of seeds in one paper.
struct Part {
    entry: &'static Entry,
    n: usize,
    paper: &'static Paper,
    seeds: Range<u64>,
    what: &'static str,
}

pub(super) fn run() -> Result<(), Failure> {
    let mut failures = 0u64;
    for part in parts()? {
        failures = failures.saturating_add(sit(&part)?);
    }
    super::verdict(failures)
}

fn parts() -> Result<Vec<Part>, Failure> {
    let standard = PAPERS.first().ok_or_else(|| Failure::run("there is no paper"))?;
    let protocols = u64::try_from(REGISTRY.len()).unwrap_or(1).max(1);
    let drawn = getrandom::u64().map_err(|error| Failure::run(format_args!("no random seed: {error}")))?;
    let fresh = drawn.checked_rem(FRESH_BELOW).unwrap_or(0);
    let mut parts = Vec::new();
    for (place, entry) in (0u64..).zip(REGISTRY) {
        let Some(n) = sizes(entry).first().copied() else { continue };
        let share = |place: u64| FIXED.saturating_mul(place).checked_div(protocols).unwrap_or(0);
        let fixed = share(place)..share(place.saturating_add(1));
        let mut part = |seeds, what| parts.push(Part { entry, n, paper: standard, seeds, what });
        part(fixed, "fixed");
        part(fresh..fresh.saturating_add(FRESH), "fresh");
    }
    for found in Regression::all().map_err(Failure::run)? {
        let entry = super::protocol(found.protocol)?;
        let seeds = found.seed..found.seed.saturating_add(1);
        parts.push(Part { entry, n: found.n, paper: found.paper, seeds, what: "has failed once" });
    }
    Ok(parts)
}

/// How many of them fail.
fn sit(part: &Part) -> Result<u64, Failure> {
    let Part { entry, n, paper, seeds, what } = part;
    let name = entry.spec.name.as_str();
    let again = |seed| {
        let keep = Regression::line(name, *n, seed, paper);
        format!("{}\n    keep it in crates/sim/regressions/seeds.txt: {keep}", paper.again(name, *n, seed))
    };
    let how = How { quiet: true, keep_going: true, again: &again };
    let total =
        many(&how, seeds.clone(), |seed| paper.sit(entry, *n, seed).map_err(|error| error.to_string()));
    let failures = total.failures();
    let range = format!("{}..{}", seeds.start, seeds.end);
    out::line(format!(
        "{name:<14} n = {n:<3} {:<12} seeds {range:<28} {what}: {failures} failures",
        paper.name
    ))?;
    Ok(failures)
}
