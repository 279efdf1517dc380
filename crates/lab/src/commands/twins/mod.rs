//! `quorate twins`: systematic attacks of twins on a protocol, in the simulator.
//!
//! Every scenario has a number, so threads share ranges of numbers, and a run can be resumed. A failure is printed with the
//! command that repeats it.

mod runner;

use super::ledger::{Ledger, LedgerArgs, LedgerEntry};
use super::names::protocol;
use super::seeds::parse_range;
use quorate_consensus::{Entry, Model};
use quorate_node::commands::arguments::{refuse, tolerates_one};
use quorate_node::config::{parse_replicas, replicas_or_default};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_sim::sets_leaders;
use quorate_sim::twins::{
    Enumeration, Leaders, RangeResult, Sample, Scenario, ScenarioRun, from_json, to_json,
};
use quorate_types::ReplicaId;
use runner::{ScenarioSource, TwinRuns};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

/// The largest number of scenarios that one file receives.
const WRITTEN_MAX: u64 = 1 << 20;

/// The scenarios to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// Number of replicas [default: the smallest number that tolerates one fault]
    #[arg(long, value_parser = parse_replicas::<u16>)]
    n: Option<u16>,
    /// Id of the replica that is a twin, or two ids with a comma for two pairs of twins [default: each replica in turn]
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    twin: Vec<u16>,
    /// Number of views with chosen partitions
    #[arg(long, default_value = "4", value_parser = above_zero)]
    views: usize,
    /// Largest number of parts of a partition
    #[arg(long, default_value = "2", value_parser = above_zero)]
    parts: usize,
    /// Number of scenarios to draw for each twin, instead of running all
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Seed of the drawn scenarios
    #[arg(long, default_value_t = 0, requires = "sample")]
    seed: u64,
    /// Leaders of the views: own (those of the protocol), drawn, or a list with one for each view: 0,1,2,3. The default is
    /// drawn with --sample if the protocol lets the simulator choose leaders, else own
    #[arg(long)]
    leaders: Option<LeadersArg>,
    /// Range of the numbers of scenarios: 1000..2000
    #[arg(long, value_name = "FROM..TO", conflicts_with = "scenario")]
    range: Option<ScenarioRange>,
    /// Number of one scenario
    #[arg(long, value_name = "NUMBER")]
    scenario: Option<u64>,
    /// Print every transition of the run, one on each line; needs --scenario
    #[arg(long, requires = "scenario")]
    trace: bool,
    /// Run also scenarios that differ from others in names only
    #[arg(long, conflicts_with_all = ["scenario", "sample"])]
    same: bool,
    /// Run the scenarios of a JSON file instead, written by --write or by relab/hotstuff
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["n", "views", "parts", "sample", "seed", "twin", "leaders", "same", "ledger"])]
    file: Option<PathBuf>,
    /// Write the scenarios to a JSON file instead of running them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["failures", "ledger", "keep_going", "json"])]
    write: Option<PathBuf>,
    /// Folder for failed scenarios
    #[arg(long, value_name = "FOLDER", default_value = "results/twins")]
    failures: PathBuf,
    #[command(flatten)]
    ledger: LedgerArgs,
    /// Continue after a failure
    #[arg(long, conflicts_with = "scenario")]
    keep_going: bool,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Refuses options without effect. Clap's `requires` does not apply if another option excludes the required one.
    fn check(&self) -> Result<(), Failure> {
        self.ledger.check()?;
        if self.scenario.is_some() {
            refuse(&self.ledger.given(), "--scenario is a single run")?;
        }
        if self.write.is_some() {
            let mut given = self.ledger.given().to_vec();
            given.push(("--trace", self.trace));
            refuse(&given, "--write runs nothing")?;
        }
        refuse(
            &[("--trace", self.trace && self.scenario.is_none())],
            "the option is for one run; choose the run with --scenario",
        )
    }
}

fn above_zero(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a number above 0".to_owned())
}

/// The leaders, as the command line names them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LeadersArg(Leaders);

impl FromStr for LeadersArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ids = || text.split(',').map(|id| id.parse().map(ReplicaId)).collect::<Result<Vec<_>, _>>();
        Ok(Self(match text {
            "own" => Leaders::Own,
            "drawn" => Leaders::Drawn,
            _ => Leaders::Set(
                ids().map_err(|_| format!("expected own, drawn, or ids like 0,1,2,3, not {text:?}"))?,
            ),
        }))
    }
}

/// A range of numbers of scenarios, as the command line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ScenarioRange(Range<u64>);

impl FromStr for ScenarioRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_range(text).map(Self).ok_or_else(|| format!("expected a range like 1000..2000, not {text:?}"))
    }
}

#[derive(Serialize)]
struct TwinsSummary {
    protocol: &'static str,
    /// Whether the leaders of views could be set.
    leaders_can_be_set: bool,
    enumerations: Vec<EnumerationSummary>,
    seconds: f64,
}

/// The result of one enumeration.
#[derive(Serialize)]
struct EnumerationSummary {
    scenarios: String,
    /// Number of scenarios.
    count: u64,
    /// Scenarios that have run, now or before.
    runs: u64,
    /// Scenarios that were left out, because they differ from others in names only.
    same: u64,
    /// Scenarios that have run now.
    runs_now: u64,
    heights: u64,
    complete: u64,
    slowest_recovery_ms: u64,
    virtual_seconds: f64,
    scenarios_per_second: f64,
    failures: u64,
}

/// Runs the scenarios.
///
/// # Errors
/// Fails when a scenario fails, or when the protocol or such scenarios do not exist.
pub fn run(args: &Args) -> Result<(), Failure> {
    args.check()?;
    let entry = protocol(&args.protocol)?;
    let sources = sources(args, entry)?;
    if let Some(file) = &args.write {
        return write(args, &sources, file);
    }
    if args.trace && sources.len() > 1 {
        return Err(Failure::usage("--trace shows one run; choose the twin with --twin"));
    }
    let begun = Instant::now();
    let mut ledger = args.ledger.open(&format!("twins-{}", entry.spec.name))?;
    let mut summary = TwinsSummary {
        protocol: entry.spec.name.as_str(),
        leaders_can_be_set: sets_leaders(entry),
        enumerations: Vec::new(),
        seconds: 0.0,
    };
    if !summary.leaders_can_be_set && !args.json {
        out::line(format!(
            "{}: the protocol's own rule chooses the leaders, because it has no parameter that sets them",
            summary.protocol
        ))?;
    }
    let mut failed = None;
    for source in &sources {
        let clock = Instant::now();
        let done = one(args, entry, source, &mut ledger, begun)?;
        let part = part(args, source, &done, &ledger, clock);
        if !args.json {
            out::line(shown(&part))?;
        }
        summary.enumerations.push(part);
        if let Some((number, failure)) = done.verdict.failures.first() {
            failed = failed.or_else(|| Some(format!("{failure}; again: {}", again(args, source, *number))));
            if !args.keep_going {
                break;
            }
        }
        if done.is_late {
            let late = "the time is over before all scenarios have run; with --ledger the same command continues from here";
            failed = failed.or_else(|| Some(late.to_owned()));
            break;
        }
    }
    summary.seconds = begun.elapsed().as_secs_f64();
    if args.json {
        out::json(&summary)?;
    }
    failed.map_or(Ok(()), |failure| Err(Failure::run(failure)))
}

/// A piece of an enumeration that has run, as an entry of the ledger.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct TwinsEntry {
    /// Name of the code that ran.
    code: String,
    /// A commit with this code.
    commit: Option<String>,
    protocol: String,
    /// Name of the enumeration.
    enumeration: String,
    /// The first number. The piece ends before number `to`.
    from: u64,
    to: u64,
    /// Scenarios that have run, and scenarios that were left out because they differ from others in names only.
    runs: u64,
    same: u64,
    heights: u64,
    /// The numbers of those that failed, and why.
    failures: Vec<(u64, String)>,
}

impl LedgerEntry for TwinsEntry {
    fn range(&self) -> Range<u64> {
        self.from..self.to
    }

    fn has_passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Returns the sources that the command line asks for: one enumeration for each twin in turn, or the list of a file.
fn sources(args: &Args, entry: &Entry) -> Result<Vec<ScenarioSource>, Failure> {
    if entry.spec.model == Model::Synchrony {
        return Err(Failure::usage(format!(
            "scenarios of twins cut the network, and {} promises nothing while its bound on delays does not hold; for twins \
             within the bound run `quorate sim --protocol {} --byzantine twin`",
            args.protocol, args.protocol
        )));
    }
    if let Some(file) = &args.file {
        return listed(entry, file).map(|scenarios| vec![ScenarioSource::Listed(scenarios)]);
    }
    let can_set = sets_leaders(entry);
    let leaders = match &args.leaders {
        Some(LeadersArg(leaders)) if *leaders != Leaders::Own && !can_set => {
            return Err(Failure::usage(format!("{} has no parameter that sets leaders", args.protocol)));
        }
        Some(LeadersArg(leaders)) => leaders.clone(),
        None if args.sample.is_some() && can_set => Leaders::Drawn,
        None => Leaders::Own,
    };
    let n = replicas_or_default(args.n, entry);
    tolerates_one(entry, usize::from(n))?;
    let each: Vec<Vec<ReplicaId>> = if args.twin.is_empty() {
        (0..n).map(|id| vec![ReplicaId(id)]).collect()
    } else {
        vec![args.twin.iter().copied().map(ReplicaId).collect()]
    };
    let make = |twins| {
        let (n, views, parts, leaders) = (usize::from(n), args.views, args.parts, leaders.clone());
        let sample = args.sample.map(|count| Sample { count, seed: args.seed });
        Enumeration::new(n, twins, views, parts, leaders, sample)
            .map(ScenarioSource::Enumerated)
            .map_err(Failure::usage)
    };
    each.into_iter().map(make).collect()
}

/// Reads the scenarios of a file.
fn listed(entry: &Entry, file: &Path) -> Result<Vec<Scenario>, Failure> {
    let fail = |why: &dyn ToString| Failure::usage(format!("{}: {}", file.display(), why.to_string()));
    let text = fs::read_to_string(file).map_err(|error| fail(&error))?;
    let scenarios = from_json(&text).map_err(|error| fail(&error))?;
    if scenarios.is_empty() {
        return Err(fail(&"the file has no scenarios"));
    }
    let sizes: BTreeSet<usize> = scenarios.iter().map(|scenario| scenario.n).collect();
    sizes.into_iter().try_for_each(|n| tolerates_one(entry, n)).map_err(|error| fail(&error))?;
    Ok(scenarios)
}

/// Returns the selected numbers.
fn range(args: &Args, source: &ScenarioSource) -> Range<u64> {
    let all = 0..source.len();
    match (&args.range, args.scenario) {
        (_, Some(number)) => number..number.saturating_add(1).min(all.end),
        (Some(ScenarioRange(range)), None) => range.start..range.end.min(all.end),
        (None, None) => all,
    }
}

/// The result of one source.
struct SourceResult {
    verdict: RangeResult,
    is_late: bool,
}

fn one(
    args: &Args,
    entry: &'static Entry,
    source: &ScenarioSource,
    ledger: &mut Option<Ledger<TwinsEntry>>,
    begun: Instant,
) -> Result<SourceResult, Failure> {
    let range = range(args, source);
    if range.is_empty() {
        return Err(Failure::usage(format!("there are {} scenarios, numbered from 0 on", source.len())));
    }
    if let Some(number) = args.scenario {
        return single(args, entry, source, number);
    }
    let (ledger_args, code) = (&args.ledger, args.ledger.code());
    let (same, keep_going, quiet) = (args.same, args.keep_going, args.json);
    let runs = TwinRuns { entry, source, same, keep_going, quiet, begun, ledger: ledger_args };
    let is_same = |line: &TwinsEntry| line.code == code && line.enumeration == source.name();
    let pieces = ledger_args.left(ledger.as_ref(), is_same, range);
    let mut broken = None;
    let (verdict, is_late) = runner::run(&runs, &pieces, |progress, piece, verdict| {
        for (number, failure) in &verdict.failures {
            let kept = keep(args, source, *number).unwrap_or_else(|why| why.to_string());
            progress.print(&format!("{failure}\n    {kept}\n    again: {}", again(args, source, *number)));
        }
        if let Some(ledger) = ledger
            && let Err(why) = ledger.add(ledger_entry(args, entry, source, piece, verdict))
        {
            broken.get_or_insert(why);
        }
    })
    .map_err(Failure::usage)?;
    broken.map_or(Ok(SourceResult { verdict, is_late }), Err)
}

/// Runs one scenario, with its trace if the options ask for it.
fn single(args: &Args, entry: &Entry, source: &ScenarioSource, number: u64) -> Result<SourceResult, Failure> {
    let scenario = source.scenario(number);
    let mut play = ScenarioRun::new(entry, &scenario).map_err(Failure::usage)?;
    if args.trace {
        // A closed reader must not stop the run, because the verdict counts.
        play.world().trace().set_reader(|line| {
            let _ = out::line(line);
        });
    }
    let outcome = play.run();
    if !args.json {
        out::line(format!("scenario {number}: {scenario}"))?;
        out::line(format!("{outcome}, trace {}", play.world().trace_hash().short()))?;
    }
    let mut verdict = RangeResult::default();
    verdict.add(number, &scenario, &outcome);
    if !verdict.failures.is_empty() {
        eprintln!("{}", keep(args, source, number)?);
    }
    Ok(SourceResult { verdict, is_late: false })
}

fn ledger_entry(
    args: &Args,
    entry: &Entry,
    source: &ScenarioSource,
    piece: &Range<u64>,
    verdict: &RangeResult,
) -> TwinsEntry {
    TwinsEntry {
        code: args.ledger.code().to_owned(),
        commit: args.ledger.commit.clone(),
        protocol: entry.spec.name.to_string(),
        enumeration: source.name(),
        from: piece.start,
        to: piece.end,
        runs: verdict.runs,
        same: verdict.skipped,
        heights: verdict.heights,
        failures: verdict.failures.iter().map(|(number, why)| (*number, why.to_string())).collect(),
    }
}

/// Writes a failed scenario to a file, so that it can run again after its number has changed.
fn keep(args: &Args, source: &ScenarioSource, number: u64) -> Result<String, Failure> {
    let text = to_json(&[source.scenario(number)]);
    let hash =
        quorate_types::Digest::of(&quorate_types::digest::Context::new("quorate twins v1"), text.as_bytes());
    let file = args.failures.join(format!("{}-{}.json", args.protocol, hash.short()));
    let written = fs::create_dir_all(&args.failures).and_then(|()| fs::write(&file, text));
    written.map_err(|error| Failure::run(format!("{}: {error}", file.display())))?;
    Ok(format!("written to {}", file.display()))
}

/// Returns the command that runs a scenario again.
fn again(args: &Args, source: &ScenarioSource, number: u64) -> String {
    let protocol = &args.protocol;
    let option = match (source, &args.file) {
        (ScenarioSource::Listed(_), Some(file)) => format!("--file {}", file.display()),
        (ScenarioSource::Listed(_), None) => String::new(),
        (ScenarioSource::Enumerated(all), _) => all.options(),
    };
    format!("cargo run --release -- twins --protocol {protocol} {option} --scenario {number} --trace")
}

fn part(
    args: &Args,
    source: &ScenarioSource,
    done: &SourceResult,
    ledger: &Option<Ledger<TwinsEntry>>,
    clock: Instant,
) -> EnumerationSummary {
    let RangeResult { runs, skipped, heights, complete, virtual_ns, recovered_ns_max, failures, .. } =
        &done.verdict;
    let seconds = clock.elapsed().as_secs_f64();
    let name = source.name();
    let code = args.ledger.code();
    // A ledger has the scenarios of earlier runs too.
    let (all_runs, all_same) = ledger.as_ref().map_or((*runs, *skipped), |ledger| {
        let is_same = |line: &&TwinsEntry| line.code == code && line.enumeration == name;
        let sum = |of: fn(&TwinsEntry) -> u64| ledger.passed().filter(is_same).map(of).sum();
        (sum(|line| line.runs), sum(|line| line.same))
    });
    EnumerationSummary {
        scenarios: name,
        count: source.len(),
        runs: all_runs,
        same: all_same,
        runs_now: *runs,
        heights: *heights,
        complete: *complete,
        slowest_recovery_ms: recovered_ns_max / 1_000_000,
        virtual_seconds: std::time::Duration::from_nanos(*virtual_ns).as_secs_f64(),
        scenarios_per_second: if seconds > 0.0 { per(*runs, seconds) } else { 0.0 },
        failures: u64::try_from(failures.len()).unwrap_or(u64::MAX),
    }
}

fn per(count: u64, seconds: f64) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from) / seconds
}

fn shown(part: &EnumerationSummary) -> String {
    let heights = per(part.heights, u32::try_from(part.runs_now.max(1)).map_or(f64::NAN, f64::from));
    let before = part.runs.saturating_sub(part.runs_now);
    let before = if before > 0 { format!(" ({before} of them before)") } else { String::new() };
    format!(
        "{}: {} scenarios, {} run{before}, {} the same except for names, {} failures; {:.1} heights each, {} of {} saw \
         every view, slowest recovery {} ms, {:.0} a second",
        part.scenarios,
        part.count,
        part.runs,
        part.same,
        part.failures,
        heights,
        part.complete,
        part.runs_now,
        part.slowest_recovery_ms,
        part.scenarios_per_second,
    )
}

/// Writes scenarios instead of running them.
fn write(args: &Args, sources: &[ScenarioSource], file: &Path) -> Result<(), Failure> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for source in sources {
        let range = range(args, source);
        if range.end.saturating_sub(range.start) > WRITTEN_MAX {
            return Err(Failure::usage(format!(
                "at most {WRITTEN_MAX} scenarios fit into a file; name a --range"
            )));
        }
        scenarios.extend(
            range
                .filter(|number| args.same || source.is_first(*number))
                .map(|number| source.scenario(number)),
        );
    }
    let written = fs::write(file, to_json(&scenarios));
    written.map_err(|error| Failure::run(format!("{}: {error}", file.display())))?;
    out::line(format!("{} scenarios written to {}", scenarios.len(), file.display()))
}
