//! The times of the rounds of probes.
//!
//! While the protocol works, or after a doubt, a round follows each quarter of Δ. Otherwise nothing waits for the guard,
//! and one each 2 Δ is enough.

use quorate_consensus::Synchrony;
use quorate_types::Time;

/// Rounds in a time of Δ while there is work.
const ROUNDS_PER_DELTA: u64 = 4;
/// Multiples of Δ after the last message of the protocol for which there is work. A protocol that waits for the guard
/// has received a message since.
const WORK_DELTAS: u64 = 3;
/// Multiples of Δ after a doubt for which something may wait for its end. Protocols wait 10 Δ and then 2 Δ before they
/// enter a view, and commit by time 16 Δ after a vote.
const DOUBT_DELTAS: u64 = 20;
/// Multiples of Δ between rounds without work.
const IDLE_DELTAS: u64 = 2;
/// A replica that begins rounds does so this part of a round earlier than one that follows, so that the roles stay.
const HEAD_START: u64 = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct ProbeSchedule {
    bound: Synchrony,
    /// The time of the next round.
    pub(super) next: Time,
    /// The time of the last round.
    pub(super) last: Option<Time>,
    /// The end of the time for which the protocol has work.
    pub(super) work_until: Time,
    /// Whether a peer's probe prompted the round that is due.
    is_prompted: bool,
    /// The round that this replica began more than Δ late, as far as that was noticed.
    missed: Option<Time>,
}

impl ProbeSchedule {
    pub(super) fn new(bound: Synchrony) -> Self {
        Self { bound, next: Time::ZERO, last: None, work_until: Time::ZERO, is_prompted: false, missed: None }
    }

    /// Returns the delay of the next round; 0 before the first round.
    pub(super) fn lag_ns(&self, now: Time) -> u64 {
        self.last.map_or(0, |_| now.since(self.next))
    }

    /// Whether the next round is more than Δ late; true once for each round.
    pub(super) fn take_missed(&mut self, now: Time) -> bool {
        if self.lag_ns(now) <= self.bound.delta_ns || self.missed == Some(self.next) {
            return false;
        }
        self.missed = Some(self.next);
        true
    }

    /// Notes a message of the protocol: a wait that it begins may rest on the guard.
    pub(super) fn on_protocol_message(&mut self, now: Time) {
        let is_new = now > self.work_until;
        self.work_until = now.plus(self.bound.delta_ns.saturating_mul(WORK_DELTAS));
        if is_new {
            self.hasten(now);
        }
    }

    /// Moves the next round forward to the pace of a protocol with work.
    pub(super) fn hasten(&mut self, now: Time) {
        if self.bound.guarded {
            let next = self.last.map_or(now, |last| last.plus(self.often_ns()).max(now));
            self.next = self.next.min(next);
        }
    }

    /// Notes the probe of a peer. It prompts a round here, unless the last one was less than half a period ago.
    pub(super) fn on_probe(&mut self, now: Time, last_doubt: Option<Time>) {
        let half_ns = self.period_ns(now, last_doubt) / 2;
        if self.last.is_some_and(|last| now >= last.plus(half_ns)) {
            self.is_prompted = true;
            self.next = self.next.min(now);
        }
    }

    /// Begins a round now, and sets the time of the next one.
    pub(super) fn begin_round(&mut self, now: Time, last_doubt: Option<Time>) {
        let period_ns = self.period_ns(now, last_doubt);
        let is_prompted = std::mem::take(&mut self.is_prompted);
        self.next = now.plus(if is_prompted { period_ns } else { period_ns - period_ns / HEAD_START });
    }

    /// The period while there is work, and the delay of a round from which on it counts as a lag.
    pub(super) fn often_ns(&self) -> u64 {
        (self.bound.delta_ns / ROUNDS_PER_DELTA).max(1)
    }

    /// The period at this time. `last_doubt` is the last moment of doubt, which is now while there is doubt.
    fn period_ns(&self, now: Time, last_doubt: Option<Time>) -> u64 {
        let after_ns = self.bound.delta_ns.saturating_mul(DOUBT_DELTAS);
        let is_recent = last_doubt.is_some_and(|last| now.since(last) <= after_ns);
        let is_waited_for = self.bound.guarded && (is_recent || now <= self.work_until);
        if is_waited_for { self.often_ns() } else { self.bound.delta_ns.saturating_mul(IDLE_DELTAS) }
    }
}
