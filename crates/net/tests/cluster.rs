//! Four nodes over loopback and TLS, through the public interface alone. Connections are cut, nodes are killed
//! and started again, and lanes overflow. Every frame arrives once and in order, or both sides report the loss.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    reason = "a test"
)]

use quorate_net::reactor::bind;
use quorate_net::{
    Direction, Event, Identity, LinkKey, Loss, NetConfig, PeerConfig, Reactor, ResendLimits, Security,
};
use quorate_types::rng::Rng;
use quorate_types::wire::{Lane, frame};
use quorate_types::{ClusterId, Epoch, Incarnation, ProtocolId, ReplicaId, Time};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

const N: u16 = 4;
const PASSES_MAX: usize = 400_000;
const RESEND: ResendLimits = ResendLimits { bytes: 20_000, frames: 200 };

struct World {
    now: Time,
    nodes: Vec<Node>,
    listeners: Vec<TcpListener>,
    peers: Vec<PeerConfig>,
    /// The newest incarnation of each node.
    incarnations: Vec<u64>,
}

struct Node {
    reactor: Reactor,
    incarnation: u64,
    /// Frames sent to each peer on each lane in this incarnation.
    sent: BTreeMap<(u16, u8), u64>,
    received: ReceivedFrames,
    frames: u64,
}

/// The next expected number of each sender and lane, with the sender's incarnation.
#[derive(Default)]
struct ReceivedFrames {
    next: BTreeMap<(u16, u8), u64>,
    incarnations: BTreeMap<u16, u64>,
    lost: u64,
}

impl ReceivedFrames {
    fn note(&mut self, event: &Event<'_>) -> u64 {
        match *event {
            Event::Peer { from, lane, body, .. } => {
                let number = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
                let incarnation = self.incarnations.entry(from.0).or_insert(number(0));
                assert_eq!(*incarnation, number(0), "a frame of an old incarnation of {from}");
                let next = self.next.entry((from.0, lane.tag())).or_default();
                assert_eq!(number(8), *next, "wrong order, a duplicate or a silent gap from {from}");
                *next += 1;
                return 1;
            }
            Event::Lost { peer, loss: Loss { direction: Direction::Incoming, lane, from, to } } => {
                let next = self.next.entry((peer.0, lane.tag())).or_default();
                assert_eq!(*next, from);
                if to == u64::MAX {
                    *next = 0;
                    self.incarnations.remove(&peer.0);
                } else {
                    *next = to;
                    self.lost += 1;
                }
            }
            Event::Refused { who, why } => panic!("{who} was refused: {why}"),
            _ => {}
        }
        0
    }
}

fn key(id: u16) -> LinkKey {
    LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[id.to_le_bytes()[0]; 32])).unwrap()
}

impl World {
    fn new() -> Self {
        let listeners: Vec<TcpListener> =
            (0..N).map(|_| bind("127.0.0.1:0".parse().unwrap()).unwrap()).collect();
        let peer = |(listener, id): (&TcpListener, u16)| PeerConfig {
            key: key(id).public(),
            address: listener.local_addr().unwrap(),
        };
        let peers = listeners.iter().zip(0..).map(peer).collect();
        let mut world =
            Self { now: Time(0), nodes: Vec::new(), listeners, peers, incarnations: vec![0; usize::from(N)] };
        for id in 0..N {
            let node = world.open(id);
            world.nodes.push(node);
        }
        world
    }

    fn open(&mut self, id: u16) -> Node {
        let incarnation = &mut self.incarnations[usize::from(id)];
        *incarnation += 1;
        let identity = Identity {
            cluster: ClusterId::ZERO,
            epoch: Epoch(3),
            protocol: ProtocolId::new("echo"),
            me: ReplicaId(id),
            incarnation: Incarnation(*incarnation),
        };
        let listener = self.listeners[usize::from(id)].try_clone().unwrap();
        let mut config = NetConfig::new(identity, self.peers.clone(), Security::Tls(key(id)), listener);
        config.resend = RESEND;
        Node {
            reactor: Reactor::new(config).unwrap(),
            incarnation: *incarnation,
            sent: BTreeMap::new(),
            received: ReceivedFrames::default(),
            frames: 0,
        }
    }

    fn pass(&mut self) {
        self.now = self.now.plus(50_000);
        for node in &mut self.nodes {
            node.reactor.wait(Some(Duration::ZERO)).unwrap();
            node.reactor.tick(self.now);
            let (received, frames) = (&mut node.received, &mut node.frames);
            node.reactor.read_ready(self.now, 1 << 20, &mut |event| *frames += received.note(&event));
            node.reactor.flush(self.now);
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for _ in 0..PASSES_MAX {
            if done(self) {
                return;
            }
            self.pass();
        }
        panic!("{what}: timed out");
    }

    fn connected(&self) -> bool {
        self.nodes.iter().all(|node| node.reactor.peers().iter().all(|peer| peer.connected))
    }

    fn send(&mut self, from: u16, to: u16, lane: Lane, bytes: usize) {
        let node = &mut self.nodes[usize::from(from)];
        let number = node.sent.entry((to, lane.tag())).or_default();
        let mut body = [node.incarnation.to_le_bytes(), number.to_le_bytes()].concat();
        *number += 1;
        body.resize(body.len() + bytes, 0xee);
        node.reactor.send_peer(ReplicaId(to), lane, frame::BUNDLE, body.into()).unwrap();
    }

    fn every_frame_has_arrived_or_is_lost(&self) -> bool {
        self.nodes.iter().zip(0..N).all(|(sender, from)| {
            sender.sent.iter().all(|(&(to, lane), count)| {
                self.nodes[usize::from(to)].received.next.get(&(from, lane)) == Some(count)
            })
        })
    }
}

fn run(seed: u64) -> (u64, u64) {
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut world = World::new();
    world.until("the first connections", World::connected);
    for _ in 0..400 {
        for _ in 0..rng.below(30) {
            let from = u16::try_from(rng.below(u64::from(N))).unwrap();
            let to = (from + 1 + u16::try_from(rng.below(u64::from(N) - 1)).unwrap()) % N;
            let lane = Lane::ALL[rng.index(3)];
            let bytes = if rng.chance(20_000) { 100_000 } else { rng.index(600) };
            world.send(from, to, lane, bytes);
        }
        if rng.chance(30_000) {
            let (a, b) = (rng.index(4), rng.below(u64::from(N)));
            let peer = ReplicaId(u16::try_from(b).unwrap());
            world.nodes[a].reactor.disconnect(peer);
        }
        if rng.chance(10_000) {
            let id = rng.index(4);
            // The old node is closed before the new one opens: one process at a time.
            world.nodes[id].reactor.flush(world.now);
            let fresh = world.open(u16::try_from(id).unwrap());
            world.nodes[id] = fresh;
        }
        for _ in 0..rng.below(4) {
            world.pass();
        }
    }
    world.until("all connections", World::connected);
    for from in 0..N {
        for to in (0..N).filter(|to| *to != from) {
            Lane::ALL.iter().for_each(|lane| world.send(from, to, *lane, 0));
        }
    }
    world.until("every frame or its loss", World::every_frame_has_arrived_or_is_lost);
    let frames = world.nodes.iter().map(|node| node.frames).sum();
    let lost = world.nodes.iter().map(|node| node.received.lost).sum();
    (frames, lost)
}

#[test]
fn every_frame_arrives_once_and_in_order_or_is_reported_lost() {
    let (mut frames, mut lost) = (0, 0);
    for seed in 0..6 {
        let (more_frames, more_lost) = run(seed);
        frames += more_frames;
        lost += more_lost;
    }
    assert!(frames > 10_000, "{frames} frames");
    assert!(lost > 10, "{lost} gaps: the test needs some");
}
