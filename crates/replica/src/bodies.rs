//! Bodies of blocks: ready ones, missing ones, and their fetching.
//!
//! A block is ready when it, its ancestors down to the root and all their bodies are available and checked. Protocols
//! query readiness (`ready`), order a fetch (`want`) and hear the result (`on_ready`). They never keep a message that
//! names a missing body.

use crate::pool::Pool;
use asks::Sources;
use quorate_consensus::Ready;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_types::limits::WANTED_MAX;
use quorate_types::{
    Block, BlockId, BodyLimits, Bundle, BundleDigest, FullBlock, Height, Payload, PayloadId, ReplicaId,
    ReplicaSet, Time,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use wants::{Want, Wants};

mod asks;
#[cfg(test)]
mod tests;
mod wants;

/// The time for announced bodies to arrive and to be checked before they are requested.
const BODY_GRACE_NS: u64 = 100_000_000;
/// The time for one peer to answer before another is asked as well.
const ASK_AGAIN_NS: u64 = 250_000_000;
/// The maximum of blocks that are fetched at the same time, in windows, where that is more than [`WANTED_MAX`]. It
/// covers the blocks that a view takes over, its own proposals, and blocks of earlier views.
const WANTED_WINDOWS: usize = 4;
/// Payloads of one peer that no known block names yet.
const UNCLAIMED_PER_PEER_MAX: usize = 64;

/// The missing parts of a block, and its available bundles. The block holds each bundle from its arrival on: the pool
/// may drop one before the last one arrives, because another block executes it or no client waits for it.
#[derive(Debug, Default)]
struct MissingParts {
    payload: bool,
    parent: bool,
    /// The number of empty `slots`.
    bundles: usize,
    /// The bundles in the order of the payload; empty while the payload is missing.
    slots: Vec<Option<Bundle>>,
    /// An ancestor with its height, such that this block and all blocks between lack ancestors alone. It lets a search
    /// skip them.
    below: Option<(BlockId, Height)>,
}

impl MissingParts {
    fn is_nothing(&self) -> bool {
        !self.payload && !self.parent && self.bundles == 0
    }

    fn is_ancestors_alone(&self) -> bool {
        !self.payload && self.parent && self.bundles == 0
    }
}

/// The origin of a want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WantedAs {
    /// The protocol, or a decision.
    Itself,
    /// A stored child, which a liar may have invented.
    Parent,
}

/// The time at which a peer is asked that may have a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Haste {
    /// In its turn: bodies may be on their way, and one answer is enough.
    InTurn,
    /// At once, whichever peers were asked before. A replica that has the block must be asked within Δ, and a peer
    /// that does not answer must delay no other (`sync-hotstuff` §7). The same holds for a peer that refused before it
    /// had the block. If this does not help, turns follow.
    AtOnce,
}

/// A due request for a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) block: BlockId,
    pub(crate) height: Height,
    pub(crate) peer: ReplicaId,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct BlockBodies {
    pub(crate) limits: BodyLimits,
    wants_max: usize,
    payloads: BTreeMap<PayloadId, Arc<Payload>>,
    ready: BTreeMap<BlockId, Ready>,
    /// The bundles of ready blocks that are not executed. They outlive the pool's copies: another block may execute
    /// the same bundle first.
    held: BTreeMap<BlockId, Vec<Bundle>>,
    missing: BTreeMap<BlockId, MissingParts>,
    by_payload: BTreeMap<PayloadId, Vec<BlockId>>,
    /// Blocks that lack a bundle, each with the bundle's place in the payload.
    by_bundle: BTreeMap<BundleDigest, Vec<(BlockId, usize)>>,
    by_parent: BTreeMap<BlockId, Vec<BlockId>>,
    wants: Wants,
    /// The conduct of the peers that were asked.
    sources: Sources,
    /// Requests that leave at once.
    at_once: Vec<Ask>,
    announced: BTreeMap<PayloadId, Time>,
    unclaimed: BTreeMap<ReplicaId, VecDeque<PayloadId>>,
    /// Replicas whose bodies wait for their check.
    pub(crate) unchecked: ReplicaSet,
    /// The last executed height.
    executed: Height,
    /// Blocks that have become ready and were not reported to the protocol.
    newly_ready: VecDeque<BlockId>,
}

impl BlockBodies {
    pub(crate) fn new(limits: BodyLimits, window: u64) -> Self {
        let empty = Payload::default();
        let windows = usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(WANTED_WINDOWS);
        Self {
            limits,
            wants_max: windows.max(WANTED_MAX),
            payloads: BTreeMap::from([(empty.id(), Arc::new(empty))]),
            ..Self::default()
        }
    }

    /// Returns whether a block is valid; `None` while a part is missing.
    pub(crate) fn ready(&self, pool: &Pool, blocks: &BlockTree, id: BlockId) -> Option<Ready> {
        if let Some(ready) = self.ready.get(&id) {
            return Some(*ready);
        }
        if self.missing.contains_key(&id) || blocks.is_bare(id) {
            return None;
        }
        // The same handler may have inserted the block a moment ago, so nothing is noted about it yet.
        let block = blocks.get(id)?;
        let missing = self.missing_parts_of(pool, blocks, block);
        missing.is_nothing().then(|| self.validate(block.payload, &missing.slots))
    }

    fn is_attached(&self, blocks: &BlockTree, parent: BlockId) -> bool {
        parent == BlockId::ZERO || parent == blocks.root() || self.ready.contains_key(&parent)
    }

    fn missing_parts_of(&self, pool: &Pool, blocks: &BlockTree, block: &Block) -> MissingParts {
        let parent = !self.is_attached(blocks, block.parent);
        let Some(payload) = self.payloads.get(&block.payload) else {
            return MissingParts { payload: true, parent, ..MissingParts::default() };
        };
        let slots: Vec<Option<Bundle>> = payload.bundles.iter().map(|b| pool.get(b).cloned()).collect();
        let bundles = slots.iter().filter(|slot| slot.is_none()).count();
        MissingParts { payload: false, parent, bundles, slots, below: None }
    }

    /// Checks a payload whose bundles are all available. The result is a pure function of the content, so it is the
    /// same at every honest replica.
    fn validate(&self, payload: PayloadId, bundles: &[Option<Bundle>]) -> Ready {
        let Some(payload) = self.payloads.get(&payload) else { return Ready::Invalid };
        let mut distinct: Vec<&BundleDigest> = payload.bundles.iter().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let bytes: usize = bundles.iter().flatten().map(Bundle::size).sum();
        let requests: u64 = bundles.iter().flatten().map(|bundle| u64::from(bundle.request_count())).sum();
        let count = payload.bundles.len();
        let too_many = u32::try_from(count).is_err() || count > as_usize(self.limits.block_bundles_max);
        let beyond = bytes > as_usize(self.limits.block_bytes_max)
            || requests > u64::from(self.limits.block_requests_max);
        let too_large = count > 1 && beyond;
        if distinct.len() != count || too_many || too_large { Ready::Invalid } else { Ready::Valid }
    }

    /// Finds the missing parts of a block that is new in the tree. Returns true when it is ready at once.
    pub(crate) fn watch(&mut self, pool: &Pool, blocks: &BlockTree, id: BlockId) -> bool {
        if self.ready.contains_key(&id) || self.missing.contains_key(&id) {
            return false;
        }
        let Some(block) = blocks.get(id) else { return false };
        self.claim(block.payload);
        let missing = self.missing_parts_of(pool, blocks, block);
        if missing.is_nothing() {
            let ready = self.validate(block.payload, &missing.slots);
            self.become_ready(blocks, id, ready, missing.slots);
            return true;
        }
        self.wait_for(block, id, &missing);
        self.missing.insert(id, missing);
        false
    }

    fn wait_for(&mut self, block: &Block, id: BlockId, missing: &MissingParts) {
        if missing.payload {
            self.by_payload.entry(block.payload).or_default().push(id);
        } else if let Some(payload) = self.payloads.get(&block.payload) {
            for (at, (digest, slot)) in payload.bundles.iter().zip(&missing.slots).enumerate() {
                if slot.is_none() {
                    self.by_bundle.entry(*digest).or_default().push((id, at));
                }
            }
        }
        if missing.parent {
            self.by_parent.entry(block.parent).or_default().push(id);
        }
    }

    /// Makes a block ready whose last missing part has arrived.
    fn complete(&mut self, blocks: &BlockTree, id: BlockId, slots: Vec<Option<Bundle>>) {
        let payload = blocks.get(id).map(|block| block.payload);
        let ready = payload.map_or(Ready::Invalid, |payload| self.validate(payload, &slots));
        self.become_ready(blocks, id, ready, slots);
    }

    /// Makes a block ready, and those of its children that lacked nothing else.
    fn become_ready(&mut self, blocks: &BlockTree, id: BlockId, ready: Ready, bundles: Vec<Option<Bundle>>) {
        let mut stack = vec![(id, ready, bundles)];
        while let Some((id, ready, bundles)) = stack.pop() {
            self.missing.remove(&id);
            self.wants.remove(id);
            self.ready.insert(id, ready);
            self.held.insert(id, bundles.into_iter().flatten().collect());
            self.newly_ready.push_back(id);
            for child in self.by_parent.remove(&id).unwrap_or_default() {
                let Some(missing) = self.missing.get_mut(&child) else {
                    continue;
                };
                missing.parent = false;
                if !missing.is_nothing() {
                    continue;
                }
                let slots = std::mem::take(&mut missing.slots);
                // A block that extends an invalid one is invalid.
                let judged = match blocks.get(child) {
                    Some(block) if ready != Ready::Invalid => self.validate(block.payload, &slots),
                    _ => Ready::Invalid,
                };
                stack.push((child, judged, slots));
            }
        }
    }

    /// Takes the next block that has become ready.
    pub(crate) fn next_ready(&mut self) -> Option<(BlockId, Ready)> {
        let id = self.newly_ready.pop_front()?;
        self.ready.get(&id).map(|ready| (id, *ready))
    }

    /// Adds a payload of a peer. Returns false when it is of no use.
    pub(crate) fn add_payload(
        &mut self,
        pool: &Pool,
        blocks: &BlockTree,
        (now, from): (Time, ReplicaId),
        payload: Arc<Payload>,
    ) -> bool {
        let id = payload.id();
        if self.payloads.contains_key(&id) || payload.bundles.len() > as_usize(self.limits.block_bundles_max)
        {
            return false;
        }
        if self.store_payload(pool, blocks, payload) {
            self.hear(now, from);
        } else {
            self.remember_unclaimed(from, id);
        }
        true
    }

    /// Stores a payload and checks again the blocks that lacked it. Returns false when none did. An own payload may
    /// equal that of another leader, whose block may lack nothing else.
    pub(crate) fn store_payload(&mut self, pool: &Pool, blocks: &BlockTree, payload: Arc<Payload>) -> bool {
        let id = payload.id();
        self.payloads.insert(id, payload);
        let waiting = self.by_payload.remove(&id).unwrap_or_default();
        for block_id in &waiting {
            self.missing.remove(block_id);
            self.watch(pool, blocks, *block_id);
        }
        !waiting.is_empty()
    }

    /// Notes a payload that no block names yet. A peer may send a few of these, because a payload may arrive before
    /// its block.
    fn remember_unclaimed(&mut self, from: ReplicaId, id: PayloadId) {
        let unclaimed = self.unclaimed.entry(from).or_default();
        unclaimed.push_back(id);
        if unclaimed.len() > UNCLAIMED_PER_PEER_MAX
            && let Some(oldest) = unclaimed.pop_front()
        {
            self.payloads.remove(&oldest);
        }
    }

    /// Notes that a block names this payload.
    fn claim(&mut self, payload: PayloadId) {
        for unclaimed in self.unclaimed.values_mut() {
            unclaimed.retain(|id| *id != payload);
        }
    }

    /// Whether a block lacks this bundle.
    pub(crate) fn awaits(&self, digest: &BundleDigest) -> bool {
        self.by_bundle.contains_key(digest)
    }

    /// Gives a bundle to the blocks that lack it.
    pub(crate) fn add_bundle(&mut self, blocks: &BlockTree, bundle: &Bundle) {
        for (id, at) in self.by_bundle.remove(&bundle.digest()).unwrap_or_default() {
            let Some(missing) = self.missing.get_mut(&id) else {
                continue;
            };
            if let Some(slot) = missing.slots.get_mut(at).filter(|slot| slot.is_none()) {
                *slot = Some(bundle.clone());
                missing.bundles = missing.bundles.saturating_sub(1);
            }
            if missing.is_nothing() {
                let slots = std::mem::take(&mut missing.slots);
                self.complete(blocks, id, slots);
            }
        }
    }

    /// Notes that these bodies travel beside a message that has just arrived. Returns whether that is new.
    pub(crate) fn announce(&mut self, now: Time, payload: PayloadId) -> bool {
        let is_new = !self.announced.contains_key(&payload);
        self.announced.entry(payload).or_insert(now);
        is_new
    }

    /// Drops the announcement of a refused message.
    pub(crate) fn unannounce(&mut self, payload: &PayloadId) {
        self.announced.remove(payload);
    }

    /// Fetches a block from a peer. A repeated call for the same block and peer has no effect until the peer refuses.
    /// A request to one peer never suppresses one to another.
    pub(crate) fn want(
        &mut self,
        now: Time,
        blocks: &BlockTree,
        id: BlockId,
        height: Height,
        (peer, haste): (ReplicaId, Haste),
    ) {
        if self.ready.contains_key(&id) {
            return;
        }
        self.want_below(now, blocks, id, (peer, haste));
        // A block that lacks ancestors alone is not requested.
        if self.lacks_ancestors_alone(id) {
            return;
        }
        self.want_one(now, blocks, id, (height, WantedAs::Itself), (peer, haste));
    }

    /// Fetches the nearest missing ancestors of a stored block. If this peer is asked for one already, the search
    /// goes on below it: a lying leader may send thousands of headers in a chain.
    pub(crate) fn want_below(
        &mut self,
        now: Time,
        blocks: &BlockTree,
        id: BlockId,
        (peer, haste): (ReplicaId, Haste),
    ) {
        let mut at = id;
        for _ in 0..self.wants_max / 2 {
            let Some((below, height)) = self.next_below(blocks, at) else { return };
            if !self.want_one(now, blocks, below, (height, WantedAs::Parent), (peer, haste)) {
                return;
            }
            at = below;
        }
    }

    /// Returns the nearest ancestor that lacks more than ancestors, with its height; `None` where no such ancestor is
    /// above the executed height. Thousands of headers may be above a missing one, and each arrival starts this
    /// search. So the search notes the blocks that it has passed, and skips them in one step the next time.
    fn next_below(&mut self, blocks: &BlockTree, id: BlockId) -> Option<(BlockId, Height)> {
        let (mut at, mut passed) = (id, Vec::new());
        let (found, end) = loop {
            let block = blocks.get(at)?;
            let alone = self.missing.get(&at).filter(|missing| missing.is_ancestors_alone());
            let parent = (block.parent, block.height.minus(1));
            let next = alone.and_then(|missing| missing.below).unwrap_or(parent);
            // The bodies of executed blocks are gone.
            if next.1 <= self.executed || self.is_attached(blocks, next.0) {
                break (None, (at, block.height));
            }
            if alone.is_some() {
                passed.push(at);
            }
            if !self.lacks_ancestors_alone(next.0) {
                break (Some(next), next);
            }
            at = next.0;
        };
        for id in passed {
            if let Some(missing) = self.missing.get_mut(&id) {
                missing.below = Some(end);
            }
        }
        found
    }

    /// Whether the bodies of a block are available and an ancestor's are not.
    pub(crate) fn lacks_ancestors_alone(&self, id: BlockId) -> bool {
        self.missing.get(&id).is_some_and(MissingParts::is_ancestors_alone)
    }

    /// Fetches one block. Returns whether the peer is new for this block or is asked again.
    fn want_one(
        &mut self,
        now: Time,
        blocks: &BlockTree,
        id: BlockId,
        (height, named): (Height, WantedAs),
        (peer, haste): (ReplicaId, Haste),
    ) -> bool {
        let block = blocks.get(id);
        let announced = block.and_then(|block| self.announced.get(&block.payload));
        let ask_at = announced.map_or(now, |since| since.plus(BODY_GRACE_NS)).max(now);
        let height = block.map_or(height, |block| block.height.max(height));
        let want = self.wants.begin(id, self.wants_max, || {
            let mut want = Want::new(height, now, ask_at);
            want.announced = announced.is_some();
            want
        });
        let is_higher = height > want.height || (named == WantedAs::Itself && !want.by_name);
        // Peers that have executed the block find it by its height alone, which may become known only now.
        want.height = want.height.max(height);
        want.by_name |= named == WantedAs::Itself;
        // The refused block may have been the real one, named by a liar's child.
        let is_open_again = is_higher && std::mem::take(&mut want.too_high);
        let is_new = want.named.insert(peer);
        if is_new {
            want.peers.push(peer);
        }
        if is_open_again {
            want.rounds = 0;
            want.tried = want.named;
            want.tried.remove(peer);
            want.asked = None;
            want.ask_at = want.ask_at.min(ask_at);
        }
        if is_new || is_open_again {
            if haste == Haste::AtOnce {
                // All named peers are asked. If that does not help, the turns begin.
                want.tried = want.named;
                want.ask_at = now.plus(ASK_AGAIN_NS);
                self.at_once.push(Ask { block: id, height: want.height, peer });
            }
            return true;
        }
        if haste == Haste::InTurn {
            return false;
        }
        // The peer may have received the block since it refused, or have it by the time of the question.
        let refused = want.refused.remove(peer);
        if refused {
            self.at_once.push(Ask { block: id, height: want.height, peer });
        }
        refused || want.again.insert(peer)
    }

    /// Whether a wanted block is accepted with this height. A liar may invent a child, and ancestors one after the
    /// other as they are requested. Each must be lower than its child, so they end at the executed height.
    pub(crate) fn accepts_height(&mut self, id: BlockId, height: Height) -> bool {
        let Some(want) = self.wants.by_id.get_mut(&id) else { return false };
        let takes = want.by_name || height <= want.height;
        want.too_high |= !takes;
        takes
    }

    /// Notes that a peer does not have a block. The next peer is asked soon. The same peer is asked at once if it was
    /// wanted again since.
    pub(crate) fn on_refusal(&mut self, now: Time, id: BlockId, peer: ReplicaId) {
        let Some(want) = self.wants.by_id.get_mut(&id).filter(|want| want.named.contains(peer)) else {
            return;
        };
        if want.again.remove(peer) {
            self.at_once.push(Ask { block: id, height: want.height, peer });
        } else {
            want.refused.insert(peer);
        }
        if want.rounds == 0 {
            want.ask_at = want.ask_at.min(now.plus(ASK_AGAIN_NS / 4));
        }
    }

    /// Whether a block is being fetched.
    pub(crate) fn is_wanted(&self, id: BlockId) -> bool {
        self.wants.by_id.contains_key(&id)
    }

    /// Returns the time at which [`BlockBodies::take_due_asks`] has a request that is not at once.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.wants.by_id.values().map(|want| want.ask_at).min()
    }

    /// Returns a stored payload.
    pub(crate) fn payload(&self, id: PayloadId) -> Option<&Arc<Payload>> {
        self.payloads.get(&id)
    }

    /// Returns the bundles of a ready block that is not executed.
    pub(crate) fn held(&self, id: BlockId) -> &[Bundle] {
        self.held.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns a ready block that is not executed, with its bundles.
    pub(crate) fn assemble(&self, block: &Block, id: BlockId) -> Option<FullBlock> {
        let bundles = self.held.get(&id)?.clone();
        let named = self.payloads.get(&block.payload).map_or(0, |payload| payload.bundles.len());
        assert!(bundles.len() == named, "block {id:?} is ready with {} of {named} bundles", bundles.len());
        Some(FullBlock { height: block.height, id, block: Some(block.clone()), bundles })
    }

    /// Notes a block that was executed before this opening: it is ready, although its bodies are on disk only.
    pub(crate) fn note_executed(&mut self, id: BlockId) {
        self.ready.insert(id, Ready::Valid);
    }

    /// Notes that a block is the next to be executed: its parent need not be available.
    pub(crate) fn attach(&mut self, blocks: &BlockTree, id: BlockId) {
        let Some(missing) = self.missing.get_mut(&id).filter(|missing| missing.parent) else { return };
        missing.parent = false;
        if missing.is_nothing() {
            let slots = std::mem::take(&mut missing.slots);
            self.complete(blocks, id, slots);
        }
    }

    /// Notes an executed height, and drops the bundles of blocks up to it.
    pub(crate) fn executed(&mut self, blocks: &BlockTree, height: Height) {
        self.executed = height;
        self.held.retain(|id, _| blocks.get(*id).is_some_and(|block| block.height > height));
    }

    /// Forgets these blocks, which are settled and no longer in the tree.
    pub(crate) fn prune(&mut self, blocks: &BlockTree, gone: &[BlockId], stable: Height) {
        for id in gone {
            self.ready.remove(id);
            self.held.remove(id);
            self.missing.remove(id);
            self.wants.remove(*id);
            self.by_parent.remove(id);
        }
        self.wants.retain(|want| want.height == Height::ZERO || want.height > stable);
        let mut live: BTreeSet<PayloadId> = blocks.iter().map(|(_, block)| block.payload).collect();
        self.announced.retain(|id, _| live.contains(id));
        live.extend(self.unclaimed.values().flatten());
        live.insert(Payload::default().id());
        self.payloads.retain(|id, _| live.contains(id));
        let missing = &self.missing;
        self.by_bundle.retain(|_, waiters| {
            waiters.retain(|(id, _)| missing.contains_key(id));
            !waiters.is_empty()
        });
        self.by_payload.retain(|_, waiters| {
            waiters.retain(|id| missing.contains_key(id));
            !waiters.is_empty()
        });
    }
}

fn as_usize(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
