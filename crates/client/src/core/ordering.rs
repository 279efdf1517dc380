//! Calls that ask for the order of their bundle, and for nothing else.
//!
//! The bundle travels as any other. In addition the client asks one replica for a proof of order. If the replica does not answer
//! in time, the client asks the next one, and after that all. The first valid proof ends the call. A proof ends no other call:
//! one replica may show a true proof together with a false result.
//!
//! f + 1 equal replies end the sending of the bundle, and not the call. If the bundle is executed and no replica has a proof any
//! more, the call fails.

use super::draft::{SubmitError, Ticket};
use super::event::{Event, Failure};
use super::flight::Flight;
use super::{BundleSender, Core, LinkState, Output, Settings};
use crate::order::{OrderError, OrderVerifier};
use bytes::Bytes;
use quorate_types::codec::Wire;
use quorate_types::wire::{FromClient, NoOrder};
use quorate_types::{
    BundleDigest, BundleKind, BundleNo, ClientId, OrderProof, ReplicaId, ReplicaSet, Time, quorum,
};
use std::sync::Arc;

/// Questions that go to one replica each. Later ones go to all.
const SINGLE_QUESTIONS: u32 = 2;

/// The purpose of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Wanted {
    /// Its results.
    #[default]
    Results,
    /// Its place in the order.
    Order,
}

/// The wait of a bundle for a proof of its order.
#[derive(Debug, Default)]
pub(super) struct OrderWait {
    /// The encoded question.
    frame: Bytes,
    /// Replicas that owe an answer. An answer without a question is not checked.
    asked: ReplicaSet,
    /// Replicas that have no proof, or have shown a bad one.
    refused: ReplicaSet,
    /// The last reason of a replica without a proof.
    why: Option<NoOrder>,
    /// Replicas that have shown a bad proof, with the last fault of each.
    bad: Vec<(ReplicaId, OrderError)>,
    /// The number of questions whose time has come.
    questions: u32,
    /// The replica that is asked next; `None` before the first question.
    next: Option<ReplicaId>,
    /// The time of the next question.
    pub(super) ask_at: Time,
    /// Pause before the question after that one.
    pause: u64,
    /// Whether the bundle is known to be executed.
    pub(super) is_executed: bool,
}

impl OrderWait {
    pub(super) fn new(client: ClientId, bundle: BundleDigest, settings: &Settings) -> Self {
        let frame = Bytes::from(FromClient::AskOrder { client, bundle }.to_bytes());
        Self { frame, pause: settings.retry_ns, ..Self::default() }
    }

    /// Returns the replicas that have shown bad proofs.
    pub(super) fn bad(&self) -> &[(ReplicaId, OrderError)] {
        &self.bad
    }

    /// Returns the replicas that owe an answer.
    pub(super) fn asked(&self) -> ReplicaSet {
        self.asked
    }

    /// Notes that a replica has shown a bad proof.
    fn note_bad(&mut self, by: ReplicaId, why: OrderError) {
        self.bad.retain(|(other, _)| *other != by);
        self.bad.push((by, why));
        self.refused.insert(by);
    }

    /// Notes a change of a connection. A replica forgets the questions of a connection that breaks.
    pub(super) fn link(&mut self, now: Time, replica: ReplicaId, state: LinkState) {
        self.asked.remove(replica);
        if state == LinkState::Up {
            self.refused.remove(replica);
        }
        if self.asked.is_empty() {
            self.ask_at = self.ask_at.min(now);
        }
    }
}

impl Core {
    /// Makes calls for order possible. Without this, [`Core::order`] fails with [`OrderError::NoProofs`].
    #[must_use]
    pub fn with_orders(mut self, orders: Result<Arc<OrderVerifier>, OrderError>) -> Self {
        self.orders = orders;
        self
    }

    /// Queues a bundle of exactly these operations, and asks for its place in the order. [`Event::Ordered`] follows on the first
    /// valid proof of any replica. The call receives no results.
    ///
    /// # Errors
    /// [`SubmitError::NoOrder`] if the cluster has no proofs of order; otherwise as [`Core::submit_bundle`].
    pub fn order<'o>(
        &mut self,
        now: Time,
        ops: impl IntoIterator<Item = &'o [u8]>,
    ) -> Result<Ticket, SubmitError> {
        self.advance(now);
        if let Err(why) = self.orders {
            return Err(SubmitError::NoOrder(why));
        }
        let mut draft = self.draft(BundleKind::Requests, false);
        draft.wanted = Wanted::Order;
        for op in ops {
            self.check_op(op)?;
            draft.push(op);
        }
        self.enqueue(draft)
    }

    /// Handles a proof of order.
    pub(super) fn on_order(&mut self, from: ReplicaId, bundle: BundleDigest, proof: &OrderProof) {
        let Ok(verifier) = self.orders.clone() else { return };
        let Some((number, wait)) = self.order_wait(bundle) else { return };
        if !wait.asked.remove(from) {
            return;
        }
        match verifier.verify(bundle, proof) {
            Ok(position) => {
                let Some(flight) = self.land(number) else { return };
                self.allowance.grow();
                let Flight { ticket: bundle, requests, submitted, sent, repeats, .. } = flight;
                self.event(Event::Ordered { bundle, position, by: from, requests, submitted, sent, repeats });
            }
            Err(why) => {
                wait.note_bad(from, why);
                self.counters.bad_proofs = self.counters.bad_proofs.saturating_add(1);
                self.ask_another(number);
            }
        }
    }

    /// Handles the answer of a replica without a proof.
    pub(super) fn on_no_order(&mut self, from: ReplicaId, bundle: BundleDigest, why: NoOrder) {
        let Some((number, wait)) = self.order_wait(bundle) else { return };
        if !wait.asked.remove(from) {
            return;
        }
        match why {
            // The next question follows in its time.
            NoOrder::Busy => {}
            NoOrder::NoProofs | NoOrder::NotKept => {
                wait.refused.insert(from);
                wait.why = Some(why);
                self.ask_another(number);
            }
        }
    }

    /// Notes that the bundle of a call for order is executed. Returns false for any other bundle.
    pub(super) fn note_executed(&mut self, number: BundleNo) -> bool {
        let session = self.session().unwrap_or_default();
        let Some(flight) = self.flight(session, number) else { return false };
        let Some(wait) = &mut flight.order else { return false };
        wait.is_executed = true;
        // The bundle need not be sent again.
        flight.retry_at = Time::MAX;
        flight.postponed_to = None;
        self.allowance.grow();
        self.end_without_proof(number);
        true
    }

    /// Returns the wait of a bundle whose call asked for its order.
    fn order_wait(&mut self, bundle: BundleDigest) -> Option<(BundleNo, &mut OrderWait)> {
        let number = self.by_digest.get(&bundle).copied()?;
        let session = self.session()?;
        let wait = self.flight(session, number)?.order.as_mut()?;
        Some((number, wait))
    }

    /// Asks another replica at once, because one has no proof. Each replica refuses once, so this ends.
    fn ask_another(&mut self, number: BundleNo) {
        let Self { session, slots, links, outputs, wake, .. } = self;
        let mut out = BundleSender::new(links, outputs, wake);
        let flight = super::flights(session, slots).find(|flight| {
            // Flights have no number of their own: the digest names it.
            self.by_digest.get(&flight.digest) == Some(&number) && flight.order.is_some()
        });
        if let Some(wait) =
            flight.and_then(|flight| flight.order.as_mut()).filter(|wait| wait.asked.is_empty())
        {
            out.ask_one(wait);
        }
        self.end_without_proof(number);
    }

    /// Fails a call whose bundle is executed and that no reachable replica can prove any more.
    fn end_without_proof(&mut self, number: BundleNo) {
        let (n, f) = (self.settings.n, self.settings.f);
        let up: ReplicaSet = (0..)
            .map(ReplicaId)
            .zip(&self.links)
            .filter(|(_, link)| **link == Some(LinkState::Up))
            .map(|(id, _)| id)
            .collect();
        let session = self.session().unwrap_or_default();
        let wait = self.flight(session, number).and_then(|flight| flight.order.as_ref());
        let Some(wait) = wait else { return };
        let is_over =
            wait.refused.len() >= quorum::all_honest(n, f) && up.iter().all(|id| wait.refused.contains(id));
        if !wait.is_executed || !is_over {
            return;
        }
        let why = Failure::NoOrder(wait.why.unwrap_or(NoOrder::NotKept));
        if let Some(flight) = self.land(number) {
            self.event(Event::Failed { bundle: flight.ticket, requests: flight.requests, why });
        }
    }
}

impl BundleSender<'_> {
    /// Asks for the order of a bundle, if its call wants the order and the time of a question has come.
    pub(super) fn ask_order(
        &mut self,
        now: Time,
        settings: &Settings,
        first: ReplicaId,
        flight: &mut Flight,
    ) {
        let Some(wait) = flight.order.as_mut().filter(|wait| wait.ask_at <= now) else { return };
        wait.next.get_or_insert(first);
        wait.questions = wait.questions.saturating_add(1);
        if wait.questions <= SINGLE_QUESTIONS {
            self.ask_one(wait);
        } else {
            self.ask_all_for_order(wait);
        }
        wait.ask_at = now.plus(wait.pause);
        if wait.questions > SINGLE_QUESTIONS {
            wait.pause = wait.pause.saturating_mul(2).min(settings.retry_ns_max);
        }
    }

    /// Asks the next reachable replica that has not refused.
    fn ask_one(&mut self, wait: &mut OrderWait) {
        let n = u16::try_from(self.links.len()).unwrap_or(u16::MAX).max(1);
        let first = wait.next.unwrap_or_default();
        let in_turn = (0..n).map(|step| ReplicaId(first.0.wrapping_add(step) % n));
        let mut able =
            in_turn.filter(|id| self.state(*id) == Some(LinkState::Up) && !wait.refused.contains(*id));
        if let Some(to) = able.next() {
            wait.next = Some(ReplicaId(to.0.wrapping_add(1) % n));
            self.put_question(wait, to);
        }
    }

    /// Asks all reachable replicas. Those that have refused may have a proof by now.
    fn ask_all_for_order(&mut self, wait: &mut OrderWait) {
        for id in (0..).map(ReplicaId).take(self.links.len()) {
            if self.state(id) == Some(LinkState::Up) {
                self.put_question(wait, id);
            }
        }
    }

    fn put_question(&mut self, wait: &mut OrderWait, to: ReplicaId) {
        wait.asked.insert(to);
        self.outputs.push_back(Output::Send { to, frame: wait.frame.clone() });
    }
}
