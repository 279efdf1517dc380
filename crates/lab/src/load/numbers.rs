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

/// Returns the CPU nanoseconds of this process so far, of all its threads in user and kernel mode.
pub(super) fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let part = |value: i64| u64::try_from(value).unwrap_or_default();
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}
