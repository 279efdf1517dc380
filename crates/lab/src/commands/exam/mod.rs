//! `quorate exam`: a protocol sits every scenario of the exam, at several sizes, with many seeds.
//!
//! With a ledger a long exam can be stopped at any time and goes on where it stopped: what was run is written down
//! piece by piece, for the code that it was run with. Who changes that code begins anew.

mod short;

use super::ledger::{Keeping, Ledger, LedgerEntry};
use super::names::{find_scenario, protocol};
use super::seeds::{RunOptions, Total, many};
use super::workers::WorkProgress;
use quorate_consensus::Entry;
use quorate_node::commands::arguments::tolerates_one;
use quorate_node::config::parse_replicas;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_sim::exam::{EXAM_SCENARIOS, ExamScenario, sizes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Instant;

/// The exam to take.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// Number of replicas, several with commas; the smallest numbers that tolerate one, two and three faults if not given
    #[arg(long, value_delimiter = ',', value_parser = parse_replicas::<usize>)]
    n: Vec<usize>,
    /// Seeds of each scenario at each size
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// One scenario instead of all
    #[arg(long)]
    scenario: Option<String>,
    #[command(flatten)]
    keeping: Keeping,
    /// Every registered protocol in one to two minutes of one core, shared by all cores: 200 fixed seeds shared among them,
    /// runs that have failed once, and seeds that nobody has seen before
    #[arg(long, conflicts_with_all = ["protocol", "n", "seeds", "scenario", "ledger", "code", "commit", "piece", "minutes"])]
    short: bool,
}

/// One piece of an exam, as a line of the ledger.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct ExamEntry {
    code: String,
    /// A commit that has this code.
    commit: Option<String>,
    protocol: String,
    scenario: String,
    n: usize,
    /// The first seed, and the one after the last.
    from: u64,
    to: u64,
    failures: u64,
    /// Seeds with Byzantine replicas.
    #[serde(default)]
    lied_to: u64,
    /// Seeds by mode of the synchrony guard, where the protocol assumes a bound on delays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    modes: BTreeMap<String, u64>,
    /// The first of them, and what it was.
    failed: Option<(u64, String)>,
    virtual_seconds: f64,
    requests: u64,
    seconds: f64,
}

/// The seeds that were run, divided by kind.
#[derive(Default)]
struct Split {
    lied_to: u64,
    modes: BTreeMap<String, u64>,
}

impl Split {
    fn add(&mut self, line: &ExamEntry) {
        self.lied_to = self.lied_to.saturating_add(line.lied_to);
        for (mode, more) in &line.modes {
            let count = self.modes.entry(mode.clone()).or_default();
            *count = count.saturating_add(*more);
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "; {} with Byzantine replicas", self.lied_to)?;
        self.modes.iter().try_for_each(|(mode, count)| write!(f, ", {count} {mode}"))
    }
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
/// When a run fails, the protocol does not exist, or the ledger cannot be read or written.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.short {
        return verdict(short::run()?);
    }
    args.keeping.check()?;
    let entry = protocol(&args.protocol)?;
    args.n.iter().try_for_each(|n| tolerates_one(entry, *n))?;
    let scenarios: Vec<&'static ExamScenario> = match &args.scenario {
        Some(name) => vec![find_scenario(name)?],
        None => EXAM_SCENARIOS.iter().collect(),
    };
    let sizes = if args.n.is_empty() { sizes(entry) } else { args.n.clone() };
    // By its own name, whichever was given: a protocol has one ledger.
    let mut ledger = args.keeping.open(entry.spec.name.as_str())?;
    let begun = Instant::now();
    let mut failures = 0u64;
    for scenario in scenarios {
        for n in sizes.iter().copied() {
            let (is_through, failed) = examine(args, entry, (scenario, n), &mut ledger, begun)?;
            failures = failures.saturating_add(failed);
            if !is_through {
                let so_far = format!("time is over, and not all was run: {failures} failures so far");
                return Err(Failure::run(format!(
                    "{so_far}; with --ledger the same command goes on from here"
                )));
            }
        }
    }
    verdict(failures)
}

fn verdict(failures: u64) -> Result<(), Failure> {
    match failures {
        0 => out::line("passed"),
        many => Err(Failure::run(format!("{many} runs failed"))),
    }
}

/// One scenario at one size, piece by piece. Whether it is through, and how many runs failed.
fn examine(
    args: &Args,
    entry: &'static Entry,
    (scenario, n): (&'static ExamScenario, usize),
    ledger: &mut Option<Ledger<ExamEntry>>,
    begun: Instant,
) -> Result<(bool, u64), Failure> {
    let code = args.keeping.code();
    let about = |line: &ExamEntry| line.code == code && line.scenario == scenario.name && line.n == n;
    let pieces = args.keeping.left(ledger.as_ref(), about, 0..args.seeds);
    let left: u64 = pieces.iter().map(|piece| piece.end.saturating_sub(piece.start)).sum();
    let again = |seed| scenario.again(entry.spec.name.as_str(), n, seed);
    let mut progress = WorkProgress::new(left, "seeds", false);
    let (mut runs, mut failures, mut virtual_seconds, mut split) = (0u64, 0u64, 0.0, Split::default());
    let clock = Instant::now();
    for piece in pieces {
        if args.keeping.is_over(begun) {
            break;
        }
        let how = RunOptions { failed_before: failures, keep_going: true, again: &again };
        let begun = Instant::now();
        let run_scenario = |seed| scenario.run(entry, n, seed).map_err(|error| error.to_string());
        let total = many(&how, &mut progress, piece.clone(), run_scenario);
        let line = line(args, entry, (scenario, n), piece, &total, begun);
        runs = runs.saturating_add(line.to.saturating_sub(line.from));
        failures = failures.saturating_add(line.failures);
        virtual_seconds += line.virtual_seconds;
        split.add(&line);
        if let Some(ledger) = ledger {
            ledger.add(line)?;
        }
    }
    drop(progress);
    let seconds = clock.elapsed().as_secs_f64();
    let before = args.seeds.saturating_sub(left);
    let before = if before > 0 { format!(", {before} before") } else { String::new() };
    out::line(format!(
        "{:<12} n = {n:<3} {runs:>7} runs{before}, {failures} failures, {virtual_seconds:.0} virtual s in {seconds:.1} s{split}",
        scenario.name
    ))?;
    Ok((runs == left, failures))
}

fn line(
    args: &Args,
    entry: &'static Entry,
    (scenario, n): (&ExamScenario, usize),
    range: Range<u64>,
    total: &Total,
    begun: Instant,
) -> ExamEntry {
    let summary = total.summary(entry, Some(n), begun);
    ExamEntry {
        code: args.keeping.code().to_owned(),
        commit: args.keeping.commit.clone(),
        protocol: summary.protocol.to_owned(),
        scenario: scenario.name.to_owned(),
        n,
        from: range.start,
        to: range.end,
        failures: summary.failures,
        lied_to: summary.lied_to,
        modes: summary.modes.into_iter().map(|(mode, count)| (mode.to_owned(), count)).collect(),
        failed: total.first_failure().map(|(seed, what)| (seed, what.to_owned())),
        virtual_seconds: summary.virtual_seconds,
        requests: summary.requests,
        seconds: summary.seconds,
    }
}
