//! Conversions between integers of different width. They saturate: on every machine that Quorate runs on
//! `usize` has 64 bits, and lengths on disk are checked against the segment before they are used.

/// A `u32` as a length in memory.
pub(crate) fn to_usize(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A length in memory as a `u64`.
pub(crate) fn to_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A length in memory as a `u32`; what does not fit is refused by every limit.
pub(crate) fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
