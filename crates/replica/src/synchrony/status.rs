//! The measurements of the synchrony guard, for status.

use quorate_consensus::Synchrony;
use quorate_types::{ReplicaId, Time};
use std::fmt;
use std::time::Duration;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardStatus {
    /// Δ, and whether the protocol uses the guard's answers.
    pub bound: Synchrony,
    /// The 99.9th percentile of the last round trips, each with the age of the oldest message that its peer held; 0 before
    /// the first. Probes that were sent before their peer had answered any do not count.
    pub p999_ns: u64,
    /// The longest of those round trips.
    pub max_ns: u64,
    /// Late peers, each with the time since which it is late.
    pub late: Vec<(ReplicaId, Time)>,
    /// Whether more than f peers are late.
    pub doubt: bool,
    /// The number of times that doubt has begun.
    pub doubts: u64,
    /// The latest moment of doubt; while there is doubt, the time of the last check.
    pub last_doubt: Option<Time>,
    /// Parts in a million by which a peer's clock is faster than the own one; negative where it is slower. This is the
    /// largest drift of all peers, and a peer may lie about it.
    pub drift_ppm: Option<i64>,
    /// Probes that were sent, counted once for each peer.
    pub probes: u64,
    /// The number of rounds that this replica began more than a quarter of Δ late.
    pub lags: u64,
    /// The longest delay of such a round.
    pub lag_max_ns: u64,
}

impl fmt::Display for GuardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p999, max, delta] = [self.p999_ns, self.max_ns, self.bound.delta_ns].map(Duration::from_nanos);
        let mode = self.bound.mode();
        write!(f, "{mode}: round trips {p999:.1?} (p99.9), {max:.1?} (max) of {delta:.1?}")?;
        for (id, since) in &self.late {
            write!(f, ", {id} late since {since}")?;
        }
        match (self.doubt, self.last_doubt) {
            (true, _) => write!(f, ", in doubt"),
            (false, Some(last)) => write!(f, ", last doubt {last}"),
            (false, None) => Ok(()),
        }
    }
}
