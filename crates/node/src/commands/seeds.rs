//! Many runs side by side, each named by a seed: how far it is, and what all of them came to.

use indicatif::{ProgressBar, ProgressStyle};
use quorate_consensus::Entry;
use quorate_sim::Report;
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

/// A range of seeds, as the command line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seeds(pub(super) Range<u64>);

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
pub(super) struct Summary {
    pub(super) protocol: &'static str,
    pub(super) n: usize,
    pub(super) seeds: u64,
    pub(super) failures: u64,
    pub(super) virtual_seconds: f64,
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) trace_hash: String,
    /// Byzantine replicas by host, over all seeds.
    pub(super) byzantine: BTreeMap<&'static str, u64>,
    /// Faults by class, over all seeds.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// How often each of them was felt.
    pub(super) felt: BTreeMap<&'static str, u64>,
}

/// `2 mute, 1 twin`.
pub(super) fn counted(counts: &BTreeMap<&'static str, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

/// What a run comes to, or why it cannot be.
pub(super) type Run = Result<Report, String>;

/// How many runs are run.
pub(super) struct How<'a> {
    /// Nothing is said of the progress.
    pub(super) quiet: bool,
    /// A failure does not end it.
    pub(super) keep_going: bool,
    /// The command that repeats one of them.
    pub(super) again: &'a (dyn Fn(u64) -> String + Sync),
}

/// Many runs, on all cores.
pub(super) fn many(how: &How, seeds: Range<u64>, run: impl Fn(u64) -> Run + Sync) -> Total {
    let Range { start, end } = seeds;
    let (next, stop) = (AtomicU64::new(start), AtomicBool::new(false));
    let mut progress = Progress::new(end.saturating_sub(start), how.quiet);
    let mut total = Total::default();
    thread::scope(|scope| {
        let (reports, finished) = mpsc::channel();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..cores {
            let (reports, next, stop, run) = (reports.clone(), &next, &stop, &run);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    if reports.send((seed, run(seed))).is_err() {
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
                    progress.say(&format!("{what}\n    again: {}", (how.again)(seed)));
                }
                stop.store(!how.keep_going, Ordering::Relaxed);
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
pub(super) struct Total {
    seeds: u64,
    requests: u64,
    virtual_ns: u64,
    hashes: BTreeMap<u64, Digest>,
    failures: BTreeMap<u64, String>,
    byzantine: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
    felt: BTreeMap<&'static str, u64>,
}

impl Total {
    pub(super) fn add(&mut self, seed: u64, report: &Report) {
        self.seeds = self.seeds.saturating_add(1);
        self.requests = self.requests.saturating_add(report.requests);
        self.virtual_ns = self.virtual_ns.saturating_add(report.virtual_ns);
        self.hashes.insert(seed, report.trace_hash);
        for kind in report.byzantine.values() {
            let count = self.byzantine.entry(kind.name()).or_default();
            *count = count.saturating_add(1);
        }
        for (fault, more) in &report.faults {
            let count = self.faults.entry(fault.name()).or_default();
            *count = count.saturating_add(u64::from(*more));
        }
        for (fault, more) in &report.felt {
            let count = self.felt.entry(fault.name()).or_default();
            *count = count.saturating_add(*more);
        }
        if report.failure.is_some() {
            self.failures.insert(seed, report.to_string());
        }
    }

    fn fail(&mut self, seed: u64, what: String) {
        self.seeds = self.seeds.saturating_add(1);
        self.failures.insert(seed, what);
    }

    /// How many failed.
    pub(super) fn failures(&self) -> u64 {
        u64::try_from(self.failures.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn first_failure(&self) -> Option<(u64, &str)> {
        self.failures.first_key_value().map(|(seed, what)| (*seed, what.as_str()))
    }

    pub(super) fn summary(&self, entry: &'static Entry, n: Option<usize>, begun: Instant) -> Summary {
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
            failures: self.failures(),
            virtual_seconds: Duration::from_nanos(self.virtual_ns).as_secs_f64(),
            requests: self.requests,
            seconds: begun.elapsed().as_secs_f64(),
            trace_hash: hash.to_string(),
            byzantine: self.byzantine.clone(),
            faults: self.faults.clone(),
            felt: self.felt.clone(),
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
