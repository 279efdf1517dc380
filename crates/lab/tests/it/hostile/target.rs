//! The attacked cluster, and the checks of its health.

use super::attacker::{Attacker, PATIENCE};
use crate::common::Cluster;
use quorate_app::KvOp;
use quorate_client::driver::{Client, Options};
use quorate_client::keys;
use quorate_net::{LinkKey, Session, tls};
use quorate_node::layout::KV_KEY;
use quorate_node::processes::Event;
use quorate_types::wire::{FromClient, FromReplica, VERSION};
use quorate_types::{ClientAuth, Committee, ReplicaId};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Limit on the growth of a replica's memory under attack: the unread replies of one client, and as much again for all else.
const GROWTH_BYTES_MAX: u64 = 128 << 20;

pub(crate) struct Target {
    pub(crate) cluster: Cluster,
    resident: Vec<u64>,
    /// Replicas that the test itself has killed.
    pub(crate) killed: Vec<ReplicaId>,
    puts: u32,
}

impl Target {
    pub(crate) fn start() -> Self {
        Self::attack(Cluster::start(ClientAuth::Signature))
    }

    /// Starts replicas that the admin may stop.
    pub(crate) fn start_stoppable() -> Self {
        Self::attack(Cluster::start_stoppable())
    }

    /// Starts four replicas of another protocol.
    pub(crate) fn start_of(protocol: &str) -> Self {
        Self::attack(Cluster::start_of(protocol, 4, &["delta_ms=500"]))
    }

    fn attack(cluster: Cluster) -> Self {
        let mut target = Self { cluster, resident: Vec::new(), killed: Vec::new(), puts: 0 };
        target.serves("before");
        target.resident = target.ids().map(|id| target.resident(id)).collect();
        target
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        let killed = self.killed.clone();
        (0..4).map(ReplicaId).filter(move |id| !killed.contains(id))
    }

    pub(crate) fn peers_of(&self, id: u16) -> SocketAddr {
        self.cluster.testnet.cluster.replicas[usize::from(id)].peers
    }

    pub(crate) fn clients_of(&self, id: u16) -> SocketAddr {
        self.cluster.testnet.cluster.replicas[usize::from(id)].clients
    }

    pub(crate) fn committee(&self) -> Committee {
        self.cluster.testnet.cluster.genesis.committee()
    }

    /// Returns the link key of a replica, as a thief has it.
    pub(crate) fn link_key(&self, id: u16) -> LinkKey {
        let key = keys::read_private(&self.cluster.dir().join(format!("node{id}/link.key"))).unwrap();
        LinkKey::from_pkcs8(key.to_pkcs8_der().unwrap().expose()).unwrap()
    }

    /// Returns the public link key of a replica.
    pub(crate) fn listed(&self, id: u16) -> quorate_types::PublicKey {
        self.cluster.testnet.cluster.genesis.members[usize::from(id)].link
    }

    /// Connects to the clients' port as a client does.
    pub(crate) fn client(&self, id: u16) -> Attacker {
        let session = Session::dial(&tls::dial_replica(self.listed(id)).unwrap()).unwrap();
        Attacker::over(self.clients_of(id), session)
    }

    /// Connects as a client and exchanges hellos.
    pub(crate) fn greeted_client(&self, id: u16) -> Attacker {
        let mut client = self.client(id);
        client.say_to_replica(&self.hello());
        client.until("the replica's hello", |client| !client.messages().is_empty());
        client
    }

    pub(crate) fn hello(&self) -> FromClient {
        FromClient::Hello { version: VERSION, cluster: self.committee().cluster }
    }

    /// Connects to the peers' port with this key.
    pub(crate) fn peer(&self, id: u16, key: &LinkKey) -> Attacker {
        let session = Session::dial(&tls::dial_peer(key, self.listed(id)).unwrap()).unwrap();
        Attacker::over(self.peers_of(id), session)
    }

    pub(crate) fn status(&self, id: u16) -> Value {
        let mut client = self.greeted_client(id);
        client.say_to_replica(&FromClient::Status);
        let status = |client: &Attacker| {
            client.messages().into_iter().find_map(|message| match message {
                FromReplica::Status(text) => Some(text),
                _ => None,
            })
        };
        client.until("the status", |client| status(client).is_some());
        serde_json::from_str(&status(&client).unwrap()).unwrap()
    }

    /// Returns the number of times that replica `id` has refused `origin` for this reason.
    pub(crate) fn refused(&self, id: u16, origin: &str, reason: &str) -> u64 {
        self.status(id)["rejects"][origin][reason].as_u64().unwrap_or(0)
    }

    /// Waits until replica `id` has counted `at_least` refusals.
    pub(crate) fn until_refused(&self, id: u16, origin: &str, reason: &str, at_least: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rejects = &self.status(id)["rejects"];
            if rejects[origin][reason].as_u64().unwrap_or(0) >= at_least {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "replica {id}: expected {at_least} refusals of {origin} for {reason:?}, found {rejects}"
            );
        }
    }

    pub(crate) fn resident(&self, id: ReplicaId) -> u64 {
        let pid = self.cluster.nodes.pid(id).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// Checks that the cluster executes requests.
    pub(crate) fn serves(&mut self, after: &str) {
        self.puts += 1;
        let key = keys::read_private(&self.cluster.dir().join(KV_KEY)).unwrap();
        let options = Options { timeout: PATIENCE, ..Options::default() };
        let value = self.puts.to_string();
        let put = KvOp::Put { key: b"served", value: value.as_bytes() }.to_bytes();
        let mut client = Client::connect(self.cluster.info(), key, options).unwrap_or_else(|error| {
            let status: Vec<_> = self.ids().map(|id| self.status(id.0).to_string()).collect();
            panic!("after {after} no session is opened: {error}\n{}", status.join("\n"))
        });
        client.call(&put).unwrap_or_else(|error| panic!("after {after} no request is executed: {error}"));
        let read = client.call(&KvOp::Get { key: b"served" }.to_bytes()).unwrap();
        assert!(read.ends_with(value.as_bytes()), "after {after}: {read:?}");
    }

    /// Checks that the cluster executes requests, and that no replica has ended, panicked or grown.
    pub(crate) fn is_well(&mut self, after: &str) {
        self.serves(after);
        while let Some(event) = self.cluster.nodes.next_event(Some(Instant::now() + Duration::from_millis(1)))
        {
            assert!(!matches!(event, Event::Gone(_)), "after {after}: {event:?}");
        }
        for id in self.ids() {
            let (before, now) = (self.resident[id.index()], self.resident(id));
            let grown = now.saturating_sub(before);
            assert!(grown < GROWTH_BYTES_MAX, "after {after} replica {id} went from {before} to {now} bytes");
            let log = std::fs::read_to_string(self.cluster.dir().join(format!("node{id}/node.log"))).unwrap();
            assert!(!log.contains("panicked"), "after {after} replica {id}: {log}");
            assert!(
                log.len() < 256 << 10,
                "after {after} replica {id} has written {} bytes of log",
                log.len()
            );
        }
    }
}
