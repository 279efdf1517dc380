//! The course of a run: latencies and errors by the interval in which requests were due.

use super::latencies::Latencies;
use super::numbers::float;
use quorate_types::Time;
use serde::Serialize;
use std::collections::BTreeMap;

/// The largest number of intervals of a run.
pub const INTERVALS_MAX: u64 = 10_000;

/// The requests that were due in one interval of the measured time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TimelineEntry {
    /// The beginning of the interval, in milliseconds after the beginning of the measured time.
    pub at_ms: f64,
    /// Requests with a good answer, whenever it came. The latencies are theirs.
    pub answered: u64,
    /// Requests without a good answer.
    pub errors: u64,
    /// Exact mean of the latencies, in nanoseconds.
    pub mean_ns: f64,
    /// Median of the latencies, in nanoseconds.
    pub p50_ns: u64,
    /// 99 % of the latencies, in nanoseconds.
    pub p99_ns: u64,
    /// Exact maximum of the latencies, in nanoseconds.
    pub max_ns: u64,
    /// The latencies as a histogram, in the form of [`super::Timing::latency_histogram`]. The sum over all intervals is that
    /// histogram.
    pub histogram: String,
}

/// Intervals of equal length from the beginning of the measured time on.
pub(super) struct Timeline {
    begin: Time,
    interval_ns: u64,
    intervals: Vec<Interval>,
}

/// The collected figures of one interval.
#[derive(Clone, Default)]
struct Interval {
    /// Numbers of latencies, by the representatives that the histogram gives. A histogram for each interval would need
    /// gigabytes.
    counts: BTreeMap<u64, u64>,
    sum: f64,
    max: u64,
    errors: u64,
}

impl Timeline {
    /// Creates the intervals from `begin` to `end`, at most [`INTERVALS_MAX`]. The last one may be shorter.
    pub(super) fn new(begin: Time, end: Time, interval_ns: u64) -> Self {
        let interval_ns = interval_ns.max(1);
        let count = end.since(begin).div_ceil(interval_ns).min(INTERVALS_MAX);
        let intervals = vec![Interval::default(); usize::try_from(count).unwrap_or(0)];
        Self { begin, interval_ns, intervals }
    }

    fn at(&mut self, due: Time) -> Option<&mut Interval> {
        if due < self.begin {
            return None;
        }
        let index = due.since(self.begin).checked_div(self.interval_ns)?;
        self.intervals.get_mut(usize::try_from(index).ok()?)
    }

    /// Counts good answers after `ns` nanoseconds. `representative` stands for `ns` in the histogram.
    pub(super) fn answered(&mut self, due: Time, ns: u64, representative: u64, count: u64) {
        let Some(interval) = self.at(due) else { return };
        let sum = interval.counts.entry(representative).or_default();
        *sum = sum.saturating_add(count);
        interval.sum += float(ns) * float(count);
        interval.max = interval.max.max(ns);
    }

    /// Counts requests without a good answer.
    pub(super) fn failed(&mut self, due: Time, count: u64) {
        if let Some(interval) = self.at(due) {
            interval.errors = interval.errors.saturating_add(count);
        }
    }

    /// Returns the intervals that begin before `end`.
    pub(super) fn entries(&self, end: Time) -> Vec<TimelineEntry> {
        let begins = (0u64..).map(|index| index.saturating_mul(self.interval_ns));
        let span = end.since(self.begin);
        let taken = begins.zip(&self.intervals).take_while(|(begin, _)| *begin < span);
        taken.map(|(begin, interval)| interval.entry(float(begin) / 1e6)).collect()
    }
}

impl Interval {
    fn entry(&self, at_ms: f64) -> TimelineEntry {
        let latencies = Latencies::of_counts(&self.counts, self.sum, self.max);
        TimelineEntry {
            at_ms,
            answered: latencies.len(),
            errors: self.errors,
            mean_ns: latencies.mean(),
            p50_ns: latencies.percentile(500),
            p99_ns: latencies.percentile(990),
            max_ns: self.max,
            histogram: latencies.encoded(),
        }
    }
}
