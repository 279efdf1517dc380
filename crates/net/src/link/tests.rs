//! Tests of two links; the test moves the bytes.

use super::*;
use crate::lanes::Direction;
use quorate_types::limits::{FRAME_BYTES_MAX, REASON_BYTES_MAX};

const NOW: Time = Time(1_000);

fn identity(me: u16, incarnation: u64) -> Identity {
    Identity {
        cluster: ClusterId::ZERO,
        epoch: Epoch(0),
        protocol: ProtocolId::new("echo"),
        me: ReplicaId(me),
        incarnation: Incarnation(incarnation),
    }
}

fn link(me: u16, peer: u16) -> Link {
    Link::new(identity(me, 1), ReplicaId(peer), ResendLimits::default())
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Seen {
    Up,
    Frame(Lane, u8, Vec<u8>),
    Lost(Loss),
    Closed(String),
}

fn seen(event: LinkEvent<'_>) -> Seen {
    match event {
        LinkEvent::Up => Seen::Up,
        LinkEvent::Frame { lane, frame_type, body } => Seen::Frame(lane, frame_type, body.to_vec()),
        LinkEvent::Lost(loss) => Seen::Lost(loss),
        LinkEvent::Closed { reason } => Seen::Closed(String::from_utf8_lossy(reason).into_owned()),
    }
}

/// Moves all bytes of `from` to `to`, and returns the events of `to`.
fn carry(now: Time, from: &mut Link, to: &mut Link) -> Result<Vec<Seen>, Refusal> {
    let mut bytes = Vec::new();
    from.write(&mut bytes);
    read(now, to, &bytes)
}

fn read(now: Time, to: &mut Link, bytes: &[u8]) -> Result<Vec<Seen>, Refusal> {
    let mut events = Vec::new();
    to.read(now, bytes, &mut |event| events.push(seen(event))).map(|()| events)
}

fn connect(dialler: &mut Link, acceptor: &mut Link) -> (Vec<Seen>, Vec<Seen>) {
    dialler.connect(NOW);
    acceptor.accept(NOW);
    let at_acceptor = carry(NOW, dialler, acceptor).unwrap();
    let at_dialler = carry(NOW, acceptor, dialler).unwrap();
    (at_dialler, at_acceptor)
}

fn send(link: &mut Link, lane: Lane, body: &'static [u8]) {
    link.send(lane, kind::PROTOCOL, body.to_vec().into()).unwrap();
}

fn raw(lane: u8, number: u64, frame_type: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len() + 10).unwrap().to_le_bytes().to_vec();
    bytes.push(lane);
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.push(frame_type);
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn frames_arrive_in_both_directions_in_the_order_of_the_lanes() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    send(&mut a, Lane::CatchUp, b"late");
    send(&mut a, Lane::Bodies, b"body");
    send(&mut a, Lane::Consensus, b"vote");
    let (at_a, at_b) = connect(&mut a, &mut b);
    assert_eq!((at_a, at_b), (vec![Seen::Up], vec![Seen::Up]));
    let frame = |lane, body: &[u8]| Seen::Frame(lane, kind::PROTOCOL, body.to_vec());
    assert_eq!(
        carry(NOW, &mut a, &mut b).unwrap(),
        [frame(Lane::Consensus, b"vote"), frame(Lane::Bodies, b"body"), frame(Lane::CatchUp, b"late")]
    );
    b.send(Lane::Bodies, 9, b"in one".to_vec().into()).unwrap();
    assert_eq!(carry(NOW, &mut b, &mut a).unwrap(), [Seen::Frame(Lane::Bodies, 9, b"in one".to_vec())]);
}

#[test]
fn acknowledgement_precedes_data_or_leaves_alone_after_its_delay() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    assert_eq!((a.deadline(), b.deadline()), (None, None), "idle links have no deadline");
    send(&mut a, Lane::Consensus, b"ping");
    carry(NOW, &mut a, &mut b).unwrap();
    assert_ne!(a.backlog().0, 0, "the frame is kept until it is acknowledged");
    assert!(!b.wants_write(), "the acknowledgement waits for data");
    send(&mut b, Lane::Consensus, b"pong");
    carry(NOW, &mut b, &mut a).unwrap();
    assert_eq!(a.backlog(), (0, 0), "the answer carried the acknowledgement");
    assert_eq!(b.deadline(), None);

    let due = NOW.plus(ACK_DELAY_NS);
    assert_eq!(a.deadline(), Some(due));
    a.tick(Time(due.0 - 1)).unwrap();
    assert!(!a.wants_write());
    a.tick(due).unwrap();
    assert!(a.wants_write());
    assert_eq!(carry(due, &mut a, &mut b).unwrap(), [], "an acknowledgement is no event");
    assert_eq!(b.backlog(), (0, 0));
    assert_eq!((a.deadline(), b.deadline()), (None, None), "an acknowledgement has no answer");
}

#[test]
fn many_bytes_are_acknowledged_at_once() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    a.send(Lane::Bodies, 3, vec![0; ACK_AFTER_BYTES].into()).unwrap();
    carry(NOW, &mut a, &mut b).unwrap();
    assert!(b.wants_write());
    carry(NOW, &mut b, &mut a).unwrap();
    assert_eq!(a.backlog(), (0, 0));
}

#[test]
fn frames_in_flight_are_sent_again_once_after_a_reconnect() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    send(&mut a, Lane::Consensus, b"arrived, not acknowledged");
    carry(NOW, &mut a, &mut b).unwrap();
    send(&mut a, Lane::Consensus, b"written, lost with the connection");
    a.write(&mut Vec::new());
    a.disconnect();
    b.disconnect();
    send(&mut a, Lane::Consensus, b"queued meanwhile");
    let (at_a, at_b) = connect(&mut a, &mut b);
    assert_eq!((at_a, at_b), (vec![Seen::Up], vec![Seen::Up]));
    let bodies: Vec<Seen> = carry(NOW, &mut a, &mut b).unwrap();
    let frame = |body: &[u8]| Seen::Frame(Lane::Consensus, kind::PROTOCOL, body.to_vec());
    assert_eq!(bodies, [frame(b"written, lost with the connection"), frame(b"queued meanwhile")]);
}

#[test]
fn overflow_is_reported_at_both_sides_with_the_same_numbers() {
    let limits = ResendLimits { bytes: 1 << 20, frames: 8 };
    let mut a = Link::new(identity(1, 1), ReplicaId(0), limits);
    let mut b = link(0, 1);
    connect(&mut a, &mut b);
    send(&mut a, Lane::Bodies, b"0");
    carry(NOW, &mut a, &mut b).unwrap();
    a.disconnect();
    b.disconnect();
    for _ in 0..8 {
        send(&mut a, Lane::Bodies, b"more");
    }
    // There are nine frames, 0..9, and room for eight: the ninth dropped the oldest ones until four were left.
    let lost = |direction| Seen::Lost(Loss { direction, lane: Lane::Bodies, from: 1, to: 4 });
    let (at_a, at_b) = connect(&mut a, &mut b);
    assert_eq!(at_a, [lost(Direction::Outgoing), Seen::Up]);
    assert_eq!(at_b, [Seen::Up]);
    let events = carry(NOW, &mut a, &mut b).unwrap();
    assert_eq!(events[0], lost(Direction::Incoming));
    assert_eq!(events.len(), 6);
}

#[test]
fn overflow_of_a_live_connection_is_reported_when_the_gap_is_sent() {
    let limits = ResendLimits { bytes: 200, frames: 1_000 };
    let mut a = Link::new(identity(1, 1), ReplicaId(0), limits);
    let mut b = link(0, 1);
    connect(&mut a, &mut b);
    for _ in 0..20 {
        send(&mut a, Lane::Consensus, b"twenty-four bytes, framed");
    }
    let at_b = carry(NOW, &mut a, &mut b).unwrap();
    let mut at_a = Vec::new();
    a.losses(&mut |event| at_a.push(seen(event)));
    let Seen::Lost(outgoing) = at_a[0] else { panic!("{at_a:?}") };
    let Seen::Lost(incoming) = at_b[0] else { panic!("{at_b:?}") };
    assert_eq!((outgoing.from, outgoing.to), (incoming.from, incoming.to));
    assert_eq!((outgoing.direction, outgoing.from), (Direction::Outgoing, 0));
    assert_eq!(at_a.len(), 1, "one gap, reported once");
    assert_eq!(at_b.len() as u64, 1 + 20 - incoming.to);
}

#[test]
fn new_incarnation_of_the_peer_loses_old_frames_at_both_sides() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    send(&mut a, Lane::Consensus, b"to the first incarnation");
    send(&mut b, Lane::Bodies, b"from the first incarnation");
    carry(NOW, &mut b, &mut a).unwrap();
    carry(NOW, &mut a, &mut b).unwrap();
    send(&mut a, Lane::Consensus, b"never read");
    a.disconnect();
    let mut b = Link::new(identity(0, 2), ReplicaId(1), ResendLimits::default());
    let (at_a, at_b) = connect(&mut a, &mut b);
    let incoming = |lane, from| Seen::Lost(Loss { direction: Direction::Incoming, lane, from, to: u64::MAX });
    let outgoing = Seen::Lost(Loss { direction: Direction::Outgoing, lane: Lane::Consensus, from: 0, to: 2 });
    assert_eq!(
        at_a,
        [
            incoming(Lane::Consensus, 0),
            outgoing,
            incoming(Lane::Bodies, 1),
            incoming(Lane::CatchUp, 0),
            Seen::Up
        ]
    );
    assert_eq!(at_b, [Seen::Up]);
    assert_eq!(
        carry(NOW, &mut a, &mut b).unwrap(),
        [Seen::Lost(Loss { direction: Direction::Incoming, lane: Lane::Consensus, from: 0, to: 2 })],
        "the gap is reported although no frame follows it"
    );
    send(&mut a, Lane::Consensus, b"to the second incarnation");
    send(&mut b, Lane::Bodies, b"from the second incarnation");
    assert_eq!(
        carry(NOW, &mut a, &mut b).unwrap(),
        [Seen::Frame(Lane::Consensus, kind::PROTOCOL, b"to the second incarnation".to_vec())]
    );
    assert_eq!(
        carry(NOW, &mut b, &mut a).unwrap(),
        [Seen::Frame(Lane::Bodies, kind::PROTOCOL, b"from the second incarnation".to_vec())]
    );
}

#[test]
fn every_mismatch_of_the_hello_has_its_refusal() {
    type Change = fn(&mut PeerHello);
    let cases: [(Change, Refusal); 8] = [
        (|hello| hello.version += 1, Refusal::OtherVersion),
        (|hello| hello.cluster.0.0[0] = 1, Refusal::OtherCluster),
        (|hello| hello.epoch = Epoch(1), Refusal::OtherEpoch),
        (|hello| hello.protocol = ProtocolId::new("pbft"), Refusal::OtherProtocol),
        (|hello| hello.id = ReplicaId(2), Refusal::OtherReplica),
        (|hello| hello.incarnation = Incarnation(0), Refusal::BadHello),
        (
            |hello| {
                hello.peer_incarnation = Incarnation(1);
                hello.next = [0, 1, 0];
            },
            Refusal::NeverSent,
        ),
        (|hello| hello.protocol = ProtocolId([0; 16]), Refusal::BadHello),
    ];
    for (change, refusal) in cases {
        let mut hello = link(1, 0).core.hello();
        change(&mut hello);
        let mut bytes = Vec::new();
        put_control(&mut bytes, kind::HELLO, &hello.to_bytes());

        let mut acceptor = link(0, 1);
        acceptor.accept(NOW);
        assert_eq!(read(NOW, &mut acceptor, &bytes), Err(refusal), "{hello:?}");
        // The dialler checks the answer by the same rules.
        let mut dialler = link(0, 1);
        dialler.connect(NOW);
        assert_eq!(read(NOW, &mut dialler, &bytes), Err(refusal), "{hello:?}");
        // So does a side that learns the link from the hello; the older connection stays.
        let (mut a, mut b) = (link(1, 0), link(0, 1));
        connect(&mut a, &mut b);
        let mut greeter = Greeter::default();
        let refused =
            greeter.read(&bytes).and_then(|()| b.accept_hello(greeter.hello().unwrap(), &mut |_| ()));
        assert_eq!(refused, Err(refusal), "{hello:?}");
        send(&mut a, Lane::Consensus, b"still here");
        assert_eq!(carry(NOW, &mut a, &mut b).unwrap().len(), 1);
    }
}

#[test]
fn newer_connection_replaces_the_older_one() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    send(&mut b, Lane::Consensus, b"in flight on the older");
    b.write(&mut Vec::new());
    a.disconnect();
    a.connect(NOW);
    let mut bytes = Vec::new();
    a.write(&mut bytes);
    let mut greeter = Greeter::default();
    for byte in bytes {
        assert_eq!(greeter.hello(), None);
        greeter.read(&[byte]).unwrap();
    }
    b.accept_hello(greeter.hello().unwrap(), &mut |_| ()).unwrap();
    assert_eq!(
        carry(NOW, &mut b, &mut a).unwrap(),
        [Seen::Up, Seen::Frame(Lane::Consensus, kind::PROTOCOL, b"in flight on the older".to_vec())]
    );
}

#[test]
fn every_misbehaviour_on_a_link_has_its_refusal() {
    let ack = |next: [u64; 3]| {
        let mut body = Vec::new();
        next.iter().for_each(|next| next.encode(&mut body));
        raw(0, 0, kind::ACK, &body)
    };
    let hello = raw(0, 0, kind::HELLO, &link(1, 0).core.hello().to_bytes());
    for (bytes, refusal) in [
        (raw(3, 0, 1, b""), Refusal::UnknownLane),
        (vec![9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], Refusal::TooShort),
        ([raw(0, 0, 1, b"x"), raw(0, 0, 1, b"x")].concat(), Refusal::Repeated),
        (raw(0, u64::MAX, 1, b"x"), Refusal::Repeated),
        (ack([0, 0, 1]), Refusal::NeverSent),
        (raw(0, 0, kind::ACK, &[0; 23]), Refusal::BadControl),
        ([raw(1, 0, 1, b"x"), raw(1, 0, kind::ACK, &[0; 24])].concat(), Refusal::Repeated),
        (raw(0, 0, kind::CLOSE, &[0; REASON_BYTES_MAX + 1]), Refusal::BadControl),
        (hello, Refusal::BadControl),
        (raw(0, 0, kind::CLOSE, b"bye"), Refusal::Closed),
    ] {
        let (mut a, mut b) = (link(1, 0), link(0, 1));
        connect(&mut a, &mut b);
        assert_eq!(read(NOW, &mut b, &bytes), Err(refusal));
    }
    let mut b = link(0, 1);
    assert_eq!(read(NOW, &mut b, &raw(0, 0, 1, b"x")), Err(Refusal::HelloExpected));
    b.accept(NOW);
    assert_eq!(read(NOW, &mut b, &raw(0, 0, 1, b"x")), Err(Refusal::HelloExpected));
    let mut greeter = Greeter::default();
    let big = u32::try_from(FRAME_BYTES_MAX).unwrap().to_le_bytes();
    let header = [&big[..], &[0; 9], &[1]].concat();
    assert_eq!(greeter.read(&header), Err(Refusal::HelloExpected), "the header alone is refused");
}

#[test]
fn reason_of_a_close_arrives_cut_to_its_limit() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    for reason in ["another cluster".to_owned(), "x".repeat(1_000)] {
        let mut bytes = Vec::new();
        Link::close(&reason, &mut bytes);
        let mut events = Vec::new();
        let end = b.read(NOW, &bytes, &mut |event| events.push(seen(event)));
        assert_eq!(end, Err(Refusal::Closed));
        assert_eq!(events, [Seen::Closed(reason[..reason.len().min(REASON_BYTES_MAX)].to_owned())]);
    }
}

#[test]
fn oversize_body_is_refused_and_uses_no_number() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    let body = vec![0; FRAME_BYTES_MAX];
    assert!(a.send(Lane::Bodies, 3, body.into()).is_err());
    send(&mut a, Lane::Bodies, b"fits");
    assert_eq!(carry(NOW, &mut a, &mut b).unwrap().len(), 1);
}

#[test]
fn late_hello_is_refused() {
    let mut a = link(1, 0);
    a.connect(NOW);
    let due = NOW.plus(HANDSHAKE_NS_MAX);
    assert_eq!(a.deadline(), Some(due));
    assert_eq!(a.tick(Time(due.0 - 1)), Ok(()));
    assert_eq!(a.tick(due), Err(Refusal::TooSlow));
}

#[test]
fn transmit_stays_near_its_limit_and_the_rest_follows() {
    let (mut a, mut b) = (link(1, 0), link(0, 1));
    connect(&mut a, &mut b);
    for _ in 0..1_000 {
        a.send(Lane::Bodies, 3, vec![7; 1_000].into()).unwrap();
    }
    let mut chunks = Vec::new();
    while a.wants_write() {
        let mut chunk = Vec::new();
        let count = a.transmit(10_000, &mut |slices| {
            slices.iter().for_each(|slice| chunk.extend_from_slice(slice));
        });
        assert_eq!(count, chunk.len());
        assert!(chunk.len() < 12_000);
        chunks.push(chunk);
    }
    assert_eq!(read(NOW, &mut b, &chunks.concat()).unwrap().len(), 1_000);
}

#[path = "property.rs"]
mod property;
