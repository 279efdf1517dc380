use super::clock::since_boot_ns;
use super::*;
use quorate_app::{Application, At, Kv, RestoreError, Snapshot};
use quorate_crypto::{Scheme, SigningKey};
use quorate_net::reactor::bind;
use quorate_replica::ReplicaSetup;
use quorate_storage::MemDisk;
use quorate_types::digest::context;
use quorate_types::{BodyLimits, ClientAuth, Digest, Genesis, Member};
use std::sync::{Arc, Mutex};

/// A store that notes the time of the last request for its name.
struct NotingStore(Kv, Arc<Mutex<Option<u64>>>);

impl NotingStore {
    fn note(&self) {
        *self.1.lock().unwrap() = Some(since_boot_ns());
    }
}

impl Application for NotingStore {
    fn name(&self) -> &'static str {
        self.note();
        self.0.name()
    }
    fn version(&self) -> u32 {
        self.0.version()
    }
    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        self.0.apply(at, op, reply);
    }
    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        self.0.query(op, room, reply);
    }
    fn digest(&mut self) -> Digest {
        self.0.digest()
    }
    fn snapshot(&mut self) -> Snapshot {
        self.0.snapshot()
    }
    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        self.0.restore(header, chunks)
    }
}

fn facts() -> Facts {
    let name = String::new;
    let [protocol, durability, log_mode] = [name(), name(), name()];
    let [link_auth, client_auth, curve] = [name(), name(), name()];
    Facts { protocol, n: 1, f: 0, durability, log_mode, link_auth, client_auth, mode: None, curve }
}

/// §18: replicas that have lost their power wait for each other once all can be reached. The time in which a replica reads
/// a long log must not count.
#[test]
fn clock_starts_when_the_node_is_open() {
    let entry = quorate_protocols::find("sync-hotstuff").unwrap();
    let keys: Vec<SigningKey> = (1..=3).map(|id| SigningKey::from_seed(Scheme::Ed25519, [id; 32])).collect();
    let params = (entry.params)().unwrap();
    let genesis = Genesis {
        protocol: entry.spec.name,
        f: 1,
        members: keys.iter().map(|key| Member { sign: key.public(), link: key.public() }).collect(),
        client_auth: ClientAuth::None,
        bodies: BodyLimits::default(),
        client_window: 8,
        clients_max: 8,
        checkpoint_every: 4,
        window: 8,
        application: "kv 1".to_owned(),
        admin: keys[0].public(),
        clients: Vec::new(),
        params: params.to_string(),
        salt: [0; 32],
        base: None,
    };
    let noted = Arc::new(Mutex::new(None));
    let listen = || bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let [peers, clients] = [listen(), listen()];
    let address = peers.local_addr().unwrap();
    let host = HostSetup {
        entry: *entry,
        replica: ReplicaSetup {
            me: ReplicaId(0),
            committee: Arc::new(genesis.committee()),
            genesis: Arc::new(genesis),
            params,
            wall_offset_ns: 0,
            secret: keys[0].secret(&context::PROBE),
        },
        key: keys[0].clone(),
        scheme: Scheme::Ed25519,
        application: Box::new(NotingStore(Kv::default(), Arc::clone(&noted))),
        keep_bytes: 32 << 20,
        far_heights: quorate_host::FAR_HEIGHTS,
        disk_bytes_max: 64 << 20,
        amnesiac_from: None,
        snapshot_every_bytes: 1 << 30,
    };
    let setup = NodeSetup {
        host,
        disk: Box::new(MemDisk::new(2 << 20, 512)),
        peers: keys.iter().map(|key| PeerConfig { key: key.public(), address }).collect(),
        security: Security::Plain,
        listen_peers: peers,
        listen_clients: clients,
        link_delays_ns: Vec::new(),
        facts: facts(),
        allow_stop: false,
        folder: None,
    };
    let node = Node::open(setup).unwrap();
    let last_request = noted.lock().unwrap().unwrap();
    assert!(node.clock.started_ns() > last_request, "the clock starts after the opening on the disk");
}
