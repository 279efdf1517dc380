//! The port of peers.

use super::attacker::{Attacker, PATIENCE, peer_frame, peer_frames};
use super::target::Target;
use quorate_net::{LinkKey, Session, tls};
use quorate_types::codec::Wire as _;
use quorate_types::rng::Rng;
use quorate_types::wire::{PeerHello, VERSION, frame};
use quorate_types::{ClusterId, Digest, Epoch, Incarnation, ProtocolId, ReplicaId};
use serde_json::Value;
use std::time::Instant;

const STRANGER: &str = "stranger 127.0.0.1";
const WRONG_KEY: &str = "the certificate carries another link key: another replica, or another cluster";

/// An unlisted key with a certificate of the right name.
fn foreign_key() -> LinkKey {
    LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[99; 32])).unwrap()
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..length).map(|_| rng.below(256) as u8).collect()
}

#[test]
fn strangers_on_the_port_of_peers_are_refused() {
    let mut target = Target::start();

    for seed in 1..=40 {
        let mut attacker = Attacker::plain(target.peers_of(0));
        let mut bytes = random(seed, 1 + usize::try_from(seed * 131).unwrap());
        // The first bytes decide how far the input gets: some begin like a record of a handshake.
        if seed % 3 == 0 {
            bytes.splice(0..0, [22, 3, 1, 1, 0]);
        }
        attacker.say(&bytes);
        // A few bytes may be the beginning of a record; the deadline closes such connections.
        if seed > 5 {
            attacker.until_closed(&format!("random bytes of seed {seed}"));
        }
    }
    target.until_refused(0, STRANGER, "what arrived is not TLS", 10);

    // A stranger has the right name, the right id and another key; a client has no certificate.
    let mut attacker = target.peer(0, &foreign_key());
    attacker.until_closed("another key");
    target.until_refused(0, STRANGER, WRONG_KEY, 1);
    let mut client = Attacker::over(
        target.peers_of(0),
        Session::dial(&tls::dial_replica(target.listed(0)).unwrap()).unwrap(),
    );
    client.say_to_replica(&target.hello());
    client.until_closed("a client");
    target.until_refused(0, STRANGER, "no certificate was shown", 1);

    // The handshake was valid; it is replayed with the bytes of its first frame.
    let mut good = target.peer(0, &target.link_key(3));
    good.shake_hands();
    good.say(&peer_frame(0, 0, frame::HELLO, b"x"));
    good.until_closed("a malformed hello");
    let mut replay = Attacker::plain(target.peers_of(0));
    replay.say(&good.written);
    replay.until_closed("a replayed handshake");
    target.until_refused(0, STRANGER, "a TLS record does not decrypt", 1);
    target.until_refused(0, "replica 3", "malformed hello", 1);

    target.is_well("strangers on the port of peers");
    for id in 0..4 {
        let status = target.status(id);
        let peers = status["peers"].as_array().unwrap();
        assert!(peers.iter().all(|peer| peer["connected"] == Value::Bool(true)), "{peers:?}");
    }
}

/// A connection with the stolen link key of replica 3 to replica 0.
struct Thief {
    hello: PeerHello,
}

impl Thief {
    fn new(target: &Target) -> Self {
        let committee = target.committee();
        let hello = PeerHello {
            version: VERSION,
            cluster: committee.cluster,
            epoch: committee.epoch,
            protocol: committee.protocol,
            id: ReplicaId(3),
            incarnation: Incarnation(1 << 40),
            peer_incarnation: Incarnation(0),
            next: [0; 3],
        };
        Self { hello }
    }

    fn says(&self, target: &Target, change: impl FnOnce(&mut PeerHello)) -> Attacker {
        let mut hello = self.hello.clone();
        change(&mut hello);
        let mut attacker = target.peer(0, &target.link_key(3));
        attacker.say(&peer_frame(0, 0, frame::HELLO, &hello.to_bytes()));
        attacker
    }

    /// Replica 0 answers the hello: from now on the attacker is replica 3.
    fn enters(&mut self, target: &Target) -> Attacker {
        self.hello.incarnation.0 += 1;
        let mut attacker = self.says(target, |_| ());
        attacker.until("the answer to the hello", |attacker| {
            peer_frames(&attacker.heard).iter().any(|(kind, _)| *kind == frame::HELLO)
        });
        attacker
    }
}

fn wrong_hellos(target: &Target, thief: &Thief) {
    type Change = fn(&mut PeerHello);
    let hellos: [(Change, &str); 6] = [
        (|hello| hello.version += 1, "another version of the wire format"),
        (|hello| hello.cluster = ClusterId(Digest([7; 32])), "another cluster"),
        (|hello| hello.epoch = Epoch(5), "another epoch"),
        (|hello| hello.protocol = ProtocolId::new("echo"), "another protocol"),
        (|hello| hello.id = ReplicaId(2), "not the replica that belongs to this link"),
        (|hello| hello.incarnation = Incarnation(0), "malformed hello"),
    ];
    for (change, reason) in hellos {
        let mut attacker = thief.says(target, change);
        attacker.until_closed(reason);
        assert_eq!(attacker.peer_farewell().as_deref(), Some(reason));
        target.until_refused(0, "replica 3", reason, 1);
    }
    let mut early = target.peer(0, &target.link_key(3));
    early.say(&peer_frame(0, 0, frame::PROTOCOL, b"before the hello"));
    early.until_closed("no hello");
    assert_eq!(early.peer_farewell().as_deref(), Some("sent a frame before the hello was answered"));
}

#[test]
fn replica_that_breaks_rules_is_disconnected_and_counted() {
    let mut target = Target::start();
    target.cluster.nodes.kill(ReplicaId(3)).unwrap();
    target.killed.push(ReplicaId(3));
    let mut thief = Thief::new(&target);

    wrong_hellos(&target, &thief);

    let over = u32::try_from(quorate_types::limits::FRAME_CONSENSUS_BYTES_MAX).unwrap() + 1;
    let header = |length: u32, lane: u8| [&length.to_le_bytes()[..], &[lane], &[0; 8], &[1]].concat();
    let closing: [(Vec<u8>, &str); 8] = [
        (header(over, 0), "frame too large"),
        (header(u32::MAX, 2), "frame too large"),
        (header(9, 0), "frame shorter than its header"),
        (header(100, 9), "unknown lane"),
        (peer_frame(0, u64::MAX, frame::PROTOCOL, b""), "repeated sequence number"),
        (peer_frame(0, 0, frame::ACK, &[255; 24]), "acknowledges frames that were never sent"),
        (peer_frame(0, 0, frame::ACK, b"short"), "malformed control frame"),
        (peer_frame(0, 0, frame::HELLO, &thief.hello.to_bytes()), "malformed control frame"),
    ];
    for (bytes, reason) in closing {
        let mut attacker = thief.enters(&target);
        let before = target.refused(0, "replica 3", reason);
        attacker.say(&bytes);
        attacker.until_closed(reason);
        assert_eq!(attacker.peer_farewell().as_deref(), Some(reason));
        target.until_refused(0, "replica 3", reason, before + 1);
    }

    // Frames that are valid but have no meaning are counted, and the link stays.
    let mut attacker = thief.enters(&target);
    let mut numbers = 0u64..;
    for seed in 1..=200u64 {
        for kind in [frame::PROTOCOL, frame::HOST, frame::BUNDLE, frame::PAYLOAD, 200] {
            let body = random(seed, usize::try_from(seed * 7).unwrap());
            attacker.say(&peer_frame(0, numbers.next().unwrap(), kind, &body));
        }
    }
    for reason in ["malformed message", "malformed host message", "malformed bundle", "unknown frame type"] {
        target.until_refused(0, "replica 3", reason, 100);
    }
    assert!(attacker.end.is_none(), "{:?}", attacker.end);
    // The text is shown, but not trusted: no control character reaches a log or a terminal.
    attacker.say(&peer_frame(0, 0, frame::CLOSE, "\u{1b}[31mgo\u{202e}away\n".as_bytes()));
    target.until_refused(0, "replica 3", "refuses our connection", 1);
    assert_eq!(target.status(0)["peers"][2]["last_refusal"], "?[31mgo?away?");

    target.is_well("a replica without rules");
    target.cluster.nodes.start(ReplicaId(3)).unwrap();
    target.cluster.nodes.wait_ready(&[ReplicaId(3)], PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while target.status(0)["peers"][2]["connected"] != Value::Bool(true) {
        assert!(
            Instant::now() < deadline,
            "the true replica 3 does not come back: {}",
            target.status(0)["peers"]
        );
    }
}

/// The impostor takes the address of replica 1, which replicas with greater ids dial.
#[test]
fn impostor_on_the_address_of_a_replica_is_refused() {
    let mut target = Target::start();
    target.cluster.nodes.kill(ReplicaId(1)).unwrap();
    target.killed.push(ReplicaId(1));
    let listener = quorate_net::reactor::bind(target.peers_of(1)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let keys: Vec<_> = (0..4).map(|id| target.listed(id)).collect();
    let config = tls::listen_to_peers(&foreign_key(), &keys).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while (2..4).any(|id| target.refused(id, "replica 1", WRONG_KEY) == 0) {
        assert!(Instant::now() < deadline, "not both that dial have counted the wrong key");
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            let mut impostor = Attacker::on(stream, Session::accept(&config).unwrap());
            impostor.until_closed("a replica that dials");
            assert!(impostor.heard.is_empty(), "something is said to an impostor: {:?}", impostor.heard);
        }
    }
    // Clients receive nothing from the impostor, and the other replicas serve them.
    let clients = quorate_net::reactor::bind(target.clients_of(1)).unwrap();
    let config = tls::listen_to_clients(&foreign_key()).unwrap();
    let impostor = std::thread::spawn(move || {
        let (stream, _) = clients.accept().unwrap();
        let mut impostor = Attacker::on(stream, Session::accept(&config).unwrap());
        impostor.until_closed("a client that dials");
        impostor.heard
    });
    let answers = quorate_client::driver::status(target.cluster.info(), PATIENCE).unwrap();
    assert!(answers[1].as_ref().is_err_and(|why| why.contains(WRONG_KEY)), "{:?}", answers[1]);
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    assert!(impostor.join().unwrap().is_empty());
    drop(listener);
    target.is_well("an impostor");
    target.cluster.nodes.start(ReplicaId(1)).unwrap();
    target.cluster.nodes.wait_ready(&[ReplicaId(1)], PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while (2..4).any(|id| target.status(id)["peers"][1]["connected"] != Value::Bool(true)) {
        assert!(Instant::now() < deadline, "the true replica 1 does not come back");
    }
}
