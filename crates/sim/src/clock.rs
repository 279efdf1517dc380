//! A replica's own clock. The clock begins at zero when the replica is opened, and may run faster or slower than the
//! world's.

use quorate_types::Time;

const MILLION: i128 = 1_000_000;

/// The clock of one replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// World time at the last change of rate.
    since: Time,
    /// Local time at the last change of rate.
    then: Time,
    /// Rate error, in millionths.
    ppm: i64,
}

impl Clock {
    pub(crate) fn new(now: Time, ppm: i64) -> Self {
        Self { since: now, then: Time::ZERO, ppm }
    }

    /// Changes the rate from now on.
    pub(crate) fn drift(&mut self, now: Time, ppm: i64) {
        *self = Self { since: now, then: self.local(now), ppm };
    }

    /// Returns the local time.
    pub(crate) fn local(&self, now: Time) -> Time {
        let passed = i128::from(now.since(self.since));
        self.then.plus(whole(passed.saturating_mul(self.rate()).checked_div(MILLION)))
    }

    /// Returns the first world time at which the local time is at least this.
    pub(crate) fn world(&self, local: Time) -> Time {
        let ahead = i128::from(local.since(self.then)).saturating_mul(MILLION);
        let round = self.rate().saturating_sub(1);
        self.since.plus(whole(ahead.saturating_add(round).checked_div(self.rate())))
    }

    fn rate(&self) -> i128 {
        MILLION.saturating_add(i128::from(self.ppm)).max(1)
    }
}

fn whole(number: Option<i128>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_met_without_a_nanosecond_of_delay() {
        for ppm in [0, 1, -1, 1_000, -1_000, 50_000, -50_000, 333_333] {
            let mut clock = Clock::new(Time(1_000), ppm);
            clock.drift(Time(2_345_678), ppm / 2);
            clock.drift(Time(3_345_678), ppm);
            for local in [clock.then.0, clock.then.0 + 1, 5_000_000, 7_777_777_777, 123_456_789_012] {
                let at = clock.world(Time(local));
                assert!(clock.local(at) >= Time(local), "{ppm} {local}");
                assert!(at == clock.since || clock.local(Time(at.0 - 1)) < Time(local), "{ppm} {local}");
            }
        }
    }

    #[test]
    fn correct_clock_shows_the_time_since_opening() {
        let clock = Clock::new(Time(500), 0);
        assert_eq!((clock.local(Time(1_700)), clock.world(Time(1_200))), (Time(1_200), Time(1_700)));
        let mut fast = Clock::new(Time(0), 1_000);
        fast.drift(Time(1_000_000), 0);
        assert_eq!(fast.local(Time(2_000_000)), Time(2_001_000), "what it has gained it keeps");
    }
}
