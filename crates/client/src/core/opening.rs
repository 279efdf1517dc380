//! Sessions: how a client opens one, and how it loses one.

use super::event::{Event, Failure};
use super::flight::Flight;
use super::{BundleSender, BundleSlot, Core, SessionStage, flights};
use quorate_types::bundle::BundleBuilder;
use quorate_types::{BundleKind, BundleNo, SessionId, Time, quorum};

/// The most sessions that one bundle may lose. A cluster that evicts sessions faster has too many of them.
const SESSIONS_LOST_MAX: u32 = 3;
/// The longest wait for replicas that can show that bundles of a lost session were never executed.
const GONE_PATIENCE_NS: u64 = 1_000_000_000;

impl Core {
    /// Asks for a session. `nonce` must be new for each session of this key, also across restarts: the same
    /// nonce always names the same session, in which numbers would be used twice. The call has no effect while a
    /// session is open or being opened.
    pub fn open(&mut self, now: Time, nonce: u64) {
        self.advance(now);
        if !matches!(self.session, SessionStage::Closed) {
            return;
        }
        let number = BundleNo(nonce);
        let builder = BundleBuilder::new(BundleKind::Open, self.client(), SessionId::default(), number);
        let ticket = self.take_ticket();
        let (digest, frame) = self.seal(builder, SessionId::default(), number);
        let flight = self.launch(Flight::new(ticket, 0, digest, frame, now), number);
        self.session = SessionStage::Opening(flight, number);
    }

    /// Abandons all bundles that were not sent yet: they fail as `NotSent`.
    pub fn abandon(&mut self, now: Time) {
        self.advance(now);
        for (bundle, requests) in self.drop_drafts() {
            self.event(Event::Failed { bundle, requests, why: Failure::NotSent });
        }
    }

    pub(super) fn opened(&mut self, session: SessionId) {
        self.by_digest.clear();
        self.session = SessionStage::Open(session);
        self.first = BundleNo(1);
        self.event(Event::Opened(session));
    }

    pub(super) fn open_failed(&mut self, why: Failure) {
        self.by_digest.clear();
        self.session = SessionStage::Closed;
        self.event(Event::OpenFailed(why));
    }

    /// Handles the report of enough replicas that the session is gone. The client first waits, for a limited time, for replicas
    /// that can show for certain that bundles were never executed.
    pub(super) fn session_gone(&mut self) {
        let needed = quorum::weak(self.settings.f);
        let by = *self.abandon_at.get_or_insert(self.now.plus(GONE_PATIENCE_NS));
        let mut is_settled = true;
        let mut out = BundleSender::new(&self.links, &mut self.outputs, &mut self.wake);
        for flight in flights(&mut self.session, &mut self.slots) {
            if flight.is_open_question(needed) && by > self.now {
                is_settled = false;
                if !flight.to_all {
                    out.ask_all(self.now, &self.settings, flight);
                }
            }
        }
        out.wake_at(by);
        if is_settled {
            self.lose_session();
        }
    }

    /// Drops the session. Bundles in flight that were certainly never executed go into the next session; the fate of the others
    /// is unknown for good.
    pub(super) fn lose_session(&mut self) {
        self.session = SessionStage::Closed;
        self.abandon_at = None;
        self.by_digest.clear();
        self.first = BundleNo(1);
        let needed = quorum::weak(self.settings.f);
        let mut again = Vec::new();
        for slot in std::mem::take(&mut self.slots) {
            let BundleSlot::Flying(flight) = slot else { continue };
            let (bundle, requests) = (flight.ticket, flight.requests);
            let is_never = flight.is_never_executed(needed);
            match self.draft_again(&flight).filter(|_| is_never && flight.lost < SESSIONS_LOST_MAX) {
                Some(draft) => again.push(draft),
                None => {
                    let why = if is_never { Failure::Evicted } else { Failure::SessionLost };
                    self.event(Event::Failed { bundle, requests, why });
                }
            }
        }
        // These bundles go before the unsent ones, in their own order.
        again.into_iter().rev().for_each(|draft| self.put_back(draft));
        self.event(Event::SessionLost);
    }
}
