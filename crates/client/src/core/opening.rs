//! Sessions: opening one, and losing it.

use super::event::{Event, Failure};
use super::flight::Flight;
use super::{Core, Session, Slot};
use quorate_types::bundle::BundleBuilder;
use quorate_types::{BundleKind, BundleNo, SessionId, Time};

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

    /// The session is gone. Whether what is in flight was executed before that, nobody can say any more.
    pub(super) fn lose_session(&mut self) {
        self.session = Session::Closed;
        self.by_digest.clear();
        self.first = BundleNo(1);
        for slot in std::mem::take(&mut self.slots) {
            if let Slot::Flying(flight) = slot {
                self.event(Event::Failed {
                    bundle: flight.ticket,
                    requests: flight.requests,
                    why: Failure::SessionLost,
                });
            }
        }
        self.event(Event::SessionLost);
    }
}
