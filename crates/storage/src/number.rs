//! Conversions between integers of different width. They saturate. `usize` has 64 bits on every machine that Quorate
//! supports, and lengths on disk are checked against the segment before use.

/// Converts a `u32` to a length in memory.
pub(crate) fn to_usize(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Converts a length in memory to a `u64`.
pub(crate) fn to_u64(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Converts a length in memory to a `u32`. Every limit refuses a length that does not fit.
pub(crate) fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
