//! Replies of replicas to clients. Up to f replicas may lie; in this test all of them do.

use crate::runner::{Decoder, Read};
use crate::world::captured;
use quorate_client::core::{Core, Output, Settings};
use quorate_client::{Event, LinkState};
use quorate_crypto::{Scheme, SigningKey};
use quorate_types::wire::{FromClient, FromReplica, Refusal};
use quorate_types::{
    Authenticator, BodyLimits, Bundle, BundleDigest, ClientAuth, ClusterId, Digest, Height, Outcome,
    ReplicaId, ReplyBundle, SessionId, Time, View, Wire as _,
};

const N: u16 = 4;
const SESSION: SessionId = SessionId { height: Height(1), index: 0 };

fn settings() -> Settings {
    Settings {
        cluster: ClusterId(Digest([1; 32])),
        n: usize::from(N),
        f: 1,
        client_auth: ClientAuth::Signature,
        limits: BodyLimits::default(),
        client_window: 64,
        in_flight_max: 4,
        waiting_bytes_max: 1 << 16,
        retry_ns: 100_000_000,
        retry_ns_max: 1_000_000_000,
        first_leader: ReplicaId(0),
        audience: quorate_client::core::Audience::Leader,
    }
}

fn bundles(core: &mut Core) -> Vec<Bundle> {
    let mut sent = Vec::new();
    while let Some(output) = core.poll() {
        let Output::Send { frame, .. } = output else { continue };
        if let Ok(FromClient::Bundle { content, .. }) = FromClient::from_bytes(&frame) {
            sent.push(Bundle::parse(&content, Authenticator::None, &settings().limits).unwrap());
        }
    }
    sent.dedup_by_key(|bundle| bundle.digest());
    sent
}

fn reply(core: &Core, bundle: &Bundle, outcome: &Outcome) -> FromReplica {
    let outcome = outcome.to_bytes();
    let reply = ReplyBundle {
        session: bundle.session(),
        number: bundle.number(),
        bundle: bundle.digest(),
        result: ReplyBundle::result_digest(&outcome),
        outcome: outcome.into(),
        view: View(1),
        leader: ReplicaId(1),
    };
    FromReplica::Reply(core.client(), reply)
}

/// A client with an open session and two pending requests; and these requests.
fn client() -> (Core, Vec<Bundle>) {
    let mut core = Core::new(settings(), SigningKey::from_seed(Scheme::Cheap, [3; 32]));
    for id in 0..N {
        core.link(Time(1), ReplicaId(id), LinkState::Up);
    }
    core.open(Time(1), 77);
    let opening = bundles(&mut core).remove(0);
    let opened = reply(&core, &opening, &Outcome::Opened(SESSION));
    for id in 0..2 {
        core.handle(Time(2), ReplicaId(id), opened.clone());
    }
    core.submit(Time(3), b"one").unwrap();
    let mut asked = bundles(&mut core);
    core.submit(Time(4), b"two").unwrap();
    asked.extend(bundles(&mut core));
    assert_eq!((core.session(), asked.len()), (Some(SESSION), 2));
    (core, asked)
}

#[test]
fn replies_to_clients_are_decoded_or_refused() {
    let (core, asked) = client();
    let outcomes = [
        Outcome::Done(vec![b"result".to_vec()]),
        Outcome::Done(Vec::new()),
        Outcome::NoSession,
        Outcome::Opened(SESSION),
        Outcome::Forgotten,
        Outcome::Superseded,
        Outcome::OutOfWindow,
        Outcome::TooLarge,
        Outcome::NotAllowed,
    ];
    let about = asked.iter().flat_map(|bundle| outcomes.iter().map(move |outcome| (bundle, outcome)));
    let mut samples: Vec<Vec<u8>> =
        about.map(|(bundle, outcome)| reply(&core, bundle, outcome).to_bytes()).collect();
    let refused = |why| FromReplica::Refused { client: core.client(), bundle: asked[0].digest(), why };
    samples
        .extend([Refusal::Busy, Refusal::NoSession, Refusal::Forgotten].map(|why| refused(why).to_bytes()));
    Decoder::new("replies", samples.clone(), |bytes| {
        let Ok(message) = FromReplica::from_bytes(bytes) else { return Read::Refused };
        let (mut core, _) = client();
        // Just enough replicas report the same result to be believed. The others report the right result or another one.
        for id in [2, 3, 3, N + 7] {
            core.handle(Time(10), ReplicaId(id), message.clone());
        }
        for (id, sample) in (0..2).zip(samples.iter().cycle().skip(bytes.len())) {
            core.handle(Time(11), ReplicaId(id), FromReplica::from_bytes(sample).unwrap());
        }
        core.tick(Time(5_000_000_000));
        let mut answered = 0;
        while let Some(output) = core.poll() {
            answered +=
                usize::from(matches!(output, Output::Event(Event::Done { .. } | Event::Failed { .. })));
        }
        assert!(answered <= 2, "each bundle ends once");
        Read::Taken
    })
    .holding(64, 64 << 10)
    .costing(8)
    .fuzz();
}

/// Clients decode the messages that real replicas have sent.
#[test]
fn captured_messages_of_replicas_are_decoded() {
    let heard = captured().iter().flat_map(|run| &run.replies);
    let mut count = 0;
    for message in heard {
        let message = FromReplica::from_bytes(message).unwrap();
        count += usize::from(
            matches!(message, FromReplica::Reply(_, reply) if reply.bundle != BundleDigest::ZERO),
        );
    }
    assert!(count > 10, "{count}");
}
