//! The cost of the client core for each request, without sockets: bundles of 100 requests of 128 bytes, and four
//! replies to each bundle with 8 bytes for each request.
//!
//! `cargo run --release -p quorate-client --example core_cost`

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::as_conversions,
    reason = "a measurement needs a clock, and its numbers are its own"
)]

use quorate_client::{Audience, Core, Event, LinkState, Output, Settings};
use quorate_crypto::{Scheme, SigningKey};
use quorate_types::codec::Wire;
use quorate_types::wire::{FromClient, FromReplica};
use quorate_types::{
    Authenticator, BodyLimits, Bundle, ClientAuth, ClusterId, Height, Outcome, ReplicaId, ReplyBundle,
    SessionId, Time, View,
};
use std::sync::Arc;
use std::time::Instant;

const BUNDLES: usize = 10_000;

/// Returns the encoded replies of four replicas.
fn replies(frame: &[u8], outcome: &Outcome) -> Vec<Vec<u8>> {
    let Ok(FromClient::Bundle { content, .. }) = FromClient::from_bytes(frame) else {
        return Vec::new();
    };
    let Ok(bundle) = Bundle::parse(&content, Authenticator::None, &BodyLimits::default()) else {
        return Vec::new();
    };
    let outcome: Arc<[u8]> = Arc::from(outcome.to_bytes());
    let reply = ReplyBundle {
        session: bundle.session(),
        number: bundle.number(),
        bundle: bundle.digest(),
        result: ReplyBundle::result_digest(&outcome),
        outcome,
        view: View(0),
        leader: ReplicaId(0),
    };
    vec![FromReplica::Reply(bundle.client(), reply).to_bytes(); 4]
}

fn main() {
    for (client_auth, size) in [
        (ClientAuth::None, 100),
        (ClientAuth::Signature, 100),
        (ClientAuth::None, 1),
        (ClientAuth::Signature, 1),
    ] {
        let settings = Settings {
            cluster: ClusterId::ZERO,
            n: 4,
            f: 1,
            client_auth,
            limits: BodyLimits::default(),
            client_window: 16_384,
            in_flight_max: 100,
            waiting_bytes_max: 16 << 20,
            retry_ns: 800_000_000,
            retry_ns_max: 10_000_000_000,
            first_leader: ReplicaId(0),
            audience: Audience::Leader,
        };
        let mut core = Core::new(settings, SigningKey::from_seed(Scheme::Ed25519, [1; 32]));
        let (now, op) = (Time(1), vec![7u8; 128]);
        for id in 0..4 {
            core.link(now, ReplicaId(id), LinkState::Up);
        }
        core.open(now, 1);
        let done = Outcome::Done(vec![vec![0; 8]; size]);
        let opened = Outcome::Opened(SessionId { height: Height(1), index: 0 });
        let (mut answered, mut submitted) = (0, 0);
        // Each round has some bundles. Other programs hardly disturb the fastest tenth of the rounds.
        let mut rounds: Vec<f64> = Vec::new();
        let mut waiting: Vec<Vec<Vec<u8>>> = Vec::new();
        while answered < BUNDLES {
            let (mut sent, before) = (Vec::new(), answered);
            let start = Instant::now();
            for answers in waiting.drain(..) {
                for (from, bytes) in (0u16..).zip(answers) {
                    if let Ok(message) = FromReplica::from_bytes(&bytes) {
                        core.handle(now, ReplicaId(from), message);
                    }
                }
            }
            while submitted < BUNDLES && core.outstanding() < 10 {
                submitted += 1;
                if core.submit_bundle(now, std::iter::repeat_n(op.as_slice(), size)).is_err() {
                    return;
                }
            }
            while let Some(output) = core.poll() {
                match output {
                    Output::Send { frame, .. } => sent.push(frame),
                    Output::Event(Event::Done { .. }) => answered += 1,
                    Output::Event(_) => {}
                }
            }
            let requests = (answered - before) * size;
            if requests > 0 {
                rounds.push(start.elapsed().as_nanos() as f64 / requests as f64);
            }
            let outcome = if core.session().is_some() { &done } else { &opened };
            waiting.extend(sent.iter().map(|frame| replies(frame, outcome)));
        }
        rounds.sort_by(f64::total_cmp);
        let ns = rounds.get(rounds.len() / 10).copied().unwrap_or(f64::NAN);
        println!("{client_auth:?}, bundles of {size}: {ns:.0} ns for each request");
    }
}
