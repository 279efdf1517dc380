//! `quorate sim`: standard random runs of a protocol in the simulator, each named by a seed.
//!
//! A seed decides a run completely, so threads share seeds. A failure is printed with the command that repeats it.

mod modes;
mod reading;
mod summary;

use super::names::{find_scenario, protocol};
use super::seeds::{RunOptions, Seeds, SeedsTotal, run_seeds};
use super::workers::WorkProgress;
use crate::history_file;
use quorate_consensus::Entry;
use quorate_node::commands::arguments::{refuse, tolerates_one};
use quorate_node::config::parse_replicas;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_sim::exam::ExamScenario;
use quorate_sim::fault::{Fault, FaultSource};
use quorate_sim::seed::{self, ByzantineChoice, StandardRun};
use quorate_sim::trace::legend;
use quorate_sim::{BadSettings, Report, Trace};
use reading::Reading;
use std::time::Instant;
use summary::{Scope, summary_text};

/// The runs to simulate.
#[derive(Debug, clap::Args)]
#[command(after_long_help = legend())]
pub struct Args {
    /// Protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// Number of replicas [default: the smallest number that tolerates one fault]
    #[arg(long, value_parser = parse_replicas::<usize>)]
    n: Option<usize>,
    /// A number of seeds from 0 on, or a range of them: 1000, 5000..6000
    #[arg(long, default_value = "100", conflicts_with = "seed")]
    seeds: Seeds,
    /// One seed
    #[arg(long)]
    seed: Option<u64>,
    /// Byzantine replicas instead of those that each seed draws: none, or f replicas with this host (`--faults` lists
    /// hosts); twin:2 are two such replicas for any f, to show failures; with wiped an honest replica loses its disk, and
    /// f - 1 replicas are Byzantine
    #[arg(long, value_name = "HOST", default_value = "drawn")]
    byzantine: ByzantineChoice,
    #[command(flatten)]
    reading: reading::ReadArgs,
    /// Write the history of the clients to a file, one JSON object for each operation; needs --seed
    #[arg(long, value_name = "FILE", requires = "seed")]
    history: Option<std::path::PathBuf>,
    /// Run another scenario of the exam than the standard run; `quorate exam` runs all scenarios
    #[arg(long, value_name = "SCENARIO", conflicts_with = "byzantine")]
    scenario: Option<String>,
    /// List all faults with their sources, and end
    #[arg(long, exclusive = true)]
    faults: bool,
    /// Continue after a failure
    #[arg(long, conflicts_with_all = ["seed", "figures", "script"])]
    keep_going: bool,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instead: modes::OtherMode,
}

impl Args {
    /// Checks the options that only one run uses. Clap's `requires` does not apply if another option excludes `--seed`.
    fn check(&self) -> Result<(), Failure> {
        if self.seed.is_none() {
            let mut given = self.reading.given();
            given.push(("--history", self.history.is_some()));
            refuse(&given, "the option is for one run; choose the run with --seed")?;
        }
        self.reading.check()?;
        self.instead.check()?;
        match self.n {
            Some(n) if !self.instead.is_asked() => tolerates_one(protocol(&self.protocol)?, n),
            _ => Ok(()),
        }
    }
}

/// Lists all faults with their sources.
fn list_faults() -> Result<(), Failure> {
    for fault in Fault::ALL {
        let source = match fault.source() {
            FaultSource::Drawn => "drawn by seeds".to_owned(),
            FaultSource::Hosts(hosts) => {
                let names: Vec<&str> = hosts.iter().map(|host| host.name()).collect();
                format!("Byzantine host: {}", names.join(", "))
            }
            FaultSource::Asked(how) => format!("asked for: {how}"),
            FaultSource::Processes(tests) => format!("real processes: {}", tests.join(", ")),
            FaultSource::Later(why) => format!("not yet: {why}"),
        };
        let class = fault.class().name();
        out::line(format!("{class:<17}  {:<26}  {} [{source}]", fault.name(), fault.about()))?;
    }
    Ok(())
}

/// Runs the seeds.
///
/// # Errors
/// Fails when a run fails, or when the protocol or its size does not exist.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.faults {
        return list_faults();
    }
    args.check()?;
    let entry = protocol(&args.protocol)?;
    if let Some(done) = args.instead.run(entry, args.n, args.json) {
        return done;
    }
    let runs = SeedRuns::of(args, entry)?;
    // The first world checks that the number of replicas suits the protocol.
    runs.check(args.seed.unwrap_or(args.seeds.0.start)).map_err(Failure::usage)?;
    let begun = Instant::now();
    let again = |seed| runs.again(seed);
    let total = match args.seed {
        Some(seed) => {
            let report = run_one(args, &runs, seed)?;
            let mut total = SeedsTotal::default();
            total.add(seed, &report);
            // The trace already ends with the result.
            if !args.json && !args.reading.trace {
                print_report(&runs, &report)?;
            }
            total
        }
        None => {
            let seeds = args.seeds.0.clone();
            let mut progress = WorkProgress::new(seeds.end.saturating_sub(seeds.start), "seeds", args.json);
            let options = RunOptions { failed_before: 0, keep_going: args.keep_going, again: &again };
            run_seeds(&options, &mut progress, seeds, &|seed| {
                runs.run(seed, Trace::default()).map_err(|error| error.to_string())
            })
        }
    };
    let summary = total.summary(entry, args.n, begun);
    if args.json {
        out::json(&summary)?;
    } else {
        let scope = if args.seed.is_some() { Scope::OneRun } else { Scope::Range };
        out::line(summary_text(&summary, scope))?;
    }
    match total.first_failure() {
        Some((seed, failure)) => Err(Failure::run(format!("{failure}; again: {}", again(seed)))),
        None => Ok(()),
    }
}

/// The runs that seeds name.
struct SeedRuns {
    entry: &'static Entry,
    n: Option<usize>,
    hosts: ByzantineChoice,
    /// Another scenario of the exam than the standard run.
    scenario: Option<&'static ExamScenario>,
}

impl SeedRuns {
    fn of(args: &Args, entry: &'static Entry) -> Result<Self, Failure> {
        let scenario = args.scenario.as_deref().map(find_scenario).transpose()?;
        Ok(Self { entry, n: args.n, hosts: args.byzantine, scenario })
    }

    fn size(&self) -> usize {
        self.n.unwrap_or_else(|| self.entry.smallest(1))
    }

    fn check(&self, seed: u64) -> Result<(), BadSettings> {
        StandardRun::size(self.entry, self.n, self.hosts, seed).map(|_| ())
    }

    fn run(&self, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
        match self.scenario {
            Some(scenario) => scenario.run_traced(self.entry, self.size(), seed, trace),
            None => Ok(StandardRun::with_trace(self.entry, self.n, self.hosts, seed, trace)?.run()),
        }
    }

    fn again(&self, seed: u64) -> String {
        let protocol = self.entry.spec.name.as_str();
        match self.scenario {
            Some(scenario) => scenario.again(protocol, self.size(), seed),
            None => seed::again_with(protocol, self.n, self.hosts, seed),
        }
    }
}

/// Prints the result of one run, and the meaning of a failure.
fn print_report(runs: &SeedRuns, report: &Report) -> Result<(), Failure> {
    if report.failure.is_none() {
        out::line(report)?;
        return out::line(report.facts());
    }
    reading::verdict(report, &runs.again(report.seed)).iter().try_for_each(out::line)
}

/// Runs one seed, with a trace and a drawing if the options ask for them.
fn run_one(args: &Args, runs: &SeedRuns, seed: u64) -> Result<Report, Failure> {
    let mut trace = Trace::default();
    let mut reading = None;
    if args.reading.trace || args.reading.html.is_some() {
        let size = StandardRun::size(runs.entry, runs.n, runs.hosts, seed);
        let (n, clients) = size.map_err(Failure::usage)?;
        let begun = Reading::begin(&args.reading, n, clients)?;
        trace.set_reader(begun.reader());
        reading = Some(begun);
    }
    let report = runs.run(seed, trace).map_err(Failure::usage)?;
    if let Some(reading) = reading {
        reading.end(&args.protocol, &report, &runs.again(seed))?;
    }
    if let Some(file) = &args.history {
        history_file::save(&report.history, file)?;
    }
    Ok(report)
}
