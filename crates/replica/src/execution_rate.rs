//! The rate of execution, and the time that pending bundles will take at that rate.
//!
//! A queue in front of a busy replica makes nothing faster: every client waits for its end, and the leader looks idle.
//! So a client that brings more than its share receives `Busy` when the queue is too long. The limit is half of the
//! time after which a replica would suspect the leader (`pbft` §11).

use quorate_types::Time;
use std::collections::VecDeque;

/// The time that pending bundles may take where the protocol has no request timeout.
const QUEUE_NS_MAX: u64 = 200_000_000;
/// The longest time of execution from which the rate is computed.
const SPAN_NS: u64 = 1_000_000_000;
/// The shortest such time: before it the rate is unknown, and no client receives `Busy`.
const SPAN_NS_MIN: u64 = 100_000_000;
/// The time of execution that one entry covers.
const STEP_NS: u64 = 50_000_000;
/// The maximum that a pause counts for. A longer pause says that the leader stood still, for example, and not how fast
/// execution is.
const PAUSE_NS: u64 = 100_000_000;
/// The cost that may always wait, however slow execution is.
const COST_MIN: usize = 64 << 10;

/// Executed bundles in some time.
#[derive(Clone, Copy, Debug)]
struct Served {
    span_ns: u64,
    cost: usize,
}

/// The rate at which pending bundles are executed.
#[derive(Debug, Default)]
pub(crate) struct ExecutionRate {
    /// The request timeout before the leader is suspected; 0 means never.
    pub(crate) patience_ns: u64,
    /// Whether this replica leads. Another replica lets in half as much, because its bundles go to the leader, which
    /// cannot refuse them. Otherwise all replicas together would let in more than the leader can execute in time.
    pub(crate) leads: bool,
    served: VecDeque<Served>,
    /// The sum of times in `served`.
    span_ns: u64,
    cost: usize,
    /// The time up to which execution was measured.
    until: Time,
}

impl ExecutionRate {
    fn queue_ns_max(&self) -> u64 {
        match (self.patience_ns, self.leads) {
            (0, _) => QUEUE_NS_MAX,
            (patience_ns, true) => patience_ns / 2,
            (patience_ns, false) => patience_ns / 4,
        }
    }

    /// Begins a new measurement: a first bundle waits after a time without any. Earlier execution says little about
    /// the present rate.
    pub(crate) fn begin(&mut self, now: Time) {
        self.served.clear();
        (self.span_ns, self.cost) = (0, 0);
        self.until = now;
    }

    /// Notes the execution of pending bundles.
    pub(crate) fn serve(&mut self, now: Time, cost: usize) {
        let span_ns = now.since(self.until).min(PAUSE_NS);
        self.until = self.until.max(now);
        self.span_ns = self.span_ns.saturating_add(span_ns);
        self.cost = self.cost.saturating_add(cost);
        match self.served.back_mut() {
            Some(last) if last.span_ns.saturating_add(span_ns) < STEP_NS => {
                last.span_ns = last.span_ns.saturating_add(span_ns);
                last.cost = last.cost.saturating_add(cost);
            }
            _ => self.served.push_back(Served { span_ns, cost }),
        }
        while let Some(first) = self.served.front()
            && self.span_ns.saturating_sub(first.span_ns) > SPAN_NS
        {
            self.span_ns = self.span_ns.saturating_sub(first.span_ns);
            self.cost = self.cost.saturating_sub(first.cost);
            self.served.pop_front();
        }
    }

    /// Returns the time that pending bundles of this cost take; 0 while the rate is unknown.
    pub(crate) fn duration_ns(&self, cost: usize) -> u64 {
        if self.span_ns < SPAN_NS_MIN {
            return 0;
        }
        let [cost, served] =
            [cost, self.cost].map(|cost| u128::from(u64::try_from(cost).unwrap_or(u64::MAX)));
        let time = u128::from(self.span_ns).saturating_mul(cost).checked_div(served);
        time.map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Returns the cost that may wait, when the oldest pending bundle waits since `oldest`. A pause of execution does
    /// not lower it: a client that waits for another leader is not refused for that.
    pub(crate) fn limit(&self, now: Time, oldest: Time) -> usize {
        if self.span_ns < SPAN_NS_MIN || now.since(oldest) < self.queue_ns_max() / 2 {
            return usize::MAX;
        }
        let cost = u64::try_from(self.cost).unwrap_or(u64::MAX).saturating_mul(self.queue_ns_max());
        let limit = cost.checked_div(self.span_ns).unwrap_or(u64::MAX);
        usize::try_from(limit).unwrap_or(usize::MAX).max(COST_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Executes 10 kB in each millisecond.
    fn steady(from: u64, until: u64) -> ExecutionRate {
        let mut rate = ExecutionRate::default();
        rate.begin(Time(from * MS));
        (from + 1..=until).for_each(|ms| rate.serve(Time(ms * MS), 10_000));
        rate
    }

    #[test]
    fn limit_is_the_cost_of_a_fifth_of_a_second() {
        for until in [100, 700, 5_000] {
            let limit = steady(0, until).limit(Time(until * MS), Time(0));
            assert!((1_900_000..=2_100_000).contains(&limit), "after {until} ms: {limit}");
        }
    }

    #[test]
    fn limit_follows_the_present_rate() {
        let mut rate = steady(0, 2_000);
        (2_001..=4_000).for_each(|ms| rate.serve(Time(ms * MS), 1_000));
        let limit = rate.limit(Time(4_000 * MS), Time(0));
        assert!((190_000..=210_000).contains(&limit), "{limit}");
    }

    #[test]
    fn limit_is_unbounded_while_the_rate_is_unknown_or_the_queue_is_short() {
        assert_eq!(steady(0, 99).limit(Time(300 * MS), Time(0)), usize::MAX, "the rate is unknown");
        assert_eq!(
            steady(0, 900).limit(Time(900 * MS), Time(801 * MS)),
            usize::MAX,
            "no bundle has waited long"
        );
        assert_eq!(
            ExecutionRate::default().limit(Time(900 * MS), Time(0)),
            usize::MAX,
            "no bundle was ever executed"
        );
    }

    #[test]
    fn pause_does_not_lower_the_limit() {
        for pause in [300, 500, 1_500, 5_000, 60_000] {
            let mut rate = steady(0, 1_000);
            let before = rate.limit(Time(1_000 * MS), Time(0));
            assert_eq!(rate.limit(Time((1_000 + pause) * MS), Time(0)), before);
            for ms in 1_000 + pause..2_000 + pause {
                rate.serve(Time(ms * MS), 10_000);
                let limit = rate.limit(Time(ms * MS), Time(0));
                assert!(limit > before / 10 * 8, "{limit} of {before} {ms} ms after a pause of {pause} ms");
            }
        }
    }

    #[test]
    fn limit_is_half_of_the_patience_for_a_leader_and_a_quarter_for_others() {
        let lead = [(50, 250_000), (400, 2_000_000), (2_000, 10_000_000), (0, 2_000_000)];
        let follow = [(50, 125_000), (400, 1_000_000), (0, 2_000_000)];
        let lead = lead.into_iter().map(|case| (true, case));
        for (leads, (patience, most)) in lead.chain(follow.map(|case| (false, case))) {
            let mut rate = ExecutionRate { patience_ns: patience * MS, leads, ..ExecutionRate::default() };
            rate.begin(Time::ZERO);
            (1..=2_000).for_each(|ms| rate.serve(Time(ms * MS), 10_000));
            assert_eq!(rate.limit(Time(2_000 * MS), Time(0)), most, "a patience of {patience} ms, {leads}");
        }
    }

    #[test]
    fn duration_follows_from_the_rate() {
        assert_eq!(steady(0, 99).duration_ns(1_000_000), 0, "the rate is unknown");
        assert_eq!(steady(0, 500).duration_ns(1_000_000), 100 * MS);
        assert_eq!(steady(0, 500).duration_ns(0), 0);
        let mut still = ExecutionRate::default();
        still.serve(Time(500 * MS), 0);
        still.serve(Time(900 * MS), 0);
        assert_eq!(still.duration_ns(usize::MAX), 0);
    }

    #[test]
    fn slow_replica_still_accepts_the_minimum() {
        let mut rate = ExecutionRate::default();
        rate.begin(Time(0));
        rate.serve(Time(3_000 * MS), 1_000);
        assert_eq!(rate.limit(Time(3_000 * MS), Time(0)), COST_MIN);
    }
}
