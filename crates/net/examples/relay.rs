//! The relay test: a leader broadcasts 500 bytes, every node sends them back, and the next round begins when all have
//! answered. Each node is a process of its own on loopback.
//!
//! ```text
//! cargo run --release -p quorate-net --example relay -- [--n N] [--rounds R] [--bytes B] [--plain] [--mesh]
//! ```
//! The program prints the microseconds of a round (median over ten parts of the run). `--mesh` uses the channels of
//! [`quorate_net::mesh`], with a thread of their own in each process, instead of the reactor inside the loop.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a program that measures time")]

use bytes::Bytes;
use quorate_net::mesh::{self, Mesh, To};
use quorate_net::reactor::bind;
use quorate_net::{Event, LinkKey, NetConfig, PeerConfig, Reactor, Security};
use quorate_types::wire::{Lane, frame};
use quorate_types::{ProtocolId, ReplicaId, Time, Wire};
use std::error::Error;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LEADER: ReplicaId = ReplicaId(0);
const PARTS: u32 = 10;
const TURN_BYTES: usize = 4 << 20;

struct Options {
    n: u16,
    rounds: u32,
    bytes: usize,
    plain: bool,
    mesh: bool,
    /// The id of this process and the addresses of all, in the processes that the first one starts.
    node: Option<(u16, Vec<SocketAddr>)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    match &options.node {
        Some((me, addresses)) => {
            // The first process holds the other end: this process ends with it.
            std::thread::spawn(|| {
                let _ = std::io::stdin().read(&mut [0]);
                std::process::exit(0);
            });
            follow(&options, ReplicaId(*me), addresses)
        }
        None => lead(&options),
    }
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { n: 20, rounds: 20_000, bytes: 500, plain: false, mesh: false, node: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--n" => options.n = value()?.parse()?,
            "--rounds" => options.rounds = value()?.parse()?,
            "--bytes" => options.bytes = value()?.parse()?,
            "--plain" => options.plain = true,
            "--mesh" => options.mesh = true,
            "--node" => {
                let me = value()?.parse()?;
                let addresses = value()?;
                let addresses: Result<_, _> = addresses.split(',').map(str::parse).collect();
                options.node = Some((me, addresses?));
            }
            _ => return Err(format!("unknown argument {argument}; see the top of relay.rs").into()),
        }
    }
    Ok(options)
}

fn config(options: &Options, me: ReplicaId, addresses: &[SocketAddr]) -> Result<NetConfig, Box<dyn Error>> {
    // Everyone can compute these keys: they are for measurements only.
    let key = |id: u8| LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[id; 32]));
    let mut peers = Vec::new();
    for (address, id) in addresses.iter().zip(0u8..) {
        peers.push(PeerConfig { key: key(id)?.public(), address: *address });
    }
    let security = if options.plain { Security::Plain } else { Security::Tls(key(u8::try_from(me.0)?)?) };
    let address = addresses.get(me.index()).ok_or("no such node")?;
    let identity = mesh::identity(ProtocolId::new("relay"), me);
    Ok(NetConfig::new(identity, peers, security, bind(*address)?))
}

/// Processes that end when this value is dropped.
struct Followers(Vec<Child>);

impl Drop for Followers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lead(options: &Options) -> Result<(), Box<dyn Error>> {
    // The system finds free ports; they are released, and their owners bind them again.
    let held: Result<Vec<TcpListener>, _> =
        (0..options.n).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let addresses: Result<Vec<SocketAddr>, _> = held?.iter().map(TcpListener::local_addr).collect();
    let addresses = addresses?;
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let mut followers = Followers(Vec::new());
    for id in 1..options.n {
        let mut command = Command::new(std::env::current_exe()?);
        command.stdin(Stdio::piped());
        command.args(["--n", &options.n.to_string(), "--node", &id.to_string(), &list.join(",")]);
        command.args(options.plain.then_some("--plain"));
        command.args(options.mesh.then_some("--mesh"));
        followers.0.push(command.spawn()?);
    }
    let config = config(options, LEADER, &addresses)?;
    let mut parts =
        if options.mesh { lead_by_mesh(options, config)? } else { lead_by_reactor(options, config)? };
    parts.sort();
    let median = parts.get(parts.len() / 2).copied().unwrap_or_default();
    let rounds = options.rounds / PARTS;
    let per_round = |part: Duration| part.as_nanos() / u128::from(rounds.max(1)) / 100;
    let show = |part: Duration| format!("{}.{}", per_round(part) / 10, per_round(part) % 10);
    println!(
        "n = {}, {} bytes, {}, {}: {} µs per round (best part {}, worst {})",
        options.n,
        options.bytes,
        if options.plain { "plain" } else { "tls" },
        if options.mesh { "mesh" } else { "reactor" },
        show(median),
        show(parts.first().copied().unwrap_or_default()),
        show(parts.last().copied().unwrap_or_default()),
    );
    Ok(())
}

/// The loop of one process: the reactor and a clock.
struct Loop {
    reactor: Reactor,
    start: Instant,
}

impl Loop {
    fn new(config: NetConfig) -> Result<Self, Box<dyn Error>> {
        Ok(Self { reactor: Reactor::new(config)?, start: Instant::now() })
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Runs one pass. The caller sends the answers to the events in `sink`; they leave with the next pass.
    fn pass(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<(), Box<dyn Error>> {
        let now = self.now();
        self.reactor.flush(now);
        let timeout = self.reactor.deadline().map(|due| Duration::from_nanos(due.since(now)));
        self.reactor.wait(timeout)?;
        let now = self.now();
        self.reactor.read_ready(now, TURN_BYTES, sink);
        if self.reactor.deadline().is_some_and(|due| due <= now) {
            self.reactor.tick(now);
        }
        Ok(())
    }
}

fn lead_by_reactor(options: &Options, config: NetConfig) -> Result<Vec<Duration>, Box<dyn Error>> {
    let others = usize::from(options.n).saturating_sub(1);
    let mut node = Loop::new(config)?;
    let mut up = 0usize;
    while up < others {
        node.pass(&mut |event| up = up.saturating_add(usize::from(matches!(event, Event::PeerUp(_)))))?;
    }
    let body = Bytes::from(vec![7; options.bytes]);
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let start = Instant::now();
        for _ in 0..options.rounds / PARTS {
            node.reactor.broadcast(Lane::Consensus, frame::PROTOCOL, &body.clone().into())?;
            let mut answers = 0usize;
            while answers < others {
                node.pass(&mut |event| {
                    answers = answers.saturating_add(usize::from(matches!(event, Event::Peer { .. })));
                })?;
            }
        }
        parts.push(start.elapsed());
    }
    let cost = node.reactor.ledger();
    let rounds = u64::from(options.rounds.max(1));
    println!(
        "leader, per round: {} reads, {} writes, {} wake-ups",
        cost.reads / rounds,
        cost.writes / rounds,
        cost.wakeups / rounds
    );
    Ok(parts)
}

fn follow(options: &Options, me: ReplicaId, addresses: &[SocketAddr]) -> Result<(), Box<dyn Error>> {
    let config = config(options, me, addresses)?;
    if options.mesh {
        let (sender, receiver) = Mesh::<Blob>::open(config)?;
        while let Some(event) = receiver.recv() {
            if let mesh::Event::Message { from, message, .. } = event {
                sender.send(To::One(from), Lane::Consensus, &message)?;
            }
        }
        return Ok(());
    }
    let mut node = Loop::new(config)?;
    let mut answer = Vec::new();
    loop {
        node.pass(&mut |event| {
            if let Event::Peer { from: LEADER, body, .. } = event {
                answer.push(Bytes::copy_from_slice(body));
            }
        })?;
        for body in answer.drain(..) {
            node.reactor.send_peer(LEADER, Lane::Consensus, frame::PROTOCOL, body.into())?;
        }
    }
}

/// A message of raw bytes.
struct Blob(Vec<u8>);

impl Wire for Blob {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(reader: &mut quorate_types::Reader<'_>) -> Result<Self, quorate_types::DecodeError> {
        Ok(Self(reader.take_rest().to_vec()))
    }
}

fn lead_by_mesh(options: &Options, config: NetConfig) -> Result<Vec<Duration>, Box<dyn Error>> {
    let others = usize::from(options.n).saturating_sub(1);
    let (sender, receiver) = Mesh::<Blob>::open(config)?;
    let mut up = 0usize;
    while up < others {
        let event = receiver.recv().ok_or("the mesh ended")?;
        up = up.saturating_add(usize::from(matches!(event, mesh::Event::Up(_))));
    }
    let message = Blob(vec![7; options.bytes]);
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let start = Instant::now();
        for _ in 0..options.rounds / PARTS {
            sender.send(To::All, Lane::Consensus, &message)?;
            let mut answers = 0usize;
            while answers < others {
                let event = receiver.recv().ok_or("the mesh ended")?;
                answers = answers.saturating_add(usize::from(matches!(event, mesh::Event::Message { .. })));
            }
        }
        parts.push(start.elapsed());
    }
    Ok(parts)
}
