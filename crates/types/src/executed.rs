//! Results of executing a block: the executor's answer to the replica.

use crate::digest::Digest;
use crate::ids::{BundleDigest, BundleNo, ClientId, Height, SessionId};
use std::sync::Arc;

/// The result of executing one bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutedBundle {
    /// The client of the bundle, which receives the reply.
    pub client: ClientId,
    /// The session of the bundle; zero for one that opens a session.
    pub session: SessionId,
    /// The number of the bundle, or the nonce of one that opens a session.
    pub number: BundleNo,
    /// The digest of the bundle.
    pub bundle: BundleDigest,
    /// The digest of `outcome`.
    pub result: Digest,
    /// The encoded [`crate::Outcome`], shared with the session that keeps it.
    pub outcome: Arc<[u8]>,
    /// Requests that this execution applied; 0 for a duplicate or a refusal.
    pub applied: u32,
}

/// The result of executing one block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// The height of the block.
    pub height: Height,
    /// Results of the bundles, in order.
    pub bundles: Vec<ExecutedBundle>,
    /// Sessions that were evicted to make room.
    pub evicted: Vec<SessionId>,
    /// The digest of application and sessions, at heights of checkpoints.
    pub state: Option<Digest>,
}

impl Executed {
    /// Returns the number of requests that this execution applied.
    #[must_use]
    pub fn fresh(&self) -> u32 {
        self.bundles.iter().fold(0, |sum: u32, bundle| sum.saturating_add(bundle.applied))
    }
}
