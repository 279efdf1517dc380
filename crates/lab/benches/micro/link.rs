//! The round trip of a frame between two reactors over loopback. One thread drives both, so no wake-up is part of it.

use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;
use quorate_net::mesh::identity;
use quorate_net::reactor::bind;
use quorate_net::{Event, LinkKey, NetConfig, PeerConfig, Reactor, Security};
use quorate_node::ports::free;
use quorate_types::wire::{Lane, frame};
use quorate_types::{ProtocolId, ReplicaId, Time};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The time after which a pass ends without an event.
const LOOK: Duration = Duration::from_millis(1);

#[divan::bench(args = [128, 16 << 10])]
fn tls(bencher: Bencher<'_, '_>, bytes: usize) {
    measure(bencher, bytes, Security::Tls);
}

#[divan::bench(args = [128, 16 << 10])]
fn plain(bencher: Bencher<'_, '_>, bytes: usize) {
    measure(bencher, bytes, |_| Security::Plain);
}

fn measure(bencher: Bencher<'_, '_>, bytes: usize, security: fn(LinkKey) -> Security) {
    let mut pair = Pair::connect(security);
    let body = Bytes::from(vec![7; bytes]);
    bencher.counter(BytesCount::new(2 * bytes)).bench_local(|| {
        for side in [0, 1] {
            let body = body.clone().into();
            let to = ReplicaId(1 - side as u16);
            pair.reactors[side].send_peer(to, Lane::Consensus, frame::PROTOCOL, body).unwrap();
            let now = pair.now();
            pair.reactors[side].flush(now);
            while !pair.pass(1 - side).frame {}
        }
    });
}

/// The events of a pass.
#[derive(Default)]
struct Seen {
    up: bool,
    frame: bool,
}

struct Pair {
    reactors: [Reactor; 2],
    start: Instant,
}

impl Pair {
    fn connect(security: fn(LinkKey) -> Security) -> Self {
        let key = |id: u8| LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[id; 32])).unwrap();
        let ports = free(2).unwrap();
        let address = |id: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, ports[id]));
        let reactor = |id: u8| {
            let peer = |other: u8| PeerConfig { key: key(other).public(), address: address(other.into()) };
            let identity = identity(ProtocolId::new("bench"), ReplicaId(id.into()));
            let listener = bind(address(id.into())).unwrap();
            let config = NetConfig::new(identity, vec![peer(0), peer(1)], security(key(id)), listener);
            Reactor::new(config).unwrap()
        };
        let mut pair = Self { reactors: [reactor(0), reactor(1)], start: Instant::now() };
        let mut up = [false; 2];
        while up != [true; 2] {
            for side in [0, 1] {
                up[side] |= pair.pass(side).up;
            }
        }
        pair
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    /// Sends all frames of one side, and reads those that arrive.
    fn pass(&mut self, side: usize) -> Seen {
        let mut seen = Seen::default();
        let now = self.now();
        let reactor = &mut self.reactors[side];
        if reactor.deadline().is_some_and(|due| due <= now) {
            reactor.tick(now);
        }
        reactor.flush(now);
        reactor.wait(Some(LOOK)).unwrap();
        reactor.read_ready(now, 1 << 20, &mut |event| match event {
            Event::PeerUp(_) => seen.up = true,
            Event::Peer { .. } => seen.frame = true,
            _ => {}
        });
        seen
    }
}
