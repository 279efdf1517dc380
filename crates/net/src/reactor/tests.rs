//! Tests of reactors in one process, driven by hand over loopback. The test moves the time. A test that
//! waits for an event fails after a number of passes.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "strangers and clients are played with plain sockets and threads"
)]

use super::*;
use crate::lanes::{Direction, ResendLimits};
use crate::link::Identity;
use crate::tls::LinkKey;
use quorate_types::wire::frame;
use quorate_types::{ClusterId, Epoch, Incarnation, ProtocolId, PublicKey};
use std::net::{SocketAddr, TcpListener};

#[path = "tests_clients.rs"]
mod clients;
#[path = "tests_delays.rs"]
mod delays;

/// Passes of the loop before a test fails. A pass takes microseconds.
const PASSES_MAX: usize = 400_000;

/// Virtual time of one pass.
const PASS_NS: u64 = 50_000;

/// An event with a body of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Peer(u16, Lane, Vec<u8>),
    Up(u16),
    Down(u16),
    Lost(u16, Direction, Lane, u64, u64),
    ClientUp(ConnId),
    Client(ConnId, Vec<u8>),
    ClientDown(ConnId),
    Refused(Who, String),
}

fn own(event: Event<'_>) -> Seen {
    match event {
        Event::Peer { from, lane, body, .. } => Seen::Peer(from.0, lane, body.to_vec()),
        Event::PeerUp(id) => Seen::Up(id.0),
        Event::PeerDown(id) => Seen::Down(id.0),
        Event::Lost { peer, loss } => Seen::Lost(peer.0, loss.direction, loss.lane, loss.from, loss.to),
        Event::ClientUp { conn, .. } => Seen::ClientUp(conn),
        Event::Client { conn, body } => Seen::Client(conn, body.to_vec()),
        Event::ClientDown(conn) => Seen::ClientDown(conn),
        Event::Refused { who, why } => Seen::Refused(who, why.reason().to_owned()),
        Event::Closed { by, reason } => Seen::Refused(Who::Replica(by), reason.to_owned()),
    }
}

/// Addresses and keys of all nodes. They are fixed before any node starts, so that each node can start again.
pub(super) struct Stage {
    pub(super) tls: bool,
    pub(super) peers: Vec<PeerConfig>,
    listeners: Vec<TcpListener>,
    pub(super) now: Time,
}

pub(super) struct Node {
    pub(super) reactor: Reactor,
    pub(super) seen: Vec<Seen>,
    pub(super) clients: Option<SocketAddr>,
}

pub(super) fn key(seed: u8) -> LinkKey {
    LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[seed; 32])).unwrap()
}

fn loopback() -> TcpListener {
    bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

impl Stage {
    pub(super) fn new(n: u8, tls: bool) -> Self {
        let listeners: Vec<TcpListener> = (0..n).map(|_| loopback()).collect();
        let peers = listeners.iter().zip(0..n).map(|(listener, seed)| PeerConfig {
            key: key(seed).public(),
            address: listener.local_addr().unwrap(),
        });
        Self { tls, peers: peers.collect(), listeners, now: Time(1) }
    }

    pub(super) fn config(&self, me: u16, incarnation: u64) -> NetConfig {
        let identity = Identity {
            cluster: ClusterId::ZERO,
            epoch: Epoch(0),
            protocol: ProtocolId::new("echo"),
            me: ReplicaId(me),
            incarnation: Incarnation(incarnation),
        };
        let security = if self.tls { Security::Tls(key(me as u8)) } else { Security::Plain };
        let listener = self.listeners[usize::from(me)].try_clone().unwrap();
        NetConfig::new(identity, self.peers.clone(), security, listener)
    }

    pub(super) fn start(&self, me: u16) -> Node {
        Node::new(self.config(me, 1))
    }

    /// Runs one pass of the loop of each node.
    pub(super) fn pass(&mut self, nodes: &mut [&mut Node]) {
        self.now = self.now.plus(PASS_NS);
        for node in nodes {
            node.pass(self.now);
        }
    }

    /// Runs passes until `done`.
    pub(super) fn until(&mut self, nodes: &mut [&mut Node], done: impl Fn(&[&mut Node]) -> bool) {
        for _ in 0..PASSES_MAX {
            if done(nodes) {
                return;
            }
            self.pass(nodes);
        }
        for node in nodes {
            println!("{}: {:?} {:?}", node.reactor.me, node.seen, node.reactor.peers());
        }
        panic!("the event that the test waits for has not come");
    }

    /// Runs passes until all links are up.
    pub(super) fn connect(&mut self, nodes: &mut [&mut Node]) {
        self.until(nodes, |nodes| nodes.iter().all(|node| node.all_up(nodes.len())));
    }

    /// Runs passes until no node has any work left.
    fn settle(&mut self, nodes: &mut [&mut Node]) {
        self.until(nodes, |nodes| {
            nodes.iter().all(|node| {
                let peers = node.reactor.peers();
                let quiet = |peer: &PeerStatus| peer.queued_bytes == 0 && peer.resend_bytes == 0;
                node.reactor.deadline().is_none() && peers.iter().all(quiet)
            })
        });
    }
}

impl Node {
    pub(super) fn new(config: NetConfig) -> Self {
        let clients = config.listen_clients.as_ref().map(|listener| listener.local_addr().unwrap());
        Self { reactor: Reactor::new(config).unwrap(), seen: Vec::new(), clients }
    }

    pub(super) fn pass(&mut self, now: Time) {
        self.reactor.wait(Some(Duration::ZERO)).unwrap();
        if self.reactor.deadline().is_some_and(|due| due <= now) {
            self.reactor.tick(now);
        }
        let seen = &mut self.seen;
        self.reactor.read_ready(now, 1 << 20, &mut |event| seen.push(own(event)));
        self.reactor.flush(now);
    }

    fn all_up(&self, n: usize) -> bool {
        let up = self.reactor.peers().iter().filter(|peer| peer.connected).count();
        up + 1 >= n
    }

    fn send(&mut self, to: u16, lane: Lane, body: &str) {
        let body = body.as_bytes().to_vec();
        self.reactor.send_peer(ReplicaId(to), lane, frame::PROTOCOL, body.into()).unwrap();
    }

    fn from(&self, id: u16) -> Vec<String> {
        let text = |seen: &Seen| match seen {
            Seen::Peer(from, _, body) if *from == id => Some(String::from_utf8(body.clone()).unwrap()),
            _ => None,
        };
        self.seen.iter().filter_map(text).collect()
    }

    pub(super) fn refusals(&self) -> Vec<(Who, &str)> {
        let refusal = |seen| match seen {
            &Seen::Refused(who, ref reason) => Some((who, reason.as_str())),
            _ => None,
        };
        self.seen.iter().filter_map(refusal).collect()
    }

    fn is_refused(&self, reason: &str) -> bool {
        self.refusals().iter().any(|(_, text)| *text == reason)
    }
}

#[test]
fn broadcast_arrives_at_all_others_in_the_order_of_each_lane() {
    for tls in [true, false] {
        let mut stage = Stage::new(3, tls);
        let (mut a, mut b, mut c) = (stage.start(0), stage.start(1), stage.start(2));
        // No link is connected yet, so the frames wait.
        for i in 0..50 {
            for lane in Lane::ALL {
                let body = format!("{i}").into_bytes();
                b.reactor.broadcast(lane, frame::BUNDLE, &body.into()).unwrap();
            }
        }
        let nodes = &mut [&mut a, &mut b, &mut c];
        stage.connect(nodes);
        stage.until(nodes, |nodes| [0, 2].iter().all(|id: &usize| nodes[*id].from(1).len() == 150));
        for node in [&a, &c] {
            for lane in Lane::ALL {
                let bodies = node.seen.iter().filter_map(|seen| match seen {
                    Seen::Peer(1, on, body) if *on == lane => Some(String::from_utf8(body.clone()).unwrap()),
                    _ => None,
                });
                assert!(bodies.eq((0..50).map(|i| i.to_string())), "{lane:?}, tls: {tls}");
            }
        }
        assert_eq!(
            b.from(0).len() + b.from(1).len() + b.from(2).len(),
            0,
            "a broadcast does not return to its sender"
        );
        for node in [&a, &b, &c] {
            assert_eq!(node.refusals(), []);
            assert!(!node.seen.iter().any(|seen| matches!(seen, Seen::Lost(..))));
        }
    }
}

#[test]
fn frames_arrive_once_and_in_order_across_cut_connections() {
    const COUNT: usize = 600;
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (stage.start(0), stage.start(1));
    stage.connect(&mut [&mut a, &mut b]);
    let mut rng = Rng::new(5);
    let mut sent = 0;
    while sent < COUNT {
        for _ in 0..rng.between(1, 20) {
            a.send(1, Lane::Consensus, &format!("{sent}"));
            b.send(0, Lane::Consensus, &format!("{sent}"));
            sent += 1;
        }
        for _ in 0..rng.below(6) {
            stage.pass(&mut [&mut a, &mut b]);
        }
        if rng.chance(300_000) {
            let cutter = if rng.chance(500_000) { &mut a } else { &mut b };
            let other = ReplicaId(1 - cutter.reactor.me.0);
            cutter.reactor.disconnect(other);
            stage.pass(&mut [&mut a, &mut b]);
            stage.connect(&mut [&mut a, &mut b]);
        }
    }
    stage.until(&mut [&mut a, &mut b], |nodes| {
        nodes[0].from(1).len() >= sent && nodes[1].from(0).len() >= sent
    });
    let all: Vec<String> = (0..sent).map(|i| i.to_string()).collect();
    assert_eq!(a.from(1), all);
    assert_eq!(b.from(0), all);
    let downs = a.seen.iter().filter(|seen| **seen == Seen::Down(1)).count();
    assert!(downs >= 5, "the connection was cut {downs} times");
    assert_eq!(a.seen.iter().filter(|seen| **seen == Seen::Up(1)).count(), downs + 1);
    assert!(!a.seen.iter().chain(&b.seen).any(|seen| matches!(seen, Seen::Lost(..))));
}

#[test]
fn restart_loses_the_frames_of_the_old_incarnation_at_both_sides() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (stage.start(0), stage.start(1));
    stage.connect(&mut [&mut a, &mut b]);
    b.send(0, Lane::Bodies, "from the first incarnation");
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[0].from(1).len() == 1);
    drop(b);
    stage.until(&mut [&mut a], |nodes| nodes[0].seen.contains(&Seen::Down(1)));
    a.send(1, Lane::Consensus, "while it is down");
    let mut b = Node::new(stage.config(1, 2));
    stage.connect(&mut [&mut a, &mut b]);
    b.send(0, Lane::Bodies, "from the second incarnation");
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[0].from(1).len() == 2);
    assert!(a.seen.contains(&Seen::Lost(1, Direction::Incoming, Lane::Bodies, 1, u64::MAX)));
    assert!(a.seen.contains(&Seen::Lost(1, Direction::Outgoing, Lane::Consensus, 0, 1)));
    assert!(b.seen.contains(&Seen::Lost(0, Direction::Incoming, Lane::Consensus, 0, 1)));
    assert_eq!(b.from(0), Vec::<String>::new());
}

#[test]
fn new_connection_replaces_one_that_died_unnoticed() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut frozen) = (stage.start(0), stage.start(1));
    stage.connect(&mut [&mut a, &mut frozen]);
    a.send(1, Lane::Consensus, "to the first incarnation");
    // Its machine is gone silently: the old connection stays as it is.
    let mut b = Node::new(stage.config(1, 2));
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[1].all_up(2));
    let states: Vec<&Seen> = a.seen.iter().filter(|seen| !matches!(seen, Seen::Peer(..))).collect();
    let lost = |direction, lane, to| Seen::Lost(1, direction, lane, 0, to);
    let expected = [
        Seen::Up(1),
        Seen::Down(1),
        lost(Direction::Incoming, Lane::Consensus, u64::MAX),
        lost(Direction::Outgoing, Lane::Consensus, 1),
        lost(Direction::Incoming, Lane::Bodies, u64::MAX),
        lost(Direction::Incoming, Lane::CatchUp, u64::MAX),
        Seen::Up(1),
    ];
    assert!(states.iter().copied().eq(&expected), "{states:?}");
    assert_eq!(a.reactor.sockets.iter().count(), 1);
    assert_eq!(a.reactor.peers()[0].connections, 2);
}

#[test]
fn overflow_while_a_replica_is_away_is_reported_at_both_sides() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (stage.start(0), {
        let mut config = stage.config(1, 1);
        config.resend = ResendLimits { bytes: 1_000, frames: 1_000 };
        Node::new(config)
    });
    for i in 0..100 {
        b.send(0, Lane::Consensus, &format!("{i} and some more words"));
    }
    stage.connect(&mut [&mut a, &mut b]);
    stage.until(&mut [&mut a, &mut b], |nodes| {
        nodes[0].from(1).last().is_some_and(|last| last.starts_with("99"))
    });
    let gap = |node: &Node| {
        let mut lost = node.seen.iter().filter_map(|seen| match seen {
            Seen::Lost(_, direction, Lane::Consensus, from, to) => Some((*direction, *from, *to)),
            _ => None,
        });
        let gap = lost.next().unwrap();
        assert_eq!(lost.next(), None, "one gap, reported once");
        gap
    };
    let (at_a, at_b) = (gap(&a), gap(&b));
    assert_eq!((at_a.0, at_b.0), (Direction::Incoming, Direction::Outgoing));
    assert_eq!((at_a.1, at_a.2), (at_b.1, at_b.2));
    assert_eq!(a.from(1).len() as u64, 100 - at_a.2);
}

#[test]
fn replica_with_another_key_is_refused_in_both_directions() {
    let wrong = "the certificate carries another link key: another replica, or another cluster";
    let alert = "the other side refused the TLS handshake";
    // An impostor that dials has the id, the address and the name, but not the key.
    let mut stage = Stage::new(2, true);
    let mut a = stage.start(0);
    let impostor = |stage: &Stage, me: u16| {
        let mut config = stage.config(me, 1);
        config.security = Security::Tls(key(99));
        config.peers[usize::from(me)].key = key(99).public();
        Node::new(config)
    };
    let mut b = impostor(&stage, 1);
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[0].is_refused(wrong) && nodes[1].is_refused(alert));
    assert!(matches!(a.refusals()[0].0, Who::Stranger(_)), "the impostor has not proved to be a replica");
    // An impostor is dialled.
    let mut stage = Stage::new(2, true);
    let mut a = impostor(&stage, 0);
    let mut b = stage.start(1);
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[0].is_refused(alert) && nodes[1].is_refused(wrong));
    assert_eq!(b.refusals()[0].0, Who::Replica(ReplicaId(0)));
    assert_eq!(b.reactor.peers()[0].last_refusal, wrong);
    for node in [&a, &b] {
        assert!(!node.seen.iter().any(|seen| matches!(seen, Seen::Up(_))));
    }
    // A wrong key in the own configuration is found before the first attempt to dial.
    let mut config = stage.config(1, 1);
    config.security = Security::Tls(key(99));
    assert!(matches!(Reactor::new(config), Err(NetFault::Configuration(_))));
}

#[test]
fn member_of_the_committee_cannot_connect_as_another() {
    let mut stage = Stage::new(3, true);
    let mut a = stage.start(0);
    let mut config = stage.config(1, 1);
    config.security = Security::Tls(key(2));
    config.peers[1].key = key(2).public();
    let mut two_as_one = Node::new(config);
    stage.until(&mut [&mut a, &mut two_as_one], |nodes| {
        let reason = Refusal::OtherReplica.reason();
        nodes.iter().all(|node| node.is_refused(reason))
    });
    assert!(!a.seen.contains(&Seen::Up(1)));
}

#[test]
fn replica_with_another_identity_receives_the_reason_and_connects_once_it_agrees() {
    type Change = fn(&mut Identity);
    let cases: [(Change, &str); 3] = [
        (|identity| identity.cluster.0.0[0] = 1, "another cluster"),
        (|identity| identity.epoch = Epoch(4), "another epoch"),
        (|identity| identity.protocol = ProtocolId::new("pbft"), "another protocol"),
    ];
    for (change, reason) in cases {
        let mut stage = Stage::new(2, true);
        let mut a = stage.start(0);
        let mut config = stage.config(1, 1);
        change(&mut config.identity);
        let mut b = Node::new(config);
        stage.until(&mut [&mut a, &mut b], |nodes| nodes.iter().all(|node| node.is_refused(reason)));
        // The replica keeps trying, and is accepted as soon as its identity agrees.
        drop(b);
        let mut b = Node::new(stage.config(1, 2));
        stage.connect(&mut [&mut a, &mut b]);
    }
    // Plain links prove no identity. Only the right end of a link is accepted all the same.
    let mut stage = Stage::new(3, false);
    let mut a = stage.start(1);
    let mut config = stage.config(2, 1);
    config.identity.me = ReplicaId(2);
    config.peers.swap(0, 1);
    let mut b = Node::new(config);
    // Replica 2 dials the address that it believes to be replica 0's, and reaches replica 1.
    stage.until(&mut [&mut a, &mut b], |nodes| {
        nodes[1].is_refused("not the replica that belongs to this link")
    });
}

#[test]
fn every_connection_has_nodelay_on_both_ends() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (stage.start(0), stage.start(1));
    stage.connect(&mut [&mut a, &mut b]);
    for node in [&a, &b] {
        let sockets: Vec<_> = node.reactor.sockets.iter().collect();
        assert_eq!(sockets.len(), 1);
        assert!(sockets.iter().all(|(_, socket)| socket.stream.nodelay().unwrap()));
    }
}

#[test]
fn idle_links_have_no_deadline_and_acknowledgements_precede_data() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (stage.start(0), stage.start(1));
    stage.connect(&mut [&mut a, &mut b]);
    stage.settle(&mut [&mut a, &mut b]);
    let before = [*a.reactor.ledger(), *b.reactor.ledger()];
    const ROUNDS: usize = 200;
    for round in 0..ROUNDS {
        a.send(1, Lane::Consensus, "ping");
        stage.until(&mut [&mut a, &mut b], |nodes| nodes[1].from(0).len() == round + 1);
        b.send(0, Lane::Consensus, "pong");
        stage.until(&mut [&mut a, &mut b], |nodes| nodes[0].from(1).len() == round + 1);
    }
    let after = [*a.reactor.ledger(), *b.reactor.ledger()];
    for (after, before) in after.iter().zip(&before) {
        let cost = after.since(before);
        assert_eq!(cost.writes, ROUNDS as u64, "acknowledgements leave with data");
        assert_eq!(cost.reads, ROUNDS as u64, "a short read empties the socket");
    }
    stage.settle(&mut [&mut a, &mut b]);
    for (node, after) in [&a, &b].into_iter().zip(&after) {
        assert!(node.reactor.ledger().since(after).writes <= 1, "at most one last acknowledgement");
        assert_eq!(node.reactor.deadline(), None);
        assert!(!node.reactor.left_over(), "the next wait sleeps");
    }
}

#[test]
fn many_frames_leave_in_one_write_and_arrive_in_one_read() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (stage.start(0), stage.start(1));
    stage.connect(&mut [&mut a, &mut b]);
    stage.settle(&mut [&mut a, &mut b]);
    let (at_a, at_b) = (*a.reactor.ledger(), *b.reactor.ledger());
    for i in 0..500 {
        a.send(1, Lane::Bodies, &format!("{i:0100}"));
    }
    a.reactor.flush(stage.now);
    assert_eq!(a.reactor.ledger().since(&at_a).writes, 1);
    stage.until(&mut [&mut b], |nodes| nodes[0].from(0).len() == 500);
    assert_eq!(b.reactor.ledger().since(&at_b).reads, 1);
}

#[test]
fn bytes_beyond_the_budget_are_read_without_sleeping() {
    let mut stage = Stage::new(3, false);
    let (mut a, mut b, mut c) = (stage.start(0), stage.start(1), stage.start(2));
    stage.connect(&mut [&mut a, &mut b, &mut c]);
    for node in [&mut b, &mut c] {
        for _ in 0..2_000 {
            node.send(0, Lane::Bodies, &"x".repeat(1_000));
        }
        node.reactor.flush(stage.now);
    }
    // A held replica is not read.
    a.reactor.hold([ReplicaId(2)].into_iter().collect());
    a.reactor.wait(Some(Duration::ZERO)).unwrap();
    let drained = a.reactor.read_ready(stage.now, 1, &mut |event| {
        assert!(!matches!(event, Event::Peer { from: ReplicaId(2), .. }));
    });
    assert!(!drained && a.reactor.left_over());
    a.reactor.hold(ReplicaSet::EMPTY);
    // The urgent replica is read first, however often.
    a.reactor.urgent(Some(ReplicaId(2)));
    a.reactor.wait(Some(Duration::ZERO)).unwrap();
    let mut first = None;
    let drained = a.reactor.read_ready(stage.now, 1, &mut |event| {
        if let Event::Peer { from, .. } = event {
            first.get_or_insert(from);
        }
    });
    assert!(!drained);
    assert_eq!(first, Some(ReplicaId(2)));
    a.reactor.urgent(None);
    let mut total = 0;
    for _ in 0..PASSES_MAX {
        a.reactor.wait(Some(Duration::ZERO)).unwrap();
        let drained = a.reactor.read_ready(stage.now, 10_000, &mut |event| {
            total += usize::from(matches!(event, Event::Peer { .. }));
        });
        b.pass(stage.now);
        c.pass(stage.now);
        assert!(drained || a.reactor.left_over(), "the next wait must not sleep");
        if drained && total > 3_600 {
            return;
        }
    }
    panic!("read {total} of 4000 frames");
}

#[test]
fn pauses_between_attempts_to_dial_double_with_jitter_up_to_a_bound() {
    let mut stage = Stage::new(2, true);
    // No listener has this address.
    stage.peers[0].address = loopback().local_addr().unwrap();
    let mut b = stage.start(1);
    let mut pauses = Vec::new();
    while stage.now < Time(90_000_000_000) {
        let due = b.reactor.deadline().unwrap();
        pauses.push(due.since(stage.now));
        stage.now = stage.now.max(due);
        b.reactor.tick(stage.now);
        for _ in 0..PASSES_MAX {
            if b.reactor.peers()[0].connections == 0 && b.reactor.peer(ReplicaId(0)).unwrap().socket.is_none()
            {
                break;
            }
            b.pass(stage.now);
        }
    }
    let [_, early @ .., last] = &pauses[..] else { panic!() };
    assert!(early[0] >= 10_000_000 && early[0] <= 20_000_000, "{pauses:?}");
    assert!(*last >= 1_000_000_000 && *last <= 2_000_000_000, "{pauses:?}");
    // Pauses are short in the first minute, for a replica that starts a little later.
    let soon = pauses.iter().filter(|pause| **pause <= 250_000_000).sum::<u64>();
    assert!((59_000_000_000..=61_000_000_000).contains(&soon), "{pauses:?}");
    assert_eq!(b.refusals(), [], "no peer has refused a connection");
}

/// A machine without power refuses no connection: it is silent. `sync-hotstuff` §18: replicas wait a limited time for one that
/// recovers, and its messages have to arrive in that time.
#[test]
fn silent_machine_is_reached_soon_after_it_starts() {
    const LINKED_NS: u64 = 1_250_000_000;
    let mut stage = Stage::new(2, true);
    // No process accepts: the queue is full, and the system drops further attempts.
    let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    silent.set_reuse_address(true).unwrap();
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    silent.listen(0).unwrap();
    let address = silent.local_addr().unwrap().as_socket().unwrap();
    let fills = std::net::TcpStream::connect(address).unwrap();
    stage.peers[0].address = address;
    let mut b = stage.start(1);
    let is_dialling = |b: &Node| b.reactor.peer(ReplicaId(0)).unwrap().socket.is_some();
    let (mut attempts, mut dialled) = (0, false);
    while stage.now < Time(8_000_000_000) {
        let due = b.reactor.deadline().unwrap();
        assert!(due.since(stage.now) <= 1_000_000_000, "{due}");
        stage.now = stage.now.max(due);
        b.pass(stage.now);
        attempts += usize::from(is_dialling(&b) && !dialled);
        dialled = is_dialling(&b);
    }
    assert!((6..=9).contains(&attempts), "{attempts} attempts");
    assert_eq!(b.reactor.peers()[0].last_refusal, Refusal::TooSlow.reason());
    assert_eq!(b.refusals(), [], "no peer has sent anything");
    // The machine starts while an attempt is on its way.
    while !is_dialling(&b) {
        stage.now = b.reactor.deadline().unwrap();
        b.pass(stage.now);
    }
    drop((silent, fills));
    stage.listeners[0] = bind(address).unwrap();
    let mut a = stage.start(0);
    let up = stage.now;
    stage.now = b.reactor.deadline().unwrap();
    stage.connect(&mut [&mut a, &mut b]);
    assert!(stage.now.since(up) <= LINKED_NS, "{}", stage.now.since(up));
}

#[test]
fn another_thread_wakes_the_wait() {
    let stage = Stage::new(1, true);
    let mut a = stage.start(0);
    a.pass(stage.now);
    let waker = a.reactor.waker();
    std::thread::scope(|scope| {
        scope.spawn(move || waker.wake().unwrap());
        // The wait has no timeout: only the waker ends it.
        a.reactor.wait(None).unwrap();
    });
}

#[test]
fn large_frame_arrives_in_pieces() {
    for tls in [true, false] {
        let mut stage = Stage::new(2, tls);
        let (mut a, mut b) = (stage.start(0), stage.start(1));
        stage.connect(&mut [&mut a, &mut b]);
        let body = "0123456789abcdef".repeat((16 << 20) / 16 - 1);
        a.send(1, Lane::Consensus, &body);
        a.send(1, Lane::Consensus, "after it");
        stage.until(&mut [&mut a, &mut b], |nodes| nodes[1].from(0).len() == 2);
        assert_eq!(b.from(0), [body, "after it".to_owned()]);
    }
}

#[test]
fn contradictory_configuration_is_refused() {
    let stage = Stage::new(1, true);
    let mut config = stage.config(0, 1);
    config.identity.me = ReplicaId(1);
    assert!(matches!(Reactor::new(config), Err(NetFault::Configuration(_))));
    let mut config = stage.config(0, 1);
    config.peers[0].key = PublicKey([1; 32]);
    assert!(matches!(Reactor::new(config), Err(NetFault::Configuration(_))));
    let mut config = stage.config(0, 1);
    config.peers = vec![stage.peers[0]; 257];
    assert!(matches!(Reactor::new(config), Err(NetFault::Configuration(_))));
    let taken = loopback().local_addr().unwrap();
    let _held = bind(taken).unwrap();
    assert!(matches!(bind(taken), Err(NetFault::Listen(_))));
}
