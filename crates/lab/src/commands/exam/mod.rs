//! `quorate exam`: all scenarios of the exam for a protocol, at several sizes, with many seeds.
//!
//! With a ledger a long exam can be stopped at any time and continues from there. The ledger has an entry for each piece,
//! with the name of the code that ran. For other code the exam begins again.

mod short;

use super::ledger::{Ledger, LedgerArgs, LedgerEntry};
use super::names::{find_scenario, protocol};
use super::seeds::{RunOptions, SeedsTotal, run_seeds};
use super::workers::WorkProgress;
use quorate_consensus::Entry;
use quorate_node::commands::arguments::tolerates_one;
use quorate_node::config::parse_replicas;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_sim::exam::{EXAM_SCENARIOS, ExamScenario, sizes};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Instant;

/// The exam to take.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// Numbers of replicas, separated by commas [default: the smallest that tolerate one, two and three faults]
    #[arg(long, value_delimiter = ',', value_parser = parse_replicas::<usize>)]
    n: Vec<usize>,
    /// Number of seeds of each scenario at each size
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Run one scenario instead of all
    #[arg(long)]
    scenario: Option<String>,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Examine every registered protocol in one to two minutes of CPU time: 200 fixed seeds in all, runs that have failed
    /// before, and new seeds
    #[arg(long, conflicts_with_all = ["protocol", "n", "seeds", "scenario", "ledger", "code", "commit", "piece", "minutes"])]
    short: bool,
}

/// One piece of an exam, as an entry of the ledger.
#[derive(Clone, Serialize, Deserialize, PartialEq, Debug)]
struct ExamEntry {
    code: String,
    /// A commit with this code.
    commit: Option<String>,
    protocol: String,
    scenario: String,
    n: usize,
    /// The first seed. The piece ends before seed `to`.
    from: u64,
    to: u64,
    failures: u64,
    /// Seeds with Byzantine replicas.
    #[serde(default)]
    lied_to: u64,
    /// Seeds by mode of the synchrony guard, where the protocol assumes a bound on delays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    modes: BTreeMap<String, u64>,
    /// The first failed seed, and its failure.
    failed: Option<(u64, String)>,
    virtual_seconds: f64,
    requests: u64,
    seconds: f64,
}

impl LedgerEntry for ExamEntry {
    fn range(&self) -> Range<u64> {
        self.from..self.to
    }

    fn has_passed(&self) -> bool {
        self.failures == 0
    }
}

/// Examines a protocol.
///
/// # Errors
/// Fails when a run fails, the protocol does not exist, or the ledger cannot be read or written.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.short {
        return finish(short::run()?);
    }
    args.ledger.check()?;
    let entry = protocol(&args.protocol)?;
    args.n.iter().try_for_each(|n| tolerates_one(entry, *n))?;
    let scenarios: Vec<&'static ExamScenario> = match &args.scenario {
        Some(name) => vec![find_scenario(name)?],
        None => EXAM_SCENARIOS.iter().collect(),
    };
    let sizes = if args.n.is_empty() { sizes(entry) } else { args.n.clone() };
    // The ledger has the own name of the protocol, also for a long name on the command line.
    let mut ledger = args.ledger.open(entry.spec.name.as_str())?;
    let begun = Instant::now();
    let mut failures = 0u64;
    for scenario in scenarios {
        for n in sizes.iter().copied() {
            let (is_complete, failed) = examine(args, entry, (scenario, n), &mut ledger, begun)?;
            failures = failures.saturating_add(failed);
            if !is_complete {
                let so_far =
                    format!("the time is over before all seeds have run: {failures} failures so far");
                return Err(Failure::run(format!(
                    "{so_far}; with --ledger the same command continues from here"
                )));
            }
        }
    }
    finish(failures)
}

fn finish(failures: u64) -> Result<(), Failure> {
    match failures {
        0 => out::line("passed"),
        many => Err(Failure::run(format!("{many} runs failed"))),
    }
}

/// Runs one scenario at one size, piece by piece. Returns whether all pieces have run, and the number of failures.
fn examine(
    args: &Args,
    entry: &'static Entry,
    (scenario, n): (&'static ExamScenario, usize),
    ledger: &mut Option<Ledger<ExamEntry>>,
    begun: Instant,
) -> Result<(bool, u64), Failure> {
    let code = args.ledger.code();
    let is_same = |entry: &ExamEntry| entry.code == code && entry.scenario == scenario.name && entry.n == n;
    let pieces = args.ledger.left(ledger.as_ref(), is_same, 0..args.seeds);
    let left: u64 = pieces.iter().map(|piece| piece.end.saturating_sub(piece.start)).sum();
    let again = |seed| scenario.again(entry.spec.name.as_str(), n, seed);
    let mut progress = WorkProgress::new(left, "seeds", false);
    let mut entries = Vec::new();
    let clock = Instant::now();
    for piece in pieces {
        if args.ledger.is_over(begun) {
            break;
        }
        let failed_before = sum(&entries, |entry| entry.failures);
        let options = RunOptions { failed_before, keep_going: true, again: &again };
        let begun = Instant::now();
        let run_scenario = |seed| scenario.run(entry, n, seed).map_err(|error| error.to_string());
        let total = run_seeds(&options, &mut progress, piece.clone(), &run_scenario);
        let done = ledger_entry(args, entry, (scenario, n), piece, &total, begun);
        if let Some(ledger) = ledger {
            ledger.add(done.clone())?;
        }
        entries.push(done);
    }
    drop(progress);
    let seconds = clock.elapsed().as_secs_f64();
    let runs = sum(&entries, |entry| entry.to.saturating_sub(entry.from));
    let failures = sum(&entries, |entry| entry.failures);
    let virtual_seconds = entries.iter().map(|entry| entry.virtual_seconds).fold(0.0, |sum, more| sum + more);
    let before = args.seeds.saturating_sub(left);
    let before = if before > 0 { format!(", {before} before") } else { String::new() };
    let lied_to = sum(&entries, |entry| entry.lied_to);
    let modes: BTreeSet<&String> = entries.iter().flat_map(|entry| entry.modes.keys()).collect();
    let seeds_in = |mode: &String| sum(&entries, |entry| entry.modes.get(mode).copied().unwrap_or(0));
    let modes: String = modes.into_iter().map(|mode| format!(", {} {mode}", seeds_in(mode))).collect();
    out::line(format!(
        "{:<12} n = {n:<3} {runs:>7} runs{before}, {failures} failures, {virtual_seconds:.0} virtual s in {seconds:.1} s; \
         {lied_to} with Byzantine replicas{modes}",
        scenario.name
    ))?;
    Ok((runs == left, failures))
}

fn sum(entries: &[ExamEntry], number: impl Fn(&ExamEntry) -> u64) -> u64 {
    entries.iter().map(number).fold(0, u64::saturating_add)
}

fn ledger_entry(
    args: &Args,
    entry: &'static Entry,
    (scenario, n): (&ExamScenario, usize),
    range: Range<u64>,
    total: &SeedsTotal,
    begun: Instant,
) -> ExamEntry {
    let summary = total.summary(entry, Some(n), begun);
    ExamEntry {
        code: args.ledger.code().to_owned(),
        commit: args.ledger.commit.clone(),
        protocol: summary.protocol.to_owned(),
        scenario: scenario.name.to_owned(),
        n,
        from: range.start,
        to: range.end,
        failures: summary.failures,
        lied_to: summary.lied_to,
        modes: summary.modes.into_iter().map(|(mode, count)| (mode.to_owned(), count)).collect(),
        failed: total.first_failure().map(|(seed, failure)| (seed, failure.to_owned())),
        virtual_seconds: summary.virtual_seconds,
        requests: summary.requests,
        seconds: summary.seconds,
    }
}
