//! Sessions: opening one, and losing it.

use super::event::{Event, Failure};
use super::flight::Flight;
use super::{Core, Sender, Session, Slot, flights};
use quorate_types::bundle::BundleBuilder;
use quorate_types::{BundleKind, BundleNo, SessionId, Time, quorum};

/// A bundle goes into another session this often at most: where sessions are lost that fast, there are too many.
const SESSIONS_LOST_MAX: u32 = 3;
/// How long replicas are waited for that can say what was never executed in a session that is gone.
const GONE_PATIENCE_NS: u64 = 1_000_000_000;

impl Core {
    /// Asks for a session. `nonce` must be new for each session of this key, also across restarts: the same
    /// nonce always names the same session, in which numbers would be used twice. Without effect while a
    /// session is open or being opened.
    pub fn open(&mut self, now: Time, nonce: u64) {
        self.advance(now);
        if !matches!(self.session, Session::Closed) {
            return;
        }
        let number = BundleNo(nonce);
        let builder = BundleBuilder::new(BundleKind::Open, self.client(), SessionId::default(), number);
        let ticket = self.take_ticket();
        let (digest, frame) = self.seal(builder, SessionId::default(), number);
        let flight = self.launch(Flight::new(ticket, 0, digest, frame, now), number);
        self.session = Session::Opening(flight, number);
    }

    /// Gives up everything that was not sent yet: it fails as `NotSent`.
    pub fn abandon(&mut self, now: Time) {
        self.advance(now);
        for (bundle, requests) in self.drop_drafts() {
            self.event(Event::Failed { bundle, requests, why: Failure::NotSent });
        }
    }

    pub(super) fn opened(&mut self, session: SessionId) {
        self.by_digest.clear();
        self.session = Session::Open(session);
        self.first = BundleNo(1);
        self.event(Event::Opened(session));
    }

    pub(super) fn open_failed(&mut self, why: Failure) {
        self.by_digest.clear();
        self.session = Session::Closed;
        self.event(Event::OpenFailed(why));
    }

    /// Enough replicas say that the session is gone. Those that can say for certain what was never executed are heard first, for
    /// a while.
    pub(super) fn session_gone(&mut self) {
        let needed = quorum::weak(self.settings.f);
        let by = *self.gone_by.get_or_insert(self.now.plus(GONE_PATIENCE_NS));
        let mut is_settled = true;
        let mut out = Sender::new(&self.links, &mut self.outputs, &mut self.wake);
        for flight in flights(&mut self.session, &mut self.slots) {
            if flight.is_open_question(needed) && by > self.now {
                is_settled = false;
                if !flight.everyone {
                    out.ask_all(self.now, &self.settings, flight);
                }
            }
        }
        out.wake_at(by);
        if is_settled {
            self.lose_session();
        }
    }

    /// The session is gone. What is in flight and was certainly never executed goes into the next one; of the rest nobody
    /// can say any more whether it was executed before that.
    pub(super) fn lose_session(&mut self) {
        self.session = Session::Closed;
        self.gone_by = None;
        self.by_digest.clear();
        self.first = BundleNo(1);
        let needed = quorum::weak(self.settings.f);
        let mut again = Vec::new();
        for slot in std::mem::take(&mut self.slots) {
            let Slot::Flying(flight) = slot else { continue };
            let (bundle, requests) = (flight.ticket, flight.requests);
            let is_never = flight.is_never(needed);
            match self.draft_again(&flight).filter(|_| is_never && flight.lost < SESSIONS_LOST_MAX) {
                Some(draft) => again.push(draft),
                None => {
                    let why = if is_never { Failure::Evicted } else { Failure::SessionLost };
                    self.event(Event::Failed { bundle, requests, why });
                }
            }
        }
        // In front of what was not sent, in its order.
        again.into_iter().rev().for_each(|draft| self.put_back(draft));
        self.event(Event::SessionLost);
    }
}
