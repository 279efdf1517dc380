//! Many runs side by side, each named by a seed: how far it is, and what all of them came to.

use super::workers::{WorkProgress, share};
use quorate_consensus::Entry;
use quorate_sim::Report;
use quorate_types::{Digest, DigestWriter};
use serde::Serialize;
use std::any::Any;
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
pub(super) struct SeedsSummary {
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

/// `2 mute, 1 twin`.
pub(super) fn counted(counts: &BTreeMap<&'static str, u64>) -> String {
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

/// The report of a run, or the reason why it cannot be.
pub(super) type Run = Result<Report, String>;

/// Options of many runs.
pub(super) struct RunOptions<'a> {
    /// Number of earlier failures.
    pub(super) failed_before: u64,
    /// A failure does not end it.
    pub(super) keep_going: bool,
    /// The command that repeats one of them.
    pub(super) again: &'a (dyn Fn(u64) -> String + Sync),
}

/// Many runs, on all cores.
pub(super) fn many(
    how: &RunOptions<'_>,
    progress: &mut WorkProgress,
    seeds: Range<u64>,
    run: impl Fn(u64) -> Run + Sync,
) -> Total {
    let Range { start, end } = seeds;
    let stop = AtomicBool::new(false);
    let mut total = Total::default();
    // A world that cannot even be made is a failure like any other.
    let run = |place: u64| {
        let ran = catch_unwind(AssertUnwindSafe(|| run(start.saturating_add(place))));
        ran.unwrap_or_else(|what| Err(format!("panics: {}", words(what.as_ref()))))
    };
    share(end.saturating_sub(start), &stop, run, |place, report| {
        let seed = start.saturating_add(place);
        match report {
            Ok(report) => total.add(seed, &report),
            Err(why) => total.fail(seed, format!("seed {seed}: {why}")),
        }
        if let Some(what) = total.failures.get(&seed) {
            if total.failures.len() <= SHOWN_MAX {
                progress.say(&format!("{what}\n    again: {}", (how.again)(seed)));
            }
            stop.store(!how.keep_going, Ordering::Relaxed);
        }
        progress.step(1, how.failed_before.saturating_add(total.failures()));
    });
    total
}

/// The text of a panic.
fn words(what: &(dyn Any + Send)) -> &str {
    let text = what.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| what.downcast_ref::<&str>().copied()).unwrap_or("something")
}

/// The results of all runs, whatever the order in which they ended.
#[derive(Default)]
pub(super) struct Total {
    seeds: u64,
    requests: u64,
    virtual_ns: u64,
    hashes: BTreeMap<u64, Digest>,
    failures: BTreeMap<u64, String>,
    lied_to: u64,
    byzantine: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
    felt: BTreeMap<&'static str, u64>,
    modes: BTreeMap<&'static str, u64>,
}

impl Total {
    pub(super) fn add(&mut self, seed: u64, report: &Report) {
        self.seeds = self.seeds.saturating_add(1);
        self.requests = self.requests.saturating_add(report.requests);
        self.virtual_ns = self.virtual_ns.saturating_add(report.virtual_ns);
        self.hashes.insert(seed, report.trace_hash);
        if let Some(bound) = report.bound {
            let count = self.modes.entry(bound.mode()).or_default();
            *count = count.saturating_add(1);
        }
        self.lied_to = self.lied_to.saturating_add(u64::from(!report.byzantine.is_empty()));
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

    /// Number of failures.
    pub(super) fn failures(&self) -> u64 {
        u64::try_from(self.failures.len()).unwrap_or(u64::MAX)
    }

    pub(super) fn first_failure(&self) -> Option<(u64, &str)> {
        self.failures.first_key_value().map(|(seed, what)| (*seed, what.as_str()))
    }

    pub(super) fn summary(&self, entry: &'static Entry, n: Option<usize>, begun: Instant) -> SeedsSummary {
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
        SeedsSummary {
            protocol: entry.spec.name.as_str(),
            n: n.unwrap_or_else(|| quorate_sim::smallest(entry, 1)),
            seeds: self.seeds,
            failures: self.failures(),
            virtual_seconds: Duration::from_nanos(self.virtual_ns).as_secs_f64(),
            requests: self.requests,
            seconds: begun.elapsed().as_secs_f64(),
            trace_hash: hash.to_string(),
            byzantine: self.byzantine.clone(),
            lied_to: self.lied_to,
            faults: self.faults.clone(),
            felt: self.felt.clone(),
            modes: self.modes.clone(),
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
