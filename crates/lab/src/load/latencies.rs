//! Latencies as a histogram: percentiles to three significant digits, mean and maximum exact.

use super::numbers::float;
use hdrhistogram::Histogram;
use quorate_node::step_times::{encoded, value_at};
use serde::Serialize;
use std::collections::BTreeMap;

/// Largest value of the histogram, in nanoseconds: ten minutes. A larger value counts as this one.
const NS_MAX: u64 = 600_000_000_000;
/// Smallest value that the histogram tells from zero, in nanoseconds.
const NS_MIN: u64 = 1_000;
/// Significant figures of the histogram.
const FIGURES: u8 = 3;

/// Latency in nanoseconds, of good answers alone.
///
/// A percentile is the value at its rank among the sorted samples; the rank is rounded up. The value is rounded up too, by
/// a thousandth at most, and never beyond the maximum.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Latency {
    /// Number of latencies.
    pub samples: u64,
    /// Number of latencies beyond ten minutes, which the percentiles count as ten minutes.
    pub clamped: u64,
    /// Exact mean.
    pub mean: f64,
    /// Standard deviation.
    pub stdev: f64,
    /// Median.
    pub p50: u64,
    /// 90 %.
    pub p90: u64,
    /// 99 %.
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    /// Exact maximum.
    pub max: u64,
}

/// Collected latencies.
pub(super) struct Latencies {
    histogram: Histogram<u64>,
    sum: f64,
    max: u64,
    clamped: u64,
}

impl Latencies {
    pub(super) fn new() -> Self {
        // The library accepts these constant bounds. A histogram that resizes itself is the fallback.
        let histogram = Histogram::new_with_bounds(NS_MIN, NS_MAX, FIGURES)
            .or_else(|_| Histogram::new(FIGURES))
            .unwrap_or_else(|_| unreachable!("three significant digits are allowed"));
        Self { histogram, sum: 0.0, max: 0, clamped: 0 }
    }

    /// Adds the latency of `count` requests.
    pub(super) fn record(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns.min(NS_MAX), count);
        self.sum += float(ns) * float(count);
        self.max = self.max.max(ns);
        if ns > NS_MAX {
            self.clamped = self.clamped.saturating_add(count);
        }
    }

    /// Returns the value that stands for a latency in the histogram: all latencies with one such value are equal to it.
    pub(super) fn representative(&self, ns: u64) -> u64 {
        self.histogram.lowest_equivalent(ns.min(NS_MAX))
    }

    /// Returns the latencies of these numbers of representatives, whose exact sum and maximum are `sum` and `max`.
    pub(super) fn of_counts(counts: &BTreeMap<u64, u64>, sum: f64, max: u64) -> Self {
        let mut latencies = Self::new();
        for (value, count) in counts {
            latencies.histogram.saturating_record_n(*value, *count);
        }
        Self { sum, max, ..latencies }
    }

    /// Returns the exact mean; 0 without latencies.
    pub(super) fn mean(&self) -> f64 {
        if self.len() > 0 { self.sum / float(self.len()) } else { 0.0 }
    }

    pub(super) fn len(&self) -> u64 {
        self.histogram.len()
    }

    pub(super) fn summary(&self) -> Latency {
        let samples = self.len();
        Latency {
            samples,
            clamped: self.clamped,
            mean: self.mean(),
            stdev: self.histogram.stdev(),
            p50: self.percentile(500),
            p90: self.percentile(900),
            p99: self.percentile(990),
            p999: self.percentile(999),
            max: self.max,
        }
    }

    /// Returns the whole histogram in the V2 format of HdrHistogram, without compression, as base64. Values are nanoseconds,
    /// from 1,000 to 600,000,000,000, with three significant figures.
    pub(super) fn encoded(&self) -> String {
        encoded(&self.histogram)
    }

    /// Returns the value at a rank in thousandths of the samples.
    pub(super) fn percentile(&self, per_mille: u64) -> u64 {
        value_at(&self.histogram, per_mille).min(NS_MAX).min(self.max)
    }

    /// Returns the number of latencies between two values, both included.
    #[cfg(test)]
    pub(super) fn between(&self, low: u64, high: u64) -> u64 {
        self.histogram.count_between(low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hdrhistogram::serialization::Deserializer;

    fn of(values: impl IntoIterator<Item = u64>) -> Latency {
        let mut latencies = Latencies::new();
        values.into_iter().for_each(|ns| latencies.record(ns, 1));
        latencies.summary()
    }

    /// Checks that a value is at most a thousandth above the exact one.
    fn assert_near(value: u64, exact: u64) {
        assert!(value >= exact && value - exact <= exact / 1_000, "{value} for {exact}");
    }

    #[test]
    fn rank_of_a_percentile_is_rounded_up() {
        for (samples, p50, p90, p99, p999) in [
            (1, 1, 1, 1, 1),
            (2, 1, 2, 2, 2),
            (3, 2, 3, 3, 3),
            (10, 5, 9, 10, 10),
            (100, 50, 90, 99, 100),
            (101, 51, 91, 100, 101),
            (1_000, 500, 900, 990, 999),
            (1_001, 501, 901, 991, 1_000),
            (7_000, 3_500, 6_300, 6_930, 6_993),
        ] {
            let latency = of((1..=samples).map(|rank| rank * 1_000_000));
            assert_eq!(latency.samples, samples);
            for (value, rank) in
                [(latency.p50, p50), (latency.p90, p90), (latency.p99, p99), (latency.p999, p999)]
            {
                assert_near(value, rank * 1_000_000);
            }
        }
    }

    /// Other programs read the histogram: header and counts are those of the recorded latencies.
    #[test]
    fn encoded_histogram_has_all_counts() {
        let mut latencies = Latencies::new();
        for ns in [1_000, 1_500_000, 1_500_000, 123_456_789, NS_MAX, 3 * NS_MAX] {
            latencies.record(ns, 2);
        }
        let encoded = latencies.encoded();
        assert!(encoded.starts_with("HISTE"), "the cookie of V2: {encoded}");
        let bytes = STANDARD.decode(encoded).unwrap();
        let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!((read.low(), read.high(), read.sigfig()), (NS_MIN, NS_MAX, FIGURES));
        assert_eq!(read, latencies.histogram);
        assert_eq!((read.len(), read.count_at(1_500_000), read.count_at(NS_MAX)), (12, 4, 4));
        let empty = STANDARD.decode(Latencies::new().encoded()).unwrap();
        let empty: Histogram<u64> = Deserializer::new().deserialize(&mut empty.as_slice()).unwrap();
        assert_eq!(empty.len(), 0);
    }

    #[test]
    fn maximum_and_mean_are_exact_and_bound_the_percentiles() {
        for ns in [1, 999, 1_001_001, 123_456_789, 599_999_999_999] {
            let latency = of([ns]);
            assert_eq!((latency.max, latency.p50, latency.p999), (ns, ns, ns));
            assert!((latency.mean - float(ns)).abs() < 1e-6, "{ns}: {}", latency.mean);
        }
    }

    #[test]
    fn latencies_beyond_the_range_are_counted() {
        let latency = of([1_000_000, NS_MAX, NS_MAX + 1, 3 * NS_MAX]);
        assert_eq!((latency.samples, latency.clamped, latency.max), (4, 2, 3 * NS_MAX));
        assert_eq!((latency.p50, latency.p999), (NS_MAX, NS_MAX));
    }

    #[test]
    fn no_samples_have_zero_latency() {
        let latency = of([]);
        assert_eq!((latency.samples, latency.clamped, latency.p50, latency.max), (0, 0, 0, 0));
        assert_eq!(latency.mean.to_bits(), 0);
    }
}
