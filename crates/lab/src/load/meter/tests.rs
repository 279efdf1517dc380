//! Scripted runs: the times at which a server answers, and the expected figures.

use super::*;
use crate::load::arrivals::Arrivals;
use crate::load::errors::NO_ANSWER;
use crate::load::options::{LoadOptions, Pace, Spacing};
use crate::load::summary::LoadSummary;
use crate::load::workload::Mix;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// The requests of such a load, seed 5.
fn arrivals_of(pace: Pace, begin: Time, end: Time) -> Arrivals {
    let mix = Mix::Echo { request_bytes: 9, reply_bytes: 0 };
    Arrivals::new(&LoadOptions::alone(mix, pace, 1, 5, Duration::ZERO), begin, end)
}

/// A load, with times in milliseconds. The run waits for remaining answers until `patience`.
#[derive(Clone, Copy)]
struct Script {
    pace: Pace,
    warm: u64,
    seconds: u64,
    patience: u64,
    bundle: u32,
    /// Bundles that may be in flight.
    room: usize,
    /// The time of the server for an answer.
    latency: u64,
}

impl Script {
    fn of(rate: f64, seconds: u64) -> Self {
        Self {
            pace: Pace::constant(rate),
            warm: 0,
            seconds,
            patience: seconds + 30_000,
            bundle: 1,
            room: usize::MAX,
            latency: 1,
        }
    }

    /// Runs the load against a server that answers after its latency. Within a stall it answers nothing; requests that
    /// wait are answered when the stall ends.
    fn run(self, stalls: &[(u64, u64)]) -> Meter {
        let (begin, warm, end) = (Time(0), Time(self.warm * MS), Time((self.warm + self.seconds) * MS));
        let mut arrivals = arrivals_of(self.pace, begin, end);
        let mut meter = Meter::new(begin, warm, end).with_timeline(10 * MS);
        let mut flights: VecDeque<(Time, Due)> = VecDeque::new();
        let mut now = begin;
        while now.0 < self.patience * MS && (now < end || arrivals.has_remaining() || !flights.is_empty()) {
            while let Some(due) = arrivals.next(now, self.bundle, 0) {
                if flights.len() == self.room {
                    arrivals.put_back(due);
                    break;
                }
                meter.sent(&due);
                flights.push_back((now.plus(self.latency * MS), due));
            }
            let stalled = stalls.iter().any(|(from, to)| now.0 >= from * MS && now.0 < to * MS);
            while !stalled && flights.front().is_some_and(|(at, _)| *at <= now) {
                let (_, due) = flights.pop_front().unwrap();
                meter.answered(now, &due, std::iter::empty());
            }
            now = now.plus(MS);
        }
        let waits = arrivals.has_remaining() || !flights.is_empty();
        flights.iter().for_each(|(_, due)| meter.failed(due, NO_ANSWER));
        meter.unsent(&arrivals);
        meter.finish(now, waits);
        meter
    }
}

/// Runs an open loop of one request per millisecond for 100 ms, 20 of them warm-up, with `room` for bundles in flight. The
/// run waits for remaining answers until `patience`.
fn run(stalls: (u64, u64), room: usize, bundle: u32, patience: u64) -> Meter {
    Script { pace: Pace::constant(1_000.0), warm: 20, seconds: 80, patience, bundle, room, latency: 1 }
        .run(&[stalls])
}

#[test]
fn undisturbed_server_has_its_own_latency() {
    let meter = run((0, 0), 1_000, 1, 200);
    assert_eq!((meter.counts.sent, meter.counts.acknowledged, meter.counts.errors), (100, 100, 0));
    assert_eq!((meter.counts.due, meter.counts.answered, meter.latencies.len()), (80, 80, 80));
    assert!(meter.latencies.summary().max <= 1_001_000);
}

/// The server stalls in the middle and resumes long after the end. The requests that were due meanwhile count, with the
/// time that they have waited.
#[test]
fn answers_after_the_end_are_counted() {
    let meter = run((50, 400), 1_000, 1, 500);
    assert_eq!((meter.counts.due, meter.counts.answered, meter.counts.errors), (80, 80, 0));
    assert_eq!(meter.latencies.len(), 80, "also those whose answer came after the end");
    let late = meter.latencies.between(290 * MS, 400 * MS);
    assert_eq!(late, 51, "each has waited from when it was due");
    assert!(meter.in_time < 80, "but the rate is that of the measured time");
}

/// A server without room does not slow the load down: the latency of a delayed request runs from its due time.
#[test]
fn latency_of_delayed_requests_runs_from_their_due_time() {
    let meter = run((30, 300), 2, 1, 2_000);
    assert_eq!((meter.counts.sent, meter.counts.errors, meter.latencies.len()), (100, 0, 80));
    assert!(meter.latencies.between(200 * MS, u64::MAX) >= 70);
}

#[test]
fn unsent_and_unanswered_requests_are_errors() {
    let meter = run((30, 10_000), 2, 1, 300);
    assert_eq!(meter.counts.sent + meter.counts.unsent, 100, "every request that was due is accounted for");
    assert_eq!((meter.counts.unsent, meter.counts.errors), (69, 71), "two were sent and not answered");
    assert_eq!((meter.counts.due, meter.counts.acknowledged), (80, 29));
    assert_eq!(meter.latencies.len(), meter.counts.answered);
    assert_eq!(
        meter.counts.due - meter.counts.answered,
        meter.counts.errors,
        "all that is missing was due in the time"
    );
}

/// The end of the run lies inside a bundle: its requests that were due before the end are sent.
#[test]
fn last_bundle_of_an_open_loop_is_sent() {
    let meter = run((0, 0), 1_000, 32, 200);
    assert_eq!(
        (meter.counts.sent, meter.counts.due, meter.latencies.len(), meter.counts.errors),
        (100, 80, 80, 0)
    );
    assert!(meter.latencies.summary().max >= 31 * MS, "the first of a bundle waits for the last");
}

/// Returns the share of requests that was carried, in percent, and the longest time without an answer, in milliseconds.
fn figures(rate: f64, seconds: u64, stalls: &[(u64, u64)]) -> (u64, u64) {
    let meter = Script::of(rate, seconds).run(stalls);
    assert_eq!(meter.span_ns(), seconds * MS, "the time that was offered, whenever answers came");
    assert_eq!(meter.counts.sent, meter.counts.due);
    assert_eq!(meter.counts.acknowledged + meter.counts.errors, meter.counts.sent + meter.counts.unsent);
    (meter.counts.carried * 100 / meter.counts.due, meter.longest_gap_ns / MS)
}

#[test]
fn stalls_count_at_any_time_of_the_run() {
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
        assert_eq!(figures(rate, seconds, stalls), expected, "{name}");
    }
}

/// A cluster with slow answers keeps pace if the answers to requests of the warm-up take the place of the late ones.
#[test]
fn slow_answers_are_carried_after_a_longer_warm_up() {
    for (latency, warm, saturated) in [(1, 0, false), (1_000, 1_500, false), (1_000, 0, true)] {
        let script = Script { warm, latency, ..Script::of(100.0, 3_000) };
        let mix = Mix::Echo { request_bytes: 9, reply_bytes: 0 };
        let options = LoadOptions::alone(mix, script.pace, 1, 5, Duration::from_secs(3));
        let summary = LoadSummary::new(&options, &script.run(&[]), &HashMap::new(), &HashMap::new());
        assert_eq!(summary.saturated, saturated, "{latency} ms after {warm} ms: {summary}");
    }
    let slower = Script { warm: 1_500, latency: 1_000, ..Script::of(100.0, 3_000) };
    let stalled = slower.run(&[(4_000, 9_000)]);
    assert_eq!((stalled.in_time, stalled.counts.due), (250, 300), "a stall at the end is not made good");
}

/// A stall never slows the offered load down, and the goodput is divided by the time of the offer.
#[test]
fn goodput_is_divided_by_the_measured_time() {
    let meter = Script { warm: 1_000, ..Script::of(100.0, 6_000) }.run(&[(3_300, 99_000)]);
    assert_eq!((meter.in_time, meter.counts.due, meter.span_ns()), (230, 600, 6_000 * MS));
    let mut meter = Meter::new(Time(0), Time(MS), Time(9 * MS));
    meter.close(Time(5 * MS));
    assert_eq!(meter.span_ns(), 4 * MS, "the run was ended early");
}

/// A request counts in the interval in which it was due, whenever its answer comes. All requests of the measured time are in
/// an interval, and the histograms of the intervals add up to that of the run.
#[test]
fn intervals_have_the_requests_that_were_due_in_them() {
    // 100 requests, one each millisecond; the first 20 are before the measured time of 80 ms.
    let meter = run((45, 400), 1_000, 1, 500);
    let entries = meter.timeline().unwrap();
    let begins: Vec<f64> = entries.iter().map(|entry| entry.at_ms).collect();
    assert_eq!(begins, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]);
    assert!(entries.iter().all(|entry| (entry.answered, entry.errors) == (10, 0)), "{entries:?}");
    let late: Vec<u64> = entries.iter().map(|entry| entry.max_ns / MS).collect();
    assert_eq!(late, [1, 1, 356, 350, 340, 330, 320, 310], "{entries:?}");
    assert_eq!((entries[2].p50_ns / MS, entries[3].p99_ns / MS), (351, 350), "{entries:?}");
    assert_eq!(entries[7].mean_ns, 305.5 * MS as f64);
    assert_eq!(sum(&entries), decode(&meter.latencies.encoded()));
    let stalled = run((30, 10_000), 2, 1, 300);
    let entries = stalled.timeline().unwrap();
    let total = |count: fn(&TimelineEntry) -> u64| entries.iter().map(count).sum::<u64>();
    let (answered, errors) = (total(|entry| entry.answered), total(|entry| entry.errors));
    assert_eq!((answered, errors), (stalled.counts.answered, 71), "never sent, or without an answer");
    assert!(stalled.counts.unsent == 69 && answered + errors == stalled.counts.due);
    assert_eq!(entries[7].histogram, Latencies::new().encoded(), "no answers");
}

fn decode(text: &str) -> Histogram<u64> {
    let bytes = STANDARD.decode(text).unwrap();
    Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
}

fn sum(entries: &[TimelineEntry]) -> Histogram<u64> {
    let mut histograms = entries.iter().map(|entry| decode(&entry.histogram));
    let mut sum = histograms.next().unwrap();
    histograms.for_each(|histogram| sum.add(histogram).unwrap());
    sum
}

/// Errors of the store count in the interval of their request. A run that ends early has no later intervals.
#[test]
fn errors_and_an_early_end_are_in_the_intervals() {
    let mut meter = Meter::new(Time(0), Time(MS), Time(100 * MS)).with_timeline(30 * MS);
    let due = vec![(Time(0), 1), (Time(2 * MS), 2), (Time(40 * MS), 1)];
    meter.sent(&due);
    let errors = [None, None, Some("NoRoom".to_owned()), Some("NoRoom".to_owned())];
    meter.answered(Time(45 * MS), &due, errors.into_iter());
    meter.failed(&vec![(Time(41 * MS), 3)], NO_ANSWER);
    meter.close(Time(62 * MS));
    let counts: Vec<(u64, u64)> =
        meter.timeline().unwrap().iter().map(|entry| (entry.answered, entry.errors)).collect();
    assert_eq!(counts, [(1, 1), (0, 4), (0, 0)]);
}

/// Good answers before the measured time and errors in it begin no time, and one after its end changes none.
#[test]
fn time_of_replies_begins_with_the_first_good_one() {
    let mut meter = Meter::new(Time(0), Time(10 * MS), Time(100 * MS));
    assert_eq!(meter.span_from_first_reply_ns(), 0);
    for (at, error) in [(5, None), (12, Some("NoRoom")), (30, None), (50, None), (120, None)] {
        meter.answered(Time(at * MS), &vec![(Time(4 * MS), 1)], [error.map(str::to_owned)].into_iter());
    }
    assert_eq!((meter.in_time, meter.span_from_first_reply_ns()), (2, 70 * MS));
}

/// An answer that is an error of the store is no good answer, has no latency, and ends no gap.
#[test]
fn error_answers_have_no_latency() {
    let no_room = || Some("NoRoom".to_owned());
    let mut meter = Meter::new(Time(0), Time(0), Time(100 * MS));
    let (first, second) = (vec![(Time(0), 1), (Time(MS), 3)], vec![(Time(2 * MS), 2)]);
    meter.sent(&first);
    meter.sent(&second);
    meter.answered(Time(10 * MS), &first, [None, no_room(), None, Some("Overflow".to_owned())].into_iter());
    meter.answered(Time(30 * MS), &second, [no_room(), no_room()].into_iter());
    meter.finish(Time(200 * MS), false);
    assert_eq!(
        (meter.counts.sent, meter.counts.acknowledged, meter.in_time, meter.counts.carried),
        (6, 2, 2, 2)
    );
    assert_eq!(meter.counts.errors_by_kind.kinds(), [("NoRoom", 3), ("Overflow", 1)]);
    let latency = meter.latencies.summary();
    assert_eq!((latency.samples, latency.max), (2, 10 * MS));
    assert_eq!(meter.longest_gap_ns, 90 * MS, "since the last good one, until the end");
}

#[test]
fn odd_rates_lose_no_request() {
    for rate in [0.3, 7.0, 333.3, 1e6] {
        let end = Time(10_000 * MS);
        let mut arrivals = arrivals_of(Pace::constant(rate), Time(0), end);
        let (all, _) = arrivals.left(Time(0));
        let mut count = 0;
        while let Some(due) = arrivals.next(end, 7, 0) {
            assert!(due.iter().all(|(at, _)| *at < end));
            count += due.len() as u64;
        }
        assert_eq!(count, all);
        assert!((count as f64 - rate * 10.0).abs() <= 1.0, "{rate}: {count}");
        assert!(!arrivals.has_remaining());
    }
}

/// Due times of a Poisson process are the same whether the cluster answers, has room, or does neither.
#[test]
fn due_times_never_depend_on_answers() {
    let (pace, end) = (Pace::Open { rate: 2_000.0, spacing: Spacing::Poisson }, Time(1_000 * MS));
    let times = |bundle: u32, step: u64, refused: u64| {
        let mut arrivals = arrivals_of(pace, Time(0), end);
        let (mut times, mut now, mut attempt) = (Vec::new(), Time(0), 0);
        while arrivals.has_remaining() {
            while let Some(due) = arrivals.next(now, bundle, 0) {
                attempt += 1;
                if attempt % 10 < refused {
                    arrivals.put_back(due);
                    break;
                }
                times.extend(due.iter().map(|(at, _)| *at));
            }
            now = now.plus(step);
        }
        times
    };
    let expected = times(1, 1_000, 0);
    assert!((1_800..2_200).contains(&expected.len()) && expected.is_sorted(), "{}", expected.len());
    for (bundle, step, refused) in [(1, MS, 9), (7, 100 * MS, 0), (64, 3 * MS, 5), (4_096, MS, 0)] {
        assert_eq!(times(bundle, step, refused), expected, "{bundle} {step} {refused}");
    }
    let script = Script { pace, ..Script::of(1.0, 1_000) };
    let (smooth, stalled) = (script.run(&[]), script.run(&[(100, 1_500)]));
    assert_eq!(smooth.counts.due, stalled.counts.due);
    assert_eq!(stalled.counts.answered, stalled.counts.due, "each is answered in the end");
}

#[test]
fn loop_closed_early_owes_only_started_requests() {
    let mut arrivals = arrivals_of(Pace::constant(1_000.0), Time(0), Time(100 * MS));
    let due = arrivals.next(Time(50 * MS), 10, 0).unwrap();
    arrivals.put_back(due.clone());
    arrivals.close(Time(50 * MS));
    assert_eq!((arrivals.has_remaining(), arrivals.left(Time(0))), (true, (10, 10)));
    assert_eq!(arrivals.next(Time(60 * MS), 10, 0), Some(due));
    assert_eq!((arrivals.next(Time(99 * MS), 10, 0), arrivals.has_remaining()), (None, false));
    let mut arrivals = arrivals_of(Pace::Closed { in_flight: 4 }, Time(0), Time(100 * MS));
    arrivals.close(Time(50 * MS));
    assert_eq!(arrivals.next(Time(50 * MS), 4, 0), None);
}

#[test]
fn closed_loop_ends_with_its_time() {
    let mut arrivals = arrivals_of(Pace::Closed { in_flight: 4 }, Time(0), Time(10));
    assert_eq!(arrivals.next(Time(9), 4, 0), Some(vec![(Time(9), 4)]));
    assert_eq!(arrivals.next(Time(9), 4, 1), None);
    assert_eq!(arrivals.next(Time(10), 4, 0), None);
    assert_eq!((arrivals.has_remaining(), arrivals.left(Time(0))), (false, (0, 0)));
}
