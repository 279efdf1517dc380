//! The configuration of a reactor, and the faults that prevent its start.

use crate::lanes::ResendLimits;
use crate::link::Identity;
use crate::tls::{LinkKey, TlsError};
use quorate_types::PublicKey;
use quorate_types::limits::CLIENT_CONNECTIONS_MAX;
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Half-open connections through the peers' listener, in addition to one for each replica.
pub(super) const GUESTS_MAX: usize = 64;
/// The longest delay of a link that [`NetConfig::delays_ns`] may have, in nanoseconds. A handshake takes four of them and has to
/// be over in `HANDSHAKE_NS_MAX`.
pub const LINK_DELAY_NS_MAX: u64 = 2_000_000_000;
/// Closed connections that linger at the same time.
pub(super) const LINGERING_MAX: usize = 256;

/// Protection of connections.
#[derive(Debug)]
pub enum Security {
    /// TLS 1.3 with this link key, mutual between replicas; clients need no key.
    Tls(LinkKey),
    /// No protection: for benchmarks and tests only.
    Plain,
}

/// One replica as its peers know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Its link key. Plain links ignore it.
    pub key: PublicKey,
    /// The address of its listener for peers.
    pub address: SocketAddr,
}

/// The configuration of a reactor.
#[derive(Debug)]
pub struct NetConfig {
    /// The identity of this replica, for the hellos.
    pub identity: Identity,
    /// All replicas by id, this one included.
    pub peers: Vec<PeerConfig>,
    /// Protection of connections.
    pub security: Security,
    /// The listener for peers.
    pub listen_peers: TcpListener,
    /// The listener for clients; `None` if this process serves no clients.
    pub listen_clients: Option<TcpListener>,
    /// The frames that each lane keeps for sending again.
    pub resend: ResendLimits,
    /// One-way delays that frames to each replica have in addition to those of the network, in nanoseconds, by id; empty for
    /// none. They emulate a wide network for experiments: bytes under way are lost with this process or the connection.
    pub delays_ns: Vec<u64>,
    /// Simultaneous client connections at most. Leave descriptors for peers and files.
    pub client_connections_max: usize,
    /// The seed of the jitter between two attempts to dial.
    pub seed: u64,
}

impl NetConfig {
    /// Returns a configuration with the usual limits and no clients.
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
            delays_ns: Vec::new(),
            client_connections_max: CLIENT_CONNECTIONS_MAX,
        }
    }
}

impl NetConfig {
    /// Returns the most descriptors that a reactor holds in addition to those of its clients.
    #[must_use]
    pub fn descriptors_beside_clients(&self) -> usize {
        // The poll, the waker and the listeners; for each replica a link and a place for the one that follows.
        const OWN: usize = 8;
        let links = self.peers.len().saturating_mul(2);
        links.saturating_add(GUESTS_MAX).saturating_add(LINGERING_MAX).saturating_add(OWN)
    }
}

/// A failure of the environment, or a contradiction in the configuration; never an act of a peer.
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
    /// The link key is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The configuration contradicts itself.
    #[error("configuration: {0}")]
    Configuration(&'static str),
}

/// Binds a listener. The address can be used again at once after a restart.
///
/// # Errors
/// Fails when the system refuses, for example because the address is in use.
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
