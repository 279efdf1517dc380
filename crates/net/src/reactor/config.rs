//! What the reactor is told and what it tells.

use super::LINGERING_MAX;
use super::peers::GUESTS_MAX;
use crate::frame::Refusal;
use crate::lanes::{Direction, Loss, ResendLimits};
use crate::link::Identity;
use crate::tls::{LinkKey, TlsError};
use quorate_types::limits::CLIENT_CONNECTIONS_MAX;
use quorate_types::wire::Lane;
use quorate_types::{Incarnation, PublicKey, ReplicaId, Time};
use socket2::{Domain, Socket, Type};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// How connections are protected.
#[derive(Debug)]
pub enum Security {
    /// TLS 1.3 with this link key, mutual between replicas; clients need no key.
    Tls(LinkKey),
    /// Nothing: benchmarks and tests only.
    Plain,
}

/// One replica as its peers know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Its link key. Not looked at where links are plain.
    pub key: PublicKey,
    /// Where it listens for peers.
    pub address: SocketAddr,
}

/// What a reactor needs to know.
#[derive(Debug)]
pub struct NetConfig {
    /// Who we are; what the hellos say.
    pub identity: Identity,
    /// All replicas by id, ourselves included.
    pub peers: Vec<PeerConfig>,
    /// How connections are protected.
    pub security: Security,
    /// Where peers come in.
    pub listen_peers: TcpListener,
    /// Where clients come in, if they do.
    pub listen_clients: Option<TcpListener>,
    /// What each lane keeps for sending again.
    pub resend: ResendLimits,
    /// Connections of clients at the same time at most. Leave descriptors for peers and files.
    pub client_connections_max: usize,
    /// Decides the jitter of dialling again.
    pub seed: u64,
}

impl NetConfig {
    /// The usual limits and no clients.
    #[must_use]
    pub fn new(
        identity: Identity,
        peers: Vec<PeerConfig>,
        security: Security,
        listen_peers: TcpListener,
    ) -> Self {
        Self {
            seed: u64::from(identity.me.0) ^ identity.incarnation.0,
            identity,
            peers,
            security,
            listen_peers,
            listen_clients: None,
            resend: ResendLimits::default(),
            client_connections_max: CLIENT_CONNECTIONS_MAX,
        }
    }
}

impl NetConfig {
    /// Descriptors that a reactor with this configuration holds beside those of its clients at most.
    #[must_use]
    pub fn descriptors_beside_clients(&self) -> usize {
        // The poll, the waker and the listeners; for each replica a link and a place for the one that follows.
        const OWN: usize = 8;
        let links = self.peers.len().saturating_mul(2);
        links.saturating_add(GUESTS_MAX).saturating_add(LINGERING_MAX).saturating_add(OWN)
    }
}

/// Our environment fails us, or the configuration contradicts itself: nothing that a peer did.
#[derive(Debug, thiserror::Error)]
pub enum NetFault {
    /// The system's poll fails.
    #[error("poll: {0}")]
    Poll(#[source] io::Error),
    /// A listener cannot be used.
    #[error("listener: {0}")]
    Listen(#[source] io::Error),
    /// The thread of a mesh cannot be started.
    #[error("thread: {0}")]
    Thread(#[source] io::Error),
    /// The link key is of no use.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Configuration(&'static str),
}

/// Binds a listener. The address can be used again at once after a restart.
///
/// # Errors
/// When the system says no, for example because the address is in use.
pub fn bind(address: SocketAddr) -> Result<TcpListener, NetFault> {
    let bound = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(1_024)?;
        Ok(socket.into())
    };
    bound().map_err(NetFault::Listen)
}

/// A connection of a client. Never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// Whose connection was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// A replica.
    Replica(ReplicaId),
    /// Somebody who came through the clients' port.
    Client(SocketAddr),
    /// Somebody who came through the peers' port and has not proved to be a replica.
    Stranger(SocketAddr),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(id) => write!(f, "replica {id}"),
            Self::Client(address) => write!(f, "client {address}"),
            Self::Stranger(address) => write!(f, "stranger {address}"),
        }
    }
}

/// What the reactor tells. Bodies lie in its buffer: copy what outlives the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A frame of a replica: in order on its lane, each once.
    Peer {
        /// Who sent it.
        from: ReplicaId,
        /// On which lane.
        lane: Lane,
        /// Its type, as `types::wire::frame` lists them.
        frame_type: u8,
        /// Its body.
        body: &'a [u8],
    },
    /// The link to a replica is connected; both hellos agree.
    PeerUp(ReplicaId),
    /// The link to a replica is not connected any more. What is sent waits.
    PeerDown(ReplicaId),
    /// Frames of a link are lost for good. Both sides hear it, each with its own direction.
    Lost {
        /// Whose link.
        peer: ReplicaId,
        /// From the peer, or to it.
        direction: Direction,
        /// On which lane.
        lane: Lane,
        /// Number of the first frame that is lost.
        from: u64,
        /// Number of the first frame after the gap; [`u64::MAX`] when the peer started a new life and nobody
        /// knows.
        to: u64,
    },
    /// A client is connected and may be written to.
    ClientUp {
        /// On which connection.
        conn: ConnId,
        /// From where.
        address: SocketAddr,
    },
    /// A message of a client (`types::wire::FromClient`).
    Client {
        /// On which connection.
        conn: ConnId,
        /// The message.
        body: &'a [u8],
    },
    /// The connection of a client is gone.
    ClientDown(ConnId),
    /// A connection was closed by us for what it did.
    Refused {
        /// Whose connection.
        who: Who,
        /// Why.
        why: Refusal,
    },
    /// A replica closed its connection and says why.
    Closed {
        /// Which replica.
        by: ReplicaId,
        /// The reason: at most 256 characters of the replica's own choice, all printable.
        reason: &'a str,
    },
}

pub(super) fn lost(peer: ReplicaId, loss: Loss) -> Event<'static> {
    Event::Lost { peer, direction: loss.direction, lane: loss.lane, from: loss.from, to: loss.to }
}

/// Why something was not sent to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The connection is gone.
    #[error("the connection is gone")]
    Gone,
    /// Too much waits already: the client does not read, and its connection was cut.
    #[error("too much waits already")]
    Full,
    /// No client would take so large a message.
    #[error("the message is too large")]
    Oversize,
}

/// How the link to one replica is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// Which replica.
    pub id: ReplicaId,
    /// Whether frames flow.
    pub connected: bool,
    /// Whether its frames are read before those of others.
    pub urgent: bool,
    /// Since when it is connected or not.
    pub since: Time,
    /// Its life as far as known; zero when it was never heard.
    pub incarnation: Incarnation,
    /// Connections so far.
    pub connections: u64,
    /// Frames received from it.
    pub frames_in: u64,
    /// Bytes of these frames' bodies.
    pub bytes_in: u64,
    /// Bytes handed to its connections.
    pub bytes_out: u64,
    /// Bytes that wait to be sent.
    pub queued_bytes: usize,
    /// Bytes that were sent and not acknowledged.
    pub resend_bytes: usize,
    /// Why the last connection was refused, by us or by it; empty when none was.
    pub last_refusal: String,
    /// Its address.
    pub address: SocketAddr,
    /// Whether this end dials; the other one does otherwise.
    pub dials: bool,
    /// Why the last dialling came to nothing; empty since the link was up, and where nothing was dialled.
    pub dial_error: String,
}

/// A count of bytes as the ledger counts.
pub(super) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
