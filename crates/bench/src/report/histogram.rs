//! Histograms of latencies, as the load generator records them: base64 of the format V2 of HdrHistogram, uncompressed.

use super::numbers::float;
use std::collections::BTreeMap;

/// The first four bytes of the format V2, uncompressed.
const COOKIE: u32 = 0x1c84_9313;
/// The greatest index of a bucket that any histogram of up to five significant digits has.
const INDEX_MAX: u64 = 1 << 24;

/// Counts of latencies, by the greatest nanoseconds that belong to the same bucket.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Histogram(BTreeMap<u64, u64>);

impl Histogram {
    /// Returns the histogram of a text; `None` where the text is something else.
    pub(super) fn read(text: &str) -> Option<Self> {
        let bytes = base64(text)?;
        let (head, payload) = bytes.split_at_checked(40)?;
        let word = |at: usize| Some(u32::from_be_bytes(head.get(at..at.checked_add(4)?)?.try_into().ok()?));
        if word(0)? != COOKIE {
            return None;
        }
        let payload = payload.get(..usize::try_from(word(4)?).ok()?)?;
        let digits = word(12).filter(|digits| (1..=5).contains(digits))?;
        let lowest = u64::from_be_bytes(head.get(16..24)?.try_into().ok()?);
        let buckets = Buckets::new(digits, lowest);
        let (mut counts, mut at, mut rest) = (BTreeMap::new(), 0u64, payload);
        while !rest.is_empty() {
            let (number, left) = zig_zag(rest)?;
            rest = left;
            if let Ok(count) = u64::try_from(number) {
                if count > 0 {
                    counts.insert(buckets.end(at)?, count);
                }
                at = at.checked_add(1)?;
            } else {
                at = at.checked_add(number.unsigned_abs())?;
            }
            if at > INDEX_MAX {
                return None;
            }
        }
        Some(Self(counts))
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

/// The values of the buckets: the buckets of a power of two are equally wide.
struct Buckets {
    /// The base-2 logarithm of the width of the narrowest bucket.
    unit: u32,
    /// The base-2 logarithm of half the number of buckets in the first power of two.
    half: u32,
}

impl Buckets {
    fn new(digits: u32, lowest: u64) -> Self {
        let exact = 2u64.saturating_mul(10u64.saturating_pow(digits));
        let magnitude = exact.next_power_of_two().ilog2();
        Self { unit: lowest.max(1).ilog2(), half: magnitude.saturating_sub(1) }
    }

    /// Returns the greatest value of the bucket with this index.
    fn end(&self, index: u64) -> Option<u64> {
        let half_count = 1u64.checked_shl(self.half)?;
        let in_half = index & half_count.checked_sub(1)?;
        let (bucket, sub) = match (index >> self.half).checked_sub(1) {
            Some(bucket) => (u32::try_from(bucket).ok()?, in_half.checked_add(half_count)?),
            None => (0, in_half),
        };
        let width = 1u64.checked_shl(bucket.checked_add(self.unit)?)?;
        sub.checked_add(1)?.checked_mul(width)?.checked_sub(1)
    }
}

/// Reads a number: seven bits in a byte, eight in the ninth, the sign in the lowest bit.
fn zig_zag(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (mut number, mut shift, mut rest) = (0u64, 0u32, bytes);
    loop {
        let (byte, left) = rest.split_first()?;
        rest = left;
        let (bits, is_last) = if shift == 56 { (*byte, true) } else { (byte & 0x7f, byte & 0x80 == 0) };
        number |= u64::from(bits) << shift;
        if is_last {
            let magnitude = i64::try_from(number >> 1).ok()?;
            return Some((if number & 1 == 0 { magnitude } else { !magnitude }, rest));
        }
        shift = shift.saturating_add(7);
    }
}

/// Returns the bytes of a text in base64; `None` where the text is something else.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut held) = (0u32, 0u32);
    for symbol in text.trim_end_matches('=').bytes() {
        let value = match symbol {
            b'A'..=b'Z' => symbol.wrapping_sub(b'A'),
            b'a'..=b'z' => symbol.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => symbol.wrapping_sub(b'0').wrapping_add(52),
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held = held.saturating_add(6);
        if held >= 8 {
            held = held.saturating_sub(8);
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns the text of a histogram with three significant digits: counts by index, from 0 on.
    pub(in crate::report) fn written(counts: &[(u64, u64)]) -> String {
        let mut payload = Vec::new();
        let mut put = |number: i64| {
            let mut left = u64::from_ne_bytes(((number << 1) ^ (number >> 63)).to_ne_bytes());
            while left >= 0x80 {
                payload.push(u8::try_from(left & 0x7f).unwrap() | 0x80);
                left >>= 7;
            }
            payload.push(u8::try_from(left).unwrap());
        };
        let mut at = 0;
        for (index, count) in counts {
            if *index > at {
                put(-i64::try_from(index - at).unwrap());
            }
            put(i64::try_from(*count).unwrap());
            at = index + 1;
        }
        let mut bytes = COOKIE.to_be_bytes().to_vec();
        bytes.extend(u32::try_from(payload.len()).unwrap().to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 3]);
        bytes.extend(1_000u64.to_be_bytes());
        bytes.extend(600_000_000_000u64.to_be_bytes());
        bytes.extend(1f64.to_be_bytes());
        bytes.extend(payload);
        to_base64(&bytes)
    }

    fn to_base64(bytes: &[u8]) -> String {
        const SYMBOLS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let mut word = [0; 4];
            word[1..=chunk.len()].copy_from_slice(chunk);
            let word = u32::from_be_bytes(word);
            for i in 0..4 {
                let symbol = char::from(SYMBOLS[usize::try_from((word >> (18 - 6 * i)) & 63).unwrap()]);
                text.push(if i <= chunk.len() { symbol } else { '=' });
            }
        }
        text
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
    fn histogram_of_the_library_is_read() {
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
        let endless = to_base64(&[0xff; 64]);
        for text in
            ["", "AAAA", "no base64!", "\u{e4}", cut.as_str(), endless.as_str(), &sound.replace('H', "I")]
        {
            assert_eq!(Histogram::read(text), None, "{text:?}");
        }
        assert_eq!(Histogram::read(&written(&[(INDEX_MAX + 1, 1)])), None, "an absurd index");
        assert_eq!(Histogram::read(&written(&[])).unwrap(), Histogram::default());
    }
}
