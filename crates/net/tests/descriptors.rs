//! A node without file descriptors pauses instead of spinning, serves its connected clients, and accepts again when
//! there are descriptors. The test is alone in its process, because the limit belongs to the process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    reason = "a test"
)]

use quorate_net::reactor::bind;
use quorate_net::{ConnId, Event, Identity, NetConfig, PeerConfig, Reactor, Security};
use quorate_types::{ClusterId, Epoch, Incarnation, ProtocolId, PublicKey, ReplicaId, Time};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

struct Node {
    reactor: Reactor,
    now: Time,
    up: Vec<ConnId>,
    messages: usize,
}

impl Node {
    fn pass(&mut self) {
        self.reactor.wait(Some(Duration::ZERO)).unwrap();
        self.reactor.tick(self.now);
        let (up, messages) = (&mut self.up, &mut self.messages);
        self.reactor.read_ready(self.now, 1 << 20, &mut |event| match event {
            Event::ClientUp { conn, .. } => up.push(conn),
            Event::Client { .. } => *messages += 1,
            _ => {}
        });
        self.reactor.flush(self.now);
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..400_000 {
            if done(self) {
                return;
            }
            self.pass();
        }
        panic!("{what}: timed out");
    }
}

fn send(client: &mut TcpStream) {
    client.write_all(&[2, 0, 0, 0, b'h', b'i']).unwrap();
}

#[test]
fn node_without_descriptors_pauses_and_then_accepts_again() {
    let peers = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let clients = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = clients.local_addr().unwrap();
    let identity = Identity {
        cluster: ClusterId::ZERO,
        epoch: Epoch(0),
        protocol: ProtocolId::new("echo"),
        me: ReplicaId(0),
        incarnation: Incarnation(1),
    };
    let me = PeerConfig { key: PublicKey::default(), address: peers.local_addr().unwrap() };
    let mut config = NetConfig::new(identity, vec![me], Security::Plain, peers);
    config.listen_clients = Some(clients);
    let mut node = Node { reactor: Reactor::new(config).unwrap(), now: Time(1), up: Vec::new(), messages: 0 };
    let mut first = TcpStream::connect(address).unwrap();
    send(&mut first);
    node.until("the first message", |node| node.messages == 1);
    // The kernel connects this client, which waits to be accepted; then no descriptor is left.
    let mut second = TcpStream::connect(address).unwrap();
    let before = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(3), maximum: before.maximum };
    setrlimit(Resource::Nofile, none).unwrap();
    for _ in 0..1_000 {
        node.pass();
    }
    let due = node.reactor.deadline().expect("the node tries again");
    assert!(due > node.now, "the node tries again later, not at once");
    assert_eq!(node.up.len(), 1);
    send(&mut first);
    node.until("the second message of the connected client", |node| node.messages == 2);
    // No work is left over, so a wait without a timeout sleeps. The connected client ends it.
    send(&mut first);
    node.reactor.wait(None).unwrap();
    node.now = due;
    node.pass();
    assert_eq!(node.up.len(), 1, "no further client is accepted");
    assert!(node.reactor.deadline().is_some_and(|next| next > due));

    setrlimit(Resource::Nofile, before).unwrap();
    node.now = node.reactor.deadline().unwrap();
    node.until("the waiting client", |node| node.up.len() == 2);
    send(&mut second);
    node.until("its message", |node| node.messages == 4);
}
