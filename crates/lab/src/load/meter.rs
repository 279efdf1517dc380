//! Counts and latencies of a run. A request counts by the time when it was *due*, not by the time of its answer: an answer
//! that comes after the measured time has the longest latency of all, and must not be missing.
//!
//! Only good answers count as answers. One that is an error of the store is an error, whenever it came.

use super::arrivals::Due;
use super::errors::{Errors, NOT_SENT};
use super::latencies::Latencies;
use quorate_types::Time;

/// A request is carried although its answer comes after the measured time, where it waited no longer than this: what
/// is on its way at the end of a run was not left lying.
pub(super) const GRACE_NS: u64 = 100_000_000;

/// Counts and latencies.
pub(super) struct Meter {
    /// Requests due from here on, and before the second, are in the figures.
    warm: Time,
    end: Time,
    pub(super) latencies: Latencies,
    /// Requests sent, warm-up included.
    pub(super) sent: u64,
    /// Requests with a good answer, warm-up included.
    pub(super) acknowledged: u64,
    /// Requests without one, warm-up included: sent or not.
    pub(super) errors: Errors,
    /// Those of them that were never sent.
    pub(super) unsent: u64,
    /// Requests due in the measured time.
    pub(super) due: u64,
    /// Those of them with a good answer, whenever it came.
    pub(super) answered: u64,
    /// Those of them with a good answer in the measured time, or within [`GRACE_NS`].
    pub(super) carried: u64,
    pub(super) repeats: u64,
    /// Sessions that were lost and opened again.
    pub(super) sessions_lost: u64,
    pub(super) longest_gap_ns: u64,
    /// The same, since somebody has taken it.
    pub(super) gap_ns: u64,
    /// Good answers that came in the measured time, whenever they were due: they make the rate.
    pub(super) in_time: u64,
    /// When the last good answer came; before the first, when the run began.
    pub(super) last_reply: Time,
}

impl Meter {
    /// Of a run that begins at `begin`, counts what is due from `warm` on and before `end`.
    pub(super) fn new(begin: Time, warm: Time, end: Time) -> Self {
        Self {
            warm,
            end,
            latencies: Latencies::new(),
            sent: 0,
            acknowledged: 0,
            errors: Errors::default(),
            unsent: 0,
            due: 0,
            answered: 0,
            carried: 0,
            repeats: 0,
            sessions_lost: 0,
            longest_gap_ns: 0,
            gap_ns: 0,
            in_time: 0,
            last_reply: begin,
        }
    }

    fn counts(&self, moment: Time) -> bool {
        moment >= self.warm && moment < self.end
    }

    /// A bundle was sent.
    pub(super) fn sent(&mut self, due: &Due) {
        for (due, requests) in due {
            self.sent = self.sent.saturating_add(u64::from(*requests));
            if self.counts(*due) {
                self.due = self.due.saturating_add(u64::from(*requests));
            }
        }
    }

    /// A bundle was answered; `errors` are its results in the order of its requests, as far as they are errors.
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
                    Some(kind) => self.errors.add(&kind, 1),
                }
            }
            if good > 0 {
                self.good(now, *due, good);
            }
        }
    }

    fn good(&mut self, now: Time, due: Time, count: u64) {
        self.silent_until(now);
        self.last_reply = now;
        self.acknowledged = self.acknowledged.saturating_add(count);
        if self.counts(now) {
            self.in_time = self.in_time.saturating_add(count);
        }
        if self.counts(due) {
            self.answered = self.answered.saturating_add(count);
            self.latencies.record(now.since(due), count);
            if now < self.end || now.since(due) <= GRACE_NS {
                self.carried = self.carried.saturating_add(count);
            }
        }
    }

    fn silent_until(&mut self, moment: Time) {
        let gap = moment.since(self.last_reply);
        self.longest_gap_ns = self.longest_gap_ns.max(gap);
        self.gap_ns = self.gap_ns.max(gap);
    }

    /// A bundle that was sent will have no answer.
    pub(super) fn failed(&mut self, due: &Due, kind: &str) {
        let requests: u64 = due.iter().map(|(_, requests)| u64::from(*requests)).sum();
        self.errors.add(kind, requests);
    }

    /// Adds requests that were never sent; `counted` of them were due in the measured time.
    pub(super) fn unsent(&mut self, all: u64, counted: u64) {
        self.errors.add(NOT_SENT, all);
        self.unsent = self.unsent.saturating_add(all);
        self.due = self.due.saturating_add(counted);
    }

    /// The run ends before the time that was planned.
    pub(super) fn close(&mut self, now: Time) {
        self.end = self.end.min(now);
    }

    /// Nothing more is waited for. A silence that has not ended counts: until now where requests still waited for their
    /// answers (`waits`), and until the end of the measured time otherwise.
    pub(super) fn finish(&mut self, now: Time, waits: bool) {
        self.silent_until(if waits { now } else { self.end });
    }

    /// The measured time, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        self.end.since(self.warm)
    }
}

#[cfg(test)]
mod tests;
