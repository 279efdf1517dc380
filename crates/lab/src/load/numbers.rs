//! Conversions of counts and times.

use std::time::Duration;

/// A count as a floating-point number, for rates and ranges. A count above 2^53 is rounded.
#[allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "figures for people, and ranges far below 2^53"
)]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// Nanoseconds of a duration; the largest number where it has more.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
