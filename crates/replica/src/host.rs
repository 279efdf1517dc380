//! What the replica answers to its protocol at once.

use crate::Setup;
use crate::bodies::Bodies;
use crate::pool::Pool;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{HostView, PayloadRef, Pending, Ready};
use quorate_types::limits::EXECUTE_LAG_MAX;
use quorate_types::{BlockId, BodyLimits, Bundle, Payload, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pool and bodies, and how much execution lags.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) pool: Pool,
    pub(crate) bodies: Bodies,
    /// Blocks decided and not executed.
    pub(crate) lag: u64,
    /// Executed blocks above the stable checkpoint: ready, although their bodies are no longer in memory.
    executed: BTreeSet<BlockId>,
    /// Payloads of new proposals, to be spread before the proposal itself.
    pub(crate) proposed: Vec<(Arc<Payload>, Vec<Bundle>)>,
    limits: BodyLimits,
    wall_offset_ns: u64,
}

impl Host {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            pool: Pool::default(),
            bodies: Bodies::new(setup.genesis.bodies, setup.genesis.window),
            lag: 0,
            executed: BTreeSet::new(),
            proposed: Vec::new(),
            limits: setup.genesis.bodies,
            wall_offset_ns: setup.wall_offset_ns,
        }
    }

    /// These blocks were executed.
    pub(crate) fn note_executed(&mut self, ids: impl IntoIterator<Item = BlockId>) {
        self.executed.extend(ids);
    }

    /// Whether a block was executed above the stable checkpoint.
    pub(crate) fn is_executed(&self, id: &BlockId) -> bool {
        self.executed.contains(id)
    }

    /// These blocks are settled.
    pub(crate) fn forget(&mut self, keep: impl Fn(&BlockId) -> bool) {
        self.executed.retain(keep);
    }
}

impl HostView for Host {
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready> {
        if self.executed.contains(&block) {
            return Some(Ready::Valid);
        }
        self.bodies.ready(&self.pool, blocks, block)
    }

    fn pending(&self) -> Pending {
        self.pool.summary(self.lag > EXECUTE_LAG_MAX)
    }

    fn payload_after(&mut self, now: Time, blocks: &BlockTree, _parent: BlockId) -> Option<PayloadRef> {
        // Back-pressure: a leader does not run away from its own execution.
        if self.lag > EXECUTE_LAG_MAX || !self.pool.has_untaken() {
            return None;
        }
        let bundles = self.pool.take(&self.limits);
        if bundles.is_empty() {
            return None;
        }
        let requests = bundles.iter().fold(0u32, |sum, bundle| sum.saturating_add(bundle.request_count()));
        let bytes: usize = bundles.iter().map(|bundle| bundle.size()).sum();
        let payload = Arc::new(Payload { bundles: bundles.iter().map(|bundle| bundle.digest()).collect() });
        let id = payload.id();
        self.bodies.add_own_payload(&self.pool, blocks, Arc::clone(&payload));
        self.proposed.push((payload, bundles));
        Some(PayloadRef {
            id,
            requests,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            time_ns: self.wall_offset_ns.saturating_add(now.0),
        })
    }

    fn already_proposed(&mut self, blocks: &BlockTree, block: BlockId) {
        let payload = blocks.get(block).and_then(|block| self.bodies.payload(block.payload));
        for bundle in payload.iter().flat_map(|payload| &payload.bundles) {
            self.pool.mark_taken(bundle);
        }
    }

    fn sound(&self, _since: Time, _fresh: Time) -> bool {
        // The guard comes with the first protocol that assumes a bound.
        true
    }
}
