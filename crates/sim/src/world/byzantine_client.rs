//! A Byzantine client: it has a key of its own and receives the messages of others.
//!
//! Its operations are in the history like all others, without an answer. So the oracles notice an operation that is
//! executed twice, or differently by two replicas.

use super::World;
use crate::fault::Fault;
use crate::instrumented_store::InstrumentedStore;
use crate::trace::Who;
use bytes::Bytes;
use quorate_client::core::LinkState;
use quorate_history::{Op, OpId};
use quorate_types::bundle::BundleBuilder;
use quorate_types::wire::CLIENT_BUNDLE_TAG;
use quorate_types::{BundleKind, BundleNo, ReplicaId};

/// Largest number of remembered messages of other clients.
const REMEMBERED_MAX: usize = 64;
/// Number of bundles of a flood.
const FLOOD: u64 = 40;
/// The key of all its operations, which no other client uses.
const KEY: &str = "rogue";

impl World {
    /// Returns the index of the Byzantine client, if there is one.
    fn byzantine_client_place(&self) -> Option<usize> {
        (self.settings.byzantine.clients > 0).then(|| self.settings.clients.saturating_add(1))
    }

    /// Opens the Byzantine client's session.
    pub(super) fn begin_byzantine_client(&mut self) {
        if let Some(place) = self.byzantine_client_place() {
            self.begin_client(place);
        }
    }

    /// Records a message of an honest client.
    pub(super) fn record_client_message(&mut self, client: usize, message: &Bytes) {
        let honest = client < self.settings.clients;
        if self.settings.byzantine.clients == 0 || !honest || message.first() != Some(&CLIENT_BUNDLE_TAG) {
            return;
        }
        let byzantine_client = &mut self.byzantine_client;
        byzantine_client.recorded_count = byzantine_client.recorded_count.wrapping_add(1);
        let place = byzantine_client.recorded_count % REMEMBERED_MAX;
        match byzantine_client.recorded.get_mut(place) {
            Some(old) => *old = message.clone(),
            None => byzantine_client.recorded.push(message.clone()),
        }
    }

    /// Breaks a rule of clients.
    pub(super) fn misbehave(&mut self, fault: Fault) {
        let Some(place) = self.byzantine_client_place() else { return };
        self.trace.note(self.now, Who::Client(place), "breaches", &[fault.name().as_bytes()], || {
            format!("rules of clients: {fault}")
        });
        let done = match fault {
            Fault::DuplicateId => self.send_twice(place, false),
            Fault::EquivocatingClient => self.send_twice(place, true),
            Fault::ReplayedRequest => self.resend_other(place),
            Fault::OversizeRequest => self.send_oversize(place),
            Fault::MalformedRequest => self.send_malformed(place),
            Fault::ClientFlood => self.send_flood(place),
            _ => None,
        };
        if done.is_some() {
            self.count_fault(fault);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.byzantine_client.number = self.byzantine_client.number.saturating_add(1);
        self.byzantine_client.number
    }

    /// Adds an operation of the Byzantine client to the history.
    fn byzantine_client_op(&mut self, place: usize, op: &Op) -> OpId {
        let id = self.history.call(self.now, place, op.clone());
        self.oracles.order.called(id);
        id
    }

    fn byzantine_client_bundle(&mut self, place: usize, number: u64, op: &Op) -> Option<Bytes> {
        let (client, session) = (self.client_id(place)?, self.session(place)?);
        let id = self.byzantine_client_op(place, op);
        let mut builder = BundleBuilder::new(BundleKind::Requests, client, session, BundleNo(number));
        builder.push(&InstrumentedStore::encode(id, op));
        Some(self.bundle_signed_by(place, builder.finish()))
    }

    /// Sends two bundles with one number: both to all replicas, or each to some.
    fn send_twice(&mut self, place: usize, divided: bool) -> Option<()> {
        let number = self.next_number();
        let mut both = Vec::new();
        for half in ["a", "b"] {
            let op = Op::Put { key: KEY.to_owned(), value: format!("{number}{half}") };
            both.push(self.byzantine_client_bundle(place, number, &op)?);
        }
        let (first, second) = (both.first()?.clone(), both.get(1)?.clone());
        for id in self.replicas() {
            let (one, other) =
                if self.rngs.network.chance(500_000) { (&first, &second) } else { (&second, &first) };
            self.send_from_client(place, id, one.clone());
            if !divided {
                self.send_from_client(place, id, other.clone());
            }
        }
        Some(())
    }

    /// Resends a message of another client.
    fn resend_other(&mut self, place: usize) -> Option<()> {
        for id in self.replicas() {
            let again = self.rngs.network.pick(&self.byzantine_client.recorded)?.clone();
            self.send_from_client(place, id, again);
        }
        Some(())
    }

    fn send_oversize(&mut self, place: usize) -> Option<()> {
        let number = self.next_number();
        let (client, session) = (self.client_id(place)?, self.session(place)?);
        let mut builder = BundleBuilder::new(BundleKind::Requests, client, session, BundleNo(number));
        let limits = self.settings.bodies;
        if self.rngs.network.chance(500_000) {
            // Either one request is too large, or there is one too many.
            let bytes = usize::try_from(limits.request_bytes_max).unwrap_or(0).saturating_add(1);
            builder.push(&vec![7; bytes]);
        } else {
            for _ in 0..=limits.bundle_requests_max {
                builder.push(b"x");
            }
        }
        let message = self.bundle_signed_by(place, builder.finish());
        self.replicas().for_each(|id| self.send_from_client(place, id, message.clone()));
        Some(())
    }

    /// Sends bytes that are no message, or a message of another client with some bytes changed.
    fn send_malformed(&mut self, place: usize) -> Option<()> {
        for id in self.replicas() {
            let mut bytes = self.rngs.network.pick(&self.byzantine_client.recorded)?.to_vec();
            for _ in 0..self.rngs.network.between(1, 8) {
                let at = self.rngs.network.index(bytes.len());
                let byte = u8::try_from(self.rngs.network.below(256)).unwrap_or(0);
                if let Some(known) = bytes.get_mut(at) {
                    *known = byte;
                }
            }
            if self.rngs.network.chance(300_000) {
                bytes.truncate(self.rngs.network.index(bytes.len()).max(1));
            }
            // With another tag the message would be one of the few others that clients may send.
            if let Some(tag) = bytes.first_mut() {
                *tag = CLIENT_BUNDLE_TAG;
            }
            self.send_from_client(place, id, Bytes::from(bytes));
        }
        Some(())
    }

    /// Sends more bundles than a session's window, and more than a queue accepts.
    fn send_flood(&mut self, place: usize) -> Option<()> {
        let window = u64::from(self.cluster.genesis.client_window);
        for step in 0..FLOOD {
            // Some numbers are beyond the window, and are never executed.
            let ahead = if step.is_multiple_of(4) { window.saturating_mul(2) } else { 0 };
            let number = self.next_number().saturating_add(ahead);
            let message = self.byzantine_client_bundle(place, number, &Op::Get { key: KEY.to_owned() })?;
            for id in self.replicas() {
                self.send_from_client(place, id, message.clone());
            }
        }
        Some(())
    }

    /// Breaks the connection of a client to a replica, and restores it later.
    pub(super) fn cut_client(&mut self, client: usize, replica: ReplicaId, after_ns: u64) {
        let now = self.now;
        let Some(known) = self.clients.get_mut(client).filter(|client| client.nonce() > 0) else { return };
        known.link(now, replica, LinkState::Down);
        if let Some(slot) = self.slot_mut(replica) {
            slot.detach(client);
        }
        self.count_fault(Fault::Disconnect);
        self.trace.note(now, Who::Client(client), "is cut", &[&replica.0.to_le_bytes()], || {
            format!("off r{replica} for {} ms", after_ns / 1_000_000)
        });
        self.serve_client(client);
        self.connect_client(client, replica, after_ns);
    }
}
