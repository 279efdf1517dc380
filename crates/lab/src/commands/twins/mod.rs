//! `quorate twins`: systematic attacks of twins on a protocol, in the simulator.
//!
//! Every scenario has a number, so ranges of them are shared among threads and can be resumed, and what fails is
//! printed with the command that repeats it.

mod runner;

use super::ledger::{Keeping, Ledger, LedgerEntry};
use super::names::protocol;
use quorate_consensus::{Entry, Model};
use quorate_node::commands::arguments::{refuse, tolerates_one};
use quorate_node::config::{parse_replicas, replicas_or_default};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_sim::sets_leaders;
use quorate_sim::twins::{Enumeration, Leaders, RangeResult, Scenario, ScenarioRun, from_json, to_json};
use quorate_types::ReplicaId;
use runner::{TwinRuns, Work};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

/// Scenarios that are written to one file at most.
const WRITTEN_MAX: u64 = 1 << 20;

/// Which scenarios to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// Number of replicas [default: as few as tolerate one fault]
    #[arg(long, value_parser = parse_replicas::<u16>)]
    n: Option<u16>,
    /// Which replica is a twin; two with a comma are two pairs of twins; each replica in turn if not given
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    twin: Vec<u16>,
    /// Views whose partitions are chosen
    #[arg(long, default_value = "4", value_parser = above_zero)]
    views: usize,
    /// Parts of a partition at most
    #[arg(long, default_value = "2", value_parser = above_zero)]
    parts: usize,
    /// Number of scenarios that are drawn instead of all; for each replica that is a twin in turn
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Seed of the drawing
    #[arg(long, default_value_t = 0, requires = "sample")]
    seed: u64,
    /// Leaders of the views: own (those of the protocol), drawn, or a list with one for each view: 0,1,2,3. The default is
    /// drawn where scenarios are drawn and the protocol lets the simulator choose leaders, else own
    #[arg(long)]
    leaders: Option<LeadersArg>,
    /// A range of the numbers of scenarios: 1000..2000
    #[arg(long, value_name = "FROM..TO", conflicts_with = "scenario")]
    range: Option<Numbers>,
    /// The scenario with this number
    #[arg(long, value_name = "NUMBER")]
    scenario: Option<u64>,
    /// Print every transition of the run, one line each; needs --scenario
    #[arg(long, requires = "scenario")]
    trace: bool,
    /// Run also what is the same as another scenario but for names
    #[arg(long, conflicts_with_all = ["scenario", "sample"])]
    same: bool,
    /// The scenarios of a JSON file instead: ours, or what relab/hotstuff generates
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["n", "views", "parts", "sample", "seed", "twin", "leaders", "same", "ledger"])]
    file: Option<PathBuf>,
    /// Write the scenarios to a JSON file instead of running them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["failures", "ledger", "keep_going", "json"])]
    write: Option<PathBuf>,
    /// Folder for scenarios that fail
    #[arg(long, value_name = "FOLDER", default_value = "results/twins")]
    failures: PathBuf,
    #[command(flatten)]
    keeping: Keeping,
    /// Go on after a failure
    #[arg(long, conflicts_with = "scenario")]
    keep_going: bool,
    /// One JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Options that would do nothing together. (`requires` does not look where another option excludes what is needed.)
    fn check(&self) -> Result<(), Failure> {
        self.keeping.check()?;
        if self.scenario.is_some() {
            refuse(&self.keeping.given(), "--scenario is a single run")?;
        }
        if self.write.is_some() {
            let mut given = self.keeping.given().to_vec();
            given.push(("--trace", self.trace));
            refuse(&given, "--write runs nothing")?;
        }
        refuse(
            &[("--trace", self.trace && self.scenario.is_none())],
            "it is about one run; name that with --scenario",
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
struct Numbers(Range<u64>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("expected a range like 1000..2000, not {text:?}");
        let (from, to) = text.split_once("..").ok_or_else(unknown)?;
        let range = from.parse().map_err(|_| unknown())?..to.parse().map_err(|_| unknown())?;
        if range.is_empty() { Err("no scenario lies in this range".to_owned()) } else { Ok(Self(range)) }
    }
}

#[derive(Serialize)]
struct Summary {
    protocol: &'static str,
    /// Whether the leaders of views could be set.
    leaders_can_be_set: bool,
    enumerations: Vec<Part>,
    seconds: f64,
}

/// The result of one enumeration.
#[derive(Serialize)]
struct Part {
    scenarios: String,
    /// Number of scenarios.
    count: u64,
    /// Run, now or before.
    runs: u64,
    /// Left out, because they are the same as others but for names.
    same: u64,
    /// Run now.
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
/// When one fails, or the protocol or such scenarios do not exist.
pub fn run(args: &Args) -> Result<(), Failure> {
    args.check()?;
    let entry = protocol(&args.protocol)?;
    let works = works(args, entry)?;
    if let Some(file) = &args.write {
        return write(args, &works, file);
    }
    if args.trace && works.len() > 1 {
        return Err(Failure::usage("--trace shows one run; say which replica is the twin with --twin"));
    }
    let begun = Instant::now();
    let mut ledger = args.keeping.open(&format!("twins-{}", entry.spec.name))?;
    let mut summary = Summary {
        protocol: entry.spec.name.as_str(),
        leaders_can_be_set: sets_leaders(entry),
        enumerations: Vec::new(),
        seconds: 0.0,
    };
    if !summary.leaders_can_be_set && !args.json {
        out::line(format!(
            "{}: leaders are those of its own rule, it has no parameter that sets them",
            summary.protocol
        ))?;
    }
    let mut failed = None;
    for work in &works {
        let clock = Instant::now();
        let done = one(args, entry, work, &mut ledger, begun)?;
        let part = part(args, work, &done, &ledger, clock);
        if !args.json {
            out::line(shown(&part))?;
        }
        summary.enumerations.push(part);
        if let Some((number, failure)) = done.verdict.failures.first() {
            failed = failed.or_else(|| Some(format!("{failure}; again: {}", again(args, work, *number))));
            if !args.keep_going {
                break;
            }
        }
        if done.is_late {
            let late = "time is over, and not all was run; with --ledger the same command goes on from here";
            failed = failed.or_else(|| Some(late.to_owned()));
            break;
        }
    }
    summary.seconds = begun.elapsed().as_secs_f64();
    if args.json {
        out::json(&summary)?;
    }
    failed.map_or(Ok(()), |what| Err(Failure::run(what)))
}

/// A piece of an enumeration that was run, as a line of the ledger.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct TwinsEntry {
    /// A name for the code that ran.
    code: String,
    /// A commit that has this code.
    commit: Option<String>,
    protocol: String,
    /// Which scenarios.
    enumeration: String,
    /// The first number, and the one after the last.
    from: u64,
    to: u64,
    /// Scenarios that were run, and that were left out because they are the same as others.
    runs: u64,
    same: u64,
    heights: u64,
    /// Numbers of those that failed, and why.
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

/// The work that the command line asks for: one enumeration for each replica that is a twin in turn, or a file's list.
fn works(args: &Args, entry: &Entry) -> Result<Vec<Work>, Failure> {
    if entry.spec.model == Model::Synchrony {
        return Err(Failure::usage(format!(
            "scenarios of twins cut the network, and {} promises nothing where its bound on delays does not hold; twins \
             within the bound are `quorate sim --protocol {} --byzantine twin`",
            args.protocol, args.protocol
        )));
    }
    if let Some(file) = &args.file {
        return listed(entry, file).map(|scenarios| vec![Work::Listed(scenarios)]);
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
        let made = match args.sample {
            Some(count) => Enumeration::drawn(n, twins, views, parts, leaders, (count, args.seed)),
            None => Enumeration::all(n, twins, views, parts, leaders),
        };
        made.map(Work::Enumerated).map_err(Failure::usage)
    };
    each.into_iter().map(make).collect()
}

/// The scenarios of a file.
fn listed(entry: &Entry, file: &Path) -> Result<Vec<Scenario>, Failure> {
    let fail = |why: &dyn ToString| Failure::usage(format!("{}: {}", file.display(), why.to_string()));
    let text = fs::read_to_string(file).map_err(|error| fail(&error))?;
    let scenarios = from_json(&text).map_err(|error| fail(&error))?;
    if scenarios.is_empty() {
        return Err(fail(&"there are no scenarios in it"));
    }
    let sizes: BTreeSet<usize> = scenarios.iter().map(|scenario| scenario.n).collect();
    sizes.into_iter().try_for_each(|n| tolerates_one(entry, n)).map_err(|error| fail(&error))?;
    Ok(scenarios)
}

/// The numbers that are asked for.
fn range(args: &Args, work: &Work) -> Range<u64> {
    let all = 0..work.len();
    match (&args.range, args.scenario) {
        (_, Some(number)) => number..number.saturating_add(1).min(all.end),
        (Some(Numbers(range)), None) => range.start..range.end.min(all.end),
        (None, None) => all,
    }
}

/// The progress of one enumeration.
struct Done {
    verdict: RangeResult,
    is_late: bool,
}

fn one(
    args: &Args,
    entry: &'static Entry,
    work: &Work,
    ledger: &mut Option<Ledger<TwinsEntry>>,
    begun: Instant,
) -> Result<Done, Failure> {
    let range = range(args, work);
    if range.is_empty() {
        return Err(Failure::usage(format!("there are {} scenarios, from number 0 on", work.len())));
    }
    if let Some(number) = args.scenario {
        return single(args, entry, work, number);
    }
    let (keeping, code) = (&args.keeping, args.keeping.code());
    let (same, keep_going, quiet) = (args.same, args.keep_going, args.json);
    let how = TwinRuns { entry, work, same, keep_going, quiet, begun, keeping };
    let about = |line: &TwinsEntry| line.code == code && line.enumeration == work.name();
    let pieces = keeping.left(ledger.as_ref(), about, range);
    let mut broken = None;
    let (verdict, is_late) = runner::run(&how, &pieces, |progress, piece, verdict| {
        for (number, failure) in &verdict.failures {
            let kept = keep(args, work, *number).unwrap_or_else(|why| why.to_string());
            progress.say(&format!("{failure}\n    {kept}\n    again: {}", again(args, work, *number)));
        }
        if let Some(ledger) = ledger
            && let Err(why) = ledger.add(line(args, entry, work, piece, verdict))
        {
            broken.get_or_insert(why);
        }
    })
    .map_err(Failure::usage)?;
    broken.map_or(Ok(Done { verdict, is_late }), Err)
}

/// One scenario, which somebody may want to read along.
fn single(args: &Args, entry: &Entry, work: &Work, number: u64) -> Result<Done, Failure> {
    let scenario = work.scenario(number);
    let mut play = ScenarioRun::new(entry, &scenario).map_err(Failure::usage)?;
    if args.trace {
        // A reader that goes away early must not stop the run: its verdict is what counts.
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
        eprintln!("{}", keep(args, work, number)?);
    }
    Ok(Done { verdict, is_late: false })
}

fn line(args: &Args, entry: &Entry, work: &Work, piece: &Range<u64>, verdict: &RangeResult) -> TwinsEntry {
    TwinsEntry {
        code: args.keeping.code().to_owned(),
        commit: args.keeping.commit.clone(),
        protocol: entry.spec.name.to_string(),
        enumeration: work.name(),
        from: piece.start,
        to: piece.end,
        runs: verdict.runs,
        same: verdict.skipped,
        heights: verdict.heights,
        failures: verdict.failures.iter().map(|(number, why)| (*number, why.to_string())).collect(),
    }
}

/// A scenario that failed is kept, so that it can be run again when numbers mean something else.
fn keep(args: &Args, work: &Work, number: u64) -> Result<String, Failure> {
    let text = to_json(&[work.scenario(number)]);
    let hash =
        quorate_types::Digest::of(&quorate_types::digest::Context::new("quorate twins v1"), text.as_bytes());
    let file = args.failures.join(format!("{}-{}.json", args.protocol, hash.short()));
    let written = fs::create_dir_all(&args.failures).and_then(|()| fs::write(&file, text));
    written.map_err(|error| Failure::run(format!("{}: {error}", file.display())))?;
    Ok(format!("written to {}", file.display()))
}

/// The command that runs a scenario again.
fn again(args: &Args, work: &Work, number: u64) -> String {
    let protocol = &args.protocol;
    let which = match (work, &args.file) {
        (Work::Listed(_), Some(file)) => format!("--file {}", file.display()),
        (Work::Listed(_), None) => String::new(),
        (Work::Enumerated(all), _) => all.options(),
    };
    format!("cargo run --release -- twins --protocol {protocol} {which} --scenario {number} --trace")
}

fn part(args: &Args, work: &Work, done: &Done, ledger: &Option<Ledger<TwinsEntry>>, clock: Instant) -> Part {
    let RangeResult { runs, skipped, heights, complete, virtual_ns, recovered_ns_max, failures, .. } =
        &done.verdict;
    let seconds = clock.elapsed().as_secs_f64();
    let name = work.name();
    let code = args.keeping.code();
    // A ledger knows what was run before, too.
    let (all_runs, all_same) = ledger.as_ref().map_or((*runs, *skipped), |ledger| {
        let about = |line: &&TwinsEntry| line.code == code && line.enumeration == name;
        let sum = |of: fn(&TwinsEntry) -> u64| ledger.passed().filter(about).map(of).sum();
        (sum(|line| line.runs), sum(|line| line.same))
    });
    Part {
        scenarios: name,
        count: work.len(),
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

fn shown(part: &Part) -> String {
    let heights = per(part.heights, u32::try_from(part.runs_now.max(1)).map_or(f64::NAN, f64::from));
    let before = part.runs.saturating_sub(part.runs_now);
    let before = if before > 0 { format!(" ({before} of them before)") } else { String::new() };
    format!(
        "{}: {} scenarios, {} run{before}, {} the same but for names, {} failures; {:.1} heights each, {} of {} saw \
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
fn write(args: &Args, works: &[Work], file: &Path) -> Result<(), Failure> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for work in works {
        let range = range(args, work);
        if range.end.saturating_sub(range.start) > WRITTEN_MAX {
            return Err(Failure::usage(format!(
                "at most {WRITTEN_MAX} scenarios fit into a file; name a --range"
            )));
        }
        scenarios.extend(
            range.filter(|number| args.same || work.is_wanted(*number)).map(|number| work.scenario(number)),
        );
    }
    let written = fs::write(file, to_json(&scenarios));
    written.map_err(|error| Failure::run(format!("{}: {error}", file.display())))?;
    out::line(format!("{} scenarios written to {}", scenarios.len(), file.display()))
}
