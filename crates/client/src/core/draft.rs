//! The assembly of operations into bundles.

use super::flight::Flight;
use super::ordering::{OrderWait, Wanted};
use super::{BundleSlot, Core, SessionStage};
use crate::order::OrderError;
use bytes::Bytes;
use quorate_crypto::bundle_preimage;
use quorate_types::bundle::{BUNDLE_HEADER_BYTES, BundleBuilder, bundle_digest};
use quorate_types::codec::Wire;
use quorate_types::limits::REGISTER_KEYS_MAX;
use quorate_types::wire::FromClient;
use quorate_types::{
    Authenticator, Bundle, BundleDigest, BundleKind, BundleNo, ClientAuth, PublicKey, SessionId, Time,
};
use std::fmt;

/// Bytes of a message around the content of its bundle: two tags and a signature.
const ENVELOPE_BYTES: usize = 1 + 1 + 64;

/// The bundle of an operation, and its place in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket {
    /// The bundle, under its number in events.
    pub bundle: u64,
    /// The operation's place among the bundle's results.
    pub index: u32,
}

/// The reason why an operation was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full, or too many bundles are in flight. Try again after the next event.
    #[error("the queue of the client is full; try again after the next result")]
    Full,
    /// The operation or the bundle exceeds a limit of the cluster.
    #[error("{what} of the cluster, which is {most}")]
    TooLarge {
        /// The thing that is too large, with its size.
        what: Size,
        /// The limit.
        most: u32,
    },
    /// A bundle needs at least one operation.
    #[error("a bundle has no operations; it needs at least one")]
    Empty,
    /// No session is open, or another one than that of the prepared bundle.
    #[error("the session is not open")]
    NoSession,
    /// The cluster has no proofs of order.
    #[error("no proof of order: {0}; nothing was sent")]
    NoOrder(OrderError),
}

/// A size that exceeds a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Size {
    /// Bytes of one operation: `request_bytes_max`.
    OperationBytes(u32),
    /// Bytes of a bundle, its header included: `bundle_bytes_max`.
    BundleBytes(u32),
    /// Operations of a bundle: `bundle_requests_max`.
    Operations(u32),
    /// Keys that one bundle registers.
    Keys(u32),
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OperationBytes(count) => {
                write!(f, "an operation of {count} bytes exceeds request_bytes_max")
            }
            Self::BundleBytes(count) => write!(f, "a bundle of {count} bytes exceeds bundle_bytes_max"),
            Self::Operations(count) => {
                write!(f, "a bundle of {count} operations exceeds bundle_requests_max")
            }
            Self::Keys(count) => write!(f, "a bundle of {count} keys exceeds the limit"),
        }
    }
}

/// Operations that wait to be sent together.
#[derive(Debug)]
pub(crate) struct Draft {
    builder: BundleBuilder,
    ticket: u64,
    submitted: Time,
    /// Whether more operations may be added.
    open: bool,
    /// Sessions that were lost before its execution.
    lost: u32,
    pub(super) wanted: Wanted,
}

impl Draft {
    pub(super) fn push(&mut self, op: &[u8]) {
        self.builder.push(op);
    }
}

/// A bundle that is built and signed, to be submitted later, so that a load does not include the cost of signing.
#[derive(Debug)]
pub struct Prepared {
    session: SessionId,
    number: BundleNo,
    ticket: u64,
    requests: u32,
    digest: BundleDigest,
    frame: Bytes,
}

impl Core {
    /// Adds one operation to the bundle that leaves next. The bundle leaves with the next poll if fewer than
    /// `Settings::in_flight_max` bundles are in flight.
    ///
    /// # Errors
    /// [`SubmitError::Full`] and [`SubmitError::TooLarge`].
    pub fn submit(&mut self, now: Time, op: &[u8]) -> Result<Ticket, SubmitError> {
        self.advance(now);
        let size = self.check_op(op)?;
        let limits = self.settings.limits;
        let fits = |draft: &Draft| {
            draft.open
                && draft.builder.count() < limits.bundle_requests_max
                && draft.builder.size().saturating_add(size) <= at_most(limits.bundle_bytes_max)
        };
        if !self.waiting.back().is_some_and(fits) {
            let draft = self.draft(BundleKind::Requests, true);
            self.waiting_bytes = self.waiting_bytes.saturating_add(draft.builder.size());
            self.waiting.push_back(draft);
        }
        let Some(draft) = self.waiting.back_mut() else {
            return Err(SubmitError::Full);
        };
        let index = draft.builder.count();
        draft.builder.push(op);
        self.waiting_bytes = self.waiting_bytes.saturating_add(size);
        Ok(Ticket { bundle: draft.ticket, index })
    }

    /// Queues a bundle of exactly these operations. The ticket's index is that of the first.
    ///
    /// # Errors
    /// As [`Core::submit`], and [`SubmitError::Empty`].
    pub fn submit_bundle<'o>(
        &mut self,
        now: Time,
        ops: impl IntoIterator<Item = &'o [u8]>,
    ) -> Result<Ticket, SubmitError> {
        self.advance(now);
        let mut draft = self.draft(BundleKind::Requests, false);
        for op in ops {
            self.check_op(op)?;
            draft.builder.push(op);
        }
        self.enqueue(draft)
    }

    /// Queues a bundle that registers client keys, up to 1,000. Only the admin client may send it.
    ///
    /// # Errors
    /// As [`Core::submit_bundle`].
    pub fn submit_keys(
        &mut self,
        now: Time,
        keys: impl IntoIterator<Item = PublicKey>,
    ) -> Result<Ticket, SubmitError> {
        self.advance(now);
        let mut draft = self.draft(BundleKind::Register, false);
        for key in keys {
            draft.builder.push(&key.0);
        }
        let (count, most) = (draft.builder.count(), count_of(REGISTER_KEYS_MAX));
        if count > most {
            return Err(SubmitError::TooLarge { what: Size::Keys(count), most });
        }
        self.enqueue(draft)
    }

    /// Builds and signs a bundle that [`Core::submit_prepared`] sends later. The bundle takes the session's next
    /// number. Prepared bundles have to be submitted in the order in which they were made, and no other bundle
    /// gets far ahead of an unsubmitted one.
    ///
    /// # Errors
    /// [`SubmitError::NoSession`] before the session is open; otherwise as [`Core::submit_bundle`].
    pub fn prepare<'o>(&mut self, ops: impl IntoIterator<Item = &'o [u8]>) -> Result<Prepared, SubmitError> {
        let SessionStage::Open(session) = self.session else {
            return Err(SubmitError::NoSession);
        };
        let mut draft = self.draft(BundleKind::Requests, false);
        for op in ops {
            self.check_op(op)?;
            draft.builder.push(op);
        }
        self.check_bundle(&draft)?;
        let number = self.first.plus(u64::try_from(self.slots.len()).unwrap_or(u64::MAX));
        self.slots.push_back(BundleSlot::Reserved);
        let requests = draft.builder.count();
        let (digest, frame) = self.seal(draft.builder, session, number);
        Ok(Prepared { session, number, ticket: draft.ticket, requests, digest, frame })
    }

    /// Sends a prepared bundle.
    ///
    /// # Errors
    /// Gives the bundle back: [`SubmitError::Full`] while too many bundles are in flight, and
    /// [`SubmitError::NoSession`] when its session is gone.
    pub fn submit_prepared(
        &mut self,
        now: Time,
        prepared: Prepared,
    ) -> Result<Ticket, (SubmitError, Box<Prepared>)> {
        self.advance(now);
        if self.session() != Some(prepared.session) {
            return Err((SubmitError::NoSession, Box::new(prepared)));
        }
        if !self.has_room() || !self.in_window(prepared.number) {
            return Err((SubmitError::Full, Box::new(prepared)));
        }
        let Prepared { number, ticket, requests, digest, frame, .. } = prepared;
        let flight = self.launch(Flight::new(ticket, requests, digest, frame, now), number);
        if let Some(slot) = self.position(number).and_then(|at| self.slots.get_mut(at)) {
            *slot = BundleSlot::Flying(flight);
        }
        Ok(Ticket { bundle: ticket, index: 0 })
    }

    /// Sends waiting bundles, as far as the window and the bound on bundles in flight allow.
    pub(super) fn depart(&mut self) {
        let SessionStage::Open(session) = self.session else {
            return;
        };
        while self.has_room() {
            let number = self.first.plus(u64::try_from(self.slots.len()).unwrap_or(u64::MAX));
            if !self.in_window(number) {
                return;
            }
            let Some(draft) = self.waiting.pop_front() else {
                return;
            };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(draft.builder.size());
            let requests = draft.builder.count();
            let (digest, frame) = self.seal(draft.builder, session, number);
            let mut flight = Flight::new(draft.ticket, requests, digest, frame, draft.submitted);
            flight.lost = draft.lost;
            if draft.wanted == Wanted::Order {
                flight.order = Some(Box::new(OrderWait::new(self.client(), digest, &self.settings)));
            }
            let flight = self.launch(flight, number);
            self.slots.push_back(BundleSlot::Flying(flight));
        }
    }

    /// Finishes a bundle. Returns its digest and the message that carries it, signed if clients sign.
    pub(super) fn seal(
        &self,
        mut builder: BundleBuilder,
        session: SessionId,
        number: BundleNo,
    ) -> (BundleDigest, Bytes) {
        builder.address(session, number);
        let content = builder.finish();
        let digest = bundle_digest(&content);
        let authenticator = match self.settings.client_auth {
            ClientAuth::None => Authenticator::None,
            ClientAuth::Signature => {
                let preimage = bundle_preimage(self.settings.cluster, digest);
                Authenticator::Signature(self.key.sign(&preimage))
            }
        };
        let mut frame = Vec::with_capacity(content.len().saturating_add(ENVELOPE_BYTES));
        FromClient::Bundle { authenticator, content }.encode(&mut frame);
        (digest, Bytes::from(frame))
    }

    /// Returns the operations of a sent bundle, for another bundle. `None` is impossible, because this core built the bundle.
    pub(super) fn draft_again(&self, flight: &Flight) -> Option<Draft> {
        let Ok(FromClient::Bundle { authenticator, content }) = FromClient::from_bytes(&flight.frame) else {
            return None;
        };
        let bundle = Bundle::parse(&content, authenticator, &self.settings.limits).ok()?;
        let mut builder =
            BundleBuilder::new(bundle.kind(), self.client(), SessionId::default(), BundleNo::ZERO);
        bundle.requests().for_each(|request| {
            builder.push(request);
        });
        let lost = flight.lost.saturating_add(1);
        let wanted = if flight.order.is_some() { Wanted::Order } else { Wanted::Results };
        Some(Draft { builder, ticket: flight.ticket, submitted: flight.submitted, open: false, lost, wanted })
    }

    /// Puts a draft in front of all waiting ones.
    pub(super) fn put_back(&mut self, draft: Draft) {
        self.waiting_bytes = self.waiting_bytes.saturating_add(draft.builder.size());
        self.waiting.push_front(draft);
    }

    /// Whether one of the asked bundles waits to be sent.
    pub(super) fn waits(&self, is_asked: &dyn Fn(u64) -> bool) -> bool {
        self.waiting.iter().any(|draft| is_asked(draft.ticket))
    }

    pub(super) fn take_ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.saturating_add(1);
        ticket
    }

    /// Drops the bundles that were never sent; returns their tickets and numbers of operations.
    pub(super) fn drop_drafts(&mut self) -> impl Iterator<Item = (u64, u32)> + use<> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting).into_iter().map(|draft| (draft.ticket, draft.builder.count()))
    }

    pub(super) fn draft(&mut self, kind: BundleKind, open: bool) -> Draft {
        Draft {
            builder: BundleBuilder::new(kind, self.client(), SessionId::default(), BundleNo::ZERO),
            ticket: self.take_ticket(),
            submitted: self.now,
            open,
            lost: 0,
            wanted: Wanted::default(),
        }
    }

    pub(super) fn enqueue(&mut self, draft: Draft) -> Result<Ticket, SubmitError> {
        self.check_bundle(&draft)?;
        let bytes = self.waiting_bytes.saturating_add(draft.builder.size());
        if bytes > self.settings.waiting_bytes_max {
            return Err(SubmitError::Full);
        }
        let bundle = draft.ticket;
        self.waiting_bytes = bytes;
        self.waiting.push_back(draft);
        Ok(Ticket { bundle, index: 0 })
    }

    /// Checks an operation against the limits; returns its bytes in a bundle.
    pub(super) fn check_op(&self, op: &[u8]) -> Result<usize, SubmitError> {
        let limits = &self.settings.limits;
        let size = op.len().saturating_add(4);
        let most = size.saturating_add(BUNDLE_HEADER_BYTES);
        if op.len() > at_most(limits.request_bytes_max) {
            let what = Size::OperationBytes(count_of(op.len()));
            return Err(SubmitError::TooLarge { what, most: limits.request_bytes_max });
        }
        if most > at_most(limits.bundle_bytes_max) {
            let what = Size::BundleBytes(count_of(most));
            return Err(SubmitError::TooLarge { what, most: limits.bundle_bytes_max });
        }
        if self.waiting_bytes.saturating_add(most) > self.settings.waiting_bytes_max {
            return Err(SubmitError::Full);
        }
        Ok(size)
    }

    fn check_bundle(&self, draft: &Draft) -> Result<(), SubmitError> {
        let limits = &self.settings.limits;
        match draft.builder.count() {
            0 => Err(SubmitError::Empty),
            count if count > limits.bundle_requests_max => {
                let what = Size::Operations(count);
                Err(SubmitError::TooLarge { what, most: limits.bundle_requests_max })
            }
            _ if draft.builder.size() > at_most(limits.bundle_bytes_max) => {
                let what = Size::BundleBytes(count_of(draft.builder.size()));
                Err(SubmitError::TooLarge { what, most: limits.bundle_bytes_max })
            }
            _ => Ok(()),
        }
    }
}

fn count_of(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn at_most(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
