//! Messages of replicas: replies, which count, and refusals, which are advice.

use super::event::{Answer, BundleResults, Event, Failure};
use super::flight::{Flight, ReplyEffect, is_no_session};
use super::{BundleSender, BundleSlot, Core, SessionStage, flights};
use quorate_types::codec::Wire;
use quorate_types::wire::Refusal;
use quorate_types::{BundleDigest, BundleNo, Outcome, ReplicaId, ReplyBundle, SessionId, quorum};
use std::sync::Arc;

/// Pause before a bundle is sent again to a busy replica; it doubles a few times. It doubles no further, because all bundles with
/// higher numbers wait for this one when the window is full.
const BUSY_PAUSE_NS: u64 = 20_000_000;
const BUSY_DOUBLINGS_MAX: u32 = 4;
/// Pause before a bundle is sent again to a replica that is behind; it doubles.
const LAG_PAUSE_NS: u64 = 2_000_000;
const LAG_DOUBLINGS_MAX: u32 = 8;
/// Pause before the bundles in flight go to all, when a replica has begun to send its replies elsewhere. It is long enough for
/// most of them to be executed, so that the answers exist.
const DISPLACED_PAUSE_NS: u64 = 50_000_000;

impl Core {
    pub(super) fn on_reply(&mut self, from: ReplicaId, reply: &ReplyBundle) {
        self.leader.note(from, reply.view, reply.leader);
        let needed = quorum::weak(self.settings.f);
        let Some(flight) = self.flight(reply.session, reply.number) else {
            return;
        };
        if flight.digest != reply.bundle {
            self.counters.lies = self.counters.lies.saturating_add(1);
            return;
        }
        let is_gone = is_no_session(&reply.outcome);
        if is_gone {
            flight.no_session(from);
        }
        match flight.count_reply(from, reply, needed) {
            ReplyEffect::Counted | ReplyEffect::Ignored => {}
            ReplyEffect::Lie => self.counters.lies = self.counters.lies.saturating_add(1),
            ReplyEffect::Accepted(_) if flight.is_executed() => {}
            ReplyEffect::Accepted(outcome) => self.accept(reply.session, reply.number, outcome),
        }
        if is_gone && self.abandon_at.is_some() {
            self.session_gone();
        }
    }

    /// Returns the flight with this number of this session.
    pub(super) fn flight(&mut self, session: SessionId, number: BundleNo) -> Option<&mut Flight> {
        let at = self.position(number);
        match &mut self.session {
            SessionStage::Opening(flight, nonce) if session == SessionId::default() && *nonce == number => {
                Some(flight)
            }
            SessionStage::Open(open) if session == *open => match self.slots.get_mut(at?)? {
                BundleSlot::Flying(flight) => Some(flight),
                BundleSlot::Reserved | BundleSlot::Done => None,
            },
            SessionStage::Closed | SessionStage::Opening(..) | SessionStage::Open(_) => None,
        }
    }

    fn accept(&mut self, session: SessionId, number: BundleNo, outcome: Arc<[u8]>) {
        self.counters.answered = self.counters.answered.saturating_add(1);
        if session == SessionId::default() {
            match Outcome::from_bytes(&outcome) {
                Ok(Outcome::Opened(session)) => self.opened(session),
                Ok(Outcome::NotRegistered) => self.open_failed(Failure::NotRegistered),
                Ok(Outcome::Forgotten) => self.open_failed(Failure::Forgotten),
                _ => self.open_failed(Failure::Impossible),
            }
            return;
        }
        if is_no_session(&outcome) {
            self.session_gone();
            return;
        }
        if is_executed(&outcome) && self.note_executed(number) {
            return;
        }
        let Some(flight) = self.land(number) else {
            return;
        };
        self.allowance.grow();
        let (bundle, requests) = (flight.ticket, flight.requests);
        // Results are checked in place; every other outcome is a few bytes.
        let answer = match BundleResults::of(outcome.clone(), requests) {
            Some(results) => Ok(Answer::Results(results)),
            None => match Outcome::from_bytes(&outcome) {
                Ok(Outcome::Registered(count)) => Ok(Answer::Registered(count)),
                Ok(Outcome::Forgotten) => Err(Failure::Forgotten),
                Ok(Outcome::Superseded) => Err(Failure::Superseded),
                Ok(Outcome::OutOfWindow) => Err(Failure::OutOfWindow),
                Ok(Outcome::TooLarge) => Err(Failure::TooLarge(self.settings.limits.reply_bytes_max)),
                Ok(Outcome::NotAllowed) => Err(Failure::NotAllowed),
                Ok(Outcome::NotRegistered) => Err(Failure::NotRegistered),
                Ok(Outcome::NoSession | Outcome::Done(_) | Outcome::Opened(_)) | Err(_) => {
                    Err(Failure::Impossible)
                }
            },
        };
        match answer {
            Ok(answer) => self.event(Event::Done {
                bundle,
                answer,
                requests,
                submitted: flight.submitted,
                sent: flight.sent,
                repeats: flight.repeats,
            }),
            Err(why) => {
                self.event(Event::Failed { bundle, requests, why });
                // Another program uses numbers of this session, or the numbers have a hole.
                if matches!(why, Failure::Superseded | Failure::OutOfWindow) {
                    self.lose_session();
                }
            }
        }
    }

    /// Ends a flight and returns it.
    pub(super) fn land(&mut self, number: BundleNo) -> Option<Flight> {
        let at = self.position(number)?;
        let slot = self.slots.get_mut(at).filter(|slot| matches!(slot, BundleSlot::Flying(_)))?;
        let BundleSlot::Flying(flight) = std::mem::replace(slot, BundleSlot::Done) else {
            return None;
        };
        while let Some(BundleSlot::Done) = self.slots.front() {
            self.slots.pop_front();
            self.first = self.first.next();
        }
        self.by_digest.remove(&flight.digest);
        Some(*flight)
    }

    pub(super) fn on_refusal(&mut self, from: ReplicaId, bundle: BundleDigest, why: Refusal) {
        let number = self.by_digest.get(&bundle).copied();
        let session = self.session().unwrap_or_default();
        let everyone = quorum::all_honest(self.settings.n, self.settings.f);
        let (now, leader, weak) = (self.now, self.leader.get(), quorum::weak(self.settings.f));
        match why {
            Refusal::Busy => self.counters.busy = self.counters.busy.saturating_add(1),
            _ => self.counters.refused = self.counters.refused.saturating_add(1),
        }
        let is_gone = self.abandon_at.is_some();
        let flight = number.and_then(|number| self.flight(session, number));
        let Some(flight) = flight.filter(|flight| !flight.is_executed()) else { return };
        let refusing = flight.refuse(from, why);
        if why == Refusal::NoSession && session != SessionId::default() {
            flight.no_session(from);
            if flight.is_never_executed(weak) || is_gone {
                self.session_gone();
                return;
            }
        }
        // A refusal by all replicas that are behind, for example after a power cut, ends when they have caught up.
        let passes = matches!(why, Refusal::Busy | Refusal::Behind | Refusal::OutOfWindow);
        if refusing >= everyone && !passes {
            self.give_up(session, number.unwrap_or_default(), why);
            return;
        }
        match why {
            Refusal::Busy | Refusal::Behind | Refusal::OutOfWindow => {
                // The replica is busy, or has not executed the height on which this bundle builds.
                let (pause, most) = match why {
                    Refusal::Busy => (BUSY_PAUSE_NS, BUSY_DOUBLINGS_MAX),
                    _ => (LAG_PAUSE_NS, LAG_DOUBLINGS_MAX),
                };
                let pause = pause.saturating_mul(1 << flight.postponements.min(most));
                // A single replica may lie, so that the bundle goes to no other one.
                flight.is_busy_at_many |= why == Refusal::Busy && refusing >= weak;
                if flight.postponed_to.is_none() {
                    flight.postponed_to = Some(now.plus(pause));
                    flight.postponements = flight.postponements.saturating_add(1);
                    let due = flight.due();
                    self.wake = self.wake.min(due);
                }
                // The leader reports it, or an honest replica does.
                if why == Refusal::Busy && (from == leader || refusing >= weak) {
                    self.allowance.cut(now);
                }
            }
            Refusal::BadSignature
            | Refusal::Malformed
            | Refusal::NoSession
            | Refusal::NumberReused
            | Refusal::NotRegistered
            | Refusal::Forgotten => {
                // One replica may lie: the bundle goes to the others at once.
                if !flight.to_all {
                    self.ask_the_others(session, number.unwrap_or_default());
                }
            }
        }
    }

    /// Notes that a replica sends its replies to newer connections with this key, and no longer to this one.
    pub(super) fn on_displaced(&mut self, from: ReplicaId) {
        self.stop_reporting(from);
        self.displaced.insert(from);
        self.counters.displaced = self.counters.displaced.saturating_add(1);
        let soon = self.now.plus(DISPLACED_PAUSE_NS);
        for flight in flights(&mut self.session, &mut self.slots) {
            flight.retry_at = flight.retry_at.min(soon);
            self.wake = self.wake.min(flight.retry_at);
        }
    }

    fn ask_the_others(&mut self, session: SessionId, number: BundleNo) {
        let at = self.position(number);
        let flight = match &mut self.session {
            SessionStage::Opening(flight, _) if session == SessionId::default() => Some(flight),
            SessionStage::Open(_) => at.and_then(|at| match self.slots.get_mut(at) {
                Some(BundleSlot::Flying(flight)) => Some(flight),
                _ => None,
            }),
            SessionStage::Closed | SessionStage::Opening(..) => None,
        };
        if let Some(flight) = flight {
            let mut out = BundleSender::new(&self.links, &mut self.outputs, &mut self.wake);
            out.ask_all(self.now, &self.settings, flight);
        }
    }

    /// Abandons a bundle that too many replicas refuse for the same reason: waiting for others is useless.
    fn give_up(&mut self, session: SessionId, number: BundleNo, why: Refusal) {
        let failure = match why {
            Refusal::NotRegistered => Failure::NotRegistered,
            Refusal::Forgotten => Failure::Forgotten,
            other => Failure::Refused(other),
        };
        if session == SessionId::default() {
            self.open_failed(failure);
            return;
        }
        if why == Refusal::NoSession {
            self.session_gone();
            return;
        }
        if let Some(flight) = self.land(number) {
            self.event(Event::Failed { bundle: flight.ticket, requests: flight.requests, why: failure });
        }
        // A number that was not executed leaves a hole, and the window would stop at it.
        if why != Refusal::Forgotten {
            self.lose_session();
        }
    }
}

/// Whether an outcome shows that its bundle was executed.
fn is_executed(outcome: &[u8]) -> bool {
    Outcome::results(outcome).is_some()
        || matches!(Outcome::from_bytes(outcome), Ok(Outcome::TooLarge | Outcome::Forgotten))
}
