//! The executed bundle numbers of a session.

use quorate_types::codec::put_length;
use quorate_types::{BundleNo, DecodeError, Reader, Wire};
use std::collections::VecDeque;

/// The executed numbers: all up to the floor, and a bitmap above it. A list of runs would be up to 64 times as large,
/// for a client that skips every second number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// The number of the first bit, which is a multiple of 64. All numbers below it were executed.
    base: u64,
    /// Bit i of word k stands for the number `base + 64 k + i`. The first word is never full and the last never
    /// empty, so that equal sets have one form.
    words: VecDeque<u64>,
}

impl Window {
    /// Returns a window without executed numbers. Number 0, which no bundle has, counts as executed.
    pub(crate) fn new() -> Self {
        Self { base: 0, words: VecDeque::from([1]) }
    }

    /// Returns the end of the gap-free run from 1; 0 when 1 is missing.
    pub(crate) fn floor(&self) -> BundleNo {
        let run = self.words.front().map_or(0, |word| word.trailing_ones());
        BundleNo(self.base.saturating_add(u64::from(run)).saturating_sub(1))
    }

    /// Whether the number was executed.
    pub(crate) fn contains(&self, number: BundleNo) -> bool {
        let Some(above) = number.0.checked_sub(self.base) else {
            return true;
        };
        let word = usize::try_from(above / 64).ok().and_then(|k| self.words.get(k));
        word.is_some_and(|word| word >> (above % 64) & 1 == 1)
    }

    /// Records an executed number. The caller has checked that the number lies in the window, which bounds the bitmap.
    pub(crate) fn insert(&mut self, number: BundleNo) {
        let Some(above) = number.0.checked_sub(self.base) else {
            return;
        };
        let index = usize::try_from(above / 64).unwrap_or(usize::MAX);
        if self.words.len() <= index {
            self.words.resize(index.saturating_add(1), 0);
        }
        if let Some(word) = self.words.get_mut(index) {
            *word |= 1 << (above % 64);
        }
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.base = self.base.saturating_add(64);
        }
    }
}

/// The largest number of words: those of the largest window, and those for a floor inside a word.
const WORDS_MAX: usize = (1 << 20) / 64 + 2;

impl Wire for Window {
    fn encode(&self, out: &mut Vec<u8>) {
        self.base.encode(out);
        put_length(out, self.words.len());
        for word in &self.words {
            word.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let base = reader.u64()?;
        let words = VecDeque::from(reader.list("window", WORDS_MAX, 8, Reader::u64)?);
        let canonical = base.is_multiple_of(64)
            && words.front() != Some(&u64::MAX)
            && words.back() != Some(&0)
            && (base > 0 || words.front().is_some_and(|word| word & 1 == 1));
        canonical.then_some(Self { base, words }).ok_or(DecodeError::Value("window"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn window_equals_a_set_of_numbers() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let (mut window, mut set) = (Window::new(), BTreeSet::new());
            for _ in 0..600 {
                let floor = (1..).find(|number| !set.contains(number)).unwrap() - 1;
                assert_eq!(window.floor(), BundleNo(floor), "seed {seed}");
                let number = floor + 1 + rng.below(200) * rng.below(2);
                assert_eq!(window.contains(BundleNo(number)), set.contains(&number), "seed {seed}");
                window.insert(BundleNo(number));
                set.insert(number);
                assert!(window.words.len() <= 5, "the bitmap is larger than the window");
                assert_eq!(Window::from_bytes(&window.to_bytes()).as_ref(), Ok(&window));
            }
        }
    }

    #[test]
    fn window_has_one_encoding() {
        let encode = |base: u64, words: &[u64]| {
            let mut out = base.to_bytes();
            quorate_types::codec::put_list(&mut out, words);
            Window::from_bytes(&out)
        };
        assert!(encode(0, &[1]).is_ok() && encode(64, &[]).is_ok());
        for (base, words) in [(0, vec![]), (0, vec![2]), (1, vec![1]), (64, vec![0]), (64, vec![u64::MAX, 1])]
        {
            assert_eq!(encode(base, &words), Err(DecodeError::Value("window")));
        }
    }

    #[test]
    fn largest_numbers_do_not_overflow() {
        let mut window = Window { base: u64::MAX - 63, words: VecDeque::from([u64::MAX >> 1]) };
        assert_eq!(window.floor(), BundleNo(u64::MAX - 1));
        window.insert(BundleNo::MAX);
        assert!(window.contains(BundleNo(5)));
    }
}
