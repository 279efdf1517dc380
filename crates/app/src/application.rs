//! What a service has to implement.

use crate::snapshot::{RestoreError, Snapshot};
use quorate_types::{ClientId, Digest, Height};

/// Where and for whom an operation is applied. Equal at every replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct At {
    /// Height of the block that carries the operation.
    pub height: Height,
    /// Nanoseconds since 1970, the same for all operations of a block. A hint, not a trusted clock.
    ///
    /// The leader that proposes a block writes its own clock into it, and nobody checks that. The first block with
    /// requests sets the application's time to that clock, up to the year 2100. From then on each block moves it to the
    /// block's clock, but always forward by 1 ns at least and by 10 s at most. An empty block moves it by 1 ns.
    ///
    /// * **Ahead, without bound:** one leader whose clock is wrong, or that lies, sets it ahead: in the first block by
    ///   decades, later by 10 s a block. It never goes back. Until the clocks have come there it moves 1 ns a block.
    /// * **Behind, without bound:** a cluster that was idle for 45 s is 35 s behind at its next block with requests, and
    ///   gains at most 10 s with each of those that follow. A leader whose clock is behind holds it back.
    /// * **A node reads its machine's clock when it starts**, and counts from there: a clock that is set later changes
    ///   nothing before the node is started again.
    ///
    /// A replica that sees a difference of more than 10 s from its own clock says so in `quorate status` and in its log:
    /// ahead at once, behind when it has lasted for a minute.
    ///
    /// It is good for what people read, and for order: it grows from block to block. **Nothing that must be right may rest
    /// on it:** no lease, no expiry of a lock or token, no time limit on money. A lease that ends by this time can end
    /// early or never; use fencing tokens, or let its holder give it up.
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
/// result that says so, and never a panic. A panic ends the replica, and all others at the same operation.
///
/// The page "Building a service" (`docs/building-a-service.md`) explains the rules one by one.
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
