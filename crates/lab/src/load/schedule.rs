//! The due times of an open loop. They follow from rate, gaps and seed alone, never from an answer.

use super::numbers::{float, nanos};
use super::options::Spacing;
use quorate_types::Time;
use quorate_types::rng::Rng;
use std::time::Duration;

/// 2^-53: the distance between neighbours among the random numbers.
const STEP: f64 = 1.0 / 9_007_199_254_740_992.0;

/// An endless source of due times, in order.
#[derive(Clone)]
pub(super) struct Schedule {
    begin: Time,
    /// Requests in a second.
    rate: f64,
    gaps: Gaps,
}

#[derive(Clone)]
enum Gaps {
    /// Equal gaps; `index` is the number of the next request.
    Equal { index: u64 },
    /// Drawn gaps; the next request is due `offset_ns` nanoseconds after the beginning.
    Drawn { rng: Rng, offset_ns: f64 },
}

impl Schedule {
    /// Returns the due times from `begin` on. With equal gaps the first is `begin`, and with drawn ones a gap later.
    pub(super) fn new(begin: Time, rate: f64, spacing: Spacing, seed: u64) -> Self {
        let gaps = match spacing {
            Spacing::Constant => Gaps::Equal { index: 0 },
            Spacing::Poisson => {
                // The operations draw from the seed itself.
                let mut rng = Rng::new(seed).fork();
                let offset_ns = exponential_ns(&mut rng, rate);
                Gaps::Drawn { rng, offset_ns }
            }
        };
        Self { begin, rate, gaps }
    }

    /// Returns the next due time.
    pub(super) fn peek(&self) -> Time {
        match &self.gaps {
            Gaps::Equal { index } => self.equal_at(*index),
            Gaps::Drawn { offset_ns, .. } => self.begin.plus(whole(*offset_ns)),
        }
    }

    /// Goes on to the due time after the next one.
    pub(super) fn advance(&mut self) {
        match &mut self.gaps {
            Gaps::Equal { index } => *index = index.saturating_add(1),
            Gaps::Drawn { rng, offset_ns } => *offset_ns += exponential_ns(rng, self.rate),
        }
    }

    /// Returns the number of requests from the next one on that are due before `moment`, at most `most`.
    pub(super) fn count_before(&self, moment: Time, most: u64) -> u64 {
        match &self.gaps {
            Gaps::Equal { index } => self.equal_before(moment).saturating_sub(*index).min(most),
            Gaps::Drawn { .. } => {
                let mut ahead = self.clone();
                let mut count = 0u64;
                while count < most && ahead.peek() < moment {
                    ahead.advance();
                    count = count.saturating_add(1);
                }
                count
            }
        }
    }

    fn equal_at(&self, index: u64) -> Time {
        let offset = float(index) / self.rate;
        self.begin.plus(Duration::try_from_secs_f64(offset).map_or(u64::MAX, nanos))
    }

    /// Returns the number of requests with equal gaps that are due before `moment`.
    fn equal_before(&self, moment: Time) -> u64 {
        let mut count = whole(Duration::from_nanos(moment.since(self.begin)).as_secs_f64() * self.rate);
        // The estimate may be rounded; the due times decide.
        while count > 0 && self.equal_at(count.saturating_sub(1)) >= moment {
            count = count.saturating_sub(1);
        }
        while self.equal_at(count) < moment {
            count = count.saturating_add(1);
        }
        count
    }
}

/// Draws a gap in nanoseconds whose mean is that of `rate` requests in a second.
fn exponential_ns(rng: &mut Rng, rate: f64) -> f64 {
    // The number lies above 0 and is at most 1, so its logarithm is finite.
    let uniform = (float(rng.next_u64() >> 11) + 1.0) * STEP;
    -uniform.ln() * 1e9 / rate
}

#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative; the conversion saturates"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(seed: u64, rate: f64, count: usize) -> Vec<Time> {
        let mut schedule = Schedule::new(Time(7), rate, Spacing::Poisson, seed);
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(schedule.peek());
            schedule.advance();
        }
        times
    }

    #[test]
    fn seed_decides_the_due_times() {
        assert_eq!(times(3, 1_000.0, 1_000), times(3, 1_000.0, 1_000));
        assert_ne!(times(3, 1_000.0, 10), times(4, 1_000.0, 10));
    }

    /// The gaps have the mean of the rate, and the share of gaps above a multiple of the mean is that of the exponential
    /// distribution.
    #[test]
    fn gaps_are_exponential_with_the_mean_of_the_rate() {
        for rate in [0.5, 1_000.0, 3e6] {
            let count = 200_000;
            let times = times(1, rate, count);
            let mean = 1e9 / rate;
            let last = times.last().unwrap().since(Time(7)) as f64;
            assert!((last / count as f64 / mean - 1.0).abs() < 0.01, "{rate}: {last}");
            let gaps: Vec<f64> = times.windows(2).map(|two| two[1].since(two[0]) as f64).collect();
            for multiple in [0.1, 1.0, 3.0] {
                let longer = gaps.iter().filter(|gap| **gap > multiple * mean).count();
                let share = longer as f64 / gaps.len() as f64;
                assert!((share - (-multiple).exp()).abs() < 0.01, "{rate}, {multiple}: {share}");
            }
        }
    }

    #[test]
    fn due_times_are_counted() {
        for spacing in Spacing::ALL {
            let mut schedule = Schedule::new(Time(5), 1e6, spacing, 9);
            let end = Time(5_000_005);
            let all = schedule.count_before(end, u64::MAX);
            assert_eq!(schedule.count_before(end, 100), 100, "{spacing:?}");
            assert_eq!(schedule.count_before(Time(5), u64::MAX), 0);
            let mut count = 0;
            while schedule.peek() < end {
                assert_eq!(schedule.count_before(end, u64::MAX), all - count);
                schedule.advance();
                count += 1;
            }
            assert_eq!(count, all, "{spacing:?}");
            assert!((4_500..=5_500).contains(&all), "{spacing:?}: {all}");
        }
    }
}
