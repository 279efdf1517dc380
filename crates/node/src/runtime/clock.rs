//! The node's clock: the only place in a replica process where time is read.

use quorate_types::Time;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time since the node was open.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock {
    /// When it began.
    #[cfg(test)]
    pub(super) fn started(&self) -> Instant {
        self.start
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Wall-clock nanoseconds since 1970; zero before.
#[must_use]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
