//! A fake cluster: each replica is a listener, and one shared state decides the answers. The test chooses the behaviour of
//! each replica.

use crate::cluster::{ClusterInfo, LinkMode, ReplicaInfo};
use crate::order::fixture::{Signers, links};
use quorate_crypto::{Scheme, VerifyKey, bundle_preimage};
use quorate_net::{LinkKey, Session as Channel, tls};
use quorate_types::codec::Wire;
use quorate_types::rng::Rng;
use quorate_types::wire::{FromClient, FromReplica, Refusal, StopAnswer, VERSION};
use quorate_types::{
    Authenticator, BodyLimits, Bundle, BundleDigest, BundleKind, BundleNo, ClientAuth, ClientId, ClusterId,
    Digest, Height, Incarnation, Outcome, PublicKey, ReplicaId, ReplyBundle, SessionId, View,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// The behaviour of a replica.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Behaviour {
    Honest,
    /// Takes everything and sends nothing but its hello.
    Silent,
    /// Answers with wrong results that are consistent in themselves.
    Wrong,
    /// Names the right digest and sends other bytes.
    WrongBytes,
    /// Executes nothing, and refuses every bundle as busy.
    Busy,
    /// Sends these bytes to each client instead of its hello.
    Sends(Vec<u8>),
}

/// State of the fake cluster.
pub(crate) struct State {
    pub(crate) behaviours: Vec<Behaviour>,
    pub(crate) registered: Option<BTreeSet<PublicKey>>,
    sessions: BTreeMap<(ClientId, BundleNo), SessionId>,
    lost: BTreeSet<SessionId>,
    outcomes: BTreeMap<BundleDigest, Vec<u8>>,
    /// Bundles of operations that were executed.
    pub(crate) bundles: usize,
    /// Operations in the order of their execution.
    pub(crate) executed: Vec<Vec<u8>>,
    connections: Vec<Connection>,
    /// Number of connections ever made, by replica.
    pub(crate) accepted: Vec<usize>,
    cluster: ClusterInfo,
    /// The keys with which all replicas show proofs of order.
    signers: Signers,
    over: bool,
}

struct Connection {
    replica: usize,
    channel: Channel,
    socket: TcpStream,
    partial: Vec<u8>,
    attached: BTreeSet<ClientId>,
    open: bool,
}

pub(crate) struct Fake {
    pub(crate) info: ClusterInfo,
    state: Arc<Mutex<State>>,
}

impl Fake {
    /// Starts `n` honest replicas with f = 1.
    pub(crate) fn start(n: usize, links: LinkMode) -> Self {
        let keys: Vec<LinkKey> = (0..n).map(|i| link_key(i as u8)).collect();
        let listeners: Vec<TcpListener> = (0..n).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let cluster = ClusterId(Digest([8; 32]));
        let signers = Signers::new(cluster, n as u8, 1);
        let replicas = keys.iter().zip(&listeners).zip(&signers.committee.members);
        let replicas = replicas.map(|((key, listener), member)| ReplicaInfo {
            sign: member.sign,
            link: key.public(),
            address: listener.local_addr().unwrap(),
        });
        let info = ClusterInfo {
            cluster,
            protocol: signers.committee.protocol,
            f: 1,
            client_auth: ClientAuth::Signature,
            limits: BodyLimits::default(),
            client_window: 1_000,
            links,
            ask_again: None,
            replicas: replicas.collect(),
        };
        let state = Arc::new(Mutex::new(State {
            behaviours: vec![Behaviour::Honest; n],
            registered: None,
            sessions: BTreeMap::new(),
            lost: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            bundles: 0,
            executed: Vec::new(),
            connections: Vec::new(),
            accepted: vec![0; n],
            cluster: info.clone(),
            signers,
            over: false,
        }));
        for ((replica, key), listener) in keys.into_iter().enumerate().zip(listeners) {
            let state = state.clone();
            std::thread::spawn(move || listen(replica, &key, &listener, &state));
        }
        Self { info, state }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn behave(&self, replica: usize, behaviour: Behaviour) {
        self.state().behaviours[replica] = behaviour;
    }

    /// Closes all connections; new ones are accepted.
    pub(crate) fn cut(&self) {
        for connection in &mut self.state().connections {
            connection.close();
        }
    }

    /// Returns the number of open connections.
    pub(crate) fn open_connections(&self) -> usize {
        self.state().connections.iter().filter(|connection| connection.open).count()
    }

    /// Evicts all sessions.
    pub(crate) fn forget_sessions(&self) {
        let mut state = self.state();
        let open: Vec<SessionId> = state.sessions.values().copied().collect();
        state.lost.extend(open);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.state().over = true;
        self.cut();
        for replica in &self.info.replicas {
            // Wakes the listener, so that it notices the end.
            let _ = TcpStream::connect(replica.address);
        }
    }
}

/// Returns the link key of a replica.
pub(crate) fn link_key(number: u8) -> LinkKey {
    LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[number; 32])).unwrap()
}

/// Returns an address without a listener.
pub(crate) fn no_listener() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn listen(replica: usize, key: &LinkKey, listener: &TcpListener, state: &Arc<Mutex<State>>) {
    let tls = tls::listen_to_clients(key).unwrap();
    for socket in listener.incoming() {
        let mut reading = socket.unwrap();
        let mut state_now = state.lock().unwrap();
        if state_now.over {
            return;
        }
        reading.set_nodelay(true).unwrap();
        let channel = match state_now.cluster.links {
            LinkMode::Tls => Channel::accept(&tls).unwrap(),
            LinkMode::Plain => Channel::plain(),
        };
        let index = state_now.connections.len();
        state_now.accepted[replica] += 1;
        state_now.connections.push(Connection {
            replica,
            channel,
            socket: reading.try_clone().unwrap(),
            partial: Vec::new(),
            attached: BTreeSet::new(),
            open: true,
        });
        drop(state_now);
        let state = state.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = reading.read(&mut buffer) {
                state.lock().unwrap().receive(index, &buffer[..count]);
            }
            state.lock().unwrap().connections[index].close();
        });
    }
}

impl Connection {
    fn close(&mut self) {
        self.open = false;
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    fn send(&mut self, message: &FromReplica) {
        let frame = message.to_bytes();
        self.send_bytes(&[&(frame.len() as u32).to_le_bytes()[..], &frame].concat());
    }

    fn send_bytes(&mut self, bytes: &[u8]) {
        self.channel.send(&[IoSlice::new(bytes)]);
        self.flush();
    }

    fn flush(&mut self) {
        while self.channel.pending() {
            if self.channel.write(&mut self.socket).is_err() {
                self.open = false;
                return;
            }
        }
    }
}

impl State {
    fn receive(&mut self, index: usize, bytes: &[u8]) {
        let connection = &mut self.connections[index];
        let mut plain = std::mem::take(&mut connection.partial);
        let read = connection.channel.read(bytes, &mut |text| {
            plain.extend_from_slice(text);
            Ok(())
        });
        connection.flush();
        if read.is_err() {
            connection.close();
            return;
        }
        let mut rest = &plain[..];
        while rest.len() >= 4 {
            let size = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            if rest.len() < 4 + size {
                break;
            }
            let message = FromClient::from_bytes(&rest[4..4 + size]).unwrap();
            rest = &rest[4 + size..];
            self.on_message(index, message);
        }
        self.connections[index].partial = rest.to_vec();
    }

    fn on_message(&mut self, index: usize, message: FromClient) {
        let connection = &mut self.connections[index];
        let replica = connection.replica;
        let id = ReplicaId(replica as u16);
        let cluster = self.cluster.cluster;
        match message {
            FromClient::Hello { version, cluster: meant } => {
                assert_eq!((version, meant), (VERSION, cluster));
                match &self.behaviours[replica] {
                    Behaviour::Sends(bytes) => connection.send_bytes(bytes),
                    _ => connection.send(&FromReplica::Hello { version, cluster, id }),
                }
            }
            FromClient::Attach(clients) => connection.attached.extend(clients),
            FromClient::AskOrder { .. } if self.behaviours[replica] == Behaviour::Silent => {}
            FromClient::AskOrder { client, bundle } => {
                let mut proof = Box::new(self.signers.proof(&mut Rng::new(1), bundle));
                if self.behaviours[replica] != Behaviour::Honest {
                    links(&mut proof)[0].signature.0[3] ^= 1;
                }
                connection.send(&FromReplica::Order { client, bundle, proof });
            }
            FromClient::Status if self.behaviours[replica] == Behaviour::Silent => {}
            FromClient::Status => connection.send(&FromReplica::Status(format!("{{\"id\":{replica}}}"))),
            FromClient::Stop { incarnation: Incarnation(7), .. } => {
                connection.send(&FromReplica::Stop(StopAnswer::Accepted));
                connection.close();
            }
            FromClient::Stop { .. } => connection.send(&FromReplica::Stop(StopAnswer::OtherIncarnation)),
            FromClient::Bundle { authenticator, content } => {
                let bundle = Bundle::parse(&content, authenticator, &self.cluster.limits).unwrap();
                assert!(
                    connection.attached.contains(&bundle.client()),
                    "the client attaches before it sends a bundle"
                );
                self.on_bundle(index, &bundle);
            }
        }
    }

    fn on_bundle(&mut self, index: usize, bundle: &Bundle) {
        let replica = self.connections[index].replica;
        let Authenticator::Signature(signature) = bundle.authenticator() else {
            panic!("unsigned");
        };
        let key = VerifyKey::register(Scheme::Ed25519, bundle.client()).unwrap();
        assert!(key.verify(&bundle_preimage(self.cluster.cluster, bundle.digest()), signature));
        match self.behaviours[replica] {
            Behaviour::Silent => return,
            Behaviour::Busy => {
                let (client, bundle) = (bundle.client(), bundle.digest());
                let why = Refusal::Busy;
                self.connections[index].send(&FromReplica::Refused { client, bundle, why });
                return;
            }
            _ => {}
        }
        let outcome = match self.outcomes.get(&bundle.digest()) {
            Some(outcome) => outcome.clone(),
            None => {
                let outcome = self.execute(bundle).to_bytes();
                self.outcomes.insert(bundle.digest(), outcome.clone());
                outcome
            }
        };
        let right = ReplyBundle::result_digest(&outcome);
        for connection in &mut self.connections {
            if !connection.open || !connection.attached.contains(&bundle.client()) {
                continue;
            }
            let wrong: Vec<u8> =
                Outcome::Done(vec![b"wrong".to_vec(); bundle.request_count() as usize]).to_bytes();
            let (result, outcome) = match self.behaviours[connection.replica] {
                Behaviour::Honest => (right, &outcome),
                Behaviour::Wrong => (ReplyBundle::result_digest(&wrong), &wrong),
                Behaviour::WrongBytes => (right, &wrong),
                _ => continue,
            };
            connection.send(&FromReplica::Reply(
                bundle.client(),
                ReplyBundle {
                    session: bundle.session(),
                    number: bundle.number(),
                    bundle: bundle.digest(),
                    result,
                    outcome: Arc::from(outcome.as_slice()),
                    view: View(0),
                    leader: ReplicaId(0),
                },
            ));
        }
    }

    fn execute(&mut self, bundle: &Bundle) -> Outcome {
        let client = bundle.client();
        let height = Height(self.outcomes.len() as u64 + 1);
        let known = self.registered.as_ref().is_none_or(|keys| keys.contains(&client));
        match bundle.kind() {
            BundleKind::Open if !known => Outcome::NotRegistered,
            BundleKind::Open => {
                let fresh = SessionId { height, index: 0 };
                Outcome::Opened(*self.sessions.entry((client, bundle.number())).or_insert(fresh))
            }
            _ if self.lost.contains(&bundle.session()) => Outcome::NoSession,
            BundleKind::Register => {
                let keys = self.registered.get_or_insert_default();
                let before = keys.len();
                keys.extend(bundle.requests().map(|key| PublicKey(key.try_into().unwrap())));
                Outcome::Registered((keys.len() - before) as u32)
            }
            BundleKind::Requests => {
                let ops: Vec<Vec<u8>> = bundle.requests().map(<[u8]>::to_vec).collect();
                self.bundles += 1;
                self.executed.extend(ops.iter().cloned());
                let is_shared = ops.len() > 1;
                let result = |op: &Vec<u8>| match op.starts_with(LARGE) && is_shared {
                    true => NO_ROOM.to_vec(),
                    false => answer(op),
                };
                Outcome::Done(ops.iter().map(result).collect())
            }
        }
    }
}

/// The prefix of operations that have room only in a bundle of their own.
pub(crate) const LARGE: &[u8] = b"large";
/// The result of such an operation in a shared bundle.
const NO_ROOM: &[u8] = b"no room";

/// The rule of the fake application: large operations read, unless they end with `write`.
pub(crate) fn ask_again(op: &[u8], result: &[u8], later: &mut dyn Iterator<Item = &[u8]>) -> bool {
    result == NO_ROOM && !op.ends_with(b"write") && later.filter(|op| *op == b"all change").count() == 0
}

/// Returns the answer of the fake application.
pub(crate) fn answer(op: &[u8]) -> Vec<u8> {
    [b"did ", op].concat()
}
