//! The port of clients.

use super::attacker::{Attacker, client_frame, peer_frame};
use super::target::Target;
use quorate_app::KvOp;
use quorate_client::keys;
use quorate_crypto::{Scheme, SigningKey, bundle_preimage};
use quorate_net::{LinkKey, Session, tls};
use quorate_node::layout::KV_KEY;
use quorate_types::bundle::{BundleBuilder, BundleKind, bundle_digest};
use quorate_types::codec::Wire as _;
use quorate_types::limits::{
    ATTACHED_PER_CONNECTION_MAX, FRAME_BYTES_MAX, ORDER_ASKS_PER_SECOND_MAX, ORDER_ASKS_WAITING_MAX,
    SESSIONS_PER_CLIENT_MAX,
};
use quorate_types::rng::Rng;
use quorate_types::wire::{FromClient, FromReplica, NoOrder, Refusal, VERSION, frame};
use quorate_types::{
    Authenticator, BundleDigest, BundleNo, ClusterId, Digest, Height, Outcome, PublicKey, ReplyBundle,
    SessionId, Signature,
};

const CLIENT: &str = "client 127.0.0.1";

/// A client that signs arbitrary bundles.
pub(crate) struct Signer {
    pub(crate) key: SigningKey,
    cluster: ClusterId,
}

impl Signer {
    pub(crate) fn new(target: &Target) -> Self {
        let key = keys::read_private(&target.cluster.dir().join(KV_KEY)).unwrap();
        Self { key, cluster: target.committee().cluster }
    }

    fn content(&self, kind: BundleKind, session: SessionId, number: u64, ops: &[Vec<u8>]) -> Vec<u8> {
        let mut builder = BundleBuilder::new(kind, self.key.public(), session, BundleNo(number));
        for op in ops {
            builder.push(op);
        }
        builder.finish()
    }

    fn signed(&self, content: Vec<u8>) -> FromClient {
        let signature = self.key.sign(&bundle_preimage(self.cluster, bundle_digest(&content)));
        FromClient::Bundle { authenticator: Authenticator::Signature(signature), content }
    }

    pub(crate) fn requests(&self, session: SessionId, number: u64, ops: &[Vec<u8>]) -> FromClient {
        self.signed(self.content(BundleKind::Requests, session, number, ops))
    }

    fn opening(&self, nonce: u64) -> FromClient {
        self.signed(self.content(BundleKind::Open, SessionId::default(), nonce, &[]))
    }

    pub(crate) fn open(&self, at: &mut Attacker, nonce: u64) -> SessionId {
        at.say_to_replica(&self.opening(nonce));
        at.until("a session", |at| opened(at, nonce).is_some());
        opened(at, nonce).unwrap()
    }
}

fn opened(at: &Attacker, nonce: u64) -> Option<SessionId> {
    outcomes(at).into_iter().find_map(|(number, outcome)| match outcome {
        Outcome::Opened(session) if number == nonce => Some(session),
        _ => None,
    })
}

/// Returns numbers and outcomes of the received replies.
pub(crate) fn outcomes(at: &Attacker) -> Vec<(u64, Outcome)> {
    let outcome = |reply: ReplyBundle| (reply.number.0, Outcome::from_bytes(&reply.outcome).unwrap());
    at.replies().into_iter().map(outcome).collect()
}

fn refusals(at: &Attacker) -> Vec<Refusal> {
    let refusals = at.messages().into_iter().filter_map(|message| match message {
        FromReplica::Refused { why, .. } => Some(why),
        _ => None,
    });
    refusals.collect()
}

fn put(value: &str) -> Vec<u8> {
    KvOp::Put { key: b"attacked", value: value.as_bytes() }.to_bytes()
}

/// Sends random bytes below TLS, then inside it: before a hello, and after one.
fn random_bytes(target: &Target) {
    for seed in 1..=40 {
        let mut rng = Rng::new(seed);
        let random: Vec<u8> = (0..seed * 97).map(|_| rng.below(256) as u8).collect();
        let mut attacker = Attacker::plain(target.clients_of(0));
        attacker.say(&random);
        let mut inside = target.client(0);
        inside.say(&random);
        let mut greeted = target.greeted_client(0);
        greeted.say(&client_frame(&[&[9], &random[..]].concat()));
        greeted.until_closed(&format!("random bytes of seed {seed} after a hello"));
        assert_eq!(greeted.farewell().as_deref(), Some("malformed message"), "seed {seed}");
    }
    target.until_refused(0, CLIENT, "what arrived is not TLS", 10);
    target.until_refused(0, CLIENT, "malformed message", 40);
}

#[test]
fn strangers_on_the_port_of_clients_are_refused() {
    let mut target = Target::start();
    random_bytes(&target);
    let over = u32::try_from(FRAME_BYTES_MAX).unwrap() + 1;
    let committee = target.committee();
    let hello = |version, cluster| client_frame(&FromClient::Hello { version, cluster }.to_bytes());
    let attach = FromClient::Attach(vec![PublicKey([1; 32]); ATTACHED_PER_CONNECTION_MAX]).to_bytes();
    let good = hello(VERSION, committee.cluster);
    let cases: [(Vec<u8>, &str); 8] = [
        (over.to_le_bytes().to_vec(), "frame too large"),
        (vec![0; 4], "frame shorter than its header"),
        (hello(VERSION + 1, committee.cluster), "another wire version"),
        (hello(VERSION, ClusterId(Digest([7; 32]))), "another cluster"),
        (client_frame(&FromClient::Status.to_bytes()), "no hello"),
        ([&good[..], &good].concat(), "second hello"),
        (
            [
                &good[..],
                &client_frame(&FromClient::Attach(vec![PublicKey([2; 32])]).to_bytes()),
                &client_frame(&attach),
            ]
            .concat(),
            "too many clients",
        ),
        // A replica confuses the ports.
        (peer_frame(0, 0, frame::HELLO, &[1; 100]), "malformed message"),
    ];
    for (bytes, reason) in cases {
        let before = target.refused(0, CLIENT, reason);
        let mut attacker = target.client(0);
        attacker.say(&bytes);
        attacker.until_closed(reason);
        assert_eq!(attacker.farewell().as_deref(), Some(reason));
        target.until_refused(0, CLIENT, reason, before + 1);
    }
    // The port of clients requests no certificate, and a certificate makes no difference.
    let thief = tls::dial_peer(&target.link_key(1), target.listed(0)).unwrap();
    let mut peer = Attacker::over(target.clients_of(0), Session::dial(&thief).unwrap());
    peer.say(&client_frame(&FromClient::Status.to_bytes()));
    peer.until_closed("a replica without a hello");
    assert_eq!(peer.farewell().as_deref(), Some("no hello"));
    // A client that expects another key closes before it sends a message.
    let other = LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[99; 32])).unwrap().public();
    let mut client =
        Attacker::over(target.clients_of(0), Session::dial(&tls::dial_replica(other).unwrap()).unwrap());
    client.until_closed("another replica than expected");
    let wrong = "the certificate carries another link key: another replica, or another cluster";
    assert_eq!(client.end.as_deref(), Some(wrong));
    target.until_refused(0, CLIENT, "the other side refused the TLS handshake", 1);

    let recorded = {
        let mut good = target.greeted_client(0);
        good.say_to_replica(&FromClient::Status);
        good.until("the status", |good| good.messages().len() == 2);
        good.written
    };
    let mut replay = Attacker::plain(target.clients_of(0));
    replay.say(&recorded);
    replay.until_closed("a replayed handshake");
    target.until_refused(0, CLIENT, "a TLS record does not decrypt", 1);

    // A bad message counts once. Further messages of the same read are neither checked nor counted.
    let before = target.refused(0, CLIENT, "malformed message");
    let mut flood = target.greeted_client(0);
    flood.say(&client_frame(b"\x09").repeat(50_000));
    flood.until_closed("a flood of bad messages");
    assert_eq!(target.refused(0, CLIENT, "malformed message"), before + 1);
    target.is_well("strangers on the port of clients");
}

/// Opens more sessions than a client may have. The client loses a session of its own, and no other client does.
fn too_many_sessions(signer: &Signer, at: &mut Attacker, session: SessionId) {
    let most = u64::try_from(SESSIONS_PER_CLIENT_MAX).unwrap();
    let openings: Vec<u8> =
        (1_000..1_020 + most).flat_map(|nonce| client_frame(&signer.opening(nonce).to_bytes())).collect();
    at.say(&openings);
    at.until("the sessions", |at| opened(at, 1_019 + most).is_some());
    let before = refusals(at).len() + outcomes(at).len();
    at.say_to_replica(&signer.requests(session, 3, &[put("evicted")]));
    at.until("the end of the first session", |at| refusals(at).len() + outcomes(at).len() > before);
    let evicted = refusals(at).last() == Some(&Refusal::NoSession);
    assert!(evicted || outcomes(at).last().is_some_and(|(_, outcome)| *outcome == Outcome::NoSession));
}

#[test]
fn clients_that_break_rules_receive_the_reason() {
    let mut target = Target::start();
    let signer = Signer::new(&target);
    let mut at = target.greeted_client(0);
    let session = signer.open(&mut at, 71);
    at.say_to_replica(&signer.requests(session, 1, &[put("first")]));
    at.until("the first reply", |at| outcomes(at).iter().any(|(number, _)| *number == 1));

    let large = vec![0; 300 << 10];
    let content = |number, ops: &[Vec<u8>]| signer.content(BundleKind::Requests, session, number, ops);
    let forged = FromClient::Bundle {
        authenticator: Authenticator::Signature(Signature([3; 64])),
        content: content(2, &[put("forged")]),
    };
    let unsigned =
        FromClient::Bundle { authenticator: Authenticator::None, content: content(2, &[put("bare")]) };
    let stranger = Signer { key: SigningKey::from_seed(Scheme::Ed25519, [9; 32]), cluster: signer.cluster };
    let elsewhere = Signer { key: signer.key.clone(), cluster: ClusterId(Digest([7; 32])) };
    let lost = SessionId { index: session.index + 9, ..session };
    let many = vec![Vec::new(); 5_000];
    let later = SessionId { height: Height(session.height.0 + 1_000), ..session };
    let cases: [(FromClient, Refusal, &str); 11] = [
        (signer.requests(session, 1, &[put("second")]), Refusal::NumberReused, "number reused"),
        (forged, Refusal::BadSignature, "bad signature"),
        (unsigned, Refusal::BadSignature, "bad signature"),
        (elsewhere.requests(session, 2, &[put("elsewhere")]), Refusal::BadSignature, "bad signature"),
        (stranger.opening(5), Refusal::NotRegistered, "not registered"),
        (stranger.requests(session, 2, &[put("mine")]), Refusal::NoSession, "no session"),
        (signer.requests(lost, 2, &[put("lost")]), Refusal::NoSession, "no session"),
        (signer.requests(later, 2, &[put("later")]), Refusal::Behind, "behind"),
        (signer.requests(session, 1 << 40, &[put("far")]), Refusal::OutOfWindow, "out of window"),
        (signer.requests(session, 2, &[large]), Refusal::Malformed, "malformed bundle"),
        (signer.requests(session, 2, &many), Refusal::Malformed, "malformed bundle"),
    ];
    for (index, (bundle, why, reason)) in cases.into_iter().enumerate() {
        let before = target.refused(0, CLIENT, reason);
        at.say_to_replica(&bundle);
        at.until(reason, |at| refusals(at).len() > index);
        assert_eq!(refusals(&at)[index], why, "{reason}");
        assert_eq!(target.refused(0, CLIENT, reason), before + 1, "{reason}");
    }

    // Two contents have the number of one pending bundle.
    let (replies, refused) = (outcomes(&at).len(), refusals(&at).len());
    let both = [signer.requests(session, 2, &[put("third")]), signer.requests(session, 2, &[put("fourth")])];
    let both: Vec<u8> = both.iter().flat_map(|bundle| client_frame(&bundle.to_bytes())).collect();
    at.say(&both);
    at.until("both answers", |at| outcomes(at).len() + refusals(at).len() >= replies + refused + 2);
    let done =
        outcomes(&at).into_iter().skip(replies).filter(|(_, outcome)| matches!(outcome, Outcome::Done(_)));
    assert_eq!(done.count(), 1, "one content for one number");

    too_many_sessions(&signer, &mut at, session);

    for _ in 0..30 {
        at.say_to_replica(&FromClient::Status);
    }
    target.until_refused(0, CLIENT, "status asked too often", 20);
    assert!(at.messages().iter().filter(|said| matches!(said, FromReplica::Status(_))).count() <= 10);
    target.is_well("clients that break the rules");
}

/// Floods of questions for the order of bundles: of one with a proof, which costs the most, and of ones that nobody orders.
fn questions_for_order(protocol: &str) {
    let mut target = Target::start_of(protocol);
    let signer = Signer::new(&target);
    let mut at = target.greeted_client(0);
    let session = signer.open(&mut at, 3);
    at.say_to_replica(&signer.requests(session, 1, &[put("ordered")]));
    at.until("the first reply", |at| outcomes(at).iter().any(|(number, _)| *number == 1));
    let ordered = at.replies().into_iter().find(|reply| reply.number.0 == 1).unwrap().bundle;
    let client = signer.key.public();
    let most = usize::try_from(ORDER_ASKS_PER_SECOND_MAX).unwrap();
    let flood = |bundles: &mut dyn Iterator<Item = BundleDigest>| -> Vec<u8> {
        bundles.flat_map(|bundle| client_frame(&FromClient::AskOrder { client, bundle }.to_bytes())).collect()
    };
    let refused = |target: &Target| target.refused(0, CLIENT, "order asked too often");

    let before = refused(&target);
    at.say(&flood(&mut std::iter::repeat_n(ordered, 20 * most)));
    target.until_refused(
        0,
        CLIENT,
        "order asked too often",
        before + 10 * u64::from(ORDER_ASKS_PER_SECOND_MAX),
    );
    let is_about = |said: &FromReplica| matches!(said, FromReplica::Order { bundle, .. } | FromReplica::NoOrder { bundle, .. } if *bundle == ordered);
    at.until("an answer", |at| at.messages().iter().any(is_about));
    target.is_well("a flood of questions for one bundle");

    // Questions that wait take bounded room: the oldest ones are answered, and an end of the connection removes all.
    let mut crowd: Vec<Attacker> = (0..20).map(|_| target.greeted_client(0)).collect();
    for (number, asker) in (0u64..).zip(&mut crowd) {
        let unknown = |at: u64| {
            let mut digest = [7; 32];
            digest[..8].copy_from_slice(&(number << 32 | at).to_le_bytes());
            BundleDigest(Digest(digest))
        };
        asker.say(&flood(&mut (0..3 * u64::from(ORDER_ASKS_PER_SECOND_MAX)).map(unknown)));
        let is_busy = |said: &FromReplica| matches!(said, FromReplica::NoOrder { why: NoOrder::Busy, .. });
        asker.until("the oldest questions are answered", |asker| {
            asker.messages().iter().filter(|said| is_busy(said)).count() >= most - ORDER_ASKS_WAITING_MAX
        });
    }
    target.is_well("questions for bundles that nobody orders");
    drop(crowd);
    target.is_well("the end of their connections");
}

#[test]
fn floods_of_questions_for_order_are_limited_under_apollo() {
    questions_for_order("apollo");
}

#[test]
fn floods_of_questions_for_order_are_limited_under_artemis() {
    questions_for_order("artemis");
}
