//! Pseudo-random numbers for simulation, jitter and load: xoshiro256++ seeded by SplitMix64.
//!
//! The crate has its own generator because a stored seed must give the same run in five years. No key may come from it.

/// A generator that its seed determines completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Returns the generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// Returns a separate generator for one purpose. Drawing more numbers for one purpose then shifts no other.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// Returns the next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let shifted = b << 17;
        let c = c ^ a;
        let d = d ^ b;
        self.state = [a ^ d, b ^ c, c ^ shifted, d.rotate_left(45)];
        result
    }

    /// Draws a number below `bound`, all equally likely; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The result is the high half of a 128-bit product. A draw that would bias it is repeated (Lemire 2019).
        let threshold = bound.wrapping_neg().checked_rem(bound).unwrap_or(0);
        loop {
            let product = u128::from(self.next_u64()).wrapping_mul(u128::from(bound));
            let low = u64::try_from(product & u128::from(u64::MAX)).unwrap_or(0);
            if low >= threshold {
                return u64::try_from(product >> 64).unwrap_or(0);
            }
        }
    }

    /// Draws a number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low);
        if span == u64::MAX {
            self.next_u64()
        } else {
            low.saturating_add(self.below(span.saturating_add(1)))
        }
    }

    /// Draws a position in a list of `length`.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    /// Returns true in `per_million` of a million draws.
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// Draws one of `values`; `None` when there is none.
    pub fn pick<'a, T>(&mut self, values: &'a [T]) -> Option<&'a T> {
        let index = self.index(values.len());
        values.get(index)
    }

    /// Brings `values` into random order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            let j = self.index(i.saturating_add(1));
            values.swap(i, j);
        }
    }

    /// Draws an exponentially distributed span with this mean, at most 16 times the mean. It uses integers only, so
    /// the result is the same on every machine.
    pub fn exponential_ns(&mut self, mean_ns: u64) -> u64 {
        // -ln(u) = ln 2 * (leading zeros + fraction). The fraction is linear between powers of two. That is within 6
        // % of the exact value, and needs no floating point.
        let bits = self.next_u64() | 1;
        let zeros = bits.leading_zeros();
        let mantissa = bits.checked_shl(zeros).unwrap_or(0) << 1;
        let fraction = u128::from(u64::MAX - mantissa);
        let log2 = (u128::from(zeros.min(22)) << 64) | fraction;
        let scaled = ((log2 >> 32) * 0xb172_17f7) >> 32; // ln 2 in 32 bits; result has 32 fraction bits.
        u64::try_from(scaled.saturating_mul(u128::from(mean_ns)) >> 32)
            .unwrap_or(u64::MAX)
            .min(mean_ns.saturating_mul(16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored seeds must give the same run for ever, so the numbers of a seed may never change.
    #[test]
    fn stream_of_a_seed_never_changes() {
        let mut rng = Rng::new(1);
        let numbers: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        let expected: Vec<u64> =
            vec![0xcfc5_d07f_6f03_c29b, 0xbf42_4132_963f_e08d, 0x19a3_7d57_57aa_f520, 0xbf08_119f_05cd_56d6];
        assert_eq!(numbers, expected, "{numbers:x?}");
    }

    #[test]
    fn below_is_uniform_and_respects_its_bound() {
        let mut rng = Rng::new(7);
        let mut seen = [0u32; 5];
        for _ in 0..5_000 {
            seen[rng.index(5)] += 1;
        }
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.between(3, 3), 3);
    }

    #[test]
    fn exponential_span_has_its_mean() {
        let mut rng = Rng::new(3);
        let sum: u64 = (0..100_000).map(|_| rng.exponential_ns(1_000)).sum();
        assert!((950..1_070).contains(&(sum / 100_000)), "{}", sum / 100_000);
    }
}
