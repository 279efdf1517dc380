//! Mutations of valid encodings.
//!
//! Tests feed them to decoders and handlers. Arbitrary bytes fail the first check, but a slightly changed encoding
//! passes further. The generator that the caller gives determines every change.

use crate::rng::Rng;

/// Numbers at the edges of checks. Narrower fields take their low bytes.
const EXTREMES: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MAX.cast_unsigned(),
    u64::MAX - 1,
    u64::MAX,
];
/// Widths in bytes of numbers on the wire and on disk.
const WIDTHS: [usize; 4] = [1, 2, 4, 8];
/// The largest number of bytes that one change adds.
const GROWTH_MAX: usize = 64;

/// Returns at most `length_max` random bytes. Short results are more frequent.
pub fn arbitrary(rng: &mut Rng, length_max: usize) -> Vec<u8> {
    let longest = rng.index(length_max.saturating_add(1));
    let length = rng.index(longest.saturating_add(1));
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let missing = length.saturating_sub(bytes.len());
        bytes.extend(rng.next_u64().to_le_bytes().into_iter().take(missing));
    }
    bytes
}

/// Changes a few places, and possibly the length. Inserted pieces come from `other`: another encoding of the same
/// kind, or any bytes.
pub fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..changes(rng) {
        match rng.below(10) {
            0 => bytes.truncate(rng.index(bytes.len().saturating_add(1))),
            1 => {
                let more = arbitrary(rng, GROWTH_MAX);
                bytes.extend_from_slice(&more);
            }
            2 => remove(rng, bytes),
            3 => insert(rng, bytes, other),
            4 => splice(rng, bytes, other),
            _ => nudge_once(rng, bytes, other),
        }
    }
}

/// Changes a few places in the same way as [`mutate`], and keeps the length.
pub fn nudge(rng: &mut Rng, bytes: &mut [u8], other: &[u8]) {
    for _ in 0..changes(rng) {
        nudge_once(rng, bytes, other);
    }
}

/// Draws the number of changes: mostly one, rarely many.
fn changes(rng: &mut Rng) -> u32 {
    (rng.next_u64() | 1 << 4).trailing_zeros().saturating_add(1)
}

fn nudge_once(rng: &mut Rng, bytes: &mut [u8], other: &[u8]) {
    let at = rng.index(bytes.len());
    let width = rng.pick(&WIDTHS).copied().unwrap_or(1);
    match rng.below(6) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => add(bytes.get_mut(at..at.saturating_add(width)), 1),
        2 => add(bytes.get_mut(at..at.saturating_add(width)), u64::MAX),
        3 => {
            let number = extreme(rng, bytes.len());
            put(bytes.get_mut(at..at.saturating_add(width)), number);
        }
        4 => {
            let length = rng.index(40).saturating_add(1);
            let from = other.get(at..).unwrap_or_default();
            copy(bytes.get_mut(at..), from.get(..length).unwrap_or(from));
        }
        _ => {
            let from = other.get(rng.index(other.len())..).unwrap_or_default();
            copy(bytes.get_mut(at..), from.get(..width).unwrap_or(from));
        }
    }
}

/// Draws an extreme number, or one near `length`, because lengths and counts are numbers too.
fn extreme(rng: &mut Rng, length: usize) -> u64 {
    let near = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(2).saturating_sub(rng.below(5));
    match rng.below(3) {
        0 => near,
        _ => rng.pick(&EXTREMES).copied().unwrap_or(0),
    }
}

/// Adds to a little-endian number of any width. A carry beyond the width is lost.
fn add(number: Option<&mut [u8]>, by: u64) {
    let Some(number) = number else { return };
    let mut read = [0; 8];
    for (to, from) in read.iter_mut().zip(number.iter()) {
        *to = *from;
    }
    put(Some(number), u64::from_le_bytes(read).wrapping_add(by));
}

fn put(place: Option<&mut [u8]>, number: u64) {
    copy(place, &number.to_le_bytes());
}

fn copy(place: Option<&mut [u8]>, from: &[u8]) {
    for (to, from) in place.unwrap_or_default().iter_mut().zip(from) {
        *to = *from;
    }
}

fn remove(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let from = rng.index(bytes.len());
    let length = rng.index(GROWTH_MAX).saturating_add(1);
    bytes.drain(from..from.saturating_add(length).min(bytes.len()));
}

/// Inserts a piece of `other`, or a copy of a piece of `bytes`, at a random place.
fn insert(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = rng.index(bytes.len().saturating_add(1));
    let source = if rng.chance(500_000) { other } else { bytes.as_slice() };
    let rest = source.get(rng.index(source.len())..).unwrap_or_default();
    let length = rng.index(GROWTH_MAX).saturating_add(1);
    let piece = rest.get(..length).unwrap_or(rest).to_vec();
    bytes.splice(at..at, piece);
}

/// Joins the beginning of `bytes` and the end of `other`.
fn splice(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let at = rng.index(bytes.len().saturating_add(1));
    // Both halves mostly meet at the same offset, so that fields match.
    let from = if rng.chance(700_000) { at } else { rng.index(other.len().saturating_add(1)) };
    bytes.truncate(at);
    bytes.extend_from_slice(other.get(from..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nudge_changes_bytes_and_keeps_the_length() {
        let (base, other) = ([7u8; 40], [9u8; 60]);
        let (mut changed, mut seen) = (0, BTreeSet::new());
        for seed in 0..2_000 {
            let mut bytes = base;
            nudge(&mut Rng::new(seed), &mut bytes, &other);
            changed += u32::from(bytes != base);
            seen.extend((0..40).filter(|at| bytes[*at] != base[*at]));
        }
        assert!(changed > 1_900 && seen.len() == 40, "{changed} {}", seen.len());
    }

    #[test]
    fn mutate_shortens_lengthens_and_splices_within_bounds() {
        let (base, other) = (vec![7u8; 40], vec![9u8; 60]);
        let (mut shorter, mut longer, mut spliced) = (0, 0, 0);
        for seed in 0..2_000 {
            let mut bytes = base.clone();
            mutate(&mut Rng::new(seed), &mut bytes, &other);
            shorter += u32::from(bytes.len() < 40);
            longer += u32::from(bytes.len() > 40);
            spliced += u32::from(bytes.first() == Some(&7) && bytes.last() == Some(&9));
            assert!(bytes.len() <= 40 + 5 * (60 + GROWTH_MAX), "seed {seed}: {}", bytes.len());
        }
        assert!(shorter > 200 && longer > 200 && spliced > 100, "{shorter} {longer} {spliced}");
    }

    #[test]
    fn empty_input_is_mutated_without_panic() {
        for seed in 0..1_000 {
            let mut bytes = Vec::new();
            mutate(&mut Rng::new(seed), &mut bytes, &[]);
            nudge(&mut Rng::new(seed), &mut [], &[]);
            assert!(arbitrary(&mut Rng::new(seed), 30).len() <= 30);
        }
    }

    #[test]
    fn addition_carries_between_bytes() {
        let mut bytes = [0xff, 0, 5];
        add(bytes.get_mut(..2), 1);
        assert_eq!(bytes, [0, 1, 5]);
        add(bytes.get_mut(..2), u64::MAX);
        assert_eq!(bytes, [0xff, 0, 5]);
    }
}
