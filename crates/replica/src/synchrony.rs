//! The synchrony guard: watches whether the bound on delays holds that a synchronous protocol rests on.
//!
//! Every peer is probed, and answers from its handler, so that a round trip has in it all that delays a message: queues,
//! checks, the loop of either side. It is probed each quarter of Δ while the protocol's messages come, in doubt, and for as
//! long afterwards as protocols wait then. Where nothing waits for the guard (no message came for 3 Δ, or it is off) each
//! 2 Δ will do. The age of the oldest message that waits for the peer's disk is
//! added, because those are late by so much more.
//!
//! ```text
//! late(x)              x's last answer took more than Δ, or a probe to x is unanswered for Δ, or something was lost on
//!                      the link to x and no probe was answered that was sent since, or a probe should have been sent
//!                      Δ ago
//! doubt                more than f peers are late
//! sound(since, fresh)  no doubt from `since` on, and n - f - 1 peers answered in time a probe sent at `fresh` or later
//! ```
//!
//! Replicas probe all peers in one round, and take the probe of a peer as the sign for their own: then all rounds fall
//! together, and one answers, probes and is answered in few wake-ups. Whoever is not asked does it by itself.
//!
//! The number of a probe cannot be foretold (it comes of a secret), so that whoever answers one has had it: a liar that knew
//! what will be asked could answer in advance, and its answers would look fresh in a slowdown of everything.
//!
//! A peer that is slower than Δ in one direction is seen at one end at least; that is why a *round trip* has to take no
//! more than Δ. What more it sees and does not: `docs/adr/0011-what-a-bound-on-delays-asks-of-the-host.md`.
//!
//! This is deliberately a pure struct: it says what to send and when it wants to be looked at, and the replica does it.
//! Nothing that a peer says makes it hold more than the limits say.

use crate::host_message::HostMessage;
use quorate_consensus::{Reject, Synchrony, To};
use quorate_types::digest::context;
use quorate_types::limits::{CLOCK_SAMPLES_MAX, PROBES_UNANSWERED_MAX, ROUND_TRIPS_MAX};
use quorate_types::{Committee, Digest, DigestWriter, Incarnation, ReplicaId, ReplicaSet, Time};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// Probes in a time of Δ while there is work.
const PROBES_PER_DELTA: u64 = 4;
/// So many times Δ after the last message of the protocol there is no work: what waits for the guard has seen one since.
const WORK_DELTAS: u64 = 3;
/// So many times Δ after a doubt nothing waits for its end any more: protocols wait for 10 Δ and then 2 Δ before they enter a
/// view, and commit by time what was voted for 16 Δ later.
const DOUBT_DELTAS: u64 = 20;
/// Where there is no work, probes are so many times Δ apart.
const IDLE_DELTAS: u64 = 2;
/// Who begins a round does it this part of a round sooner than who is asked to, so that it stays so.
const HEAD_START: u64 = 16;
/// A peer that has left so many unanswered as are remembered is gone: it is probed this seldom, so that probes do not
/// fill what its link keeps for it.
const PROBE_GONE_NS: u64 = 1_000_000_000;
/// Clocks are compared over at least this time.
const CLOCK_SPAN_NS: u64 = 10_000_000_000;

/// What the guard measures and thinks, for status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuardStatus {
    /// Δ, and whether anything waits for what the guard says.
    pub bound: Synchrony,
    /// Of the last round trips, each with what its peer held, 999 of 1000 took at most this; 0 before the first. Probes
    /// that were sent to a peer before it was there do not count.
    pub p999_ns: u64,
    /// The longest of them.
    pub max_ns: u64,
    /// Who is late, and since when.
    pub late: Vec<(ReplicaId, Time)>,
    /// Whether more than f are.
    pub doubt: bool,
    /// How often doubt has begun.
    pub doubts: u64,
    /// The latest moment of doubt; that of the last look while there is doubt.
    pub last_doubt: Option<Time>,
    /// By how much the clock of a peer goes faster (or slower: below zero) than the own one, parts in a million: the
    /// largest of all peers. A peer may lie about it.
    pub drift_ppm: Option<i64>,
    /// Probes that were sent, to each peer one.
    pub probes: u64,
    /// How often this replica came to its own probes more than a quarter of Δ late, and the longest such time.
    pub lags: u64,
    /// See `lags`.
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

/// A peer's clock and the own one at the same moment, as nearly as it is known.
#[derive(Clone, Copy, Debug)]
struct ClockSample {
    own: Time,
    theirs: Time,
    round_trip_ns: u64,
}

/// How a peer's clock goes: of each [`CLOCK_SPAN_NS`] the sample that was nearest.
#[derive(Debug, Default)]
struct PeerClock {
    samples: VecDeque<ClockSample>,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    number: u64,
    sent: Time,
    /// Whether its peer was there when it was sent: else its answer only tells how long it was not.
    measures: bool,
}

#[derive(Debug, Default)]
struct Peer {
    /// Probes, in order.
    unanswered: VecDeque<Unanswered>,
    /// Whether it has answered anything since it was first probed, and since something was lost.
    heard: bool,
    /// Whether its last answer took more than Δ.
    slow: bool,
    /// Whether the first unanswered probe is unanswered for Δ.
    overdue: bool,
    /// Something was lost, and no probe that was sent since has been answered.
    gap: bool,
    /// Since when one of the three holds.
    late_since: Option<Time>,
    /// When the last probe was sent that it has answered in time.
    fresh: Option<Time>,
    /// When it was probed last.
    probed: Time,
    clock: PeerClock,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SynchronyGuard {
    delta_ns: u64,
    guarded: bool,
    f: usize,
    /// n - f - 1: peers whose answers make it fresh.
    enough: usize,
    incarnation: Incarnation,
    peers: BTreeMap<ReplicaId, Peer>,
    /// What numbers of probes come of; no peer may know it.
    secret: Digest,
    /// How many rounds of probes there were.
    rounds: u64,
    /// When peers are probed next.
    probe_at: Time,
    /// When they were probed last.
    probed: Option<Time>,
    /// Until when peers are probed often.
    work_until: Time,
    /// A peer's probe was the sign for the round that is due.
    led: bool,
    /// When the next probe will have been unanswered for Δ, of peers that are not overdue anyway.
    overdue_at: Option<Time>,
    doubt: bool,
    doubts: u64,
    last_doubt: Option<Time>,
    /// Somebody waits for answers to probes that were sent then or later: the earliest such moment.
    asked: Option<Time>,
    /// Whether the protocol has to hear that things have changed.
    news: bool,
    /// What the last round trips took, over all peers.
    round_trips: VecDeque<u64>,
    probes: u64,
    /// The probe that this replica came to more than Δ late, as far as that was noticed.
    missed: Option<Time>,
    lags: u64,
    lag_max_ns: u64,
}

impl SynchronyGuard {
    pub(crate) fn delta_ns(&self) -> u64 {
        self.delta_ns
    }

    pub(crate) fn new(
        synchrony: Synchrony,
        me: ReplicaId,
        committee: &Committee,
        incarnation: Incarnation,
        secret: Digest,
    ) -> Self {
        Self {
            delta_ns: synchrony.delta_ns,
            guarded: synchrony.guarded,
            f: committee.f,
            enough: committee.n().saturating_sub(committee.f).saturating_sub(1),
            incarnation,
            peers: committee.others(me).map(|peer| (peer, Peer::default())).collect(),
            secret,
            rounds: 0,
            probe_at: Time::ZERO,
            probed: None,
            work_until: Time::ZERO,
            led: false,
            overdue_at: None,
            doubt: false,
            doubts: 0,
            last_doubt: None,
            asked: None,
            news: false,
            round_trips: VecDeque::new(),
            probes: 0,
            missed: None,
            lags: 0,
            lag_max_ns: 0,
        }
    }

    /// Something is about to be handled at `now`. What was due before and is not here is late whatever comes: also where
    /// this replica stood still, and all that waits is handled at once.
    pub(crate) fn before(&mut self, now: Time) {
        self.miss(now);
        self.look(now, now.minus(1));
    }

    /// A probe that should have left Δ ago is unanswered as well: this replica stood still, and knows nothing of that time.
    fn miss(&mut self, now: Time) {
        if self.lag_ns(now) <= self.delta_ns || self.missed == Some(self.probe_at) {
            return;
        }
        self.missed = Some(self.probe_at);
        for peer in self.peers.values_mut() {
            peer.overdue = true;
            peer.note(now);
        }
        self.review(now);
    }

    /// By how much the next probe is late.
    fn lag_ns(&self, now: Time) -> u64 {
        self.probed.map_or(0, |_| now.since(self.probe_at))
    }

    /// All that had arrived by `due` was handled, which may be nothing: where the whole machine stood still, what was sent
    /// meanwhile is sent anew and comes later.
    pub(crate) fn tick(&mut self, now: Time, due: Time) {
        self.miss(now);
        self.look(now, due);
    }

    /// Probes that were due by `until` and are unanswered are late.
    fn look(&mut self, now: Time, until: Time) {
        if self.overdue_at.is_none_or(|at| at > until) {
            return;
        }
        for peer in self.peers.values_mut() {
            if peer.due(self.delta_ns).is_some_and(|at| at <= until) {
                peer.overdue = true;
                peer.note(now);
            }
        }
        self.review(now);
    }

    /// A peer may have become late, or not be any more.
    fn review(&mut self, now: Time) {
        self.overdue_at = self.peers.values().filter_map(|peer| peer.due(self.delta_ns)).min();
        let late = self.peers.values().filter(|peer| peer.late_since.is_some()).count();
        let doubt = late > self.f;
        if doubt || self.doubt {
            self.last_doubt = Some(now);
        }
        if doubt != self.doubt {
            self.doubt = doubt;
            self.doubts = self.doubts.saturating_add(u64::from(doubt));
            self.hasten(now);
            // Where nothing waits for the guard, nothing changes.
            self.news |= self.guarded;
        }
    }

    /// Whether the protocol has to hear that [`SynchronyGuard::sound`] may answer otherwise; asked once.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether [`SynchronyGuard::take_news`] will say so.
    pub(crate) fn has_news(&self) -> bool {
        self.news
    }

    /// When it is to be looked at although nothing happens.
    pub(crate) fn deadline(&self) -> Time {
        self.overdue_at.map_or(self.probe_at, |at| at.min(self.probe_at))
    }

    /// The protocol gets a message: what it now waits for may rest on the guard.
    pub(crate) fn work(&mut self, now: Time) {
        let is_new = now > self.work_until;
        self.work_until = now.plus(self.delta_ns.saturating_mul(WORK_DELTAS));
        if is_new {
            self.hasten(now);
        }
    }

    /// Peers are to be probed often from now on.
    fn hasten(&mut self, now: Time) {
        if self.guarded {
            let next = self.probed.map_or(now, |probed| probed.plus(self.often_ns()).max(now));
            self.probe_at = self.probe_at.min(next);
        }
    }

    fn often_ns(&self) -> u64 {
        (self.delta_ns / PROBES_PER_DELTA).max(1)
    }

    fn idle_ns(&self) -> u64 {
        self.delta_ns.saturating_mul(IDLE_DELTAS)
    }

    fn probe_every_ns(&self, now: Time) -> u64 {
        let after_ns = self.delta_ns.saturating_mul(DOUBT_DELTAS);
        let is_recent = self.doubt || self.last_doubt.is_some_and(|last| now.since(last) <= after_ns);
        let waits = self.guarded && (is_recent || now <= self.work_until);
        if waits { self.often_ns() } else { self.idle_ns() }
    }

    /// A peer probes this replica: the sign for its own round, unless that was just now.
    pub(crate) fn on_probe(&mut self, now: Time) {
        let half_ns = self.probe_every_ns(now) / 2;
        if self.probed.is_some_and(|probed| now >= probed.plus(half_ns)) {
            self.led = true;
            self.probe_at = self.probe_at.min(now);
        }
    }

    /// The probe that is due, and for whom.
    pub(crate) fn probe(&mut self, now: Time) -> Option<(To, HostMessage)> {
        if now < self.probe_at {
            return None;
        }
        self.miss(now);
        let lag_ns = self.lag_ns(now);
        self.lags = self.lags.saturating_add(u64::from(lag_ns > self.often_ns()));
        self.lag_max_ns = self.lag_max_ns.max(lag_ns);
        let every_ns = self.probe_every_ns(now);
        let is_led = std::mem::take(&mut self.led);
        self.probe_at = now.plus(if is_led { every_ns } else { every_ns - every_ns / HEAD_START });
        let (number, mut to) = (number(self.secret, self.incarnation, self.rounds), ReplicaSet::EMPTY);
        for (id, peer) in &mut self.peers {
            if peer.probe(number, now) {
                to.insert(*id);
                self.probes = self.probes.saturating_add(1);
            }
        }
        self.rounds = self.rounds.saturating_add(1);
        self.probed = Some(now);
        self.review(now);
        let message = HostMessage::Probe { incarnation: self.incarnation, number };
        (!to.is_empty()).then_some((To::Some(to), message))
    }

    /// A peer answers a probe.
    ///
    /// # Errors
    /// When there was no such probe, or none that counts still.
    pub(crate) fn on_answer(
        &mut self,
        now: Time,
        from: ReplicaId,
        incarnation: Incarnation,
        number: u64,
        (oldest_ns, theirs): (u64, Time),
    ) -> Result<(), Reject> {
        if incarnation != self.incarnation {
            return Ok(()); // Asked before this replica was opened.
        }
        let peer = self.peers.get_mut(&from).ok_or(Reject::WrongSender)?;
        let Unanswered { sent, measures, .. } = peer.answered(number).ok_or(Reject::Stale)?;
        let round_trip_ns = now.since(sent);
        let took_ns = round_trip_ns.saturating_add(oldest_ns);
        peer.slow = took_ns > self.delta_ns;
        (peer.gap, peer.heard) = (false, true);
        if !peer.slow {
            peer.fresh = peer.fresh.max(Some(sent));
        }
        peer.overdue = peer.unanswered.front().is_some_and(|probe| probe.sent.plus(self.delta_ns) < now);
        peer.clock.note(sent.plus(round_trip_ns / 2), theirs, round_trip_ns);
        peer.note(now);
        if measures {
            if self.round_trips.len() >= ROUND_TRIPS_MAX {
                self.round_trips.pop_front();
            }
            // What the peer says of itself it may make up: it counts for no more than what makes it late anyway.
            let told_ns = oldest_ns.min(self.delta_ns.saturating_mul(2));
            self.round_trips.push_back(round_trip_ns.saturating_add(told_ns));
        }
        self.review(now);
        if self.asked.is_some_and(|asked| self.is_fresh(asked)) {
            self.asked = None;
            self.news = true;
        }
        Ok(())
    }

    /// Something was lost for good on the link to a peer. Answers to what was sent before prove nothing about it, and do
    /// not count.
    pub(crate) fn on_gap(&mut self, now: Time, from: ReplicaId) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.unanswered.clear();
            (peer.overdue, peer.heard, peer.gap) = (false, false, true);
            // It may have started anew, and its clock with it.
            peer.clock = PeerClock::default();
            peer.note(now);
            self.review(now);
        }
    }

    /// Whether enough peers have answered in time a probe that was sent then or later.
    fn is_fresh(&self, fresh: Time) -> bool {
        let answered = self.peers.values().filter(|peer| peer.fresh.is_some_and(|at| at >= fresh));
        answered.count() >= self.enough
    }

    /// See `Cx::sound`.
    pub(crate) fn sound(&mut self, now: Time, since: Time, fresh: Time) -> bool {
        if !self.guarded {
            return true;
        }
        if self.doubt {
            self.last_doubt = Some(now);
        }
        if self.last_doubt.is_some_and(|last| last >= since) {
            return false;
        }
        if self.is_fresh(fresh) {
            return true;
        }
        self.asked = Some(self.asked.map_or(fresh, |asked| asked.min(fresh)));
        if self.probed.is_none_or(|probed| probed < fresh) {
            self.probe_at = self.probe_at.min(fresh.max(now));
        }
        false
    }

    /// Whether there is doubt, and how often it has begun.
    pub(crate) fn doubt(&self) -> (bool, u64) {
        (self.doubt, self.doubts)
    }

    /// For status.
    pub(crate) fn status(&self) -> GuardStatus {
        let mut took: Vec<u64> = self.round_trips.iter().copied().collect();
        let max_ns = took.iter().copied().max().unwrap_or(0);
        let place = took.len().saturating_mul(999).div_ceil(1_000).saturating_sub(1);
        let p999_ns = if took.is_empty() { 0 } else { *took.select_nth_unstable(place).1 };
        let late = self.peers.iter().filter_map(|(id, peer)| Some((*id, peer.late_since?)));
        let drifts = self.peers.values().filter_map(|peer| peer.clock.drift_ppm());
        GuardStatus {
            bound: Synchrony { delta_ns: self.delta_ns, guarded: self.guarded },
            p999_ns,
            max_ns,
            late: late.collect(),
            doubt: self.doubt,
            doubts: self.doubts,
            last_doubt: self.last_doubt,
            drift_ppm: drifts.max_by_key(|ppm| ppm.unsigned_abs()),
            probes: self.probes,
            lags: self.lags,
            lag_max_ns: self.lag_max_ns,
        }
    }
}

/// The number of the probes of a round.
pub(crate) fn number(secret: Digest, incarnation: Incarnation, round: u64) -> u64 {
    let mut writer = DigestWriter::new(&context::PROBE);
    let digest =
        writer.update(&secret.0).update(&incarnation.0.to_le_bytes()).update(&round.to_le_bytes()).finish();
    u64::from_le_bytes(*digest.0.first_chunk().unwrap_or(&[0; 8]))
}

impl Peer {
    /// When its first unanswered probe is overdue; `None` where none is unanswered, or one is overdue anyway.
    fn due(&self, delta_ns: u64) -> Option<Time> {
        self.unanswered.front().filter(|_| !self.overdue).map(|probe| probe.sent.plus(delta_ns))
    }

    /// Whether it is sent the probe with this number.
    fn probe(&mut self, number: u64, now: Time) -> bool {
        if self.unanswered.len() >= PROBES_UNANSWERED_MAX {
            // One that is not overdue yet must not be forgotten: it will be, or is answered, within Δ.
            if !self.overdue || now.since(self.probed) < PROBE_GONE_NS {
                return false;
            }
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(Unanswered { number, sent: now, measures: self.heard });
        self.probed = now;
        true
    }

    /// A probe was answered, and with it all before: links keep their order.
    fn answered(&mut self, number: u64) -> Option<Unanswered> {
        let place = self.unanswered.iter().position(|probe| probe.number == number)?;
        self.unanswered.drain(..=place).next_back()
    }

    fn note(&mut self, now: Time) {
        let is_late = self.slow || self.overdue || self.gap;
        self.late_since = is_late.then(|| self.late_since.unwrap_or(now));
    }
}

impl PeerClock {
    /// At `own` the peer's clock said `theirs`, give or take half of the round trip.
    fn note(&mut self, own: Time, theirs: Time, round_trip_ns: u64) {
        let sample = ClockSample { own, theirs, round_trip_ns };
        let span = |at: Time| at.0 / CLOCK_SPAN_NS;
        match self.samples.back_mut() {
            // Another life of the peer, or nonsense.
            Some(last) if theirs < last.theirs => self.samples.clear(),
            Some(last) if span(own) == span(last.own) => {
                if round_trip_ns < last.round_trip_ns {
                    *last = sample;
                }
                return;
            }
            _ => {}
        }
        if self.samples.len() >= CLOCK_SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// Parts in a million by which it goes faster than the own one; `None` while too little is known.
    fn drift_ppm(&self) -> Option<i64> {
        let first = self.samples.front()?;
        // A nearer one than the newest may still come in its span.
        let last = self.samples.iter().rev().nth(1)?;
        let own_ns = last.own.since(first.own);
        if own_ns < CLOCK_SPAN_NS {
            return None;
        }
        let more = i128::from(last.theirs.since(first.theirs)).saturating_sub(i128::from(own_ns));
        let ppm = more.saturating_mul(1_000_000).checked_div(i128::from(own_ns))?;
        Some(i64::try_from(ppm).unwrap_or(if ppm < 0 { i64::MIN } else { i64::MAX }))
    }
}

#[cfg(test)]
#[path = "synchrony_tests.rs"]
mod tests;
