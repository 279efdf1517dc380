//! Links between the replicas of a cluster that can be cut and restored: each connection goes through a relay of this
//! program.

use quorate_node::config::{ClusterConfig, NodeConfig};
use quorate_node::layout::{node_file, node_folder};
use quorate_node::testnet::Testnet;
use quorate_types::ReplicaId;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Time between two checks of a relay for its end.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// The link between two replicas.
#[derive(Default)]
struct Wire {
    state: Mutex<WireState>,
    changed: Condvar,
}

#[derive(Default)]
struct WireState {
    cut: bool,
    over: bool,
}

impl Wire {
    fn set(&self, change: impl FnOnce(&mut WireState)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits while the wire is cut. Returns whether it still exists.
    fn pass(&self) -> bool {
        let state = self.changed.wait_while(self.state.lock().unwrap(), |state| state.cut && !state.over);
        !state.unwrap().over
    }

    /// Forwards bytes in one direction. Bytes that come while the wire is cut arrive when it is restored, as in a network
    /// that retransmits.
    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        from.set_read_timeout(Some(POLL_EVERY)).unwrap();
        let mut bytes = vec![0; 64 << 10];
        loop {
            let read = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => 0,
                Err(_) => break,
            };
            if !self.pass() || to.write_all(bytes.get(..read).unwrap()).is_err() {
                break;
            }
        }
        // The other end may have closed already.
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}

/// The wire of each pair, and the addresses of all relays.
pub(crate) struct Wires {
    wires: BTreeMap<(ReplicaId, ReplicaId), Arc<Wire>>,
    relays: Vec<SocketAddr>,
}

impl Wires {
    /// Lays wires between the replicas of a stopped cluster. From now on each replica dials the others through them.
    pub(crate) fn lay(dir: &Path, testnet: &Testnet) -> Self {
        let mut wires = Self { wires: BTreeMap::new(), relays: Vec::new() };
        for dialler in testnet.cluster.ids() {
            let mut cluster: ClusterConfig = testnet.cluster.clone();
            for (dialled, addresses) in testnet.cluster.ids().zip(&mut cluster.replicas) {
                if dialled != dialler {
                    addresses.peers = wires.relay(dialler, dialled, addresses.peers);
                }
            }
            // Each node has its own list of addresses, next to its configuration.
            fs::write(node_folder(dir, dialler).join("cluster.toml"), cluster.to_toml()).unwrap();
            let mut node = NodeConfig::load(&node_file(dir, dialler)).unwrap();
            node.cluster_file = "cluster.toml".into();
            fs::write(node_file(dir, dialler), node.to_toml()).unwrap();
        }
        wires
    }

    fn relay(&mut self, dialler: ReplicaId, dialled: ReplicaId, target: SocketAddr) -> SocketAddr {
        let wire = Arc::clone(self.wires.entry(pair(dialler, dialled)).or_default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        self.relays.push(address);
        thread::spawn(move || {
            for incoming in listener.incoming().map_while(Result::ok) {
                if wire.state.lock().unwrap().over {
                    return;
                }
                // While a replica is down, nothing listens, and the connection is closed.
                let Ok(outgoing) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&incoming, &outgoing), (&outgoing, &incoming)] {
                    from.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let wire = Arc::clone(&wire);
                    thread::spawn(move || wire.forward(from, to));
                }
            }
        });
        address
    }

    /// Cuts or restores the wires from a replica to all others.
    pub(crate) fn cut(&self, id: ReplicaId, cut: bool) {
        let is_end = |pair: &(ReplicaId, ReplicaId)| pair.0 == id || pair.1 == id;
        self.wires
            .iter()
            .filter(|(pair, _)| is_end(pair))
            .for_each(|(_, wire)| wire.set(|state| state.cut = cut));
    }

    /// Cuts or restores all wires.
    pub(crate) fn cut_all(&self, cut: bool) {
        self.wires.values().for_each(|wire| wire.set(|state| state.cut = cut));
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.wires.values().for_each(|wire| wire.set(|state| state.over = true));
        // One more connection ends each relay.
        for relay in &self.relays {
            let _ = TcpStream::connect(relay);
        }
    }
}

fn pair(a: ReplicaId, b: ReplicaId) -> (ReplicaId, ReplicaId) {
    (a.min(b), a.max(b))
}
