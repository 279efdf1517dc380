//! `quorate sim`: standard random runs of a protocol in the simulator, each named by a seed.
//!
//! A seed decides a run completely, so seeds are shared among threads, and what fails is printed with the command
//! that repeats it.

use super::stage;
use crate::exit::Failure;
use crate::out;
use indicatif::{ProgressBar, ProgressStyle};
use quorate_consensus::Entry;
use quorate_protocols::{REGISTRY, find};
use quorate_sim::seed::{self, Cast, Report, Standard};
use quorate_types::{Digest, DigestWriter};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stderr};
use std::num::NonZero;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Failures that are printed; the others are counted.
const SHOWN_MAX: usize = 20;
/// Pause between two lines about progress, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What to simulate.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// How many replicas; the smallest number that tolerates one fault if not given
    #[arg(long)]
    n: Option<usize>,
    /// So many seeds from 0 on, or a range of them: 1000, 5000..6000
    #[arg(long, default_value = "100", conflicts_with = "seed")]
    seeds: Seeds,
    /// One seed
    #[arg(long)]
    seed: Option<u64>,
    /// Who is Byzantine instead of what each seed draws: none, or f replicas that are all a twin, mute, favourites or
    /// rollback; twin:2 is two of them whatever f is, to see what breaks
    #[arg(long, value_name = "HOST", default_value = "drawn")]
    byzantine: Cast,
    /// Print every transition of the run, one line each; needs --seed
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Write what the clients saw to a file, one JSON object for each operation; needs --seed
    #[arg(long, value_name = "FILE", requires = "seed")]
    history: Option<std::path::PathBuf>,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
    /// One JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    instead: stage::Instead,
}

/// A range of seeds, as the command line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| format!("expected a number of seeds or a range like 100..200, not {text:?}"))
        };
        let range = match text.split_once("..") {
            Some((from, to)) => number(from)?..number(to)?,
            None => 0..number(text)?,
        };
        if range.is_empty() { Err("no seed lies in this range".to_owned()) } else { Ok(Self(range)) }
    }
}

#[derive(Serialize)]
struct Summary {
    protocol: &'static str,
    n: usize,
    seeds: u64,
    failures: u64,
    virtual_seconds: f64,
    requests: u64,
    undecided: usize,
    seconds: f64,
    trace_hash: String,
    /// Byzantine replicas by host, over all seeds.
    byzantine: BTreeMap<&'static str, u64>,
    /// Faults by class, over all seeds.
    faults: BTreeMap<&'static str, u64>,
}

/// `2 mute, 1 twin`.
fn counted(counts: &BTreeMap<&'static str, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

/// Runs the seeds.
///
/// # Errors
/// When a run fails, or the protocol or its size does not exist.
pub fn run(args: &Args) -> Result<(), Failure> {
    let entry = find(&args.protocol).ok_or_else(|| {
        let known: Vec<&str> = REGISTRY.iter().map(|entry| entry.spec.name.as_str()).collect();
        Failure::usage(format!("no protocol is named {:?}; there are {}", args.protocol, known.join(", ")))
    })?;
    if let Some(done) = args.instead.run(entry, args.n) {
        return done;
    }
    // Whether so many replicas suit the protocol, the first world says.
    let standard = Standard::with(entry, args.n, args.byzantine, args.seed.unwrap_or(args.seeds.0.start))
        .map_err(Failure::usage)?;
    let begun = Instant::now();
    let total = match args.seed {
        Some(seed) => {
            let report = one(args, standard)?;
            let mut total = Total::default();
            total.add(seed, &report);
            if !args.json {
                out::line(&report)?;
                out::line(report.facts())?;
            }
            total
        }
        None => many(args, entry),
    };
    let summary = total.summary(entry, args.n, begun);
    if args.json {
        out::json(&summary)?;
    } else {
        out::line(format!(
            "{}: {} seeds, {} failures, {:.0} virtual s, {} requests in {:.1} s, trace {}",
            summary.protocol,
            summary.seeds,
            summary.failures,
            summary.virtual_seconds,
            summary.requests,
            summary.seconds,
            summary.trace_hash.get(..16).unwrap_or(&summary.trace_hash),
        ))?;
        if args.seed.is_none() {
            out::line(format!(
                "Byzantine replicas: {}; faults: {}",
                counted(&summary.byzantine),
                counted(&summary.faults)
            ))?;
        }
    }
    if total.undecided > 0 {
        eprintln!("{} keys had histories too hard to judge without asking replicas", total.undecided);
    }
    match total.first_failure() {
        Some((seed, what)) => {
            let again = seed::again_with(&args.protocol, args.n, args.byzantine, seed);
            Err(Failure::run(format!("{what}; again: {again}")))
        }
        None => Ok(()),
    }
}

/// One run, which somebody may want to read along.
fn one(args: &Args, mut standard: Standard) -> Result<Report, Failure> {
    if args.trace {
        // A reader that goes away early must not stop the run: its verdict is what counts.
        standard.world().trace().read_along(|line| {
            let _ = out::line(line);
        });
    }
    let report = standard.run();
    if let Some(file) = &args.history {
        let written = std::fs::write(file, report.history.to_json_lines());
        written.map_err(|error| Failure::run(format!("{}: {error}", file.display())))?;
    }
    Ok(report)
}

/// Many runs, on all cores.
fn many(args: &Args, entry: &'static Entry) -> Total {
    let Range { start, end } = args.seeds.0;
    let (next, stop) = (AtomicU64::new(start), AtomicBool::new(false));
    let mut progress = Progress::new(end.saturating_sub(start), args.json);
    let mut total = Total::default();
    thread::scope(|scope| {
        let (reports, finished) = mpsc::channel();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..cores {
            let (reports, next, stop) = (reports.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let standard = Standard::with(entry, args.n, args.byzantine, seed);
                    let report = standard.map(Standard::run).map_err(|error| error.to_string());
                    if reports.send((seed, report)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(reports);
        for (seed, report) in finished {
            match report {
                Ok(report) => total.add(seed, &report),
                Err(why) => total.fail(seed, format!("seed {seed}: {why}")),
            }
            if total.failures.contains_key(&seed) {
                if total.failures.len() <= SHOWN_MAX
                    && let Some(what) = total.failures.get(&seed)
                {
                    let again = seed::again_with(&args.protocol, args.n, args.byzantine, seed);
                    progress.say(&format!("{what}\n    again: {again}"));
                }
                stop.store(!args.keep_going, Ordering::Relaxed);
            }
            progress.step(total.failures.len());
        }
    });
    progress.bar.finish_and_clear();
    total
}

/// How far it is: a bar at a terminal, a line now and then elsewhere, nothing for programs.
struct Progress {
    bar: ProgressBar,
    /// When the last line was printed, where lines are.
    said: Option<Instant>,
}

impl Progress {
    fn new(seeds: u64, quiet: bool) -> Self {
        if quiet {
            return Self { bar: ProgressBar::hidden(), said: None };
        }
        let bar = ProgressBar::new(seeds);
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left, {msg}");
        // A style that does not parse would be a mistake in the line above; the plain bar does as well.
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar, said: (!stderr().is_terminal()).then(Instant::now) }
    }

    /// One more is done.
    fn step(&mut self, failures: usize) {
        self.bar.set_message(format!("{failures} failures"));
        self.bar.inc(1);
        if self.said.is_some_and(|at| at.elapsed() >= LINE_EVERY) {
            self.said = Some(Instant::now());
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            eprintln!("{done}/{all} seeds, {failures} failures");
        }
    }

    /// Something that people should read at once.
    fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}

/// What all runs came to, whatever the order in which they ended.
#[derive(Default)]
struct Total {
    seeds: u64,
    requests: u64,
    undecided: usize,
    virtual_ns: u64,
    hashes: BTreeMap<u64, Digest>,
    failures: BTreeMap<u64, String>,
    byzantine: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
}

impl Total {
    fn add(&mut self, seed: u64, report: &Report) {
        self.seeds = self.seeds.saturating_add(1);
        self.requests = self.requests.saturating_add(report.requests);
        self.undecided = self.undecided.saturating_add(report.undecided);
        self.virtual_ns = self.virtual_ns.saturating_add(report.virtual_ns);
        self.hashes.insert(seed, report.trace_hash);
        for kind in report.byzantine.values() {
            let count = self.byzantine.entry(kind.name()).or_default();
            *count = count.saturating_add(1);
        }
        for (class, more) in &report.faults {
            let count = self.faults.entry(class.name()).or_default();
            *count = count.saturating_add(u64::from(*more));
        }
        if report.failure.is_some() {
            self.failures.insert(seed, report.to_string());
        }
    }

    fn fail(&mut self, seed: u64, what: String) {
        self.seeds = self.seeds.saturating_add(1);
        self.failures.insert(seed, what);
    }

    fn first_failure(&self) -> Option<(u64, &str)> {
        self.failures.first_key_value().map(|(seed, what)| (*seed, what.as_str()))
    }

    fn summary(&self, entry: &'static Entry, n: Option<usize>, begun: Instant) -> Summary {
        // One run's own hash; of several, the hash of theirs in the order of their seeds.
        let hash = match self.hashes.values().next() {
            Some(only) if self.hashes.len() == 1 => *only,
            _ => {
                let mut writer =
                    DigestWriter::new(&quorate_types::digest::Context::new("quorate simulation traces v1"));
                for hash in self.hashes.values() {
                    writer.update(&hash.0);
                }
                writer.finish()
            }
        };
        Summary {
            protocol: entry.spec.name.as_str(),
            n: n.unwrap_or_else(|| quorate_sim::smallest(entry, 1)),
            seeds: self.seeds,
            failures: u64::try_from(self.failures.len()).unwrap_or(u64::MAX),
            virtual_seconds: Duration::from_nanos(self.virtual_ns).as_secs_f64(),
            requests: self.requests,
            undecided: self.undecided,
            seconds: begun.elapsed().as_secs_f64(),
            trace_hash: hash.to_string(),
            byzantine: self.byzantine.clone(),
            faults: self.faults.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        for (text, range) in
            [("5", Some(0..5)), ("7..9", Some(7..9)), ("9..7", None), ("0", None), ("x", None), ("1..", None)]
        {
            assert_eq!(text.parse().ok().map(|Seeds(range)| range), range, "{text}");
        }
    }
}
