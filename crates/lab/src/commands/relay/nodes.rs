//! The nodes of a relay test: the leader and its followers, by the reactor or by the mesh.

use bytes::Bytes;
use quorate_client::cluster::LinkMode;
use quorate_net::mesh::{self, Mesh, To};
use quorate_net::reactor::bind;
use quorate_net::{Event, LinkKey, NetConfig, PeerConfig, Reactor, Security};
use quorate_node::exit::Failure;
use quorate_types::wire::{Lane, frame};
use quorate_types::{DecodeError, ProtocolId, Reader, ReplicaId, Time, Wire};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const LEADER: ReplicaId = ReplicaId(0);
/// Bytes that one pass reads at most.
const TURN_BYTES: usize = 4 << 20;
/// The time that the leader waits for all links, and for the answers of a round.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time after which a leader that waits looks at its clock again.
const LOOK: Duration = Duration::from_secs(1);

/// The network of a test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    /// Protection of connections.
    pub(super) link_auth: LinkMode,
    /// Whether the nodes use the channels of the mesh instead of the reactor.
    pub(super) by_mesh: bool,
}

impl Setup {
    fn config(self, me: ReplicaId, addresses: &[SocketAddr]) -> Result<NetConfig, Failure> {
        // Everyone can compute these keys: they are for measurements only.
        let key = |id: u16| {
            let [high, low] = id.to_be_bytes();
            let mut seed = [high; 32];
            if let Some(first) = seed.first_mut() {
                *first = low;
            }
            LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&seed)).map_err(Failure::run)
        };
        let mut peers = Vec::new();
        for (address, id) in addresses.iter().zip(0u16..) {
            peers.push(PeerConfig { key: key(id)?.public(), address: *address });
        }
        let security = match self.link_auth {
            LinkMode::Plain => Security::Plain,
            LinkMode::Tls => Security::Tls(key(me.0)?),
        };
        let address = addresses.get(me.index());
        let address = address.ok_or_else(|| Failure::usage(format!("there is no node {}", me.0)))?;
        let identity = mesh::identity(ProtocolId::new("relay"), me);
        let socket = bind(*address)
            .map_err(|error| Failure::run(format!("node {} cannot use {address}: {error}", me.0)))?;
        Ok(NetConfig::new(identity, peers, security, socket))
    }
}

/// The leader's system calls.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Calls {
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) wake_ups: f64,
}

/// The leader of a test.
pub(super) struct Leader {
    driver: Driver,
    others: usize,
    body: Bytes,
}

enum Driver {
    Reactor(Box<Loop>),
    Mesh(mesh::Sender<Blob>, mesh::Receiver<Blob>),
}

impl Leader {
    /// Waits until all links are up.
    pub(super) fn connect(setup: Setup, addresses: &[SocketAddr], bytes: usize) -> Result<Self, Failure> {
        let config = setup.config(LEADER, addresses)?;
        let driver = if setup.by_mesh {
            let (sender, receiver) = Mesh::<Blob>::open(config).map_err(Failure::run)?;
            Driver::Mesh(sender, receiver)
        } else {
            Driver::Reactor(Box::new(Loop::new(config)?))
        };
        let others = addresses.len().saturating_sub(1);
        let mut leader = Self { driver, others, body: Bytes::from(vec![7; bytes]) };
        leader.wait("links", |event| matches!(event, Seen::Up))?;
        Ok(leader)
    }

    /// Runs rounds, and returns their time.
    pub(super) fn rounds(&mut self, rounds: u32) -> Result<Duration, Failure> {
        let start = Instant::now();
        for _ in 0..rounds {
            match &mut self.driver {
                Driver::Reactor(node) => {
                    let body = self.body.clone().into();
                    node.reactor.broadcast(Lane::Consensus, frame::PROTOCOL, &body).map_err(Failure::run)?;
                }
                Driver::Mesh(sender, _) => {
                    sender.send(To::All, Lane::Consensus, &Blob(self.body.to_vec())).map_err(Failure::run)?;
                }
            }
            self.wait("answers", |event| matches!(event, Seen::Answer))?;
        }
        Ok(start.elapsed())
    }

    /// Returns the system calls so far; `None` for a mesh.
    pub(super) fn calls(&self) -> Option<Calls> {
        let Driver::Reactor(node) = &self.driver else { return None };
        let ledger = node.reactor.ledger();
        let count = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        Some(Calls {
            reads: count(ledger.reads),
            writes: count(ledger.writes),
            wake_ups: count(ledger.wakeups),
        })
    }

    /// Waits until each other node has caused such an event.
    fn wait(&mut self, of: &str, wanted: impl Fn(Seen) -> bool) -> Result<(), Failure> {
        let start = Instant::now();
        let mut seen = 0usize;
        while seen < self.others {
            let mut count = |event: Seen| seen = seen.saturating_add(usize::from(wanted(event)));
            match &mut self.driver {
                Driver::Reactor(node) => node.pass(&mut |event| match event {
                    Event::PeerUp(_) => count(Seen::Up),
                    Event::Peer { .. } => count(Seen::Answer),
                    _ => {}
                })?,
                Driver::Mesh(_, receiver) => match receiver.recv_timeout(LOOK) {
                    Some(mesh::Event::Up(_)) => count(Seen::Up),
                    Some(mesh::Event::Message { .. }) => count(Seen::Answer),
                    _ => {}
                },
            }
            if seen < self.others && start.elapsed() > PATIENCE {
                let (others, seconds) = (self.others, PATIENCE.as_secs());
                return Err(Failure::run(format!(
                    "{seen} of {others} {of} after {seconds} s: a node has ended, or the machine is too busy"
                )));
            }
        }
        Ok(())
    }
}

/// An event for the leader.
#[derive(Clone, Copy)]
enum Seen {
    Up,
    Answer,
}

/// The loop of one process: the reactor and a clock.
struct Loop {
    reactor: Reactor,
    start: Instant,
}

impl Loop {
    fn new(config: NetConfig) -> Result<Self, Failure> {
        Ok(Self { reactor: Reactor::new(config).map_err(Failure::run)?, start: Instant::now() })
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Runs one pass. The caller sends the answers to the events in `sink`; they leave with the next pass.
    fn pass(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<(), Failure> {
        let now = self.now();
        self.reactor.flush(now);
        let timeout = self.reactor.deadline().map_or(LOOK, |due| Duration::from_nanos(due.since(now)));
        self.reactor.wait(Some(timeout.min(LOOK))).map_err(Failure::run)?;
        let now = self.now();
        self.reactor.read_ready(now, TURN_BYTES, sink);
        if self.reactor.deadline().is_some_and(|due| due <= now) {
            self.reactor.tick(now);
        }
        Ok(())
    }
}

/// Sends everything back to the leader, until the process ends.
pub(super) fn follow(setup: Setup, me: u16, addresses: &[SocketAddr]) -> Result<(), Failure> {
    let config = setup.config(ReplicaId(me), addresses)?;
    if setup.by_mesh {
        let (sender, receiver) = Mesh::<Blob>::open(config).map_err(Failure::run)?;
        while let Some(event) = receiver.recv() {
            if let mesh::Event::Message { from, message, .. } = event {
                sender.send(To::One(from), Lane::Consensus, &message).map_err(Failure::run)?;
            }
        }
        return Ok(());
    }
    let mut node = Loop::new(config)?;
    let mut answers = Vec::new();
    loop {
        node.pass(&mut |event| {
            if let Event::Peer { from: LEADER, body, .. } = event {
                answers.push(Bytes::copy_from_slice(body));
            }
        })?;
        for body in answers.drain(..) {
            node.reactor
                .send_peer(LEADER, Lane::Consensus, frame::PROTOCOL, body.into())
                .map_err(Failure::run)?;
        }
    }
}

/// A message of raw bytes.
struct Blob(Vec<u8>);

impl Wire for Blob {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(reader.take_rest().to_vec()))
    }
}
