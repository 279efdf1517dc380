//! The synchrony guard: checks whether the bound on delays holds on which a synchronous protocol rests.
//!
//! The guard probes every peer, and each peer answers from its handler. So a round trip contains everything that
//! delays a message: queues, checks, and the loops of both sides. An answer also has the age of the oldest message
//! that waits for the peer's disk. The guard adds that age, because those messages are late by so much more.
//!
//! ```text
//! late(x)              x's last answer took more than Δ, or a probe to x is unanswered for Δ, or frames of the link to x
//!                      were lost and no probe was answered that was sent since, or a probe is due since Δ
//! doubt                more than f peers are late
//! sound(since, fresh)  no doubt from `since` on, and n - f - 1 peers answered in time a probe sent at `fresh` or later
//! ```
//!
//! A replica probes all peers in one round, and a peer's probe prompts its own round. So all rounds fall together, and a
//! replica answers, probes and is answered in few wake-ups. `schedule.rs` has the times of the rounds.
//!
//! No peer can foretell the number of a probe, because it derives from a secret. A liar that could foretell numbers would
//! answer in advance, and its answers would look fresh while everything is slow.
//!
//! A one-way delay above Δ is seen at one of its ends at least: that is why a *round trip* must take no more than Δ. ADR
//! 0011 (`docs/adr/0011-what-a-bound-on-delays-asks-of-the-host.md`) says what the guard sees and what it does not.
//!
//! This is deliberately a pure struct: it returns the probes to send and the time of its next check, and the replica does
//! the rest. A peer cannot make it hold more than the limits allow.

mod clock;
mod measurements;
mod peer;
mod schedule;
mod status;
#[cfg(test)]
mod tests;

pub use status::GuardStatus;

use crate::host_message::HostMessage;
use clock::PeerClock;
use measurements::Measurements;
use peer::{ProbedPeer, UnansweredProbe};
use quorate_consensus::{Reject, Synchrony, To};
use quorate_types::digest::context;
use quorate_types::{Committee, Digest, DigestWriter, Incarnation, ReplicaId, ReplicaSet, Time};
use schedule::ProbeSchedule;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub(crate) struct SynchronyGuard {
    bound: Synchrony,
    /// f + 1: the number of late peers with which the bound is in doubt.
    weak: usize,
    /// n - f - 1: the number of peers whose answers make the guard fresh.
    enough: usize,
    /// The secret from which the numbers of probes derive: one for each round, and unknown to peers before.
    secret: Digest,
    incarnation: Incarnation,
    /// The rounds so far.
    rounds: u64,
    peers: BTreeMap<ReplicaId, ProbedPeer>,
    schedule: ProbeSchedule,
    /// The time at which the next probe becomes overdue, of peers that are not overdue already.
    overdue_at: Option<Time>,
    doubt: Doubt,
    /// The earliest moment for which the protocol waits: it needs answers to probes that were sent then or later.
    awaited: Option<Time>,
    /// Whether answers of [`SynchronyGuard::sound`] may have changed, and the protocol was not told yet.
    pub(crate) has_changed: bool,
    measured: Measurements,
}

/// Doubt: more than f peers are late.
#[derive(Debug, Default)]
struct Doubt {
    is_present: bool,
    /// The number of times that doubt has begun.
    begun: u64,
    /// The latest moment of doubt, as far as it was checked.
    last: Option<Time>,
}

impl SynchronyGuard {
    pub(crate) fn new(
        bound: Synchrony,
        me: ReplicaId,
        committee: &Committee,
        incarnation: Incarnation,
        secret: Digest,
    ) -> Self {
        Self {
            bound,
            weak: committee.weak(),
            enough: committee.honest_others(),
            secret,
            incarnation,
            rounds: 0,
            peers: committee.others(me).map(|peer| (peer, ProbedPeer::default())).collect(),
            schedule: ProbeSchedule::new(bound),
            overdue_at: None,
            doubt: Doubt::default(),
            awaited: None,
            has_changed: false,
            measured: Measurements::default(),
        }
    }

    /// Returns Δ in nanoseconds.
    pub(crate) fn delta_ns(&self) -> u64 {
        self.bound.delta_ns
    }

    /// Marks peers late before an input is handled at `now`. A probe that was due before `now` and is unanswered is late
    /// whatever the input is: also after a standstill of this replica, whose inputs are all handled at once.
    pub(crate) fn before_input(&mut self, now: Time) {
        self.mark_missed_round(now);
        self.mark_overdue(now, now.minus(1));
    }

    /// Marks peers late after everything that had arrived by `due` was handled. That may be nothing: after a standstill of
    /// the whole machine, frames are resent and arrive later.
    pub(crate) fn tick(&mut self, now: Time, due: Time) {
        self.mark_missed_round(now);
        self.mark_overdue(now, due);
    }

    /// Counts a round that is due since Δ as unanswered by all: this replica stood still, and knows nothing of that time.
    fn mark_missed_round(&mut self, now: Time) {
        if self.schedule.take_missed(now) {
            for peer in self.peers.values_mut() {
                peer.is_overdue = true;
                peer.update_lateness(now);
            }
            self.update_doubt(now);
        }
    }

    /// Marks peers late whose probes were due by `until` and are unanswered.
    fn mark_overdue(&mut self, now: Time, until: Time) {
        if self.overdue_at.is_none_or(|at| at > until) {
            return;
        }
        for peer in self.peers.values_mut() {
            if peer.due(self.bound.delta_ns).is_some_and(|at| at <= until) {
                peer.is_overdue = true;
                peer.update_lateness(now);
            }
        }
        self.update_doubt(now);
    }

    /// Counts the late peers again.
    fn update_doubt(&mut self, now: Time) {
        self.overdue_at = self.peers.values().filter_map(|peer| peer.due(self.bound.delta_ns)).min();
        let late = self.peers.values().filter(|peer| peer.late_since.is_some()).count();
        let is_present = late >= self.weak;
        if is_present || self.doubt.is_present {
            self.doubt.last = Some(now);
        }
        if is_present != self.doubt.is_present {
            self.doubt.is_present = is_present;
            self.doubt.begun = self.doubt.begun.saturating_add(u64::from(is_present));
            self.schedule.hasten(now);
            // If the guard is off, no answer changes.
            self.has_changed |= self.bound.guarded;
        }
    }

    /// Whether the protocol must hear that answers of [`SynchronyGuard::sound`] may have changed; true once for each
    /// change.
    pub(crate) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Returns the time of the next check or round.
    pub(crate) fn deadline(&self) -> Time {
        self.overdue_at.map_or(self.schedule.next, |at| at.min(self.schedule.next))
    }

    /// Notes a message of the protocol: a wait that it begins may rest on the guard.
    pub(crate) fn on_protocol_message(&mut self, now: Time) {
        self.schedule.on_protocol_message(now);
    }

    /// Notes a peer's probe of this replica, which prompts the own round.
    pub(crate) fn on_probe(&mut self, now: Time) {
        self.schedule.on_probe(now, self.last_doubt(now));
    }

    /// Returns the last moment of doubt, which is now while there is doubt.
    fn last_doubt(&self, now: Time) -> Option<Time> {
        if self.doubt.is_present { Some(now) } else { self.doubt.last }
    }

    /// Begins the round that is due. Returns its probe with the peers to send it to.
    pub(crate) fn take_probe(&mut self, now: Time) -> Option<(To, HostMessage)> {
        if now < self.schedule.next {
            return None;
        }
        self.mark_missed_round(now);
        self.measured.note_lag(self.schedule.lag_ns(now), self.schedule.often_ns());
        self.schedule.begin_round(now, self.last_doubt(now));
        let (incarnation, mut to) = (self.incarnation, ReplicaSet::EMPTY);
        let number = probe_number(self.secret, incarnation, self.rounds);
        for (id, peer) in &mut self.peers {
            if peer.probe(number, now) {
                to.insert(*id);
                self.measured.probes = self.measured.probes.saturating_add(1);
            }
        }
        self.rounds = self.rounds.saturating_add(1);
        self.schedule.last = Some(now);
        self.update_doubt(now);
        (!to.is_empty()).then_some((To::Some(to), HostMessage::Probe { incarnation, number }))
    }

    /// Takes in a peer's answer to a probe: the age of the oldest message that waits for its disk, and its clock.
    ///
    /// # Errors
    /// Fails when no probe has this number, or it does not count any more.
    pub(crate) fn on_answer(
        &mut self,
        now: Time,
        from: ReplicaId,
        incarnation: Incarnation,
        number: u64,
        (oldest_ns, theirs): (u64, Time),
    ) -> Result<(), Reject> {
        if incarnation != self.incarnation {
            return Ok(()); // The probe was sent before this replica was opened.
        }
        let delta_ns = self.bound.delta_ns;
        let peer = self.peers.get_mut(&from).ok_or(Reject::WrongSender)?;
        let UnansweredProbe { sent, measures, .. } = peer.take_answered(number).ok_or(Reject::Stale)?;
        let round_trip_ns = now.since(sent);
        peer.is_slow = round_trip_ns.saturating_add(oldest_ns) > delta_ns;
        (peer.has_gap, peer.has_answered) = (false, true);
        if !peer.is_slow {
            peer.fresh = peer.fresh.max(Some(sent));
        }
        peer.is_overdue = peer.unanswered.front().is_some_and(|probe| probe.sent.plus(delta_ns) < now);
        peer.clock.note(sent.plus(round_trip_ns / 2), theirs, round_trip_ns);
        peer.update_lateness(now);
        if measures {
            // A peer may invent its age, so the age counts for little more than what makes the peer late anyway.
            let told_ns = oldest_ns.min(delta_ns.saturating_mul(2));
            self.measured.note_round_trip(round_trip_ns.saturating_add(told_ns));
        }
        self.update_doubt(now);
        if self.awaited.take_if(|fresh| is_fresh(&self.peers, self.enough, *fresh)).is_some() {
            self.has_changed = true;
        }
        Ok(())
    }

    /// Notes that frames of the link to a peer are lost for good. Answers to earlier probes prove nothing about the gap,
    /// and do not count.
    pub(crate) fn on_gap(&mut self, now: Time, from: ReplicaId) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.unanswered.clear();
            (peer.is_overdue, peer.has_answered, peer.has_gap) = (false, false, true);
            // The peer may have restarted, and its clock with it.
            peer.clock = PeerClock::default();
            peer.update_lateness(now);
            self.update_doubt(now);
        }
    }

    /// See `Cx::sound`.
    pub(crate) fn sound(&mut self, now: Time, since: Time, fresh: Time) -> bool {
        if !self.bound.guarded {
            return true;
        }
        if self.doubt.is_present {
            self.doubt.last = Some(now);
        }
        if self.doubt.last.is_some_and(|last| last >= since) {
            return false;
        }
        if is_fresh(&self.peers, self.enough, fresh) {
            return true;
        }
        self.awaited = Some(self.awaited.map_or(fresh, |awaited| awaited.min(fresh)));
        if self.schedule.last.is_none_or(|last| last < fresh) {
            self.schedule.next = self.schedule.next.min(fresh.max(now));
        }
        false
    }

    /// Returns whether there is doubt, and the number of times that it has begun.
    pub(crate) fn doubt(&self) -> (bool, u64) {
        (self.doubt.is_present, self.doubt.begun)
    }

    /// Returns the measurements, for status.
    pub(crate) fn status(&self) -> GuardStatus {
        let (p999_ns, max_ns) = self.measured.p999_and_max_ns();
        let late = self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.late_since?)));
        let drifts = self.peers.values().filter_map(|peer| peer.clock.drift_ppm());
        GuardStatus {
            bound: self.bound,
            p999_ns,
            max_ns,
            late: late.collect(),
            doubt: self.doubt.is_present,
            doubts: self.doubt.begun,
            last_doubt: self.doubt.last,
            drift_ppm: drifts.max_by_key(|ppm| ppm.unsigned_abs()),
            probes: self.measured.probes,
            lags: self.measured.lags,
            lag_max_ns: self.measured.lag_max_ns,
        }
    }
}

/// Whether enough peers have answered in time a probe that was sent then or later.
fn is_fresh(peers: &BTreeMap<ReplicaId, ProbedPeer>, enough: usize, fresh: Time) -> bool {
    peers.values().filter(|peer| peer.fresh.is_some_and(|at| at >= fresh)).count() >= enough
}

/// Returns the number of the probes of a round.
pub(crate) fn probe_number(secret: Digest, incarnation: Incarnation, round: u64) -> u64 {
    let mut writer = DigestWriter::new(&context::PROBE);
    let digest =
        writer.update(&secret.0).update(&incarnation.0.to_le_bytes()).update(&round.to_le_bytes()).finish();
    u64::from_le_bytes(*digest.0.first_chunk().unwrap_or(&[0; 8]))
}
