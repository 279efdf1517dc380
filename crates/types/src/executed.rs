//! What executing a block resulted in: the executor's answer to the replica.

use crate::digest::Digest;
use crate::ids::{BundleDigest, BundleNo, ClientId, Height, SessionId};
use std::sync::Arc;

/// What executing one bundle resulted in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutedBundle {
    /// Whose bundle it is: where the reply goes.
    pub client: ClientId,
    /// Its session; zero for one that opens a session.
    pub session: SessionId,
    /// Its number, or the nonce of one that opens a session.
    pub number: BundleNo,
    /// Its content.
    pub bundle: BundleDigest,
    /// Digest of `outcome`.
    pub result: Digest,
    /// The encoded [`crate::Outcome`], shared with the session that keeps it.
    pub outcome: Arc<[u8]>,
    /// Requests that were applied just now; 0 for a duplicate or a refusal.
    pub applied: u32,
}

/// What executing one block resulted in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// Its height.
    pub height: Height,
    /// Its bundles, in order.
    pub bundles: Vec<ExecutedBundle>,
    /// Sessions that were evicted to make room.
    pub evicted: Vec<SessionId>,
    /// Digest of application and sessions, where the height is one of a checkpoint.
    pub state: Option<Digest>,
}

impl Executed {
    /// Requests that were applied just now.
    #[must_use]
    pub fn fresh(&self) -> u32 {
        self.bundles.iter().fold(0, |sum: u32, bundle| sum.saturating_add(bundle.applied))
    }
}
