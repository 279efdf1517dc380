//! Tests of the core against scripted replicas in virtual time. Each test chooses the messages of each replica.

use super::*;
use bytes::Bytes;
use quorate_crypto::{Scheme, VerifyKey, bundle_preimage};
use quorate_types::codec::Wire;
use quorate_types::wire::{FromClient, Refusal};
use quorate_types::{Authenticator, Bundle, BundleKind, Height, Outcome, PublicKey, ReplyBundle, View};
use std::collections::BTreeSet;
use std::sync::Arc;

mod lost;
mod ordering;
mod replies;
mod sending;
mod sessions;

const MS: u64 = 1_000_000;
const SESSION: SessionId = SessionId { height: Height(7), index: 2 };
const NONCE: u64 = 0xabcd;

fn settings() -> Settings {
    Settings {
        cluster: ClusterId(quorate_types::Digest([3; 32])),
        n: 4,
        f: 1,
        client_auth: ClientAuth::Signature,
        limits: BodyLimits::default(),
        client_window: 16,
        in_flight_max: 4,
        waiting_bytes_max: 1 << 20,
        retry_ns: 800 * MS,
        retry_ns_max: 10_000 * MS,
        first_leader: ReplicaId(0),
        audience: Audience::Leader,
    }
}

fn key() -> SigningKey {
    SigningKey::from_seed(Scheme::Ed25519, [9; 32])
}

/// A core, the time, and the core's outputs.
struct World {
    core: Core,
    now: Time,
    sent: Vec<(ReplicaId, Bytes)>,
    events: Vec<Event>,
}

impl World {
    fn with(settings: Settings) -> Self {
        Self { core: Core::new(settings, key()), now: Time(5 * MS), sent: Vec::new(), events: Vec::new() }
    }

    /// Returns a world with all links up and the session open.
    fn open(settings: Settings) -> Self {
        let mut world = Self::with(settings);
        for id in 0..settings.n as u16 {
            world.link(id, LinkState::Up);
        }
        world.core.open(world.now, NONCE);
        world.drain();
        let open = world.take_sent();
        assert_eq!(open.len(), 1, "to the leader alone");
        let bundle = world.parse(&open[0].1);
        assert_eq!((bundle.kind(), bundle.number()), (BundleKind::Open, BundleNo(NONCE)));
        for id in 1..=settings.f as u16 + 1 {
            world.reply(id, &bundle, &Outcome::Opened(SESSION));
        }
        assert_eq!(world.take_events(), [Event::Opened(SESSION)]);
        world
    }

    fn drain(&mut self) {
        while let Some(output) = self.core.poll() {
            match output {
                Output::Send { to, frame } => self.sent.push((to, frame)),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn take_sent(&mut self) -> Vec<(ReplicaId, Bytes)> {
        std::mem::take(&mut self.sent)
    }

    fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn link(&mut self, id: u16, state: LinkState) {
        self.core.link(self.now, ReplicaId(id), state);
        self.drain();
    }

    fn submit(&mut self, op: &[u8]) -> Ticket {
        self.core.submit(self.now, op).unwrap()
    }

    /// Submits one operation, lets it leave and returns its bundle.
    fn send_one(&mut self, op: &[u8]) -> (u64, Bundle) {
        let ticket = self.submit(op);
        self.drain();
        let sent = self.take_sent();
        (ticket.bundle, self.parse(&sent.last().unwrap().1))
    }

    /// Parses a message as a replica does: it checks the form, the digest and the signature.
    fn parse(&self, frame: &Bytes) -> Bundle {
        let Ok(FromClient::Bundle { authenticator, content }) = FromClient::from_bytes(frame) else {
            panic!("not a bundle");
        };
        let settings = &self.core.settings;
        let bundle = Bundle::parse(&content, authenticator.clone(), &settings.limits).unwrap();
        match authenticator {
            Authenticator::None => assert_eq!(settings.client_auth, ClientAuth::None),
            Authenticator::Signature(signature) => {
                let key = VerifyKey::register(Scheme::Ed25519, bundle.client()).unwrap();
                assert!(key.verify(&bundle_preimage(settings.cluster, bundle.digest()), &signature));
            }
        }
        bundle
    }

    fn handle(&mut self, from: u16, message: FromReplica) {
        self.core.handle(self.now, ReplicaId(from), message);
        self.drain();
    }

    fn reply(&mut self, from: u16, bundle: &Bundle, outcome: &Outcome) {
        self.handle(from, reply(bundle, outcome, View(0), ReplicaId(0)));
    }

    fn refuse(&mut self, from: u16, bundle: &Bundle, why: Refusal) {
        let (client, bundle) = (self.core.client(), bundle.digest());
        self.handle(from, FromReplica::Refused { client, bundle, why });
    }

    /// Lets time pass as a driver would.
    fn pass(&mut self, ns: u64) {
        let end = self.now.plus(ns);
        while let Some(due) = self.core.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.core.tick(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn receivers(&mut self) -> Vec<u16> {
        self.take_sent().iter().map(|(to, _)| to.0).collect()
    }
}

fn reply(bundle: &Bundle, outcome: &Outcome, view: View, leader: ReplicaId) -> FromReplica {
    let outcome: Arc<[u8]> = Arc::from(outcome.to_bytes());
    FromReplica::Reply(
        bundle.client(),
        ReplyBundle {
            session: bundle.session(),
            number: bundle.number(),
            bundle: bundle.digest(),
            result: ReplyBundle::result_digest(&outcome),
            outcome,
            view,
            leader,
        },
    )
}

fn done(results: &[&[u8]]) -> Outcome {
    Outcome::Done(results.iter().map(|result| result.to_vec()).collect())
}

fn failure(event: &Event) -> Option<Failure> {
    match event {
        Event::Failed { why, .. } | Event::OpenFailed(why) => Some(*why),
        _ => None,
    }
}
