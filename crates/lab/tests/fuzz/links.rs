//! Bytes that arrive on connections of peers, strangers and clients, and in TLS below them.

use crate::runner::{Decoder, Read};
use quorate_net::link::Identity;
use quorate_net::tls::{LinkKey, dial_peer, listen_to_clients, listen_to_peers};
use quorate_net::{Greeter, Link, LinkEvent, Refusal, ResendLimits, Session};
use quorate_types::rng::Rng;
use quorate_types::wire::{Lane, frame};
use quorate_types::{ClusterId, Digest, Epoch, Incarnation, ProtocolId, ReplicaId, Time};

/// The bytes that a link keeps for retransmission must not grow with the bytes that it receives.
const LIMITS: ResendLimits = ResendLimits { bytes: 1 << 20, frames: 64 };

fn link(me: u16) -> Link {
    let identity = Identity {
        cluster: ClusterId(Digest([3; 32])),
        epoch: Epoch(0),
        protocol: ProtocolId::new("pbft"),
        me: ReplicaId(me),
        incarnation: Incarnation(1),
    };
    Link::new(identity, ReplicaId(1 - me), LIMITS)
}

fn bodies() -> [(Lane, Vec<u8>); 5] {
    [
        (Lane::Consensus, vec![1; 40]),
        (Lane::Bodies, vec![2; 300]),
        (Lane::Consensus, Vec::new()),
        (Lane::CatchUp, vec![3; 9]),
        (Lane::Consensus, vec![4; 100]),
    ]
}

/// Returns the bytes that one end of a link writes while the other answers: its hello alone, and all of them.
fn streams() -> Vec<Vec<u8>> {
    let (mut near, mut far) = (link(1), link(0));
    let (mut hello, mut answer, mut rest, mut acknowledged) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    near.connect(Time::ZERO);
    far.accept(Time::ZERO);
    near.write(&mut hello);
    far.read(Time::ZERO, &hello, &mut |_| {}).unwrap();
    for (lane, body) in bodies() {
        far.send(lane, frame::PROTOCOL, body.clone().into()).unwrap();
        near.send(lane, frame::HOST, body.into()).unwrap();
    }
    far.write(&mut answer);
    near.read(Time::ZERO, &answer, &mut |_| {}).unwrap();
    near.write(&mut rest);
    near.tick(Time(1_000_000_000)).unwrap();
    near.write(&mut acknowledged);
    let whole = [hello.clone(), rest, acknowledged].concat();
    vec![hello, whole]
}

/// Reads a stream in pieces whose sizes the input decides.
fn in_pieces(bytes: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), Refusal>) -> Result<(), Refusal> {
    let mut rng = Rng::new(bytes.iter().fold(0, |sum: u64, byte| sum.rotate_left(5) ^ u64::from(*byte)));
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(1 + rng.index(rest.len()));
        each(piece)?;
        rest = later;
    }
    Ok(())
}

/// For all bytes of a peer, frames come out whole, and the link keeps no other bytes.
#[test]
fn bytes_of_peers_are_decoded_or_refused() {
    let samples = streams();
    let hello = samples[0].len();
    Decoder::new("link-stream", samples, |bytes| {
        let mut link = link(0);
        link.accept(Time::ZERO);
        for (lane, body) in bodies() {
            link.send(lane, frame::PROTOCOL, body.into()).unwrap();
        }
        let mut out = Vec::new();
        let (mut read, mut heard) = (0, 0);
        let mut each = |piece: &[u8]| {
            link.read(Time(5), piece, &mut |event| {
                if let LinkEvent::Frame { body, .. } = event {
                    heard += body.len();
                }
            })?;
            read += piece.len();
            link.losses(&mut |_| {});
            link.write(&mut out);
            Ok(())
        };
        // A frame that is acknowledged later has to be written first.
        let (greeting, rest) = bytes.split_at(hello.min(bytes.len()));
        let result = in_pieces(greeting, &mut each).and_then(|()| in_pieces(rest, each));
        assert!(heard <= bytes.len(), "{heard} bytes of frames came of {read}");
        if result.is_err() {
            link.disconnect();
        }
        // The link continues with another connection, whatever this one received.
        link.connect(Time(6));
        link.write(&mut out);
        assert!(!out.is_empty() && link.tick(Time(7)).is_ok());
        result.is_ok().into()
    })
    .holding(4, 16 << 10)
    .costing(2)
    .fuzz();
}

/// The first bytes of a stranger, before its identity is known.
#[test]
fn bytes_of_strangers_are_decoded_or_refused() {
    Decoder::new("greeting", streams()[..1].to_vec(), |bytes| {
        let mut greeter = Greeter::default();
        let result = in_pieces(bytes, |piece| greeter.read(piece));
        let Some(hello) = greeter.hello().filter(|_| result.is_ok()) else { return Read::Refused };
        // Any identity that the stranger states is possible.
        let mut link = link(0);
        link.accept_hello(hello, &mut |_| {}).is_ok().into()
    })
    .holding(4, 16 << 10)
    .fuzz();
}

/// The first bytes of a TLS session of a peer, and the answer of the other side.
fn handshakes() -> (Vec<u8>, Vec<u8>, LinkKey, LinkKey) {
    let key = |seed: u8| LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[seed; 32])).unwrap();
    let (near, far) = (key(1), key(2));
    let mut dialled = Session::dial(&dial_peer(&near, far.public()).unwrap()).unwrap();
    let mut accepted = Session::accept(&listen_to_peers(&far, &[near.public()]).unwrap()).unwrap();
    let (mut hello, mut answer) = (Vec::new(), Vec::new());
    while dialled.pending() {
        dialled.write(&mut hello).unwrap();
    }
    accepted.read(&hello, &mut |_| Ok(())).unwrap();
    while accepted.pending() {
        accepted.write(&mut answer).unwrap();
    }
    (hello, answer, near, far)
}

#[test]
fn bytes_before_plain_frames_are_decoded_or_refused() {
    let (hello, answer, near, far) = handshakes();
    let quiet = &mut |_: &[u8]| Ok(());
    let peers = listen_to_peers(&far, &[near.public()]).unwrap();
    Decoder::new("tls-of-peers", vec![hello.clone()], |bytes| {
        Session::accept(&peers).unwrap().read(bytes, quiet).is_ok().into()
    })
    .holding(64, 256 << 10)
    .costing(40)
    .fuzz();
    let clients = listen_to_clients(&far).unwrap();
    Decoder::new("tls-of-clients", vec![hello], |bytes| {
        Session::accept(&clients).unwrap().read(bytes, quiet).is_ok().into()
    })
    .holding(64, 256 << 10)
    .costing(40)
    .fuzz();
    let dial = dial_peer(&near, far.public()).unwrap();
    Decoder::new("tls-of-the-dialled", vec![answer[..answer.len().min(90)].to_vec()], |bytes| {
        let mut session = Session::dial(&dial).unwrap();
        session.write(&mut Vec::new()).unwrap();
        session.read(bytes, quiet).is_ok().into()
    })
    .holding(64, 256 << 10)
    .costing(40)
    .fuzz();
}
