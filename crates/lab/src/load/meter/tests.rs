//! Scripted runs: when a server answers, and what is then said of it.

use super::*;
use crate::load::arrivals::Arrivals;
use crate::load::errors::NO_ANSWER;
use crate::load::options::Pace;
use std::collections::VecDeque;

const MS: u64 = 1_000_000;

/// A load in milliseconds: warm-up, measured time, and until when what is left is waited for.
#[derive(Clone, Copy)]
struct Script {
    rate: f64,
    warm: u64,
    seconds: u64,
    patience: u64,
    bundle: u32,
    /// Bundles that may be in flight.
    room: usize,
}

impl Script {
    fn of(rate: f64, seconds: u64) -> Self {
        Self { rate, warm: 0, seconds, patience: seconds + 30_000, bundle: 1, room: usize::MAX }
    }

    /// Against a server that answers after a millisecond, but nothing within the stalls; what waits then is answered
    /// when they end.
    fn run(self, stalls: &[(u64, u64)]) -> Meter {
        let (begin, warm, end) = (Time(0), Time(self.warm * MS), Time((self.warm + self.seconds) * MS));
        let mut arrivals = Arrivals::new(Pace::Open { rate: self.rate }, begin, end, u64::MAX);
        let mut meter = Meter::new(begin, warm, end);
        let mut flights: VecDeque<(Time, Due)> = VecDeque::new();
        let mut now = begin;
        while now.0 < self.patience * MS && (now < end || arrivals.is_owing() || !flights.is_empty()) {
            while let Some(due) = arrivals.next(now, self.bundle, 0) {
                if flights.len() == self.room {
                    arrivals.put_back(due);
                    break;
                }
                meter.sent(&due);
                flights.push_back((now.plus(MS), due));
            }
            let stalled = stalls.iter().any(|(from, to)| now.0 >= from * MS && now.0 < to * MS);
            while !stalled && flights.front().is_some_and(|(at, _)| *at <= now) {
                let (_, due) = flights.pop_front().unwrap();
                meter.answered(now, &due, std::iter::empty());
            }
            now = now.plus(MS);
        }
        let waits = arrivals.is_owing() || !flights.is_empty();
        flights.iter().for_each(|(_, due)| meter.failed(due, NO_ANSWER));
        let (all, counted) = arrivals.left(warm);
        meter.unsent(all, counted);
        meter.finish(now, waits);
        meter
    }
}

/// An open loop of a request in each millisecond for 100 ms, 20 of them warm-up, with room for so many requests. What is
/// left is waited for until `patience`.
fn run(stalls: (u64, u64), room: usize, bundle: u32, patience: u64) -> Meter {
    Script { rate: 1_000.0, warm: 20, seconds: 80, patience, bundle, room }.run(&[stalls])
}

#[test]
fn a_quiet_server_has_its_latency() {
    let meter = run((0, 0), 1_000, 1, 200);
    assert_eq!((meter.sent, meter.acknowledged, meter.errors.total()), (100, 100, 0));
    assert_eq!((meter.due, meter.answered, meter.latencies.len()), (80, 80, 80));
    assert!(meter.latencies.summary().max <= 1_001_000);
}

/// The server stops in the middle and goes on long after the end: what was due meanwhile counts, with the
/// time it has waited.
#[test]
fn answers_after_the_end_are_not_omitted() {
    let meter = run((50, 400), 1_000, 1, 500);
    assert_eq!((meter.due, meter.answered, meter.errors.total()), (80, 80, 0));
    assert_eq!(meter.latencies.len(), 80, "also those whose answer came after the end");
    let late = meter.latencies.between(290 * MS, 400 * MS);
    assert_eq!(late, 51, "each has waited from when it was due");
    assert!(meter.in_time < 80, "but the rate is that of the measured time");
}

/// A server without room does not slow the questions down either: what could be sent only later is as old.
#[test]
fn what_finds_no_room_grows_old() {
    let meter = run((30, 300), 2, 1, 2_000);
    assert_eq!((meter.sent, meter.errors.total(), meter.latencies.len()), (100, 0, 80));
    assert!(meter.latencies.between(200 * MS, u64::MAX) >= 70);
}

#[test]
fn what_is_never_sent_or_answered_is_an_error() {
    let meter = run((30, 10_000), 2, 1, 300);
    assert_eq!(meter.sent + meter.unsent, 100, "every request that was due is accounted for");
    assert_eq!((meter.unsent, meter.errors.total()), (69, 71), "two were sent and not answered");
    assert_eq!((meter.due, meter.acknowledged), (80, 29));
    assert_eq!(meter.latencies.len(), meter.answered);
    assert_eq!(meter.due - meter.answered, meter.errors.total(), "all that is missing was due in the time");
}

/// The end falls into a bundle: those of its requests that were due before it are sent.
#[test]
fn the_last_bundle_is_sent_too() {
    let meter = run((0, 0), 1_000, 32, 200);
    assert_eq!((meter.sent, meter.due, meter.latencies.len(), meter.errors.total()), (100, 80, 80, 0));
    assert!(meter.latencies.summary().max >= 31 * MS, "the first of a bundle waits for the last");
}

/// Of all that was due so much was carried, in percent; and the longest time without an answer, in milliseconds.
fn said(rate: f64, seconds: u64, stalls: &[(u64, u64)]) -> (u64, u64) {
    let meter = Script::of(rate, seconds).run(stalls);
    assert_eq!(meter.span_ns(), seconds * MS, "the time that was offered, whenever answers came");
    assert_eq!(meter.sent, meter.due);
    assert_eq!(meter.acknowledged + meter.errors.total(), meter.sent + meter.unsent);
    (meter.carried * 100 / meter.due, meter.longest_gap_ns / MS)
}

#[test]
fn stalls_count_wherever_they_lie() {
    for (name, rate, seconds, stalls, expected) in [
        ("none", 100.0, 6_000, &[][..], (100, 10)),
        ("at the beginning", 100.0, 6_000, &[(0, 2_000)][..], (100, 2_000)),
        ("in the middle", 100.0, 6_000, &[(2_300, 4_300)][..], (100, 2_009)),
        ("past the end", 100.0, 6_000, &[(2_300, 8_300)][..], (38, 6_009)),
        ("for good", 100.0, 6_000, &[(2_300, 99_000)][..], (38, 33_709)),
        ("the whole run", 100.0, 6_000, &[(0, 99_000)][..], (0, 36_000)),
        ("at the beginning and the end", 100.0, 6_000, &[(0, 1_000), (5_000, 9_000)][..], (83, 4_009)),
        ("just at the end", 100.0, 6_000, &[(5_950, 6_040)][..], (100, 99)),
        ("rare requests", 0.5, 6_000, &[][..], (100, 2_000)),
        ("rare requests, for good", 0.5, 6_000, &[(3_000, 99_000)][..], (66, 33_999)),
        ("a single request", 0.1, 6_000, &[][..], (100, 5_999)),
        ("a single request, never", 0.1, 6_000, &[(0, 99_000)][..], (0, 36_000)),
        ("a single request, after the end", 0.1, 6_000, &[(0, 8_000)][..], (0, 8_000)),
        ("many requests", 50_000.0, 1_000, &[][..], (100, 1)),
        ("many requests, past the end", 50_000.0, 1_000, &[(400, 1_500)][..], (39, 1_101)),
        ("many requests, for good", 50_000.0, 1_000, &[(400, 99_000)][..], (39, 30_601)),
    ] {
        assert_eq!(said(rate, seconds, stalls), expected, "{name}");
    }
}

/// Offered load is never slowed down, and the rate is that of the time offered.
#[test]
fn goodput_is_over_the_measured_time() {
    let meter = Script { warm: 1_000, ..Script::of(100.0, 6_000) }.run(&[(3_300, 99_000)]);
    assert_eq!((meter.in_time, meter.due, meter.span_ns()), (230, 600, 6_000 * MS));
    let mut meter = Meter::new(Time(0), Time(MS), Time(9 * MS));
    meter.close(Time(5 * MS));
    assert_eq!(meter.span_ns(), 4 * MS, "the run was ended early");
}

/// An error of the store in an answer is none of the good ones, has no latency, and ends no silence.
#[test]
fn an_answer_that_is_an_error_is_an_error() {
    let no_room = || Some("NoRoom".to_owned());
    let mut meter = Meter::new(Time(0), Time(0), Time(100 * MS));
    let (first, second) = (vec![(Time(0), 1), (Time(MS), 3)], vec![(Time(2 * MS), 2)]);
    meter.sent(&first);
    meter.sent(&second);
    meter.answered(Time(10 * MS), &first, [None, no_room(), None, Some("Overflow".to_owned())].into_iter());
    meter.answered(Time(30 * MS), &second, [no_room(), no_room()].into_iter());
    meter.finish(Time(200 * MS), false);
    assert_eq!((meter.sent, meter.acknowledged, meter.in_time, meter.carried), (6, 2, 2, 2));
    assert_eq!(meter.errors.kinds(), [("NoRoom", 3), ("Overflow", 1)]);
    let latency = meter.latencies.summary();
    assert_eq!((latency.samples, latency.max), (2, 10 * MS));
    assert_eq!(meter.longest_gap_ns, 90 * MS, "since the last good one, until the end");
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
