//! The clock of the node: no other code of a replica process reads the time.

use quorate_types::Time;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The monotonic time since the node was open.
#[derive(Clone, Copy, Debug)]
pub struct NodeClock {
    start: Instant,
}

impl Default for NodeClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl NodeClock {
    /// Returns the start.
    #[cfg(test)]
    pub(super) fn started(&self) -> Instant {
        self.start
    }

    /// Returns the nanoseconds since the start.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Returns the wall-clock nanoseconds since 1970; zero before 1970.
#[must_use]
pub fn wall_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
