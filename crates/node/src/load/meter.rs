//! What is counted of a run, and which latencies. What counts is when a request was *due*, not when its answer
//! came: an answer that comes after the measured time has the longest latency of all, and must not be missing.

use super::arrivals::Due;
use super::summary;
use hdrhistogram::Histogram;
use quorate_types::Time;

/// Counts and latencies.
pub(super) struct Meter {
    /// Requests due from here on, and before the second, are in the figures.
    warm: Time,
    end: Time,
    pub(super) histogram: Histogram<u64>,
    /// Requests sent, warm-up included.
    pub(super) sent: u64,
    /// Requests answered, warm-up included.
    pub(super) acknowledged: u64,
    /// Requests without an answer, warm-up included: sent or not.
    pub(super) errors: u64,
    /// Those of them that were never sent.
    pub(super) unsent: u64,
    /// Requests due in the measured time.
    pub(super) due: u64,
    /// Those of them that were answered, whenever.
    pub(super) answered: u64,
    pub(super) repeats: u64,
    pub(super) longest_gap_ns: u64,
    /// The same, since somebody has taken it.
    pub(super) gap_ns: u64,
    /// Answers that came in the measured time, whenever they were due: they make the rate.
    pub(super) in_time: u64,
    first_in_time: Option<Time>,
    last_in_time: Option<Time>,
    pub(super) last_reply: Option<Time>,
}

impl Meter {
    /// Counts what is due from `warm` on and before `end`.
    pub(super) fn new(warm: Time, end: Time) -> Self {
        Self {
            warm,
            end,
            histogram: summary::histogram(),
            sent: 0,
            acknowledged: 0,
            errors: 0,
            unsent: 0,
            due: 0,
            answered: 0,
            repeats: 0,
            longest_gap_ns: 0,
            gap_ns: 0,
            in_time: 0,
            first_in_time: None,
            last_in_time: None,
            last_reply: None,
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

    /// A bundle was answered.
    pub(super) fn answered(&mut self, now: Time, due: &Due) {
        if let Some(last) = self.last_reply {
            self.longest_gap_ns = self.longest_gap_ns.max(now.since(last));
            self.gap_ns = self.gap_ns.max(now.since(last));
        }
        self.last_reply = Some(now);
        for (due, requests) in due {
            let count = u64::from(*requests);
            self.acknowledged = self.acknowledged.saturating_add(count);
            if self.counts(now) {
                self.first_in_time.get_or_insert(now);
                self.last_in_time = Some(now);
                self.in_time = self.in_time.saturating_add(count);
            }
            if self.counts(*due) {
                self.answered = self.answered.saturating_add(count);
                self.histogram.saturating_record_n(now.since(*due), count);
            }
        }
    }

    /// A bundle that was sent will have no answer.
    pub(super) fn failed(&mut self, due: &Due) {
        let requests: u64 = due.iter().map(|(_, requests)| u64::from(*requests)).sum();
        self.errors = self.errors.saturating_add(requests);
    }

    /// So many requests were never sent; so many of them were due in the measured time.
    pub(super) fn unsent(&mut self, all: u64, counted: u64) {
        self.errors = self.errors.saturating_add(all);
        self.unsent = self.unsent.saturating_add(all);
        self.due = self.due.saturating_add(counted);
    }

    /// From the first answer of the measured time to the last, in nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        self.first_in_time.zip(self.last_in_time).map_or(0, |(first, last)| last.since(first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pace;
    use super::super::arrivals::Arrivals;
    use super::*;
    use std::collections::VecDeque;

    const MS: u64 = 1_000_000;

    /// An open loop of a request in each millisecond for 100 ms, 20 of them warm-up, against a server that
    /// answers after a millisecond, but nothing between two moments; it has room for so many requests. What is
    /// left is waited for until `patience`.
    fn run(stalls: (u64, u64), room: usize, bundle: u32, patience: u64) -> Meter {
        let (begin, warm, end) = (Time(0), Time(20 * MS), Time(100 * MS));
        let mut arrivals = Arrivals::new(Pace::Open { rate: 1_000.0 }, begin, end, u64::MAX);
        let mut meter = Meter::new(warm, end);
        let mut flights: VecDeque<(Time, Due)> = VecDeque::new();
        for now in (0..patience).map(|ms| Time(ms * MS)) {
            while let Some(due) = arrivals.next(now, bundle, 0) {
                if flights.len() == room {
                    arrivals.put_back(due);
                    break;
                }
                meter.sent(&due);
                flights.push_back((now.plus(MS), due));
            }
            let stalled = now.0 >= stalls.0 * MS && now.0 < stalls.1 * MS;
            while !stalled && flights.front().is_some_and(|(at, _)| *at <= now) {
                let (_, due) = flights.pop_front().unwrap();
                meter.answered(now, &due);
            }
        }
        flights.iter().for_each(|(_, due)| meter.failed(due));
        let (all, counted) = arrivals.left(warm);
        meter.unsent(all, counted);
        meter
    }

    #[test]
    fn a_quiet_server_has_its_latency() {
        let meter = run((0, 0), 1_000, 1, 200);
        assert_eq!((meter.sent, meter.acknowledged, meter.errors), (100, 100, 0));
        assert_eq!((meter.due, meter.answered, meter.histogram.len()), (80, 80, 80));
        assert!(meter.histogram.max() <= 1_001_000);
    }

    /// The server stops in the middle and goes on long after the end: what was due meanwhile counts, with the
    /// time it has waited.
    #[test]
    fn answers_after_the_end_are_not_omitted() {
        let meter = run((50, 400), 1_000, 1, 500);
        assert_eq!((meter.due, meter.answered, meter.errors), (80, 80, 0));
        assert_eq!(meter.histogram.len(), 80, "also those whose answer came after the end");
        let late = meter.histogram.count_between(290 * MS, 400 * MS);
        assert_eq!(late, 51, "each has waited from when it was due");
        assert!(meter.in_time < 80, "but the rate is that of the measured time");
    }

    /// A server without room does not slow the questions down either: what could be sent only later is as old.
    #[test]
    fn what_finds_no_room_grows_old() {
        let meter = run((30, 300), 2, 1, 2_000);
        assert_eq!((meter.sent, meter.errors, meter.histogram.len()), (100, 0, 80));
        assert!(meter.histogram.count_between(200 * MS, u64::MAX) >= 70);
    }

    #[test]
    fn what_is_never_sent_or_answered_is_an_error() {
        let meter = run((30, 10_000), 2, 1, 300);
        assert_eq!(meter.sent + meter.unsent, 100, "every request that was due is accounted for");
        assert_eq!((meter.unsent, meter.errors), (69, 71), "two were sent and not answered");
        assert_eq!((meter.due, meter.acknowledged), (80, 29));
        assert_eq!(meter.histogram.len(), meter.answered);
        assert_eq!(meter.due - meter.answered, meter.errors, "all that is missing was due in the time");
    }

    /// The end falls into a bundle: those of its requests that were due before it are sent.
    #[test]
    fn the_last_bundle_is_sent_too() {
        let meter = run((0, 0), 1_000, 32, 200);
        assert_eq!((meter.sent, meter.due, meter.histogram.len(), meter.errors), (100, 80, 80, 0));
        assert!(meter.histogram.max() >= 31 * MS, "the first of a bundle waits for the last");
    }

    #[test]
    fn a_rate_that_divides_nothing_loses_nothing() {
        for rate in [0.3, 7.0, 333.3, 1e6] {
            let end = Time(10_000 * MS);
            let mut arrivals = Arrivals::new(Pace::Open { rate }, Time(0), end, u64::MAX);
            let (all, _) = arrivals.left(Time(0));
            let mut count = 0;
            while let Some(due) = arrivals.next(end, 7, 0) {
                assert!(due.iter().all(|(at, _)| *at < end));
                count += due.len() as u64;
            }
            assert_eq!(count, all);
            assert!((count as f64 - rate * 10.0).abs() <= 1.0, "{rate}: {count}");
            assert!(!arrivals.is_owing());
        }
    }

    #[test]
    fn a_loop_that_is_closed_early_owes_only_what_was_handed_out() {
        let mut arrivals = Arrivals::new(Pace::Open { rate: 1_000.0 }, Time(0), Time(100 * MS), u64::MAX);
        let due = arrivals.next(Time(50 * MS), 10, 0).unwrap();
        arrivals.put_back(due.clone());
        arrivals.close(Time(50 * MS));
        assert_eq!((arrivals.is_owing(), arrivals.left(Time(0))), (true, (10, 10)));
        assert_eq!(arrivals.next(Time(60 * MS), 10, 0), Some(due));
        assert_eq!((arrivals.next(Time(99 * MS), 10, 0), arrivals.is_owing()), (None, false));
        let mut arrivals = Arrivals::new(Pace::Closed { in_flight: 4 }, Time(0), Time(100 * MS), u64::MAX);
        arrivals.close(Time(50 * MS));
        assert_eq!(arrivals.next(Time(50 * MS), 4, 0), None);
    }

    #[test]
    fn a_closed_loop_ends_with_its_time() {
        let mut arrivals = Arrivals::new(Pace::Closed { in_flight: 4 }, Time(0), Time(10), u64::MAX);
        assert_eq!(arrivals.next(Time(9), 4, 0), Some(vec![(Time(9), 4)]));
        assert_eq!(arrivals.next(Time(9), 4, 1), None);
        assert_eq!(arrivals.next(Time(10), 4, 0), None);
        assert_eq!((arrivals.is_owing(), arrivals.left(Time(0))), (false, (0, 0)));
    }
}
