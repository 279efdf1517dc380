//! Many runs on all cores, each named by a seed: their progress, and the total of their results.

use super::workers::{WorkProgress, share};
use quorate_consensus::Entry;
use quorate_sim::Report;
use quorate_types::digest::Context;
use quorate_types::{Digest, DigestWriter};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Failures that are printed; the others are counted.
const SHOWN_MAX: usize = 20;

/// A range of seeds, as the command line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seeds(pub(super) Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = format!("0..{text}");
        parse_range(if text.contains("..") { text } else { &whole }).map(Self).ok_or_else(|| {
            format!("expected a number of seeds above 0 or a range like 100..200, not {text:?}")
        })
    }
}

/// Reads a range of numbers with at least one number in it, like `100..200`.
pub(super) fn parse_range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once("..")?;
    let range = from.parse().ok()?..to.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

/// The summary of many runs.
#[derive(Clone, Default, Serialize)]
pub(super) struct SeedsSummary {
    pub(super) protocol: &'static str,
    pub(super) n: usize,
    pub(super) seeds: u64,
    pub(super) failures: u64,
    pub(super) virtual_seconds: f64,
    pub(super) requests: u64,
    /// States that replicas have received from their peers.
    pub(super) transfers: u64,
    /// Replicas that have lost their disk and are not back at the end.
    pub(super) amnesiacs: u64,
    pub(super) seconds: f64,
    pub(super) trace_hash: String,
    /// Byzantine replicas by host, over all seeds.
    pub(super) byzantine: BTreeMap<&'static str, u64>,
    /// Seeds with Byzantine replicas.
    pub(super) lied_to: u64,
    /// Faults by class, over all seeds.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// Number of times that each fault had an effect.
    pub(super) felt: BTreeMap<&'static str, u64>,
    /// Seeds by mode of the synchrony guard, where the protocol assumes a bound on delays.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) modes: BTreeMap<&'static str, u64>,
}

/// Formats counts: `2 mute, 1 twin`.
pub(super) fn counted(counts: &BTreeMap<&'static str, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

/// The report of a run, or the reason why the run is impossible.
pub(super) type RunResult = Result<Report, String>;

/// Options of many runs.
pub(super) struct RunOptions<'a> {
    /// Number of earlier failures.
    pub(super) failed_before: u64,
    /// Whether the runs continue after a failure.
    pub(super) keep_going: bool,
    /// Returns the command that repeats a run.
    pub(super) again: &'a (dyn Fn(u64) -> String + Sync),
}

/// Runs all seeds on all cores.
pub(super) fn run_seeds(
    options: &RunOptions<'_>,
    progress: &mut WorkProgress,
    seeds: Range<u64>,
    run: &(dyn Fn(u64) -> RunResult + Sync),
) -> SeedsTotal {
    let Range { start, end } = seeds;
    let stop = AtomicBool::new(false);
    let mut total = SeedsTotal::default();
    // A panic is a failure of its seed.
    let run = |place: u64| {
        let ran = catch_unwind(AssertUnwindSafe(|| run(start.saturating_add(place))));
        ran.unwrap_or_else(|panic| Err(format!("panics: {}", quorate_app::panic_text(panic.as_ref()))))
    };
    share(end.saturating_sub(start), &stop, &run, |place, report| {
        let seed = start.saturating_add(place);
        match report {
            Ok(report) => total.add(seed, &report),
            Err(why) => total.fail(seed, format!("seed {seed}: {why}")),
        }
        if let Some(failure) = total.failures.get(&seed) {
            if total.failures.len() <= SHOWN_MAX {
                progress.print(&format!("{failure}\n    again: {}", (options.again)(seed)));
            }
            stop.store(!options.keep_going, Ordering::Relaxed);
        }
        progress.step(1, options.failed_before.saturating_add(total.failures()));
    });
    total
}

/// The results of all runs, independent of the order in which they ended.
#[derive(Default)]
pub(super) struct SeedsTotal {
    /// Sums of the counts; the other fields are set at the end.
    sums: SeedsSummary,
    virtual_ns: u64,
    hashes: BTreeMap<u64, Digest>,
    failures: BTreeMap<u64, String>,
}

impl SeedsTotal {
    pub(super) fn add(&mut self, seed: u64, report: &Report) {
        let sums = &mut self.sums;
        sums.seeds = sums.seeds.saturating_add(1);
        sums.requests = sums.requests.saturating_add(report.requests);
        sums.transfers = sums.transfers.saturating_add(report.transfers);
        sums.amnesiacs = sums.amnesiacs.saturating_add(report.amnesiacs);
        sums.lied_to = sums.lied_to.saturating_add(u64::from(!report.byzantine.is_empty()));
        self.virtual_ns = self.virtual_ns.saturating_add(report.virtual_ns);
        self.hashes.insert(seed, report.trace_hash);
        if let Some(bound) = report.bound {
            count(&mut sums.modes, bound.mode(), 1);
        }
        report.byzantine.values().for_each(|host| count(&mut sums.byzantine, host.name(), 1));
        report
            .faults
            .iter()
            .for_each(|(fault, more)| count(&mut sums.faults, fault.name(), u64::from(*more)));
        report.felt.iter().for_each(|(fault, more)| count(&mut sums.felt, fault.name(), *more));
        if report.failure.is_some() {
            self.failures.insert(seed, report.to_string());
        }
    }

    fn fail(&mut self, seed: u64, failure: String) {
        self.sums.seeds = self.sums.seeds.saturating_add(1);
        self.failures.insert(seed, failure);
    }

    /// Returns the number of failures.
    pub(super) fn failures(&self) -> u64 {
        u64::try_from(self.failures.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn first_failure(&self) -> Option<(u64, &str)> {
        self.failures.first_key_value().map(|(seed, failure)| (*seed, failure.as_str()))
    }

    pub(super) fn summary(&self, entry: &'static Entry, n: Option<usize>, begun: Instant) -> SeedsSummary {
        // One run has its own hash; several runs have the hash of their hashes, in the order of seeds.
        let hash = match self.hashes.values().next() {
            Some(only) if self.hashes.len() == 1 => *only,
            _ => {
                let mut writer = DigestWriter::new(&Context::new("quorate simulation traces v1"));
                for hash in self.hashes.values() {
                    writer.update(&hash.0);
                }
                writer.finish()
            }
        };
        SeedsSummary {
            protocol: entry.spec.name.as_str(),
            n: n.unwrap_or_else(|| entry.smallest(1)),
            failures: self.failures(),
            virtual_seconds: Duration::from_nanos(self.virtual_ns).as_secs_f64(),
            seconds: begun.elapsed().as_secs_f64(),
            trace_hash: hash.to_string(),
            ..self.sums.clone()
        }
    }
}

fn count(counts: &mut BTreeMap<&'static str, u64>, name: &'static str, more: u64) {
    let sum = counts.entry(name).or_default();
    *sum = sum.saturating_add(more);
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
