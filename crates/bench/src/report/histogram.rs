//! Histograms of latencies, as the load generator records them: base64 of the format V2 of HdrHistogram, uncompressed.

use super::numbers::float;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::Deserializer;
use std::collections::BTreeMap;

/// Counts of latencies, by the greatest nanoseconds that belong to the same bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// Returns the histogram of a text; `None` where the text is something else.
    pub(super) fn read(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        let read = Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice()).ok()?;
        let buckets = read.iter_recorded();
        Some(Self(buckets.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect()))
    }

    /// Adds the counts of another histogram.
    pub(super) fn add(&mut self, other: &Self) {
        for (ns, count) in &other.0 {
            let sum = self.0.entry(*ns).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Returns the nanoseconds and the count of each bucket that is not empty, in ascending order.
    pub(super) fn counts(&self) -> impl Iterator<Item = (f64, f64)> {
        self.0.iter().map(|(ns, count)| (float(*ns), float(*count)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use hdrhistogram::serialization::{Serializer as _, V2Serializer};

    /// Returns the greatest nanoseconds of a bucket, for histograms of three digits from 1,000 ns on.
    fn end(index: u64) -> u64 {
        let power = (index / 1_024).saturating_sub(1);
        (index + 1 - power * 1_024) * (512 << power) - 1
    }

    /// Returns the text of a histogram with three significant digits: counts by index, from 0 on.
    pub(in crate::report) fn written(counts: &[(u64, u64)]) -> String {
        let mut histogram =
            hdrhistogram::Histogram::<u64>::new_with_bounds(1_000, 600_000_000_000, 3).unwrap();
        for (index, count) in counts {
            histogram.record_n(end(*index), *count).unwrap();
        }
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&histogram, &mut bytes).unwrap();
        STANDARD.encode(bytes)
    }

    #[test]
    fn buckets_of_a_written_histogram_are_read() {
        let histogram = Histogram::read(&written(&[(0, 3), (1, 1), (2_500, 7), (9_000, 300)])).unwrap();
        let unit = 512.0;
        let expected = [(unit - 1.0, 3.0), (2.0 * unit - 1.0, 1.0)];
        assert_eq!(histogram.counts().take(2).collect::<Vec<_>>(), expected);
        // Index 2,500: the second power of two has 1,024 buckets of two units each, from 2,048 units on.
        assert_eq!(histogram.counts().nth(2), Some(((2_048.0 + 453.0 * 2.0) * unit - 1.0, 7.0)));
        assert_eq!(histogram.counts().map(|(_, count)| count).sum::<f64>(), 311.0);
    }

    #[test]
    fn histogram_of_an_old_archive_is_read() {
        // The library hdrhistogram 7.6 has written this text, with bounds of 1,000 ns and 600 s.
        let text = "HISTEwAAAA8AAAAAAAAAAwAAAAAAAAPoAAAAi7LJcAA/8AAAAAAAAASrFQq/EdAP90CMAfllAg==";
        let expected = [(511, 2), (700_415, 5), (1_500_159, 1_000), (25_001_983, 70), (2_000_683_007, 1)];
        assert_eq!(Histogram::read(text), Some(Histogram(expected.into())));
    }

    #[test]
    fn other_texts_are_no_histograms() {
        let sound = written(&[(5, 5)]);
        let mut cut = sound.clone();
        cut.truncate(sound.len() - 8);
        let endless = STANDARD.encode([0xff; 64]);
        for text in
            ["", "AAAA", "no base64!", "\u{e4}", cut.as_str(), endless.as_str(), &sound.replace('H', "I")]
        {
            assert_eq!(Histogram::read(text), None, "{text:?}");
        }
        assert_eq!(Histogram::read(&written(&[])).unwrap(), Histogram::default());
    }
}
