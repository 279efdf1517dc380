//! Keys by the Zipf distribution: few keys receive most requests.
//!
//! The sampler is the rejection-inversion of W. Hörmann and G. Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", ACM TOMACS 6(3), 1996. It needs no table, so its cost does not depend on the number of
//! keys.

use super::numbers::float;
use quorate_types::rng::Rng;

/// 2^-53: the distance between neighbours among the random numbers.
const STEP: f64 = 1.0 / 9_007_199_254_740_992.0;
/// Below it a quotient of the logarithm or of the exponential function is replaced by the beginning of its series.
const NEAR_ZERO: f64 = 1e-8;

/// A source of ranks from 1 to a number of keys. The rank k has a probability proportional to k to the power of minus the
/// exponent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    ranks: f64,
    exponent: f64,
    /// The integral of the density up to the upper end of the first rank, less the first rank's own probability.
    low: f64,
    /// The integral of the density up to the upper end of the last rank.
    high: f64,
    /// A rank is accepted without a further check if it exceeds its drawn position by at most this.
    accepted: f64,
}

impl Zipf {
    /// Returns a source of `ranks` ranks, at least one. The exponent is at least 0.
    pub(super) fn new(ranks: u64, exponent: f64) -> Self {
        let mut zipf = Self { ranks: float(ranks.max(1)), exponent, low: 0.0, high: 0.0, accepted: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.ranks + 0.5);
        zipf.accepted = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// Draws the number of a key, from 0 on. Key 0 has rank 1 and is the most frequent one.
    pub(super) fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let uniform = float(rng.next_u64() >> 11) * STEP;
            let area = self.high + uniform * (self.low - self.high);
            let position = self.inverse(area);
            let rank = position.round().clamp(1.0, self.ranks);
            let is_inside = rank - position <= self.accepted;
            if is_inside || area >= self.integral(rank + 0.5) - self.density(rank) {
                return whole(rank).saturating_sub(1);
            }
        }
    }

    /// The density at `x`: x to the power of minus the exponent.
    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to `x`: the logarithm if the exponent is 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let scaled = (1.0 - self.exponent) * log;
        let quotient = if scaled.abs() > NEAR_ZERO { scaled.exp_m1() / scaled } else { 1.0 + scaled / 2.0 };
        quotient * log
    }

    /// The inverse of the integral.
    fn inverse(&self, area: f64) -> f64 {
        // Rounding may give a value below -1, whose logarithm does not exist.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        let quotient = if scaled.abs() > NEAR_ZERO { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
        (quotient * area).exp()
    }
}

#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank: whole, and from 1 to a number of keys"
)]
fn whole(rank: f64) -> u64 {
    rank as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    /// The sum of the unscaled probabilities of the ranks from `first` to `last`: term by term, and by the integral with
    /// the correction of the midpoint rule where there are many.
    fn sum(first: u64, last: u64, exponent: f64) -> f64 {
        let near = last.min(first.max(100_000));
        let terms: f64 = (first..=near).map(|rank| (rank as f64).powf(-exponent)).sum();
        if near == last {
            return terms;
        }
        let (low, high) = (near as f64 + 0.5, last as f64 + 0.5);
        let tail = if exponent == 1.0 {
            (high / low).ln()
        } else {
            (high.powf(1.0 - exponent) - low.powf(1.0 - exponent)) / (1.0 - exponent)
        };
        terms + tail
    }

    /// The shares of ranges of keys lie within five standard deviations of their probabilities.
    #[test]
    fn keys_have_the_frequencies_of_the_distribution() {
        for keys in [1, 2, 3, 10, 1_000, 10_000, 1_000_000_000] {
            for exponent in [0.0, 0.5, 0.99, 1.0, 1.000_000_001, 2.0, 10.0] {
                let zipf = Zipf::new(keys, exponent);
                let mut rng = Rng::new(keys);
                let ends = [1, 2, 3, 5, 10, 100, 1_000, 100_000, u64::MAX].map(|end| keys.min(end));
                let mut counts = [0u64; 9];
                for _ in 0..DRAWS {
                    let key = zipf.draw(&mut rng);
                    assert!(key < keys, "{key} of {keys}, {exponent}");
                    counts[ends.iter().position(|end| key < *end).unwrap()] += 1;
                }
                let total = sum(1, keys, exponent);
                let mut first = 1;
                for (end, count) in ends.into_iter().zip(counts) {
                    let share = if first <= end { sum(first, end, exponent) / total } else { 0.0 };
                    let deviation = (share * (1.0 - share).max(0.0) * DRAWS as f64).sqrt();
                    let off = (count as f64 - share * DRAWS as f64).abs();
                    let context =
                        format!("ranks {first} to {end} of {keys}, {exponent}: {count}, not {share}");
                    assert!(off <= 5.0 * deviation + 1.0, "{context}");
                    first = first.max(end + 1);
                }
            }
        }
    }

    #[test]
    fn seed_decides_the_keys() {
        let draws = |seed| {
            let (zipf, mut rng) = (Zipf::new(10_000, 0.99), Rng::new(seed));
            (0..1_000).map(|_| zipf.draw(&mut rng)).collect::<Vec<u64>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }
}
