//! The trait that a service implements.

use crate::snapshot::{RestoreError, Snapshot};
use quorate_types::{ClientId, Digest, Height};

/// The circumstances of an operation: its block, time and client. They are equal at every replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct At {
    /// The height of the block that carries the operation.
    pub height: Height,
    /// Nanoseconds since 1970, the same for all operations of a block. The time is a hint, not a trusted clock.
    ///
    /// The leader that proposes a block writes its own clock into the block, and no replica checks that value. The
    /// first block with requests sets the application's time to that clock, up to the year 2100. Each later block
    /// moves the time to the block's clock, but always forward, by at least 1 ns and at most 10 s. An empty block
    /// moves it by 1 ns.
    ///
    /// * **Ahead, without bound:** one leader with a wrong clock, or a lying leader, sets the time ahead. The first
    ///   block can move it by decades, a later block by 10 s. The time never goes back. It moves 1 ns a block until
    ///   the clocks reach it.
    /// * **Behind, without bound:** a cluster that was idle for 45 s is 35 s behind at its next block with requests.
    ///   Each later block with requests gains at most 10 s. A leader whose clock is behind delays the time further.
    /// * **A node reads its machine's clock when it starts**, and counts from there. Setting the machine's clock
    ///   later has no effect until the node is started again.
    ///
    /// A replica compares the time with its own clock. It reports a difference of more than 10 s in `quorate status`
    /// and in its log. A time ahead is reported at once, a time behind after a minute.
    ///
    /// The time is good for display and for order, because it grows from block to block. **No guarantee may rest on
    /// it:** no lease, no expiry of a lock or token, no time limit on money. A lease that ends by this time can end
    /// early or never. Use fencing tokens, or let the holder release the lease.
    pub time_ns: u64,
    /// The client that requests the operation.
    pub client: ClientId,
    /// Bytes that are left for results in the reply to this operation's bundle. A larger result costs the client the
    /// results of the whole bundle. An operation with a long result therefore checks this field first.
    pub room: usize,
}

/// A deterministic service.
///
/// The state after `apply` depends only on the state before, `at` and `op`: on no clock, no randomness, and no
/// iteration order from hashing. The application answers everything that a client sends. It answers a malformed
/// operation with an error, never with a panic. A panic ends the replica, and all other replicas at the same
/// operation.
///
/// The page "Building a service" (`docs/building-a-service.md`) explains the rules one by one.
pub trait Application: Send {
    /// Returns the name of the service, which is part of genesis.
    fn name(&self) -> &'static str;

    /// Returns the version of operations, results and state, which is part of genesis.
    fn version(&self) -> u32;

    /// Applies one operation and appends its result to `reply`. `reply` already has other results, which must stay.
    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>);

    /// Answers a read-only operation from the present state. Appends at most `room` bytes to `reply`.
    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>);

    /// Returns the digest of the state, which is [`Snapshot::digest`] of its snapshot. Equal states have equal digests
    /// for any history.
    ///
    /// The host calls it at every checkpoint. A service overrides it where another way to the same digest is cheaper,
    /// in proportion to the changes since the last call. The host compares both at each snapshot.
    fn digest(&mut self) -> Digest {
        self.snapshot().digest()
    }

    /// Returns the present state. A snapshot is cheap: it shares memory with the running service, which copies the
    /// parts that it changes. A snapshot has at most 64,000 chunks and 64 KiB of header, so that replicas can send it
    /// to each other. A service with a much larger one ends the replica: sessions and service together have at most
    /// 65,536 chunks.
    fn snapshot(&mut self) -> Snapshot;

    /// Replaces the state by that of a snapshot, which is its header and its chunks in order. Takes all chunks.
    ///
    /// # Errors
    /// Fails when header and chunks are not a snapshot of this application. The state is then undefined, and the host
    /// restores another snapshot or stops.
    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError>;

    /// Returns the entries of a chunk of a snapshot as keys and values, for people who compare two states. `None` if the
    /// chunk has another form, which is the default.
    fn entries(&self, _chunk: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        None
    }
}
