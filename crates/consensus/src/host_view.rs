//! The host's side of a call: its answers to handlers, and the environment of an event.

use crate::effect::Effect;
use crate::parts::block_tree::BlockTree;
use quorate_types::{BlockId, Committee, PayloadId, ReplicaId, Time};
use std::sync::Arc;

/// State of a block that is available with all its ancestors and bodies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// Its bodies are valid. All honest replicas get the same answer.
    Valid,
    /// Its bodies are not valid. All honest replicas get the same answer.
    Invalid,
    /// Its only fault is a MAC that fails for this replica, where `Spec::local_validity` is set. No host gives this answer
    /// yet: it waits for bundles with MAC vectors.
    Unvouched,
}

/// State of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pending {
    /// Waiting bundles.
    pub bundles: usize,
    /// Waiting bundles that are in no decided chain. The others wait for their execution alone, and no protocol has to act
    /// for them.
    pub undecided: usize,
    /// Bytes of all waiting bundles.
    pub bytes: usize,
    /// Arrival time of the oldest waiting bundle.
    pub oldest: Option<Time>,
    /// Whether this replica is behind with its own work: execution lags or the pool is full. The age of a bundle then
    /// does not count against the leader.
    pub overloaded: bool,
    /// Whether the backlog of decided and not executed blocks is so long that the host gives no payload. A proposal would
    /// add to the backlog.
    pub lagging: bool,
    /// Expected time for the execution of all waiting bundles, at the recent rate of execution; 0 while the rate is
    /// unknown.
    pub backlog_ns: u64,
}

/// A payload from the host, by name. The bytes stay with the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadRef {
    /// Its digest.
    pub id: PayloadId,
    /// Number of its requests.
    pub requests: u32,
    /// Bytes of its bundles.
    pub bytes: u32,
    /// Wall-clock nanoseconds for the block that carries it.
    pub time_ns: u64,
}

/// The host's immediate answers to a handler.
pub trait HostView {
    /// Answers [`Cx::ready`](crate::Cx::ready).
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready>;
    /// Answers [`Cx::body_bytes`](crate::Cx::body_bytes).
    fn body_bytes(&self, block: BlockId) -> usize;
    /// Answers [`Cx::pending`](crate::Cx::pending).
    fn pending(&self) -> Pending;
    /// Answers [`Cx::payload_after`](crate::Cx::payload_after).
    fn payload_after(&mut self, now: Time, blocks: &BlockTree, parent: BlockId) -> Option<PayloadRef>;
    /// Notes that a chain is decided up to this block. Its bundles wait for their execution alone.
    fn chain_decided(&mut self, blocks: &BlockTree, block: BlockId);
    /// Serves [`Cx::already_proposed`](crate::Cx::already_proposed).
    fn already_proposed(&mut self, blocks: &BlockTree, block: BlockId);
    /// Answers [`Cx::sound`](crate::Cx::sound).
    fn sound(&mut self, now: Time, since: Time, fresh: Time) -> bool;
}

/// A host whose caller asks for another freshness of probes than the protocol does.
#[cfg(feature = "harness")]
pub(crate) struct FreshnessOverride<'a> {
    pub(crate) host: &'a mut dyn HostView,
    pub(crate) fresh: fn(Time) -> Time,
}

#[cfg(feature = "harness")]
impl HostView for FreshnessOverride<'_> {
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready> {
        self.host.ready(blocks, block)
    }
    fn body_bytes(&self, block: BlockId) -> usize {
        self.host.body_bytes(block)
    }
    fn pending(&self) -> Pending {
        self.host.pending()
    }
    fn payload_after(&mut self, now: Time, blocks: &BlockTree, parent: BlockId) -> Option<PayloadRef> {
        self.host.payload_after(now, blocks, parent)
    }
    fn chain_decided(&mut self, blocks: &BlockTree, block: BlockId) {
        self.host.chain_decided(blocks, block);
    }
    fn already_proposed(&mut self, blocks: &BlockTree, block: BlockId) {
        self.host.already_proposed(blocks, block);
    }
    fn sound(&mut self, now: Time, since: Time, fresh: Time) -> bool {
        self.host.sound(now, since, (self.fresh)(fresh))
    }
}

/// Environment of one event, as the host passes it to every handler.
pub struct Env<'a> {
    /// Time of the event.
    pub now: Time,
    /// Id of this replica.
    pub me: ReplicaId,
    /// The committee.
    pub committee: &'a Arc<Committee>,
    /// The known blocks.
    pub blocks: &'a mut BlockTree,
    /// The host's answers.
    pub host: &'a mut dyn HostView,
    /// Effects that handlers ask for, in order.
    pub effects: &'a mut Vec<Effect>,
}
