//! A pacemaker in which views are left by certificate only (`hotstuff` §7): a replica whose timer expires says so to
//! the others and stays where it is; a quorum of such words is what lets everybody into the next view.
//!
//! It decides nothing by itself: it remembers views, timers' lengths and who has given up, and protocols ask.

use super::timeouts::TimeoutCertificate;
use crate::message::Signed;
use crate::protocol::{Healed, OpenError};
use quorate_types::{Committee, ReplicaId, ReplicaSet, Signature, Time, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

/// To whom a replica says that it gives a view up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Complaints {
    /// To all: whoever hears f + 1 joins in. O(n²) messages, in failed views only.
    Broadcast,
    /// To the next leader, and with each further expiry to one more: O(n) messages an expiry.
    Linear,
}

/// How long a view may last, as parameters have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// D0: the first timer of a view, in milliseconds. At least six network delays.
    pub d0_ms: u64,
    /// C: no timer grows beyond it, in milliseconds.
    pub cap_ms: u64,
}

impl Timing {
    /// Whether it is in range.
    ///
    /// # Errors
    /// When it is not.
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

/// From a healed network to the first new commit, at most (`hotstuff` §16). The client asks all; one timer brings all
/// busy replicas into the highest view; at most f + 2 views with a faulty leader or half over pass before enough honest
/// leaders follow each other, one more for a certificate that is unknown; then n + 4 good views. A complaint takes
/// `attempts` expiries to be heard by somebody who acts on it, and a faulty leader's turn costs `timers` of them. Where
/// replicas may not know who leads, that ends after `patience` turns (`LeaderPolicy::patience`).
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
    // A first timer that is too short has to be doubled until it is not.
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

/// The newest view that a replica has given up, as it said.
#[derive(Clone, Copy, Debug)]
struct GivenUp {
    view: View,
    /// View of the highest certificate that it showed.
    high: View,
    signature: Signature,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pacemaker {
    timing: Timing,
    view: View,
    /// What let this replica in, where it was not a certificate of the view before.
    timeouts: Option<TimeoutCertificate>,
    /// Views in a row that were given up since something was committed.
    fails: u32,
    /// Expiries in this view.
    attempts: u32,
    /// Whether this replica has given the view up.
    has_given_up: bool,
    /// What others have given up: the newest view of each.
    given_up: BTreeMap<ReplicaId, GivenUp>,
    /// When each peer was shown last why this replica is in its view.
    shown: BTreeMap<ReplicaId, Time>,
    /// Views that were given up since this replica was opened.
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

    /// The current view.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// Who has given up an earlier view, where that let this replica in.
    #[must_use]
    pub fn timeouts(&self) -> Option<&TimeoutCertificate> {
        self.timeouts.as_ref()
    }

    /// Enters a later view; false when it is none.
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

    /// Something was committed: timers are short again. A certificate alone is no reason: with a timer far too short
    /// each good view would be followed by a bad one, and a commit needs several in a row.
    pub fn note_commit(&mut self) {
        self.fails = 0;
    }

    /// D: how long the current view may last.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let doublings = self.fails.saturating_sub(1).min(63);
        let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.timing.first_ns().saturating_mul(factor).min(self.timing.cap_ns())
    }

    /// Gives the current view up, or says so once more. How often it has been said before.
    pub fn give_up(&mut self) -> u32 {
        self.has_given_up = true;
        let before = self.attempts;
        self.attempts = self.attempts.saturating_add(1);
        before
    }

    /// Whether this replica has given the current view up.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// A replica has given up a view. Kept is the newest view of each, so that a replica takes the room of one.
    pub fn note(&mut self, by: ReplicaId, view: View, high: View, signature: Signature) {
        let newer = self.given_up.get(&by).is_none_or(|known| known.view <= view);
        if newer && view >= self.view {
            self.given_up.insert(by, GivenUp { view, high, signature });
        }
    }

    /// Who has given the current view up, as far as this replica has heard.
    #[must_use]
    pub fn who_gave_up(&self) -> ReplicaSet {
        self.given_up.iter().filter(|(_, said)| said.view == self.view).map(|(by, _)| *by).collect()
    }

    /// The certificate of the current view's end, when `quorum` have given it up.
    #[must_use]
    pub fn certificate(&self, quorum: usize) -> Option<TimeoutCertificate> {
        let said = self.given_up.iter().filter(|(_, said)| said.view == self.view);
        let listed: Vec<Signed<View>> = said
            .map(|(by, said)| Signed { body: said.high, by: *by, signature: said.signature })
            .take(quorum)
            .collect();
        (listed.len() >= quorum).then_some(TimeoutCertificate { view: self.view, listed })
    }

    /// All peers were shown just now.
    pub fn note_shown(&mut self, peers: impl Iterator<Item = ReplicaId>, now: Time) {
        self.shown.extend(peers.map(|peer| (peer, now)));
    }

    /// Whether a peer that is behind may be shown why this replica is in its view: once in so long.
    pub fn may_show(&mut self, peer: ReplicaId, now: Time) -> bool {
        // Δ, as far as the timer knows it.
        let pause = self.timing.first_ns() / 6;
        let may = self.shown.get(&peer).is_none_or(|last| now.since(*last) >= pause);
        if may {
            self.shown.insert(peer, now);
        }
        may
    }

    /// Views that were given up since this replica was opened.
    #[must_use]
    pub fn failed_views(&self) -> u64 {
        self.failed_views
    }
}
