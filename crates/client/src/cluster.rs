//! A cluster as a client sees it.

use crate::order::{OrderError, OrderVerifier};
use quorate_crypto::Scheme;
use quorate_types::{
    BodyLimits, ClientAuth, ClusterId, Committee, Epoch, Genesis, Member, ProtocolId, PublicKey, ReplicaId,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// The protection of connections to replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkMode {
    /// TLS 1.3; the server must show exactly the replica's link key.
    #[default]
    Tls,
    /// No protection: for benchmarks only.
    Plain,
}

impl LinkMode {
    /// All modes with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("tls", Self::Tls), ("plain", Self::Plain)];

    /// Returns the name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, other)| *other == self).map_or("?", |(name, _)| name)
    }
}

/// The service's rule for reads without a result because the reply of their bundle was full. With it a client need not know
/// the meaning of operations.
///
/// The client calls it with an operation, its result, and the later operations of the same call. If the rule is true, the
/// client sends the operation again, alone. The rule must not be true of an operation that may have changed the service.
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
    /// The key that signs its statements.
    pub sign: PublicKey,
    /// The key that its TLS certificate must hold.
    pub link: PublicKey,
    /// The address at which it listens for clients.
    pub address: SocketAddr,
}

/// A cluster as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterInfo {
    /// Identity of the cluster.
    pub cluster: ClusterId,
    /// The protocol. It decides how a client checks proofs of order, and nothing else.
    pub protocol: ProtocolId,
    /// Faulty replicas tolerated.
    pub f: usize,
    /// The authentication of bundles.
    pub client_auth: ClientAuth,
    /// Limits on requests and bundles.
    pub limits: BodyLimits,
    /// `W_c`: bundle numbers above a session's floor that may be in use.
    pub client_window: u32,
    /// The protection of connections.
    pub links: LinkMode,
    /// The rule for reads that are sent again alone; `None` for no read.
    pub ask_again: Option<AskAgain>,
    /// The replicas, by id.
    pub replicas: Vec<ReplicaInfo>,
}

impl ClusterInfo {
    /// Returns the cluster of a genesis configuration whose replicas listen for clients at `addresses`, in the order of ids.
    /// No read is asked again, unless the caller sets [`ClusterInfo::ask_again`].
    #[must_use]
    pub fn at(genesis: &Genesis, links: LinkMode, addresses: impl Iterator<Item = SocketAddr>) -> Self {
        Self {
            cluster: genesis.cluster_id(),
            protocol: genesis.protocol,
            f: usize::from(genesis.f),
            client_auth: genesis.client_auth,
            limits: genesis.bodies,
            client_window: genesis.client_window,
            links,
            ask_again: None,
            replicas: genesis
                .members
                .iter()
                .zip(addresses)
                .map(|(member, address)| ReplicaInfo { sign: member.sign, link: member.link, address })
                .collect(),
        }
    }

    /// Returns the number of replicas.
    #[must_use]
    pub fn n(&self) -> usize {
        self.replicas.len()
    }

    /// Returns all ids in order.
    pub fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..u16::try_from(self.n()).unwrap_or(u16::MAX)).map(ReplicaId)
    }

    /// Returns the committee.
    #[must_use]
    pub fn committee(&self) -> Committee {
        let member = |replica: &ReplicaInfo| Member { sign: replica.sign, link: replica.link };
        Committee {
            cluster: self.cluster,
            protocol: self.protocol,
            epoch: Epoch(0),
            f: self.f,
            members: self.replicas.iter().map(member).collect(),
        }
    }

    /// Prepares the check of proofs of order.
    ///
    /// # Errors
    /// The reason why this cluster has none.
    pub fn order_verifier(&self) -> Result<Arc<OrderVerifier>, OrderError> {
        OrderVerifier::new(Scheme::Ed25519, self.committee()).map(Arc::new)
    }
}
