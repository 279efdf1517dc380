//! What replicas say: replies, which count, and refusals, which are advice.

use super::event::{Answer, BundleResults, Event, Failure};
use super::flight::{Flight, Vote, is_no_session};
use super::{Core, Sender, Session, Slot, flights};
use quorate_types::codec::Wire;
use quorate_types::wire::Refusal;
use quorate_types::{BundleDigest, BundleNo, Outcome, ReplicaId, ReplyBundle, SessionId, quorum};
use std::sync::Arc;

/// Pause before a bundle goes once more to a replica that has too much to do; doubles a few times. Not more: all that
/// has a higher number waits for the one that waits, when the window is full.
const BUSY_PAUSE_NS: u64 = 20_000_000;
const BUSY_DOUBLINGS_MAX: u32 = 4;
/// Pause before a bundle goes once more to a replica that seems to lag behind; doubles.
const LAG_PAUSE_NS: u64 = 2_000_000;
const LAG_DOUBLINGS_MAX: u32 = 8;
/// Pause before what is in flight goes to all, when a replica has begun to send its replies elsewhere: long enough for most
/// of it to have been executed, so that the answer is there.
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
        match flight.vote(from, reply, needed) {
            Vote::Counted | Vote::Ignored => {}
            Vote::Lie => self.counters.lies = self.counters.lies.saturating_add(1),
            Vote::Believed(outcome) => self.believe(reply.session, reply.number, outcome),
        }
        if is_gone && self.gone_by.is_some() {
            self.session_gone();
        }
    }

    /// What is in flight under this number of this session.
    fn flight(&mut self, session: SessionId, number: BundleNo) -> Option<&mut Flight> {
        let at = self.position(number);
        match &mut self.session {
            Session::Opening(flight, nonce) if session == SessionId::default() && *nonce == number => {
                Some(flight)
            }
            Session::Open(open) if session == *open => match self.slots.get_mut(at?)? {
                Slot::Flying(flight) => Some(flight),
                Slot::Reserved | Slot::Done => None,
            },
            Session::Closed | Session::Opening(..) | Session::Open(_) => None,
        }
    }

    fn believe(&mut self, session: SessionId, number: BundleNo, outcome: Arc<[u8]>) {
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
                // Numbers of this session are not ours alone, or have a hole.
                if matches!(why, Failure::Superseded | Failure::OutOfWindow) {
                    self.lose_session();
                }
            }
        }
    }

    /// Takes a bundle out of flight.
    fn land(&mut self, number: BundleNo) -> Option<Flight> {
        let at = self.position(number)?;
        let slot = self.slots.get_mut(at).filter(|slot| matches!(slot, Slot::Flying(_)))?;
        let Slot::Flying(flight) = std::mem::replace(slot, Slot::Done) else {
            return None;
        };
        while let Some(Slot::Done) = self.slots.front() {
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
        let is_gone = self.gone_by.is_some();
        let Some(flight) = number.and_then(|number| self.flight(session, number)) else {
            return;
        };
        let refusing = flight.refuse(from, why);
        if why == Refusal::NoSession && session != SessionId::default() {
            flight.no_session(from);
            if flight.is_never(weak) || is_gone {
                self.session_gone();
                return;
            }
        }
        // What all replicas say because they lag, after a power cut say, is over when they have caught up.
        let passes = matches!(why, Refusal::Busy | Refusal::Behind | Refusal::OutOfWindow);
        if refusing >= everyone && !passes {
            self.give_up(session, number.unwrap_or_default(), why);
            return;
        }
        match why {
            Refusal::Busy | Refusal::Behind | Refusal::OutOfWindow => {
                // The replica has too much to do or has not executed yet what this builds upon.
                let (pause, most) = match why {
                    Refusal::Busy => (BUSY_PAUSE_NS, BUSY_DOUBLINGS_MAX),
                    _ => (LAG_PAUSE_NS, LAG_DOUBLINGS_MAX),
                };
                let pause = pause.saturating_mul(1 << flight.put_off.min(most));
                // One alone may lie to have it asked for nowhere else.
                flight.is_unwelcome |= why == Refusal::Busy && refusing >= weak;
                if flight.again_at.is_none() {
                    flight.again_at = Some(now.plus(pause));
                    flight.put_off = flight.put_off.saturating_add(1);
                    let due = flight.due();
                    self.wake = self.wake.min(due);
                }
                // The leader says so, or an honest replica does.
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
                // One replica may lie: the others are asked at once.
                if !flight.everyone {
                    self.ask_the_others(session, number.unwrap_or_default());
                }
            }
        }
    }

    /// A replica sends its replies to newer connections with this key, and no longer here.
    pub(super) fn on_displaced(&mut self, from: ReplicaId) {
        self.unhear(from);
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
            Session::Opening(flight, _) if session == SessionId::default() => Some(flight),
            Session::Open(_) => at.and_then(|at| match self.slots.get_mut(at) {
                Some(Slot::Flying(flight)) => Some(flight),
                _ => None,
            }),
            Session::Closed | Session::Opening(..) => None,
        };
        if let Some(flight) = flight {
            let mut out = Sender::new(&self.links, &mut self.outputs, &mut self.wake);
            out.ask_all(self.now, &self.settings, flight);
        }
    }

    /// So many replicas refuse a bundle for the same reason that waiting for others is in vain.
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
        // Where the number was not executed it leaves a hole, and the window would come to a stop at it.
        if why != Refusal::Forgotten {
            self.lose_session();
        }
    }
}
