//! A pacemaker for protocols that leave views by certificate only (`hotstuff` §7). A replica whose timer expires sends a
//! timeout and stays in its view; a quorum of timeouts lets everybody into the next view.
//!
//! It decides nothing by itself: it remembers views, durations and timeouts, and protocols ask.

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
    /// All replicas: a replica that receives f + 1 timeouts joins them. O(n²) messages, in failed views only.
    Broadcast,
    /// The next leader, and with each further expiry one more replica: O(n) messages an expiry.
    Linear,
}

/// Durations of views, from the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// D0: the first timer of a view, in milliseconds. At least six network delays.
    pub d0_ms: u64,
    /// C: no timer grows beyond it, in milliseconds.
    pub cap_ms: u64,
}

impl Timing {
    /// Checks that both durations are in range.
    ///
    /// # Errors
    /// The first duration that is out of range.
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

    fn cap_ns(&self) -> u64 {
        self.cap_ms.saturating_mul(MS)
    }
}

/// Returns the longest time from a healed network to the first new commit (`hotstuff` §16).
///
/// The client asks all. One timer brings all busy replicas into the highest view. At most f + 2 views with a faulty leader
/// or half over pass before enough honest leaders follow each other, and one more for an unknown certificate. Then n + 4
/// good views follow. A timeout takes `attempts` expiries to reach a replica that acts on it, and the turn of a faulty leader
/// costs `timers` of them. Replicas may not know the leader for at most `patience` turns (`LeaderPolicy::patience`).
#[must_use]
pub fn recovery(
    timing: &Timing,
    committee: &Committee,
    healed: &Healed,
    attempts: usize,
    timers: usize,
    patience: usize,
) -> Time {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let (n, f, attempts) = (count(committee.n()), count(committee.f), count(attempts));
    let turns = f.saturating_mul(count(timers)).saturating_add(count(patience).saturating_add(1).max(4));
    let delta = healed.delta_ns;
    // A first timer that is too short doubles until it is long enough.
    let climb =
        if timing.first_ns() < delta.saturating_mul(6) { timing.cap_ns().saturating_mul(2) } else { 0 };
    let view = timing.cap_ns().saturating_add(delta.saturating_mul(4));
    let bound = [
        healed.client_retry_ns,
        attempts.saturating_mul(turns).saturating_mul(view),
        delta.saturating_mul(4).saturating_mul(n.saturating_add(4)),
        climb,
        healed.fetch_ns,
    ];
    Time(bound.into_iter().fold(0, u64::saturating_add))
}

/// The newest timeout of a replica.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    view: View,
    /// View of the highest certificate that the replica showed.
    high: View,
    signature: Signature,
}

/// The current view and the timeouts in it.
#[derive(Clone, Debug)]
pub struct Pacemaker {
    timing: Timing,
    view: View,
    /// Timeout certificate that let this replica in, where no certificate of the view before did.
    timeouts: Option<TimeoutCertificate>,
    /// Consecutive views that ended by timeouts since the last commit.
    fails: u32,
    /// Expiries of the timer in this view.
    attempts: u32,
    /// Whether this replica has timed out in the view.
    has_given_up: bool,
    /// Timeouts of others: the newest of each.
    given_up: BTreeMap<ReplicaId, GivenUp>,
    /// Time at which each peer last received the proof of this replica's view.
    shown: BTreeMap<ReplicaId, Time>,
    /// Number of views that ended by timeouts since this replica was opened.
    failed_views: u64,
}

impl Pacemaker {
    /// Starts in a view.
    #[must_use]
    pub fn new(timing: Timing, view: View, timeouts: Option<TimeoutCertificate>) -> Self {
        Self {
            timing,
            view,
            timeouts,
            fails: 0,
            attempts: 0,
            has_given_up: false,
            given_up: BTreeMap::new(),
            shown: BTreeMap::new(),
            failed_views: 0,
        }
    }

    /// Returns the current view.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// Returns the timeout certificate that let this replica in, where one did.
    #[must_use]
    pub fn timeouts(&self) -> Option<&TimeoutCertificate> {
        self.timeouts.as_ref()
    }

    /// Enters a view. Returns false when it is not a later one.
    pub fn enter(&mut self, view: View, timeouts: Option<TimeoutCertificate>) -> bool {
        if view <= self.view {
            return false;
        }
        if timeouts.is_some() {
            self.fails = self.fails.saturating_add(1);
            self.failed_views = self.failed_views.saturating_add(1);
        }
        self.view = view;
        self.timeouts = timeouts;
        self.attempts = 0;
        self.has_given_up = false;
        self.given_up.retain(|_, said| said.view >= view);
        true
    }

    /// Makes timers short again after a commit. A certificate alone is no reason: with a timer far too short a bad view would
    /// follow each good one, and a commit needs several good views in a row.
    pub fn note_commit(&mut self) {
        self.fails = 0;
    }

    /// Returns D: the duration of the current view's timer.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let doublings = self.fails.saturating_sub(1).min(63);
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.timing.first_ns().saturating_mul(factor).min(self.timing.cap_ns())
    }

    /// Times out in the current view, for the first time or again. Returns the number of earlier timeouts in it.
    pub fn give_up(&mut self) -> u32 {
        self.has_given_up = true;
        let before = self.attempts;
        self.attempts = self.attempts.saturating_add(1);
        before
    }

    /// Returns whether this replica has timed out in the current view.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// Adds a timeout of a replica. Only the newest of each is kept, so that a replica takes the room of one.
    pub fn note(&mut self, by: ReplicaId, view: View, high: View, signature: Signature) {
        let newer = self.given_up.get(&by).is_none_or(|known| known.view <= view);
        if newer && view >= self.view {
            self.given_up.insert(by, GivenUp { view, high, signature });
        }
    }

    /// Returns the replicas whose timeout in the current view has arrived.
    #[must_use]
    pub fn who_gave_up(&self) -> ReplicaSet {
        self.given_up.iter().filter(|(_, said)| said.view == self.view).map(|(by, _)| *by).collect()
    }

    /// Returns the timeout certificate of the current view once `quorum` timeouts have arrived.
    #[must_use]
    pub fn certificate(&self, quorum: usize) -> Option<TimeoutCertificate> {
        let said = self.given_up.iter().filter(|(_, said)| said.view == self.view);
        let listed: Vec<Signed<View>> = said
            .map(|(by, said)| Signed { body: said.high, by: *by, signature: said.signature })
            .take(quorum)
            .collect();
        (listed.len() >= quorum).then_some(TimeoutCertificate { view: self.view, listed })
    }

    /// Notes that the proof of this replica's view goes to these peers now.
    pub fn note_shown(&mut self, peers: impl Iterator<Item = ReplicaId>, now: Time) {
        self.shown.extend(peers.map(|peer| (peer, now)));
    }

    /// Returns whether a peer that is behind may receive the proof of this replica's view now: once in a while.
    pub fn may_show(&mut self, peer: ReplicaId, now: Time) -> bool {
        // Δ, as far as the timer's length tells.
        let pause = self.timing.first_ns() / 6;
        let may = self.shown.get(&peer).is_none_or(|last| now.since(*last) >= pause);
        if may {
            self.shown.insert(peer, now);
        }
        may
    }

    /// Returns the number of views that ended by timeouts since this replica was opened.
    #[must_use]
    pub fn failed_views(&self) -> u64 {
        self.failed_views
    }
}
