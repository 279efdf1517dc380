//! What a service has to implement.

use crate::snapshot::{RestoreError, Snapshot};
use quorate_types::{ClientId, Digest, Height};

/// Where and for whom an operation is applied. Equal at every replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct At {
    /// Height of the block that carries the operation.
    pub height: Height,
    /// Nanoseconds since 1970 by the clocks of the leaders: strictly increasing from block to block, at most
    /// 10 s ahead of the block before. A hint, not a trusted clock.
    pub time_ns: u64,
    /// Who asks.
    pub client: ClientId,
    /// Bytes of results that the bundle of this operation still has room for. A result that is larger costs
    /// the client the results of the whole bundle, so an operation with a long result looks here first.
    pub room: usize,
}

/// A deterministic service.
///
/// The state after `apply` depends on the state before, `at` and `op` alone: no clock, no randomness, no
/// iteration order from hashing. Whatever a client sends is answered: an operation that makes no sense has a
/// result that says so, and never a panic.
pub trait Application: Send {
    /// Which service this is. Part of genesis.
    fn name(&self) -> &'static str;

    /// Version of operations, results and state. Part of genesis.
    fn version(&self) -> u32;

    /// Applies one operation and appends its result to `reply`, which already holds other results: what is in
    /// it must stay.
    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>);

    /// Answers an operation that changes nothing from the present state: appends at most `room` bytes to
    /// `reply`.
    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>);

    /// Digest of the state: equal states have equal digests, whatever led to them. Costs as much as what
    /// changed since the last call.
    fn digest(&mut self) -> Digest;

    /// The present state. Cheap: shares memory with the running service, which copies what it changes.
    fn snapshot(&mut self) -> Snapshot;

    /// Replaces the state by that of a snapshot: its header, and its chunks in order. All chunks are taken.
    ///
    /// # Errors
    /// When header and chunks are not a snapshot of this application. The state is then undefined, and the
    /// host restores another snapshot or stops.
    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError>;
}
