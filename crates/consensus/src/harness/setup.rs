//! The committee and the payloads of a test.

use crate::host_view::PayloadRef;
use crate::protocol::Protocol;
use quorate_types::digest::context;
use quorate_types::{ClusterId, Committee, Digest, Epoch, Member, PayloadId, PublicKey};

/// Size and limits of the cluster that a protocol is opened in.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Number of replicas.
    pub n: usize,
    /// Number of faulty replicas tolerated.
    pub f: usize,
    /// L.
    pub window: u64,
    /// K.
    pub checkpoint_every: u64,
}

impl Setup {
    /// Returns a cluster of `n` replicas that tolerates the faults of the protocol's `Spec`; K = 8 and L = 16.
    #[must_use]
    pub fn of<P: Protocol>(n: usize) -> Self {
        Self { n, f: (P::SPEC.faults)(n), window: 16, checkpoint_every: 8 }
    }

    /// Returns the committee. Nobody has the secret keys of its members.
    #[must_use]
    pub fn committee<P: Protocol>(&self) -> Committee {
        let key = |name: &str, id: usize| {
            PublicKey(Digest::of(&context::PROTOCOL, format!("{name} key {id}").as_bytes()).0)
        };
        Committee {
            cluster: ClusterId::ZERO,
            protocol: P::SPEC.name,
            epoch: Epoch(0),
            f: self.f,
            members: (0..self.n).map(|id| Member { sign: key("sign", id), link: key("link", id) }).collect(),
        }
    }
}

/// Returns a payload for tests, whose digest names the number.
#[must_use]
pub fn payload(number: u64) -> PayloadRef {
    let id = PayloadId(Digest::of(&context::PAYLOAD, &number.to_le_bytes()));
    PayloadRef { id, requests: 1, bytes: 100, time_ns: number }
}
