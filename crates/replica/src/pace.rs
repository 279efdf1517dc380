//! How long what waits will take, at the rate at which it is executed. A queue in front of a replica that does what
//! it can makes nothing faster: it makes every client wait for its end, and looks like a leader that does nothing.
//! So a client that brings more than its share hears `Busy` when the queue is longer than [`QUEUE_NS_MAX`].

use quorate_types::Time;
use std::collections::VecDeque;

/// What waits may take this long (`pbft` §11: half of the time after which a leader is suspected, at its default).
const QUEUE_NS_MAX: u64 = 200_000_000;
/// The rate is that of this time at most.
const SPAN_NS: u64 = 1_000_000_000;
/// And of this time at least: before that nothing is known, and everybody is welcome.
const SPAN_NS_MIN: u64 = 100_000_000;
/// What is executed within this time is one entry.
const STEP_NS: u64 = 50_000_000;
/// What may always wait, however slow everything is.
const COST_MIN: usize = 64 << 10;

/// What was executed until when, since the entry before.
#[derive(Clone, Copy, Debug)]
struct Served {
    from: Time,
    until: Time,
    cost: usize,
}

/// The rate at which what has waited is executed.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    served: VecDeque<Served>,
    cost: usize,
    /// Until then the rate is known.
    until: Time,
}

impl Pace {
    /// Something waits, and nothing did before: what was executed earlier says little about what can be.
    pub(crate) fn begin(&mut self, now: Time) {
        self.served.clear();
        self.cost = 0;
        self.until = now;
    }

    /// Something that has waited was executed.
    pub(crate) fn serve(&mut self, now: Time, cost: usize) {
        self.cost = self.cost.saturating_add(cost);
        let (from, until) = (self.until, self.until.max(now));
        self.until = until;
        match self.served.back_mut() {
            Some(last) if until.since(last.from) < STEP_NS => {
                last.until = until;
                last.cost = last.cost.saturating_add(cost);
            }
            _ => self.served.push_back(Served { from, until, cost }),
        }
        while let Some(first) =
            self.served.front().copied().filter(|first| until.since(first.until) > SPAN_NS)
        {
            self.cost = self.cost.saturating_sub(first.cost);
            self.served.pop_front();
        }
    }

    /// What may wait, when the oldest of it has waited since `oldest`. It does not depend on how long nothing was
    /// executed: whoever waits for another leader is not to be sent away for that.
    pub(crate) fn limit(&self, now: Time, oldest: Time) -> usize {
        let span = self.served.front().map_or(0, |first| self.until.since(first.from));
        if span < SPAN_NS_MIN || now.since(oldest) < QUEUE_NS_MAX / 2 {
            return usize::MAX;
        }
        let cost = u64::try_from(self.cost).unwrap_or(u64::MAX).saturating_mul(QUEUE_NS_MAX);
        usize::try_from(cost.checked_div(span).unwrap_or(u64::MAX)).unwrap_or(usize::MAX).max(COST_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// 10 kB are executed each millisecond.
    fn steady(from: u64, until: u64) -> Pace {
        let mut pace = Pace::default();
        pace.begin(Time(from * MS));
        (from + 1..=until).for_each(|ms| pace.serve(Time(ms * MS), 10_000));
        pace
    }

    #[test]
    fn what_may_wait_is_what_takes_a_fifth_of_a_second() {
        for until in [100, 700, 5_000] {
            let limit = steady(0, until).limit(Time(until * MS), Time(0));
            assert!((1_900_000..=2_100_000).contains(&limit), "after {until} ms: {limit}");
        }
    }

    #[test]
    fn the_rate_is_the_present_one() {
        let mut pace = steady(0, 2_000);
        (2_001..=4_000).for_each(|ms| pace.serve(Time(ms * MS), 1_000));
        let limit = pace.limit(Time(4_000 * MS), Time(0));
        assert!((190_000..=210_000).contains(&limit), "{limit}");
    }

    #[test]
    fn nobody_is_refused_while_little_is_known_or_all_is_quick() {
        assert_eq!(steady(0, 99).limit(Time(300 * MS), Time(0)), usize::MAX, "the rate is not known");
        assert_eq!(
            steady(0, 900).limit(Time(900 * MS), Time(801 * MS)),
            usize::MAX,
            "nothing has waited long"
        );
        assert_eq!(Pace::default().limit(Time(900 * MS), Time(0)), usize::MAX, "nothing was ever executed");
    }

    #[test]
    fn a_pause_is_no_lower_rate() {
        let pace = steady(0, 1_000);
        assert_eq!(pace.limit(Time(1_400 * MS), Time(0)), pace.limit(Time(1_000 * MS), Time(0)));
    }

    #[test]
    fn a_slow_replica_takes_something() {
        let mut pace = Pace::default();
        pace.begin(Time(0));
        pace.serve(Time(3_000 * MS), 1_000);
        assert_eq!(pace.limit(Time(3_000 * MS), Time(0)), COST_MIN);
    }
}
