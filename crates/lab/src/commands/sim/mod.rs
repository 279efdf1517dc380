//! `quorate sim`: standard random runs of a protocol in the simulator, each named by a seed.
//!
//! A seed decides a run completely, so seeds are shared among threads, and what fails is printed with the command
//! that repeats it.

mod modes;
mod reading;
mod summary;

use super::names::{find_scenario, protocol};
use super::seeds::{RunOptions, Seeds, Total, many};
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
    /// Which protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// Number of replicas; the smallest number that tolerates one fault if not given
    #[arg(long, value_parser = parse_replicas::<usize>)]
    n: Option<usize>,
    /// A number of seeds from 0 on, or a range of them: 1000, 5000..6000
    #[arg(long, default_value = "100", conflicts_with = "seed")]
    seeds: Seeds,
    /// One seed
    #[arg(long)]
    seed: Option<u64>,
    /// Byzantine replicas instead of those that each seed draws: none, or f replicas that all have this host
    /// (`--faults` lists hosts); twin:2 is two of them whatever f is, to see what breaks
    #[arg(long, value_name = "HOST", default_value = "drawn")]
    byzantine: ByzantineChoice,
    #[command(flatten)]
    reading: reading::ReadArgs,
    /// Write what the clients saw to a file, one JSON object for each operation; needs --seed
    #[arg(long, value_name = "FILE", requires = "seed")]
    history: Option<std::path::PathBuf>,
    /// Another scenario of the exam than the standard run; `quorate exam` runs all of them
    #[arg(long, value_name = "SCENARIO", conflicts_with = "byzantine")]
    scenario: Option<String>,
    /// List the faults that there are, what brings each about, and end
    #[arg(long, exclusive = true)]
    faults: bool,
    /// Go on after a failure
    #[arg(long, conflicts_with_all = ["seed", "figures", "script"])]
    keep_going: bool,
    /// One JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instead: modes::OtherMode,
}

impl Args {
    /// Options that only one run has any use for. (They are not looked at by `requires`, where another option excludes
    /// `--seed`.)
    fn check(&self) -> Result<(), Failure> {
        if self.seed.is_none() {
            let mut given = self.reading.given();
            given.push(("--history", self.history.is_some()));
            refuse(&given, "it is about one run; name that with --seed")?;
        }
        self.reading.check()?;
        self.instead.check()?;
        match self.n {
            Some(n) if !self.instead.is_asked() => tolerates_one(protocol(&self.protocol)?, n),
            _ => Ok(()),
        }
    }
}

/// Lists the faults that a world can bring about.
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
/// When a run fails, or the protocol or its size does not exist.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.faults {
        return list_faults();
    }
    args.check()?;
    let entry = protocol(&args.protocol)?;
    if let Some(done) = args.instead.run(entry, args.n) {
        return done;
    }
    let what = What::of(args, entry)?;
    // Whether so many replicas suit the protocol, the first world says.
    what.check(args.seed.unwrap_or(args.seeds.0.start)).map_err(Failure::usage)?;
    let begun = Instant::now();
    let again = |seed| what.again(seed);
    let total = match args.seed {
        Some(seed) => {
            let report = one(args, &what, seed)?;
            let mut total = Total::default();
            total.add(seed, &report);
            // Who reads along was told at the end.
            if !args.json && !args.reading.trace {
                tell(&what, &report)?;
            }
            total
        }
        None => {
            let seeds = args.seeds.0.clone();
            let mut progress = WorkProgress::new(seeds.end.saturating_sub(seeds.start), "seeds", args.json);
            let how = RunOptions { failed_before: 0, keep_going: args.keep_going, again: &again };
            many(&how, &mut progress, seeds, |seed| {
                what.run(seed, Trace::default()).map_err(|error| error.to_string())
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
        Some((seed, what)) => Err(Failure::run(format!("{what}; again: {}", again(seed)))),
        None => Ok(()),
    }
}

/// The run that a seed names.
struct What {
    entry: &'static Entry,
    n: Option<usize>,
    hosts: ByzantineChoice,
    /// Another scenario of the exam than the first.
    scenario: Option<&'static ExamScenario>,
}

impl What {
    fn of(args: &Args, entry: &'static Entry) -> Result<Self, Failure> {
        let scenario = args.scenario.as_deref().map(find_scenario).transpose()?;
        Ok(Self { entry, n: args.n, hosts: args.byzantine, scenario })
    }

    fn size(&self) -> usize {
        self.n.unwrap_or_else(|| self.entry.smallest(1))
    }

    fn check(&self, seed: u64) -> Result<(), BadSettings> {
        StandardRun::with(self.entry, self.n, self.hosts, seed).map(|_| ())
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
fn tell(what: &What, report: &Report) -> Result<(), Failure> {
    if report.failure.is_none() {
        out::line(report)?;
        return out::line(report.facts());
    }
    reading::verdict(report, &what.again(report.seed)).iter().try_for_each(out::line)
}

/// One run, which somebody may want to read along.
fn one(args: &Args, what: &What, seed: u64) -> Result<Report, Failure> {
    let mut trace = Trace::default();
    let mut reading = None;
    if args.reading.trace || args.reading.html.is_some() {
        let standard = StandardRun::with(what.entry, what.n, what.hosts, seed).map_err(Failure::usage)?;
        let (n, clients) = standard.size();
        let begun = Reading::begin(&args.reading, n, clients)?;
        trace.set_reader(begun.reader());
        reading = Some(begun);
    }
    let report = what.run(seed, trace).map_err(Failure::usage)?;
    if let Some(reading) = reading {
        reading.end(&args.protocol, &report, &what.again(seed))?;
    }
    if let Some(file) = &args.history {
        history_file::save(&report.history, file)?;
    }
    Ok(report)
}
