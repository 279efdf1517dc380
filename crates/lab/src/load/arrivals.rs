//! The times at which requests are due.

use super::numbers::{float, nanos};
use super::options::{LoadOptions, Pace};
use quorate_types::Time;
use std::time::Duration;

/// Requests that are due together or one after the other: the due time of each group, and its size.
pub(super) type Due = Vec<(Time, u32)>;

impl LoadOptions {
    /// Returns the number of requests that an open loop has due in the measured time; `None` for a closed loop.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        if matches!(self.pace, Pace::Closed { .. }) {
            return None;
        }
        let warm = Time(nanos(self.warmup));
        let end = warm.plus(nanos(self.seconds));
        Some(Arrivals::new(self.pace, Time::ZERO, end, self.most()).left(warm).1)
    }

    /// Returns the largest number of requests of the whole run.
    pub(super) fn most(&self) -> u64 {
        if self.presign > 0 { u64::try_from(self.presign).unwrap_or(u64::MAX) } else { u64::MAX }
    }
}

/// The requests of a run, each due at a moment that in the open loop follows from the rate alone.
pub(super) struct Arrivals {
    pace: Pace,
    begin: Time,
    end: Time,
    /// Requests handed out so far.
    count: u64,
    /// Requests of the whole run of an open loop.
    total: u64,
    /// Requests that were handed out and put back; they are handed out first.
    back: Option<Due>,
}

impl Arrivals {
    /// Creates the requests that are due from `begin` on and before `end`, at most `most` of them.
    pub(super) fn new(pace: Pace, begin: Time, end: Time, most: u64) -> Self {
        let mut arrivals = Self { pace, begin, end, count: 0, total: 0, back: None };
        arrivals.total = arrivals.due_before(end).min(most);
        arrivals
    }

    fn at(&self, index: u64) -> Time {
        match self.pace {
            Pace::Closed { .. } => self.begin,
            Pace::Open { rate } => {
                let offset = float(index) / rate;
                self.begin.plus(Duration::try_from_secs_f64(offset).map_or(u64::MAX, nanos))
            }
        }
    }

    /// Returns the number of requests of an open loop that are due before this moment.
    fn due_before(&self, moment: Time) -> u64 {
        let Pace::Open { rate } = self.pace else { return 0 };
        let mut count = whole(Duration::from_nanos(moment.since(self.begin)).as_secs_f64() * rate);
        // The estimate may be rounded; the due times decide.
        while count > 0 && self.at(count.saturating_sub(1)) >= moment {
            count = count.saturating_sub(1);
        }
        while self.at(count) < moment {
            count = count.saturating_add(1);
        }
        count
    }

    /// Returns the next bundle if one is due. The last bundle of an open loop may be smaller.
    pub(super) fn next(&mut self, now: Time, bundle: u32, in_flight: usize) -> Option<Due> {
        match self.pace {
            Pace::Closed { in_flight: most } => {
                let room = in_flight.saturating_add(usize::try_from(bundle).unwrap_or(1)) <= most.max(1);
                ((room || in_flight == 0) && now < self.end).then(|| vec![(now, bundle)])
            }
            Pace::Open { .. } => {
                if let Some(back) = self.back.take() {
                    return Some(back);
                }
                let last = self.count.saturating_add(u64::from(bundle)).min(self.total);
                if last == self.count || self.at(last.saturating_sub(1)) > now {
                    return None;
                }
                let due = (self.count..last).map(|index| (self.at(index), 1)).collect();
                self.count = last;
                Some(due)
            }
        }
    }

    /// Takes back requests for which there was no room. They stay due since the same time.
    pub(super) fn put_back(&mut self, due: Due) {
        if matches!(self.pace, Pace::Open { .. }) {
            self.back = Some(due);
        }
    }

    /// Ends the run now: no further request becomes due.
    pub(super) fn close(&mut self, now: Time) {
        self.end = self.end.min(now);
        self.total = self.total.min(self.count);
    }

    /// Whether requests remain that have not been handed out.
    pub(super) fn has_remaining(&self) -> bool {
        self.back.is_some() || self.count < self.total
    }

    /// Returns the number of remaining requests of an open loop, and the number of those due from `warm` on.
    pub(super) fn left(&self, warm: Time) -> (u64, u64) {
        let back = self.back.iter().flatten();
        let (mut all, mut counted) = (0u64, 0u64);
        for (due, requests) in back {
            all = all.saturating_add(u64::from(*requests));
            counted = counted.saturating_add(if *due >= warm { u64::from(*requests) } else { 0 });
        }
        let first = self.count.max(self.due_before(warm));
        (
            all.saturating_add(self.total.saturating_sub(self.count)),
            counted.saturating_add(self.total.saturating_sub(first)),
        )
    }

    /// Returns the time until the next request is due. An answer may make room earlier.
    pub(super) fn wait(&self, now: Time) -> Duration {
        match self.pace {
            Pace::Open { .. } if self.back.is_none() && self.count < self.total => {
                Duration::from_nanos(self.at(self.count).since(now))
            }
            Pace::Open { .. } | Pace::Closed { .. } => Duration::from_millis(20),
        }
    }
}

#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate that is corrected; the conversion saturates"
)]
fn whole(count: f64) -> u64 {
    count as u64
}
