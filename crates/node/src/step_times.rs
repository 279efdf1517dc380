//! Times of the steps of a replica: a histogram for each kind.
//!
//! [`StepKind`] says what a step is. Times are those of a clock: a step that the system interrupts for another process takes
//! longer. Count, total and maximum are exact. Percentiles and deviation come from the histogram, whose values have two
//! significant figures.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
pub use quorate_host::StepKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Smallest time that a histogram tells from zero, in nanoseconds. The histogram of a kind then has about 26 kB.
const NS_MIN: u64 = 16;
/// Largest time of a histogram, in nanoseconds: a minute. A larger one counts as this one.
const NS_MAX: u64 = 60_000_000_000;
/// Significant figures of a histogram.
const FIGURES: u8 = 2;

/// The times of all steps so far.
#[derive(Debug, Default)]
pub struct StepTimes {
    times: BTreeMap<StepKind, Times>,
}

impl StepTimes {
    /// Adds a step.
    pub fn add(&mut self, kind: StepKind, ns: u64) {
        self.times.entry(kind).or_default().add(ns);
    }

    /// Returns the figures of each kind, also of those without a step.
    #[must_use]
    pub fn figures(&self) -> BTreeMap<&'static str, StepFigures> {
        let none = Times::default();
        let figures = |kind: StepKind| self.times.get(&kind).unwrap_or(&none).figures();
        StepKind::ALL.into_iter().map(|kind| (kind.name(), figures(kind))).collect()
    }

    /// Returns a line for each kind with a step, for the log of a node that stops.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |(kind, times): (&StepKind, &Times)| format!("step {}: {}", kind.name(), times.figures());
        self.times.iter().map(line).collect()
    }
}

/// The times of the steps of one kind.
#[derive(Debug)]
struct Times {
    histogram: Histogram<u64>,
    total_ns: u64,
    max_ns: u64,
}

impl Default for Times {
    fn default() -> Self {
        // The library accepts these constant bounds. A histogram that resizes itself is the fallback.
        let histogram = Histogram::new_with_bounds(NS_MIN, NS_MAX, FIGURES)
            .or_else(|_| Histogram::new(FIGURES))
            .unwrap_or_else(|_| unreachable!("two significant digits are allowed"));
        Self { histogram, total_ns: 0, max_ns: 0 }
    }
}

impl Times {
    fn add(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.min(NS_MAX));
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    fn figures(&self) -> StepFigures {
        let Self { histogram, total_ns, max_ns } = self;
        let count = histogram.len();
        StepFigures {
            count,
            total_ns: *total_ns,
            mean_ns: total_ns.checked_div(count).unwrap_or(0),
            stdev_ns: histogram.stdev(),
            p50_ns: value_at(histogram, 500).min(*max_ns),
            p99_ns: value_at(histogram, 990).min(*max_ns),
            max_ns: *max_ns,
            histogram: encoded(histogram),
        }
    }

    /// Returns the times of steps that a replica has reported; `None` if they are malformed.
    fn decoded(figures: &StepFigures) -> Option<Self> {
        let bytes = STANDARD.decode(&figures.histogram).ok()?;
        let histogram = Deserializer::new().deserialize(&mut bytes.as_slice()).ok()?;
        Some(Self { histogram, total_ns: figures.total_ns, max_ns: figures.max_ns })
    }

    /// Returns the times after `earlier`, a part of these; `None` if it is no part of them, because the node was opened
    /// again meanwhile.
    fn since(mut self, earlier: &Self) -> Option<Self> {
        self.histogram.subtract(&earlier.histogram).ok()?;
        self.total_ns = self.total_ns.checked_sub(earlier.total_ns)?;
        // The maximum of a part is known from the histogram alone.
        self.max_ns = self.max_ns.min(self.histogram.max());
        Some(self)
    }
}

/// Figures of the steps of one kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct StepFigures {
    /// Number of steps.
    pub count: u64,
    /// Exact sum of their times, in nanoseconds.
    pub total_ns: u64,
    /// Exact mean, rounded down.
    pub mean_ns: u64,
    /// Standard deviation, from the histogram.
    pub stdev_ns: f64,
    /// Median, rounded up by 1 % or 16 ns at most.
    pub p50_ns: u64,
    /// 99 %, rounded up by 1 % or 16 ns at most.
    pub p99_ns: u64,
    /// Exact maximum.
    pub max_ns: u64,
    /// The histogram of the times in nanoseconds: the V2 format of HdrHistogram, without compression, as base64.
    pub histogram: String,
}

impl fmt::Display for StepFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns| Duration::from_nanos(ns).as_secs_f64() * 1e6;
        write!(
            f,
            "{} times, total {:.1} ms, mean {:.1} µs, deviation {:.1} µs, p50 {:.1} µs, p99 {:.1} µs, max {:.1} µs",
            self.count,
            us(self.total_ns) / 1e3,
            us(self.mean_ns),
            self.stdev_ns / 1e3,
            us(self.p50_ns),
            us(self.p99_ns),
            us(self.max_ns)
        )
    }
}

/// Returns the figures of the steps between two reports of a replica. `before` and `after` are the values of `steps` in its
/// status. A kind is left out if a report lacks it, or if the node was opened again meanwhile. The maximum is rounded up by
/// 1 % or 16 ns at most.
#[must_use]
pub fn between(before: &Value, after: &Value) -> BTreeMap<String, StepFigures> {
    let read = |steps: &Value, name: &str| {
        let figures = StepFigures::deserialize(steps.get(name)?).ok()?;
        Times::decoded(&figures)
    };
    let figures = |kind: StepKind| {
        let name = kind.name();
        let times = read(after, name)?.since(&read(before, name)?)?;
        Some((name.to_owned(), times.figures()))
    };
    StepKind::ALL.into_iter().filter_map(figures).collect()
}

/// Returns the value at a rank in thousandths of the recorded values, rounded up to the end of its bucket; 0 without values.
/// The rank is a whole number, because a product of floating-point numbers may lie slightly above the intended rank.
#[must_use]
pub fn value_at(histogram: &Histogram<u64>, per_mille: u64) -> u64 {
    let rank = u128::from(histogram.len()).saturating_mul(u128::from(per_mille)).div_ceil(1_000).max(1);
    let mut seen = 0u128;
    for step in histogram.iter_recorded() {
        seen = seen.saturating_add(u128::from(step.count_since_last_iteration()));
        if seen >= rank {
            return histogram.highest_equivalent(step.value_iterated_to());
        }
    }
    0
}

/// Returns a histogram in the V2 format of HdrHistogram, without compression, as base64.
#[must_use]
pub fn encoded(histogram: &Histogram<u64>) -> String {
    let mut bytes = Vec::new();
    // The format has no room for counts above 2^63, and no run has so many values.
    if let Err(error) = V2Serializer::new().serialize(histogram, &mut bytes) {
        tracing::warn!("a histogram is left out: {error}");
        bytes.clear();
    }
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn times(values: impl IntoIterator<Item = u64>) -> StepTimes {
        let mut times = StepTimes::default();
        values.into_iter().for_each(|ns| times.add(StepKind::Vote, ns));
        times
    }

    fn votes(values: impl IntoIterator<Item = u64>) -> StepFigures {
        times(values).figures().remove("vote").unwrap()
    }

    /// Checks that a value is at most 1 % or 16 ns above the exact one.
    fn assert_near(value: u64, exact: u64) {
        assert!(value >= exact && value - exact <= (exact / 100).max(16), "{value} for {exact}");
    }

    #[test]
    fn figures_are_those_of_known_values() {
        // 1 µs, 2 µs … 1 ms.
        let figures = votes((1..=1_000).map(|us| us * 1_000));
        assert_eq!((figures.count, figures.total_ns, figures.mean_ns), (1_000, 500_500_000, 500_500));
        assert_eq!(figures.max_ns, 1_000_000);
        assert_near(figures.p50_ns, 500_000);
        assert_near(figures.p99_ns, 990_000);
        // The deviation of 1 … N is that of a uniform distribution: the root of (N² - 1) / 12.
        let exact = ((1_000_000.0_f64 - 1.0) / 12.0).sqrt() * 1_000.0;
        assert!((figures.stdev_ns - exact).abs() < exact / 100.0, "{} for {exact}", figures.stdev_ns);
    }

    #[test]
    fn deviation_of_two_values_is_half_their_distance() {
        let figures = votes([10_000, 30_000, 10_000, 30_000]);
        assert_eq!((figures.mean_ns, figures.max_ns), (20_000, 30_000));
        assert!((figures.stdev_ns - 10_000.0).abs() < 200.0, "{}", figures.stdev_ns);
    }

    #[test]
    fn kinds_without_a_step_have_zeros() {
        let all = times([5]).figures();
        assert_eq!(all.len(), StepKind::ALL.len());
        let turns = &all["turn"];
        assert_eq!((turns.count, turns.total_ns, turns.mean_ns, turns.max_ns), (0, 0, 0, 0));
        assert_eq!((turns.p50_ns, turns.p99_ns, turns.stdev_ns.to_bits()), (0, 0, 0));
        assert_eq!(StepTimes::default().lines(), Vec::<String>::new());
        let line = "step vote: 1 times, total 0.0 ms, mean 2.5 µs, deviation 0.0 µs, p50 2.5 µs, p99 2.5 µs, max 2.5 µs";
        assert_eq!(times([2_500]).lines(), [line]);
    }

    #[test]
    fn histogram_has_a_fixed_size() {
        let mut times = Times::default();
        let size = times.histogram.distinct_values();
        assert!(size <= 3_400, "{size} counts of 8 bytes");
        times.add(u64::MAX);
        times.add(0);
        assert_eq!(times.histogram.distinct_values(), size);
        let figures = times.figures();
        assert_eq!((figures.count, figures.max_ns), (2, u64::MAX));
        assert!(figures.p99_ns >= NS_MAX && figures.p99_ns <= NS_MAX + NS_MAX / 100, "{}", figures.p99_ns);
    }

    #[test]
    fn difference_of_two_reports_has_the_steps_between_them() {
        let mut steps = times([1_000_000, 2_000]);
        let before = serde_json::to_value(steps.figures()).unwrap();
        [3_000, 5_000].into_iter().for_each(|ns| steps.add(StepKind::Vote, ns));
        steps.add(StepKind::Turn, 70_000);
        let after = serde_json::to_value(steps.figures()).unwrap();
        let found = between(&before, &after);
        assert_eq!(found.len(), StepKind::ALL.len());
        let vote = &found["vote"];
        assert_eq!((vote.count, vote.total_ns, vote.mean_ns), (2, 8_000, 4_000));
        assert_near(vote.max_ns, 5_000);
        assert_near(vote.p50_ns, 3_000);
        assert!((vote.stdev_ns - 1_000.0).abs() < 100.0, "{}", vote.stdev_ns);
        assert_eq!((found["turn"].count, found["turn"].total_ns), (1, 70_000));
        assert_eq!(found["propose"].count, 0);
        // The node was opened again, or reports nothing.
        assert!(!between(&after, &before).contains_key("vote"));
        assert_eq!(between(&Value::Null, &after), BTreeMap::new());
        assert_eq!(between(&json!({"vote": 7}), &after), BTreeMap::new());
    }
}
