//! Δ: the time within which every honest replica handles a message of another one. Synchronous protocols measure their
//! timers in Δ, and their timing parameters must be equal everywhere (`sync-hotstuff` §1).

use crate::examined::Healed;
use crate::past::OpenError;
use crate::spec::Synchrony;
use quorate_types::{Committee, Time};
use serde::{Deserialize, Serialize};

const MS: u64 = 1_000_000;

/// Parameters of a synchronous protocol. All of them are part of the cluster's identity: replicas with different values
/// do not wait for each other long enough.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SynchronyParams {
    /// Δ: milliseconds from the handler that sends to the handler of the receiver, 1 to 60,000. Δ includes the sender's disk,
    /// three messages of the network (a header, the request for a body and the body), and checks. With the guard on it must
    /// be at least twice the real delay of a message, or no timer ever commits.
    pub delta_ms: u64,
    /// τ: milliseconds after which a leader without requests proposes an empty block, 1 to 600,000.
    pub heartbeat_ms: u64,
    /// Milliseconds within which replicas that lose power together run again, 1 to 3,600,000. A replica that waits in vain
    /// for another one continues after that time. The time counts from the moment at which a replica has read its disk and
    /// runs. Up to a second and a half of it may pass until a restarted replica is reached.
    pub boot_wait_ms: u64,
    /// ρ: largest difference in speed of two clocks, in millionths, up to 100,000. Timers are longer by twice that.
    pub drift_ppm: u64,
    /// Whether timers commit nothing while probes show that the bound on delays may not hold.
    pub guarded: bool,
}

impl Default for SynchronyParams {
    fn default() -> Self {
        Self { delta_ms: 50, heartbeat_ms: 1_000, boot_wait_ms: 10_000, drift_ppm: 200, guarded: true }
    }
}

impl SynchronyParams {
    /// Names of all parameters.
    pub const SHARED: &'static [&'static str] =
        &["delta_ms", "heartbeat_ms", "boot_wait_ms", "drift_ppm", "guarded"];

    /// Returns parameters for the exam: every time as short as Δ allows.
    #[must_use]
    pub fn exam(delta_ns: u64, guarded: bool) -> Self {
        let delta_ms = (delta_ns / MS).max(1);
        Self {
            delta_ms,
            heartbeat_ms: delta_ms.saturating_mul(2),
            boot_wait_ms: delta_ms.saturating_mul(20),
            drift_ppm: 1_000,
            guarded,
        }
    }

    /// Checks that all parameters are in range.
    ///
    /// # Errors
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), OpenError> {
        let ranges = [
            ("delta_ms", self.delta_ms, 1, 60_000),
            ("heartbeat_ms", self.heartbeat_ms, 1, 600_000),
            ("boot_wait_ms", self.boot_wait_ms, 1, 3_600_000),
            ("drift_ppm", self.drift_ppm, 0, 100_000),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                let expected = format!("{low} to {high}");
                return Err(OpenError::Params { name: name.to_owned(), expected });
            }
        }
        Ok(())
    }

    /// Returns the needs of the host's synchrony guard.
    #[must_use]
    pub fn synchrony(&self) -> Synchrony {
        Synchrony { delta_ns: self.delta_ms.saturating_mul(MS), guarded: self.guarded }
    }

    /// Returns Δ as a unit of timers.
    #[must_use]
    pub fn delta(&self) -> Delta {
        Delta { ns: self.delta_ms.saturating_mul(MS), drift_ppm: self.drift_ppm }
    }

    /// Returns τ as a timer.
    #[must_use]
    pub fn heartbeat_ns(&self) -> u64 {
        self.delta().longer(self.heartbeat_ms.saturating_mul(MS))
    }

    /// Returns the wait for replicas that have lost power as well, as a timer.
    #[must_use]
    pub fn boot_wait_ns(&self) -> u64 {
        self.delta().longer(self.boot_wait_ms.saturating_mul(MS))
    }

    /// Returns the longest time from a healed network to the first new commit (§21). A view with a faulty leader takes
    /// `bad_view` Δ and two heartbeats, and `bad_views` such views may pass.
    #[must_use]
    pub fn recovery(&self, committee: &Committee, healed: &Healed, bad_view: u64, bad_views: usize) -> Time {
        let delta = self.delta();
        let views = u64::try_from(bad_views).unwrap_or(u64::MAX);
        let n = u64::try_from(committee.n()).unwrap_or(u64::MAX);
        // Doubt ends 2.25 Δ after the heal, and 16 Δ after it timers commit again.
        let guard = delta.times(if self.guarded { 19 } else { 1 });
        // A restarted replica asks the others. Where more than f restart, nobody may have answers, and all wait.
        let restart = match healed.restarted {
            0 => 0,
            few if few < committee.weak() => delta.times(3),
            _ => self.boot_wait_ns().saturating_mul(2).saturating_add(delta.times(3)),
        };
        let bad = delta.times(bad_view).saturating_add(self.heartbeat_ns().saturating_mul(2));
        // Blocks committed while this replica was away come first: one round trip for each peer.
        let rest = delta.times(9_u64.saturating_add(n)).saturating_add(self.heartbeat_ns());
        let all = [guard, restart, views.saturating_mul(bad), rest, healed.client_retry_ns, healed.fetch_ns];
        Time(all.into_iter().fold(0, u64::saturating_add))
    }
}

/// Δ as a unit of timers, with the drift of clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    ns: u64,
    drift_ppm: u64,
}

impl Delta {
    /// Returns a timer of `count` Δ, longer by twice the drift.
    #[must_use]
    pub fn times(self, count: u64) -> u64 {
        self.longer(self.ns.saturating_mul(count))
    }

    /// Returns a quarter of Δ.
    #[must_use]
    pub fn quarter(self) -> u64 {
        self.ns / 4
    }

    /// Returns (1 + 2ρ) times `ns`.
    fn longer(self, ns: u64) -> u64 {
        let more =
            u128::from(ns).saturating_mul(u128::from(self.drift_ppm.saturating_mul(2))).div_ceil(1_000_000);
        ns.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_longer_by_twice_the_drift() {
        let delta = Delta { ns: 1_000, drift_ppm: 1_000 };
        assert_eq!((delta.times(1), delta.times(2), delta.quarter()), (1_002, 2_004, 250));
        assert_eq!(Delta { ns: u64::MAX, drift_ppm: 100_000 }.times(3), u64::MAX);
        // With any drift, a timer on a slow clock is no shorter than the time on a fast clock.
        for ppm in [1, 200, 50_000] {
            let timer = Delta { ns: 1_000_000, drift_ppm: ppm }.times(1);
            assert!(timer >= 1_000_000 + 2 * ppm, "{ppm}");
        }
    }

    #[test]
    fn parameter_out_of_range_is_named_in_the_error() {
        assert!(SynchronyParams::default().check().is_ok());
        assert!(SynchronyParams::exam(20_000_000, true).check().is_ok());
        let wrong = SynchronyParams { delta_ms: 0, ..SynchronyParams::default() };
        let Err(OpenError::Params { name, expected }) = wrong.check() else { panic!() };
        assert_eq!((name.as_str(), expected.as_str()), ("delta_ms", "1 to 60000"));
    }
}
