//! Counts and latencies of a run. A request counts by the time when it was *due*, not by the time of its answer. An answer
//! after the measured time has the longest latency of all, and must not be missing.
//!
//! Only good answers count as answers. An answer that is an error of the service is an error, whenever it came.

use super::arrivals::{Arrivals, Due};
use super::errors::NOT_SENT;
use super::latencies::Latencies;
use super::summary::Counts;
use super::timeline::{Timeline, TimelineEntry};
use quorate_types::Time;

/// The longest wait for an answer after the measured time with which a request still counts as carried: the answer was
/// on its way at the end of the run.
pub(super) const GRACE_NS: u64 = 100_000_000;

/// Counts and latencies.
pub(super) struct Meter {
    /// Requests that are due from here on, and before `end`, are in the figures.
    warm: Time,
    end: Time,
    pub(super) latencies: Latencies,
    pub(super) counts: Counts,
    pub(super) longest_gap_ns: u64,
    /// The longest gap since the last report of progress.
    pub(super) gap_ns: u64,
    /// Good answers that came in the measured time, whenever their requests were due: the goodput counts them.
    pub(super) in_time: u64,
    /// CPU nanoseconds of this process in the measured time.
    pub(super) generator_cpu_ns: u64,
    /// Time of the first of them.
    first_in_time: Option<Time>,
    /// Time of the last good answer, or of the beginning before the first.
    pub(super) last_reply: Time,
    /// The measured time in intervals, if the run reports them.
    timeline: Option<Timeline>,
}

impl Meter {
    /// Creates a meter of a run from `begin` on that counts requests due from `warm` on and before `end`.
    pub(super) fn new(begin: Time, warm: Time, end: Time) -> Self {
        Self {
            warm,
            end,
            latencies: Latencies::new(),
            counts: Counts::default(),
            longest_gap_ns: 0,
            gap_ns: 0,
            in_time: 0,
            generator_cpu_ns: 0,
            first_in_time: None,
            last_reply: begin,
            timeline: None,
        }
    }

    /// Lets the meter report intervals of this length.
    pub(super) fn with_timeline(mut self, interval_ns: u64) -> Self {
        self.timeline = Some(Timeline::new(self.warm, self.end, interval_ns));
        self
    }

    /// Returns the intervals of the measured time; `None` if the run reports none.
    pub(super) fn timeline(&self) -> Option<Vec<TimelineEntry>> {
        self.timeline.as_ref().map(|timeline| timeline.entries(self.end))
    }

    /// Notes requests without a good answer for the interval in which they were due.
    fn missed(&mut self, due: Time, count: u64) {
        if let Some(timeline) = &mut self.timeline {
            timeline.failed(due, count);
        }
    }

    fn is_measured(&self, moment: Time) -> bool {
        moment >= self.warm && moment < self.end
    }

    /// Counts the requests of a bundle that was sent.
    pub(super) fn sent(&mut self, due: &Due) {
        for (due, requests) in due {
            self.counts.sent = self.counts.sent.saturating_add(u64::from(*requests));
            if self.is_measured(*due) {
                self.counts.due = self.counts.due.saturating_add(u64::from(*requests));
            }
        }
    }

    /// Counts the answers to a bundle. `errors` has an item for each request, in order: the kind of the error, if the
    /// answer is one.
    pub(super) fn answered(
        &mut self,
        now: Time,
        due: &Due,
        mut errors: impl Iterator<Item = Option<String>>,
    ) {
        for (due, requests) in due {
            let mut good = 0u64;
            for _ in 0..*requests {
                match errors.next().flatten() {
                    None => good = good.saturating_add(1),
                    Some(kind) => {
                        self.counts.add_errors(&kind, 1);
                        self.missed(*due, 1);
                    }
                }
            }
            if good > 0 {
                self.good(now, *due, good);
            }
        }
    }

    fn good(&mut self, now: Time, due: Time, count: u64) {
        self.end_gap(now);
        self.last_reply = now;
        self.counts.acknowledged = self.counts.acknowledged.saturating_add(count);
        if self.is_measured(now) {
            self.in_time = self.in_time.saturating_add(count);
            self.first_in_time.get_or_insert(now);
        }
        if self.is_measured(due) {
            self.counts.answered = self.counts.answered.saturating_add(count);
            let ns = now.since(due);
            self.latencies.record(ns, count);
            if let Some(timeline) = &mut self.timeline {
                timeline.answered(due, ns, self.latencies.representative(ns), count);
            }
            if now < self.end || now.since(due) <= GRACE_NS {
                self.counts.carried = self.counts.carried.saturating_add(count);
            }
        }
    }

    fn end_gap(&mut self, moment: Time) {
        let gap = moment.since(self.last_reply);
        self.longest_gap_ns = self.longest_gap_ns.max(gap);
        self.gap_ns = self.gap_ns.max(gap);
    }

    /// Counts the requests of a sent bundle that gets no answer.
    pub(super) fn failed(&mut self, due: &Due, kind: &str) {
        let requests: u64 = due.iter().map(|(_, requests)| u64::from(*requests)).sum();
        self.counts.add_errors(kind, requests);
        for (due, requests) in due {
            self.missed(*due, u64::from(*requests));
        }
    }

    /// Adds the requests that were never sent.
    pub(super) fn unsent(&mut self, arrivals: &Arrivals) {
        let (all, counted) = arrivals.left(self.warm);
        self.counts.add_errors(NOT_SENT, all);
        self.counts.unsent = self.counts.unsent.saturating_add(all);
        self.counts.due = self.counts.due.saturating_add(counted);
        if self.timeline.is_some() {
            arrivals.remaining().for_each(|(due, requests)| self.missed(due, u64::from(requests)));
        }
    }

    /// Ends the measured time before its planned end.
    pub(super) fn close(&mut self, now: Time) {
        self.end = self.end.min(now);
    }

    /// Ends the run. The gap since the last answer counts until now if requests still wait (`waits`), and until the end of
    /// the measured time otherwise.
    pub(super) fn finish(&mut self, now: Time, waits: bool) {
        self.end_gap(if waits { now } else { self.end });
    }

    /// The time from the first good answer in the measured time to its end, in nanoseconds; 0 without such an answer.
    pub(super) fn span_from_first_reply_ns(&self) -> u64 {
        self.first_in_time.map_or(0, |first| self.end.since(first))
    }

    /// The measured time, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        self.end.since(self.warm)
    }
}

#[cfg(test)]
mod tests;
