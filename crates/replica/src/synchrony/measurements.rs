//! Counters of the synchrony guard.

use quorate_types::limits::ROUND_TRIPS_MAX;
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    /// The last round trips over all peers, in nanoseconds.
    pub(super) round_trips: VecDeque<u64>,
    /// Probes that were sent, counted once for each peer.
    pub(super) probes: u64,
    /// The number of rounds that this replica began more than a quarter of Δ late.
    pub(super) lags: u64,
    /// The longest delay of a round.
    pub(super) lag_max_ns: u64,
}

impl Measurements {
    pub(super) fn note_round_trip(&mut self, ns: u64) {
        if self.round_trips.len() >= ROUND_TRIPS_MAX {
            self.round_trips.pop_front();
        }
        self.round_trips.push_back(ns);
    }

    /// Notes the delay of a round, and counts it where it exceeds `most_ns`.
    pub(super) fn note_lag(&mut self, ns: u64, most_ns: u64) {
        self.lags = self.lags.saturating_add(u64::from(ns > most_ns));
        self.lag_max_ns = self.lag_max_ns.max(ns);
    }

    /// Returns the 99.9th percentile and the maximum of the last round trips; 0 before the first.
    pub(super) fn p999_and_max_ns(&self) -> (u64, u64) {
        let mut took: Vec<u64> = self.round_trips.iter().copied().collect();
        let max_ns = took.iter().copied().max().unwrap_or(0);
        let place = took.len().saturating_mul(999).div_ceil(1_000).saturating_sub(1);
        let p999_ns = if took.is_empty() { 0 } else { *took.select_nth_unstable(place).1 };
        (p999_ns, max_ns)
    }
}
