//! What a client must know of a cluster.

use quorate_types::{BodyLimits, ClientAuth, ClusterId, Genesis, PublicKey, ReplicaId};
use std::net::SocketAddr;

/// How connections to replicas are protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkMode {
    /// TLS 1.3; the server must show exactly the replica's link key.
    #[default]
    Tls,
    /// Nothing: benchmarks only.
    Plain,
}

/// Which reads the service left out because the reply of their bundle was full: the service's rule, so that a client need
/// not know what operations mean.
///
/// Called with an operation, its result, and the operations behind it in the same call. Where it is true the client asks the
/// operation again, alone: it must not be true of anything that may have changed the service.
#[derive(Clone, Copy, Debug)]
pub struct AskAgain(pub AskAgainRule);

/// See [`AskAgain`].
pub type AskAgainRule = fn(op: &[u8], result: &[u8], later: &mut dyn Iterator<Item = &[u8]>) -> bool;

impl PartialEq for AskAgain {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for AskAgain {}

/// One replica as a client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaInfo {
    /// The key that its TLS certificate must hold.
    pub link: PublicKey,
    /// Where it listens for clients.
    pub address: SocketAddr,
}

/// A cluster as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterInfo {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Faulty replicas tolerated.
    pub f: usize,
    /// How bundles prove where they come from.
    pub client_auth: ClientAuth,
    /// Limits on requests and bundles.
    pub limits: BodyLimits,
    /// `W_c`: bundle numbers above a session's floor that may be in use.
    pub client_window: u32,
    /// How connections are protected.
    pub links: LinkMode,
    /// Which reads are asked again alone; `None`: none.
    pub ask_again: Option<AskAgain>,
    /// The replicas, by id.
    pub replicas: Vec<ReplicaInfo>,
}

impl ClusterInfo {
    /// The cluster of a genesis configuration, whose replicas listen for clients at `addresses`; `None` when
    /// there is not one address for each replica. No read is asked again, unless the caller sets
    /// [`ClusterInfo::ask_again`].
    #[must_use]
    pub fn of(genesis: &Genesis, addresses: &[SocketAddr], links: LinkMode) -> Option<Self> {
        let replicas = genesis.members.iter().zip(addresses);
        (genesis.members.len() == addresses.len()).then(|| Self {
            cluster: genesis.cluster_id(),
            f: usize::from(genesis.f),
            client_auth: genesis.client_auth,
            limits: genesis.bodies,
            client_window: genesis.client_window,
            links,
            ask_again: None,
            replicas: replicas
                .map(|(member, address)| ReplicaInfo { link: member.link, address: *address })
                .collect(),
        })
    }

    /// How many replicas there are.
    #[must_use]
    pub fn n(&self) -> usize {
        self.replicas.len()
    }

    /// All ids in order.
    pub fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..u16::try_from(self.n()).unwrap_or(u16::MAX)).map(ReplicaId)
    }
}
