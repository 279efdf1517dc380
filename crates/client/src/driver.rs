//! Many clients over one connection to each replica, driven by one readiness loop on the caller's thread.
//!
//! The pool owns sockets, reconnects and the clock; the cores decide everything else. The pool starts no
//! thread: operations leave, and messages are handled, when the caller polls.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the blocking driver: this is where the client's sockets and clock live"
)]

mod blocking;
#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

pub use blocking::{Client, Options, Ordered, WAITING_AFTER, status};

use crate::cluster::ClusterInfo;
use crate::conversation::{Broken, Conversation, Dial};
use crate::core::{Core, Event, Failure, Fate, LinkState, Output, Settings, SubmitError};
use crate::order::{OrderError, OrderVerifier};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use quorate_crypto::{SigningKey, stop_preimage};
use quorate_types::limits::{ATTACHED_PER_CONNECTION_MAX, HANDSHAKE_NS_MAX};
use quorate_types::rng::Rng;
use quorate_types::wire::{FromClient, FromReplica, StopAnswer};
use quorate_types::{ClientId, Incarnation, ReplicaId, Time};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes read from a socket at once: one buffer for all connections.
const READ_BYTES: usize = 256 << 10;
/// Pause before the first attempt to reconnect; it doubles, with jitter.
pub(crate) const RECONNECT_NS: u64 = 50_000_000;
/// The longest pause between attempts to connect.
pub(crate) const RECONNECT_NS_MAX: u64 = 2_000_000_000;

/// A failure of a client's driver.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No answer in time.
    #[error("no answer within {waited:?}: {tried}; {} ({trouble})", describe_fate(*fate))]
    Timeout {
        /// The time that the caller waited.
        waited: Duration,
        /// The receivers, the number of attempts, and the answers.
        tried: String,
        /// The effect, as far as it is known: [`Fate::NotExecuted`] if the operation never left and never will.
        fate: Fate,
        /// The known problems of the connections.
        trouble: String,
    },
    /// The cluster answers that there is no result.
    #[error("{0}")]
    Failed(#[from] Failure),
    /// The operation was not taken.
    #[error("{0}")]
    Submit(#[from] SubmitError),
    /// The pool has more clients than one connection may serve.
    #[error("more than {ATTACHED_PER_CONNECTION_MAX} clients on one connection")]
    TooManyClients,
    /// The system of this machine fails.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The TLS library refuses its configuration.
    #[error("{0}")]
    Tls(#[from] quorate_net::tls::TlsError),
    /// The driver has ended.
    #[error("the client was shut down")]
    Closed,
}

impl ClientError {
    /// Whether the operation may still be executed.
    #[must_use]
    pub fn is_fate_unknown(&self) -> bool {
        match self {
            Self::Timeout { fate, .. } => *fate == Fate::Unknown,
            Self::Failed(why) => why.fate() == Fate::Unknown,
            _ => false,
        }
    }
}

/// Describes the effect of an operation without an answer.
fn describe_fate(fate: Fate) -> &'static str {
    match fate {
        Fate::Executed => "it has taken effect",
        Fate::NotExecuted => "it was not executed and will not take effect",
        Fate::Unknown => "the outcome is unknown: it may still take effect, once at most",
    }
}

/// Describes the problems of connections, for people: the known one of each replica.
pub(crate) fn troubles<'a>(of_each: impl Iterator<Item = (ReplicaId, Option<&'a str>)>) -> String {
    let lines: Vec<String> = of_each
        .filter_map(|(id, trouble)| trouble.map(|trouble| format!("replica {id}: {trouble}")))
        .collect();
    if lines.is_empty() { "all connections are up".to_owned() } else { lines.join("; ") }
}

/// The problem of a connection whose replica has not sent its hello, for example because its process stands still.
pub(crate) const NO_HELLO: &str = "no hello yet";

/// One of a pool's clients.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CoreId(pub usize);

/// An event of a pool.
#[derive(Clone, PartialEq, Debug)]
pub enum PoolEvent {
    /// An event of one client.
    Client(CoreId, Event),
    /// A replica's answer to [`ClientPool::ask_status`]: JSON.
    Status(ReplicaId, String),
    /// A replica's answer to [`ClientPool::ask_stop`].
    Stop(ReplicaId, StopAnswer),
}

/// Clients that share one connection to each replica.
pub struct ClientPool {
    cluster: ClusterInfo,
    start: Instant,
    poll: Poll,
    /// The buffer for each poll; `None` only while the pool iterates over it.
    ready: Option<Events>,
    buffer: Vec<u8>,
    rng: Rng,
    peers: Vec<PoolPeer>,
    cores: Vec<Core>,
    by_client: BTreeMap<ClientId, CoreId>,
    /// Cores that may have outputs.
    touched: Vec<CoreId>,
    /// No core is due before this time.
    wake: Time,
    inbox: Vec<(ReplicaId, FromReplica)>,
    /// The check of proofs of order, shared by all clients.
    orders: Result<Arc<OrderVerifier>, OrderError>,
}

/// One replica and the connection to it.
struct PoolPeer {
    id: ReplicaId,
    dial: Dial,
    connection: Option<PoolConnection>,
    /// The time of the next attempt to connect.
    retry_at: Time,
    pause_ns: u64,
    trouble: Option<String>,
}

/// A connection to a replica.
struct PoolConnection {
    socket: TcpStream,
    conversation: Conversation,
    /// The time by which the replica's hello must have arrived.
    patience: Time,
}

impl ClientPool {
    /// Returns a pool without clients. The polls make the connections.
    ///
    /// # Errors
    /// Fails when the system or the TLS library refuses.
    pub fn new(cluster: ClusterInfo) -> Result<Self, ClientError> {
        let peers = cluster.ids().map(|id| {
            Ok(PoolPeer {
                id,
                dial: Dial::new(&cluster, id)?,
                connection: None,
                retry_at: Time::ZERO,
                pause_ns: RECONNECT_NS,
                trouble: None,
            })
        });
        Ok(Self {
            peers: peers.collect::<Result<_, ClientError>>()?,
            start: Instant::now(),
            poll: Poll::new()?,
            ready: Some(Events::with_capacity(256)),
            buffer: vec![0; READ_BYTES],
            rng: Rng::new(random_u64()?),
            cores: Vec::new(),
            by_client: BTreeMap::new(),
            touched: Vec::new(),
            wake: Time::MAX,
            inbox: Vec::new(),
            orders: cluster.order_verifier(),
            cluster,
        })
    }

    /// Adds a client and asks for its session. Its operations may be submitted at once; they leave when the
    /// session is open.
    ///
    /// # Errors
    /// Fails when there are too many clients, or the system has no random bytes for the session's nonce.
    pub fn add(&mut self, key: SigningKey, settings: Settings) -> Result<CoreId, ClientError> {
        if self.cores.len() >= ATTACHED_PER_CONNECTION_MAX {
            return Err(ClientError::TooManyClients);
        }
        let nonce = random_u64()?;
        let now = self.now();
        let id = CoreId(self.cores.len());
        let mut core = Core::new(settings, key).with_orders(self.orders.clone());
        for peer in &mut self.peers {
            if let Some(state) = peer.state() {
                core.link(now, peer.id, state);
            }
            if let Some(connection) = &mut peer.connection {
                connection.conversation.send(&FromClient::Attach(vec![core.client()]));
            }
        }
        core.open(now, nonce);
        self.by_client.insert(core.client(), id);
        self.cores.push(core);
        self.touched.push(id);
        Ok(id)
    }

    /// Returns the usual settings for this pool's cluster.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings::of(&self.cluster)
    }

    /// Returns the nanoseconds since the pool was made: the time of its clients.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns one of the clients, to submit operations to. They leave with the next poll.
    pub fn core(&mut self, id: CoreId) -> Option<&mut Core> {
        self.touched.push(id);
        self.cores.get_mut(id.0)
    }

    /// Returns the number of clients.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cores.len()
    }

    /// Whether there is no client.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cores.is_empty()
    }

    /// Asks for another session after a client has lost its own. This is only for callers that accept an unknown fate of the
    /// operations that failed with the old session.
    ///
    /// # Errors
    /// Fails when the system has no random bytes for the nonce.
    pub fn reopen(&mut self, id: CoreId) -> Result<(), ClientError> {
        let (nonce, now) = (random_u64()?, self.now());
        if let Some(core) = self.core(id) {
            core.open(now, nonce);
        }
        Ok(())
    }

    /// Asks a replica for its status; false if there is no connection to it now. A replica answers ten such questions a second.
    pub fn ask_status(&mut self, replica: ReplicaId) -> bool {
        let connection = self.peers.get_mut(replica.index()).and_then(PoolPeer::greeted);
        connection.is_some_and(|connection| {
            connection.conversation.send(&FromClient::Status);
            true
        })
    }

    /// Asks a replica to stop in this incarnation, which its status names; false if there is no connection to it now. The
    /// request carries the signature of the cluster's admin key. A replica answers ten such requests a second.
    pub fn ask_stop(&mut self, replica: ReplicaId, incarnation: Incarnation, admin: &SigningKey) -> bool {
        let signature = admin.sign(&stop_preimage(self.cluster.cluster, replica, incarnation));
        let connection = self.peers.get_mut(replica.index()).and_then(PoolPeer::greeted);
        connection.is_some_and(|connection| {
            connection.conversation.send(&FromClient::Stop { incarnation, signature });
            true
        })
    }

    /// Returns whether a replica is connected; `None` before the first attempt has ended.
    #[must_use]
    pub fn link(&self, replica: ReplicaId) -> Option<LinkState> {
        self.peers.get(replica.index()).and_then(PoolPeer::state)
    }

    /// Describes the problems of the connections, for people.
    #[must_use]
    pub fn trouble(&self) -> String {
        troubles(self.peers.iter().map(|peer| {
            let missing = peer.state().is_none().then_some(NO_HELLO);
            (peer.id, peer.trouble.as_deref().or(missing))
        }))
    }

    /// Describes the problem of the connection to one replica; empty if there is none.
    #[must_use]
    pub fn trouble_with(&self, replica: ReplicaId) -> String {
        let peer = self.peers.get(replica.index());
        peer.and_then(|peer| peer.trouble.clone()).unwrap_or_default()
    }

    /// Runs one pass: sends waiting messages, sleeps until a socket is ready or `timeout` is over, and appends the
    /// new events to `events`. With a timeout of zero it never sleeps.
    ///
    /// # Errors
    /// Fails when the readiness poll itself fails. The failure of one connection is no error: the pool reconnects.
    pub fn poll(&mut self, timeout: Duration, events: &mut Vec<PoolEvent>) -> Result<(), ClientError> {
        self.connect_due();
        self.settle(events);
        let timeout = if events.is_empty() { self.until_due(timeout) } else { Duration::ZERO };
        let Some(mut ready) = self.ready.take() else {
            return Ok(());
        };
        let polled = self.poll.poll(&mut ready, Some(timeout));
        if polled.is_ok() {
            for event in &ready {
                self.serve(event.token().0, event.is_read_closed(), events);
            }
        }
        self.ready = Some(ready);
        match polled {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        self.tick();
        self.settle(events);
        Ok(())
    }

    /// Moves the outputs of the cores to the connections and to `events`, and writes.
    fn settle(&mut self, events: &mut Vec<PoolEvent>) {
        while let Some(id) = self.touched.pop() {
            let Some(core) = self.cores.get_mut(id.0) else {
                continue;
            };
            while let Some(output) = core.poll() {
                match output {
                    Output::Send { to, frame } => {
                        let peer = self.peers.get_mut(to.index());
                        if let Some(connection) = peer.and_then(|peer| peer.connection.as_mut()) {
                            connection.conversation.queue(&frame);
                        }
                    }
                    Output::Event(event) => events.push(PoolEvent::Client(id, event)),
                }
            }
            if let Some(deadline) = core.deadline() {
                self.wake = self.wake.min(deadline);
            }
        }
        for index in 0..self.peers.len() {
            self.flush(index);
        }
        if !self.touched.is_empty() {
            // A connection broke while it was written to; the cores react to that.
            self.settle(events);
        }
    }

    fn flush(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if let Some(connection) = &mut peer.connection
            && connection.conversation.wants_write()
            && let Err(error) = connection.conversation.write(&mut connection.socket)
            && error.kind() != io::ErrorKind::NotConnected
        {
            self.close(index, error.to_string());
        }
    }

    /// Reads a ready socket until it is empty, and to its end if the other side has closed it.
    fn serve(&mut self, index: usize, is_closed: bool, events: &mut Vec<PoolEvent>) {
        let Some(PoolPeer { connection: Some(connection), .. }) = self.peers.get_mut(index) else {
            return;
        };
        let was_greeted = connection.conversation.is_greeted();
        let broken = read_all(connection, is_closed, &mut self.buffer, &mut self.inbox);
        let is_greeted = connection.conversation.is_greeted();
        if is_greeted && !was_greeted {
            self.greeted(index);
        }
        let now = self.now();
        let mut inbox = std::mem::take(&mut self.inbox);
        for (from, message) in inbox.drain(..) {
            let client = match &message {
                FromReplica::Reply(client, _)
                | FromReplica::Refused { client, .. }
                | FromReplica::Order { client, .. }
                | FromReplica::NoOrder { client, .. } => client,
                FromReplica::Status(json) => {
                    events.push(PoolEvent::Status(from, json.clone()));
                    continue;
                }
                FromReplica::Stop(answer) => {
                    events.push(PoolEvent::Stop(from, *answer));
                    continue;
                }
                FromReplica::Hello { .. } | FromReplica::Close(_) => continue,
            };
            let Some(id) = self.by_client.get(client).copied() else {
                continue;
            };
            if let Some(core) = self.core(id) {
                core.handle(now, from, message);
            }
        }
        self.inbox = inbox;
        if let Err(why) = broken {
            self.close(index, why);
        }
    }

    fn greeted(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index) {
            peer.pause_ns = RECONNECT_NS;
            peer.trouble = None;
        }
        self.update_links(index, LinkState::Up);
    }

    fn close(&mut self, index: usize, why: String) {
        let now = self.now();
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        if let Some(mut connection) = peer.connection.take() {
            // A socket that is already closed may not be registered any more.
            let _ = self.poll.registry().deregister(&mut connection.socket);
        }
        let half = peer.pause_ns / 2;
        peer.retry_at = now.plus(half.saturating_add(self.rng.below(half.max(1))));
        peer.pause_ns = peer.pause_ns.saturating_mul(2).min(RECONNECT_NS_MAX);
        peer.trouble = Some(why);
        self.update_links(index, LinkState::Down);
    }

    fn update_links(&mut self, index: usize, state: LinkState) {
        let now = self.now();
        let Some(replica) = self.peers.get(index).map(|peer| peer.id) else {
            return;
        };
        for (index, core) in self.cores.iter_mut().enumerate() {
            core.link(now, replica, state);
            self.touched.push(CoreId(index));
        }
    }

    /// Starts due connections, and ends those whose hello is late.
    fn connect_due(&mut self) {
        let now = self.now();
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers.get_mut(index) else {
                return;
            };
            let failed = match &peer.connection {
                Some(connection) if connection.is_slow(now) => Err("no hello in time".to_owned()),
                Some(_) => Ok(()),
                None if peer.retry_at > now => Ok(()),
                None => self.connect(index, now),
            };
            if let Err(why) = failed {
                self.close(index, why);
            }
        }
    }

    fn connect(&mut self, index: usize, now: Time) -> Result<(), String> {
        let clients = self.cores.iter().map(Core::client).collect();
        let (Some(peer), Some(replica)) = (self.peers.get_mut(index), self.cluster.replicas.get(index))
        else {
            return Ok(());
        };
        let conversation =
            Conversation::new(&peer.dial, &self.cluster, clients).map_err(|why| why.reason())?;
        let mut socket = TcpStream::connect(replica.address).map_err(|error| error.to_string())?;
        // Some systems refuse it before the connection is up; without it only latency suffers.
        let _ = socket.set_nodelay(true);
        self.poll
            .registry()
            .register(&mut socket, Token(index), Interest::READABLE | Interest::WRITABLE)
            .map_err(|error| error.to_string())?;
        peer.connection = Some(PoolConnection { socket, conversation, patience: now.plus(HANDSHAKE_NS_MAX) });
        Ok(())
    }

    fn tick(&mut self) {
        let now = self.now();
        if now < self.wake {
            return;
        }
        self.wake = Time::MAX;
        for (index, core) in self.cores.iter_mut().enumerate() {
            match core.deadline() {
                Some(deadline) if deadline <= now => {
                    core.tick(now);
                    self.touched.push(CoreId(index));
                }
                Some(deadline) => self.wake = self.wake.min(deadline),
                None => {}
            }
        }
    }

    /// Returns the time that the poll may sleep.
    fn until_due(&self, timeout: Duration) -> Duration {
        let now = self.now();
        let peers = self.peers.iter().map(|peer| match &peer.connection {
            Some(connection) if !connection.conversation.is_greeted() => connection.patience,
            Some(_) => Time::MAX,
            None => peer.retry_at,
        });
        let due = peers.fold(self.wake, Time::min);
        timeout.min(Duration::from_nanos(due.since(now)))
    }
}

impl PoolPeer {
    fn state(&self) -> Option<LinkState> {
        match &self.connection {
            Some(connection) if connection.conversation.is_greeted() => Some(LinkState::Up),
            _ if self.trouble.is_some() => Some(LinkState::Down),
            _ => None,
        }
    }

    fn greeted(&mut self) -> Option<&mut PoolConnection> {
        self.connection.as_mut().filter(|connection| connection.conversation.is_greeted())
    }
}

impl PoolConnection {
    fn is_slow(&self, now: Time) -> bool {
        !self.conversation.is_greeted() && now >= self.patience
    }
}

/// Reads until the socket is empty, because the poll reports its readiness only once. A socket that the other side has closed
/// is read to its end, because the poll reports the close only once too.
fn read_all(
    connection: &mut PoolConnection,
    is_closed: bool,
    buffer: &mut [u8],
    inbox: &mut Vec<(ReplicaId, FromReplica)>,
) -> Result<(), String> {
    // The socket's error is the result of an attempt to connect.
    match connection.socket.take_error() {
        Ok(None) => {}
        Ok(Some(error)) | Err(error) => return Err(error.to_string()),
    }
    loop {
        let count = match connection.socket.read(buffer) {
            Ok(0) => return Err("closed by the other side".to_owned()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => {
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        let mut sink = |from, message| inbox.push((from, message));
        let received = connection.conversation.receive(bytes, &mut sink);
        received.map_err(|why: Broken| why.to_string())?;
        if count < buffer.len() && !is_closed {
            return Ok(());
        }
    }
}

/// Returns random bits of the system: a session's nonce has to be new in each run.
pub(crate) fn random_u64() -> Result<u64, ClientError> {
    getrandom::u64().map_err(|error| ClientError::Io(io::Error::other(error)))
}
