//! A pacemaker in which a certificate alone ends a view (`hotstuff` §7): a replica whose timer expires sends a timeout and
//! stays in its view, and a quorum of timeouts lets all replicas into the next view.
//!
//! It decides nothing by itself: it remembers views, the lengths of timers and the timeouts of others, for protocols.

use super::timeouts::TimeoutCertificate;
use crate::examined::Healed;
use crate::message::Signed;
use crate::past::OpenError;
use quorate_types::{Committee, ReplicaId, ReplicaSet, Signature, Time, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

/// Receivers of a timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Complaints {
    /// All replicas; a replica that receives f + 1 timeouts joins. O(n²) messages, in failed views only.
    Broadcast,
    /// The next leader, and one more replica with each further expiry: O(n) messages for each expiry.
    Linear,
}

/// Lengths of timers, as parameters have them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// D0: the first timer of a view in milliseconds, at least six network delays.
    pub d0_ms: u64,
    /// C: the longest timer in milliseconds.
    pub cap_ms: u64,
}

impl Timing {
    /// Checks that the lengths are in range.
    ///
    /// # Errors
    /// Fails when a length is out of range.
    pub fn check(&self) -> Result<(), OpenError> {
        let least = self.d0_ms.saturating_mul(3);
        for (name, value, low, high) in
            [("d0_ms", self.d0_ms, 10, 60_000), ("cap_ms", self.cap_ms, least, 600_000)]
        {
            if !(low..=high).contains(&value) {
                let expected = format!("{low} to {high}");
                return Err(OpenError::Params { name: name.to_owned(), expected });
            }
        }
        Ok(())
    }

    fn first_ns(&self) -> u64 {
        self.d0_ms.saturating_mul(MS)
    }

    /// Returns C in nanoseconds.
    #[must_use]
    pub fn cap_ns(&self) -> u64 {
        self.cap_ms.saturating_mul(MS)
    }
}

/// Costs of faulty leaders after the network has healed, at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedTurns {
    /// Expiries of the timer until a timeout reaches a replica that acts on it.
    pub expiries: usize,
    /// Timers that the turn of a faulty leader costs.
    pub timers: usize,
    /// Turns after which no replica is left out any more, see [`super::leaders::LeaderPolicy::patience`].
    pub patience: usize,
    /// The longest wait of a leader before its proposal, in nanoseconds.
    pub leader_wait_ns: u64,
}

/// Returns the longest time from a healed network to the first new commit (`hotstuff` §16).
///
/// The client asks all replicas; one timer brings all busy replicas into the highest view. At most f + 2 views with a
/// faulty leader, or already half over, pass before enough honest leaders follow each other. One more view fails for a
/// certificate that is unknown. Then come n + 4 good views.
#[must_use]
pub fn recovery(timing: &Timing, committee: &Committee, healed: &Healed, failed: &FailedTurns) -> Time {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let (n, f, expiries) = (count(committee.n()), count(committee.f), count(failed.expiries));
    let turns = f
        .saturating_mul(count(failed.timers))
        .saturating_add(count(failed.patience.saturating_add(1)).max(4));
    let delta = healed.delta_ns;
    // A first timer that is too short has to double until it is long enough.
    let climb =
        if timing.first_ns() < delta.saturating_mul(6) { timing.cap_ns().saturating_mul(2) } else { 0 };
    let wait = if failed.leader_wait_ns > 0 { failed.leader_wait_ns.max(delta.saturating_mul(2)) } else { 0 };
    let view = timing.cap_ns().saturating_add(wait).saturating_add(delta.saturating_mul(4));
    let bound = [
        healed.client_retry_ns,
        expiries.saturating_mul(turns).saturating_mul(view),
        delta.saturating_mul(4).saturating_mul(n.saturating_add(4)),
        climb,
        healed.fetch_ns,
    ];
    Time(bound.into_iter().fold(0, u64::saturating_add))
}

/// The newest timeout of a replica.
#[derive(Clone, Copy, Debug)]
struct Timeout {
    view: View,
    /// The view that the timeout lists as that of its highest certificate.
    high: View,
    signature: Signature,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pacemaker {
    timing: Timing,
    view: View,
    /// The certificate that let this replica in, where it was not a certificate of the view before.
    entered_by: Option<TimeoutCertificate>,
    /// Failed views since the last commit.
    fails: u32,
    /// Expiries in this view.
    attempts: u32,
    has_timed_out: bool,
    /// The newest timeout of each replica.
    timeouts: BTreeMap<ReplicaId, Timeout>,
    /// Time at which this replica last sent the proof of its view to each peer.
    proofs_sent: BTreeMap<ReplicaId, Time>,
    /// Failed views since this replica was opened.
    failed_views: u64,
}

impl Pacemaker {
    /// Starts in a view.
    #[must_use]
    pub fn new(timing: Timing, view: View, entered_by: Option<TimeoutCertificate>) -> Self {
        Self {
            timing,
            view,
            entered_by,
            fails: 0,
            attempts: 0,
            has_timed_out: false,
            timeouts: BTreeMap::new(),
            proofs_sent: BTreeMap::new(),
            failed_views: 0,
        }
    }

    /// Returns the current view.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// Returns the timeouts that let this replica into its view, if any did.
    #[must_use]
    pub fn timeouts(&self) -> Option<&TimeoutCertificate> {
        self.entered_by.as_ref()
    }

    /// Enters a later view. Returns whether the view is later than the current one.
    pub fn enter(&mut self, view: View, timeouts: Option<TimeoutCertificate>) -> bool {
        if view <= self.view {
            return false;
        }
        if timeouts.is_some() {
            self.fails = self.fails.saturating_add(1);
            self.failed_views = self.failed_views.saturating_add(1);
        }
        self.view = view;
        self.entered_by = timeouts;
        self.attempts = 0;
        self.has_timed_out = false;
        self.timeouts.retain(|_, timeout| timeout.view >= view);
        true
    }

    /// Makes timers short again after a commit. A certificate alone does not: a commit needs several good views in a row,
    /// and with a timer far too short a failed view would follow each good one.
    pub fn note_commit(&mut self) {
        self.fails = 0;
    }

    /// Returns D, the length of the timer of the current view.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let doublings = self.fails.saturating_sub(1).min(63);
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.timing.first_ns().saturating_mul(factor).min(self.timing.cap_ns())
    }

    /// Times out in the current view. Returns the number of earlier timeouts in it.
    pub fn time_out(&mut self) -> u32 {
        self.has_timed_out = true;
        let before = self.attempts;
        self.attempts = self.attempts.saturating_add(1);
        before
    }

    /// Whether this replica has timed out in the current view.
    #[must_use]
    pub fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    /// Adds the timeout of a replica. Only the newest of each replica is kept, which bounds the room that it takes.
    pub fn add_timeout(&mut self, by: ReplicaId, view: View, high: View, signature: Signature) {
        let newer = self.timeouts.get(&by).is_none_or(|known| known.view <= view);
        if newer && view >= self.view {
            self.timeouts.insert(by, Timeout { view, high, signature });
        }
    }

    /// Returns the replicas that have timed out in the current view, as far as this replica knows.
    #[must_use]
    pub fn timed_out(&self) -> ReplicaSet {
        self.timeouts.iter().filter(|(_, timeout)| timeout.view == self.view).map(|(by, _)| *by).collect()
    }

    /// Returns the certificate that ends the current view, when `quorum` replicas have timed out in it.
    #[must_use]
    pub fn certificate(&self, quorum: usize) -> Option<TimeoutCertificate> {
        let timeouts = self.timeouts.iter().filter(|(_, timeout)| timeout.view == self.view);
        let listed: Vec<Signed<View>> = timeouts
            .map(|(by, timeout)| Signed { body: timeout.high, by: *by, signature: timeout.signature })
            .take(quorum)
            .collect();
        (listed.len() >= quorum).then_some(TimeoutCertificate { view: self.view, listed })
    }

    /// Notes that the proof of this replica's view was sent to these peers.
    pub fn note_proof_sent(&mut self, peers: impl Iterator<Item = ReplicaId>, now: Time) {
        self.proofs_sent.extend(peers.map(|peer| (peer, now)));
    }

    /// Whether the proof of this replica's view may be sent to a peer that is behind: once in D0 / 6. Notes it if so.
    pub fn may_send_proof(&mut self, peer: ReplicaId, now: Time) -> bool {
        // Δ, as far as the timer knows it.
        let pause = self.timing.first_ns() / 6;
        let may = self.proofs_sent.get(&peer).is_none_or(|last| now.since(*last) >= pause);
        if may {
            self.proofs_sent.insert(peer, now);
        }
        may
    }

    /// Returns the number of failed views since this replica was opened.
    #[must_use]
    pub fn failed_views(&self) -> u64 {
        self.failed_views
    }
}
