//! How long what waits will take, at the rate at which it is executed. A queue in front of a replica that does what
//! it can makes nothing faster: it makes every client wait for its end, and looks like a leader that does nothing.
//! So a client that brings more than its share hears `Busy` when the queue is longer than half of the time after
//! which somebody would lose patience (`pbft` §11).

use quorate_types::Time;
use std::collections::VecDeque;

/// What waits may take this long where the protocol has all the patience in the world.
const QUEUE_NS_MAX: u64 = 200_000_000;
/// The rate is that of this time of execution at most.
const SPAN_NS: u64 = 1_000_000_000;
/// And of this time at least: before that nothing is known, and everybody is welcome.
const SPAN_NS_MIN: u64 = 100_000_000;
/// What is executed within this time is one entry.
const STEP_NS: u64 = 50_000_000;
/// A longer time without anything executed counts as this long: it says that something stood still, a leader say,
/// and not how fast all goes when it does.
const PAUSE_NS: u64 = 100_000_000;
/// What may always wait, however slow everything is.
const COST_MIN: usize = 64 << 10;

/// What was executed in some time.
#[derive(Clone, Copy, Debug)]
struct Served {
    span_ns: u64,
    cost: usize,
}

/// The rate at which what has waited is executed.
#[derive(Debug)]
pub(crate) struct ExecutionRate {
    patience_ns: u64,
    leads: bool,
    served: VecDeque<Served>,
    /// Sums over `served`.
    span_ns: u64,
    cost: usize,
    /// Until then the rate is known.
    until: Time,
}

impl Default for ExecutionRate {
    fn default() -> Self {
        Self { patience_ns: 0, leads: false, served: VecDeque::new(), span_ns: 0, cost: 0, until: Time::ZERO }
    }
}

impl ExecutionRate {
    /// After so long without being executed a request counts against the leader; 0: never.
    pub(crate) fn set_patience(&mut self, patience_ns: u64) {
        self.patience_ns = patience_ns;
    }

    /// Whether this replica leads. What another one lets in comes to the leader without being asked whether there is
    /// room, so it lets in half as much: else all of them together let in more than the leader can do in time.
    pub(crate) fn set_leads(&mut self, leads: bool) {
        self.leads = leads;
    }

    fn queue_ns_max(&self) -> u64 {
        match (self.patience_ns, self.leads) {
            (0, _) => QUEUE_NS_MAX,
            (patience_ns, true) => patience_ns / 2,
            (patience_ns, false) => patience_ns / 4,
        }
    }

    /// Something waits, and nothing did before: what was executed earlier says little about what can be.
    pub(crate) fn begin(&mut self, now: Time) {
        self.served.clear();
        (self.span_ns, self.cost) = (0, 0);
        self.until = now;
    }

    /// Something that has waited was executed.
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

    /// How long so much takes; 0 while nothing is known.
    pub(crate) fn duration_ns(&self, cost: usize) -> u64 {
        if self.span_ns < SPAN_NS_MIN {
            return 0;
        }
        let [cost, served] =
            [cost, self.cost].map(|cost| u128::from(u64::try_from(cost).unwrap_or(u64::MAX)));
        let time = u128::from(self.span_ns).saturating_mul(cost).checked_div(served);
        time.map_or(0, |time| u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// What may wait, when the oldest of it has waited since `oldest`. It does not depend on how long nothing was
    /// executed: whoever waits for another leader is not to be sent away for that.
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

    /// 10 kB are executed each millisecond.
    fn steady(from: u64, until: u64) -> ExecutionRate {
        let mut rate = ExecutionRate::default();
        rate.begin(Time(from * MS));
        (from + 1..=until).for_each(|ms| rate.serve(Time(ms * MS), 10_000));
        rate
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
        let mut rate = steady(0, 2_000);
        (2_001..=4_000).for_each(|ms| rate.serve(Time(ms * MS), 1_000));
        let limit = rate.limit(Time(4_000 * MS), Time(0));
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
        assert_eq!(
            ExecutionRate::default().limit(Time(900 * MS), Time(0)),
            usize::MAX,
            "nothing was ever executed"
        );
    }

    #[test]
    fn a_pause_is_no_lower_rate() {
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
    fn what_may_wait_is_half_of_the_patience_and_a_quarter_where_another_leads() {
        let lead = [(50, 250_000), (400, 2_000_000), (2_000, 10_000_000), (0, 2_000_000)];
        let follow = [(50, 125_000), (400, 1_000_000), (0, 2_000_000)];
        let lead = lead.into_iter().map(|case| (true, case));
        for (leads, (patience, most)) in lead.chain(follow.map(|case| (false, case))) {
            let mut rate = ExecutionRate::default();
            rate.set_patience(patience * MS);
            rate.set_leads(leads);
            rate.begin(Time::ZERO);
            (1..=2_000).for_each(|ms| rate.serve(Time(ms * MS), 10_000));
            assert_eq!(rate.limit(Time(2_000 * MS), Time(0)), most, "a patience of {patience} ms, {leads}");
        }
    }

    #[test]
    fn how_long_something_takes_is_told_by_the_rate() {
        assert_eq!(steady(0, 99).duration_ns(1_000_000), 0, "the rate is not known");
        assert_eq!(steady(0, 500).duration_ns(1_000_000), 100 * MS);
        assert_eq!(steady(0, 500).duration_ns(0), 0);
        let mut still = ExecutionRate::default();
        still.serve(Time(500 * MS), 0);
        still.serve(Time(900 * MS), 0);
        assert_eq!(still.duration_ns(usize::MAX), 0);
    }

    #[test]
    fn a_slow_replica_takes_something() {
        let mut rate = ExecutionRate::default();
        rate.begin(Time(0));
        rate.serve(Time(3_000 * MS), 1_000);
        assert_eq!(rate.limit(Time(3_000 * MS), Time(0)), COST_MIN);
    }
}
