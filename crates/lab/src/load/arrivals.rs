//! The requests of a run, and the times at which they are due.

use super::numbers::nanos;
use super::options::{LoadOptions, Pace, Spacing};
use super::schedule::Schedule;
use quorate_types::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Requests that are due together or one after the other: the due time of each group, and its size.
pub(super) type Due = Vec<(Time, u32)>;

/// The largest number of drawn due times that a check before the run inspects.
const INSPECTED_MAX: u64 = 10_000_000;

impl LoadOptions {
    /// Whether a request is due in the measured time. A closed loop makes its requests in time. If more than ten million
    /// drawn due times lie before the measured time, the answer is that of the mean.
    #[must_use]
    pub fn is_any_due(&self) -> bool {
        let Pace::Open { rate, spacing } = self.pace else { return true };
        let warm = Time(nanos(self.warmup));
        let end = warm.plus(nanos(self.seconds));
        let schedule = Schedule::new(Time::ZERO, rate, spacing, self.seed);
        let most = self.most();
        let before = schedule.count_before(warm, most.min(INSPECTED_MAX));
        if before == INSPECTED_MAX && before < most {
            return rate * self.seconds.as_secs_f64() >= 1.0;
        }
        before < most && schedule.count_before(end, before.saturating_add(1)) > before
    }

    /// Returns the largest number of requests of the whole run.
    pub(super) fn most(&self) -> u64 {
        if self.presign > 0 { u64::try_from(self.presign).unwrap_or(u64::MAX) } else { u64::MAX }
    }
}

/// The requests of a run, each due at a moment that in the open loop follows from the schedule alone.
pub(super) struct Arrivals {
    /// Requests in flight of a closed loop; `None` for an open one.
    closed: Option<usize>,
    end: Time,
    schedule: Schedule,
    /// Due times of an open loop that were drawn and not handed out: one at least, if requests remain.
    ahead: VecDeque<Time>,
    /// Requests of an open loop that may still be drawn, if they are due before the end.
    undrawn: u64,
    /// Requests that were handed out and put back; they are handed out first.
    back: Option<Due>,
}

impl Arrivals {
    /// Creates the requests of `options` that are due from `begin` on and before `end`.
    pub(super) fn new(options: &LoadOptions, begin: Time, end: Time) -> Self {
        let seed = options.seed;
        let (closed, schedule, undrawn) = match options.pace {
            Pace::Open { rate, spacing } => (None, Schedule::new(begin, rate, spacing, seed), options.most()),
            Pace::Closed { in_flight } => {
                (Some(in_flight.max(1)), Schedule::new(begin, 1.0, Spacing::Constant, seed), 0)
            }
        };
        let mut arrivals = Self { closed, end, schedule, ahead: VecDeque::new(), undrawn, back: None };
        arrivals.draw(1);
        arrivals
    }

    /// Draws due times until `wanted` are ahead, or none remains.
    fn draw(&mut self, wanted: usize) {
        while self.ahead.len() < wanted && self.undrawn > 0 {
            let at = self.schedule.peek();
            if at >= self.end {
                self.undrawn = 0;
                return;
            }
            self.schedule.advance();
            self.undrawn = self.undrawn.saturating_sub(1);
            self.ahead.push_back(at);
        }
    }

    /// Returns the next bundle if one is due. The last bundle of an open loop may be smaller.
    pub(super) fn next(&mut self, now: Time, bundle: u32, in_flight: usize) -> Option<Due> {
        let size = usize::try_from(bundle).unwrap_or(1);
        if let Some(most) = self.closed {
            let has_room = in_flight == 0 || in_flight.saturating_add(size) <= most;
            return (has_room && now < self.end).then(|| vec![(now, bundle)]);
        }
        if let Some(back) = self.back.take() {
            return Some(back);
        }
        self.draw(size);
        let size = size.min(self.ahead.len());
        if *self.ahead.get(size.checked_sub(1)?)? > now {
            return None;
        }
        let due = self.ahead.drain(..size).map(|at| (at, 1)).collect();
        self.draw(1);
        Some(due)
    }

    /// Takes back requests for which there was no room. They stay due since the same time.
    pub(super) fn put_back(&mut self, due: Due) {
        if self.closed.is_none() {
            self.back = Some(due);
        }
    }

    /// Ends the run now: no further request becomes due.
    pub(super) fn close(&mut self, now: Time) {
        self.end = self.end.min(now);
        self.ahead.clear();
        self.undrawn = 0;
    }

    /// Whether requests remain that have not been handed out.
    pub(super) fn has_remaining(&self) -> bool {
        self.back.is_some() || !self.ahead.is_empty()
    }

    /// Returns the number of remaining requests of an open loop, and the number of those due from `warm` on.
    pub(super) fn left(&self, warm: Time) -> (u64, u64) {
        let undrawn = self.schedule.count_before(self.end, self.undrawn);
        let undrawn_early = self.schedule.count_before(warm, undrawn);
        let (mut all, mut counted) = (undrawn, undrawn.saturating_sub(undrawn_early));
        let back = self.back.iter().flatten().copied();
        for (due, requests) in back.chain(self.ahead.iter().map(|at| (*at, 1))) {
            all = all.saturating_add(u64::from(requests));
            counted = counted.saturating_add(if due >= warm { u64::from(requests) } else { 0 });
        }
        (all, counted)
    }

    /// Returns the remaining requests of an open loop: their due times, and the number of requests that are due then.
    pub(super) fn remaining(&self) -> impl Iterator<Item = (Time, u32)> {
        let mut schedule = self.schedule.clone();
        let mut undrawn = self.schedule.count_before(self.end, self.undrawn);
        let later = std::iter::from_fn(move || {
            undrawn = undrawn.checked_sub(1)?;
            let at = schedule.peek();
            schedule.advance();
            Some((at, 1))
        });
        self.back.iter().flatten().copied().chain(self.ahead.iter().map(|at| (*at, 1))).chain(later)
    }

    /// Returns the time until the next request is due. An answer may make room earlier.
    pub(super) fn wait(&self, now: Time) -> Duration {
        match self.ahead.front() {
            Some(at) if self.back.is_none() => Duration::from_nanos(at.since(now)),
            _ => Duration::from_millis(20),
        }
    }
}
