//! Services that the host gives its protocol within a call: pool, bodies, synchrony guard.

use crate::bodies::BlockBodies;
use crate::pool::Pool;
use crate::setup::ReplicaSetup;
use crate::synchrony::SynchronyGuard;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{HostView, PayloadRef, Pending, Ready};
use quorate_types::limits::EXECUTE_LAG_MAX;
use quorate_types::{BlockId, Bundle, Height, Payload, PayloadId, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(crate) struct HostServices {
    pub(crate) pool: Pool,
    pub(crate) bodies: BlockBodies,
    /// The guard of the bound on delays; `None` where the protocol assumes none.
    pub(crate) synchrony: Option<SynchronyGuard>,
    /// The number of blocks that are decided and not executed.
    pub(crate) lag: u64,
    /// Executed blocks above the stable checkpoint: ready, although their bodies are no longer in memory.
    executed: BTreeSet<BlockId>,
    /// Blocks of a decided chain that are not executed yet.
    decided: BTreeSet<BlockId>,
    /// Blocks above the executed ones whose bundles are marked as taken: the branch that the last payload extends.
    branch: BTreeSet<BlockId>,
    /// The last payload, as long as no block of the branch has it.
    last_payload: Option<PayloadId>,
    /// Whether bundles are taken that belong to no branch. They stay taken until the view ends.
    has_loose: bool,
    /// Payloads of new proposals, to be spread before the proposal itself.
    pub(crate) proposed: Vec<(Arc<Payload>, Vec<Bundle>)>,
    pub(crate) wall_offset_ns: u64,
    /// The height up to which every height is decided.
    pub(crate) decided_to: Height,
    /// Heights that a peer waits for, although no client does.
    pub(crate) wanted: WantedHeights,
}

/// Heights that are wanted although no client waits: a peer needs a checkpoint, to come back. Leaders propose empty blocks
/// for them.
#[derive(Debug, Default)]
pub(crate) struct WantedHeights {
    /// The last wanted height.
    until: Height,
    /// Empty blocks that may still be proposed. A proposal may fail, so it is more than one for each height.
    left: u64,
}

impl WantedHeights {
    /// Wants the heights above `decided` up to this one.
    pub(crate) fn want(&mut self, until: Height, decided: Height) {
        if until > self.until {
            self.until = until;
            self.left = until.since(decided).saturating_mul(2);
        }
    }

    fn is_wanted(&self, decided: Height) -> bool {
        decided < self.until && self.left > 0
    }
}

impl HostServices {
    pub(crate) fn new(setup: &ReplicaSetup, synchrony: Option<SynchronyGuard>) -> Self {
        Self {
            pool: Pool::default(),
            bodies: BlockBodies::new(setup.genesis.bodies, setup.genesis.window),
            synchrony,
            lag: 0,
            executed: BTreeSet::new(),
            decided: BTreeSet::new(),
            branch: BTreeSet::new(),
            last_payload: None,
            has_loose: false,
            proposed: Vec::new(),
            wall_offset_ns: setup.wall_offset_ns,
            decided_to: Height::ZERO,
            wanted: WantedHeights::default(),
        }
    }

    /// Notes that these blocks were executed.
    pub(crate) fn note_executed(&mut self, ids: impl IntoIterator<Item = BlockId>) {
        for id in ids {
            self.decided.remove(&id);
            self.executed.insert(id);
        }
    }

    /// Notes that a payload was executed: the pool no longer has its bundles.
    pub(crate) fn note_payload_executed(&mut self, payload: PayloadId) {
        self.last_payload = self.last_payload.filter(|last| *last != payload);
    }

    /// Makes bundles of the old view's proposals wait again where they belong to no branch and are not executed.
    pub(crate) fn untake(&mut self) {
        if std::mem::take(&mut self.has_loose) {
            self.pool.untake();
            self.branch.clear();
            self.last_payload = None;
        }
    }

    /// Moves to the branch of `parent`, which the next payload extends: bundles of that branch are taken, and those of
    /// another branch wait again.
    fn move_to_branch(&mut self, blocks: &BlockTree, parent: BlockId) {
        let (mut path, mut at) = (Vec::new(), parent);
        while !self.executed.contains(&at)
            && let Some(block) = blocks.get(at)
        {
            path.push((at, block.payload));
            at = block.parent;
        }
        let is_left = |id: &BlockId| path.iter().all(|(on, _)| on != id) && !self.executed.contains(id);
        let is_lost = |last: PayloadId| path.iter().all(|(_, payload)| *payload != last);
        if self.branch.iter().any(is_left) || self.last_payload.is_some_and(is_lost) {
            self.pool.untake();
            self.branch.clear();
        }
        self.last_payload = None;
        let executed = &self.executed;
        self.branch.retain(|id| !executed.contains(id));
        for (id, payload) in path {
            // A block whose payload is missing is tried again the next time.
            if !self.branch.contains(&id)
                && let Some(payload) = self.bodies.payload(payload)
            {
                payload.bundles.iter().for_each(|bundle| self.pool.mark_taken(bundle));
                self.branch.insert(id);
            }
        }
    }

    /// Whether a block was executed above the stable checkpoint.
    pub(crate) fn is_executed(&self, id: &BlockId) -> bool {
        self.executed.contains(id)
    }

    /// Forgets settled blocks.
    pub(crate) fn forget(&mut self, keep: impl Fn(&BlockId) -> bool) {
        self.executed.retain(&keep);
        self.decided.retain(keep);
    }
}

impl HostView for HostServices {
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready> {
        if self.executed.contains(&block) {
            return Some(Ready::Valid);
        }
        self.bodies.ready(&self.pool, blocks, block)
    }

    fn body_bytes(&self, block: BlockId) -> usize {
        self.bodies.held(block).iter().map(Bundle::size).sum()
    }

    fn pending(&self) -> Pending {
        let mut pending = self.pool.summary(self.lag > EXECUTE_LAG_MAX);
        if self.wanted.is_wanted(self.decided_to) {
            // Protocols that are idle without requests must act.
            pending.undecided = pending.undecided.max(1);
        }
        pending
    }

    fn payload_after(&mut self, now: Time, blocks: &BlockTree, parent: BlockId) -> Option<PayloadRef> {
        if parent == BlockId::ZERO {
            self.has_loose = true;
        } else {
            self.move_to_branch(blocks, parent);
        }
        // Back-pressure: a leader does not propose while its own execution is far behind.
        if self.lag > EXECUTE_LAG_MAX {
            return None;
        }
        let bundles = if self.pool.has_untaken() { self.pool.take(&self.bodies.limits) } else { Vec::new() };
        if bundles.is_empty() {
            return self.empty_payload();
        }
        let requests = bundles.iter().fold(0u32, |sum, bundle| sum.saturating_add(bundle.request_count()));
        let bytes: usize = bundles.iter().map(|bundle| bundle.size()).sum();
        let payload = Arc::new(Payload { bundles: bundles.iter().map(|bundle| bundle.digest()).collect() });
        let id = payload.id();
        self.bodies.store_payload(&self.pool, blocks, Arc::clone(&payload));
        self.proposed.push((payload, bundles));
        self.last_payload = Some(id).filter(|_| parent != BlockId::ZERO);
        Some(PayloadRef {
            id,
            requests,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            time_ns: self.wall_offset_ns.saturating_add(now.0),
        })
    }

    fn chain_decided(&mut self, blocks: &BlockTree, block: BlockId) {
        let mut at = block;
        while !self.executed.contains(&at)
            && let Some(block) = blocks.get(at)
            && self.decided.insert(at)
        {
            let payload = self.bodies.payload(block.payload);
            for bundle in payload.iter().flat_map(|payload| &payload.bundles) {
                self.pool.mark_decided(bundle);
            }
            at = block.parent;
        }
    }

    fn already_proposed(&mut self, blocks: &BlockTree, block: BlockId) {
        self.has_loose = true;
        let payload = blocks.get(block).and_then(|block| self.bodies.payload(block.payload));
        for bundle in payload.iter().flat_map(|payload| &payload.bundles) {
            self.pool.mark_taken(bundle);
        }
    }

    fn sound(&mut self, now: Time, since: Time, fresh: Time) -> bool {
        self.synchrony.as_mut().is_none_or(|guard| guard.sound(now, since, fresh))
    }
}

impl HostServices {
    /// Returns the payload of an empty block, if a height is wanted although no client waits.
    fn empty_payload(&mut self) -> Option<PayloadRef> {
        if !self.wanted.is_wanted(self.decided_to) {
            return None;
        }
        self.wanted.left = self.wanted.left.saturating_sub(1);
        // An empty block has no time (`quorate_app::At::time_ns`).
        Some(PayloadRef { id: Payload::default().id(), requests: 0, bytes: 0, time_ns: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_tests::{bundle, open};
    use crate::input::Input;
    use crate::output::ConnId;

    /// The clock of a replica may begin when the replica is open, long after its setup was made.
    #[test]
    fn payload_time_follows_a_wall_offset_that_is_set_after_the_opening() {
        let mut replica = open();
        replica.set_wall_offset(1_000);
        replica.handle(Time(5), Input::Client(ConnId(1), bundle(1)));
        let payload = replica.call(|_, env| env.host.payload_after(Time(7), env.blocks, BlockId::ZERO));
        assert_eq!(payload.unwrap().time_ns, 1_007);
    }
}
