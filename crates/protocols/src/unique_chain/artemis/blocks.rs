//! The coordinator's blocks that a replica keeps, and the instances in which it follows them (§4, §5).

use super::super::wanted::Wanted;
use super::chain_state::ChainState;
use super::message::{CBlock, SignedBlocks};
use super::vote::Evidence;
use quorate_consensus::Signed;
use quorate_types::{Block, BlockId, Digest, Height, ReplicaId, Time, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Heights above the last complete block at which blocks of an instance are kept. An honest coordinator sends an empty block
/// now and then while no vote arrives.
pub(super) const HEIGHTS_AHEAD: u64 = 1_024;
/// Blocks of unknown instances that are kept for each peer.
const EARLY_MAX: usize = 64;

/// A period of one coordinator on one branch of the vote chain.
#[derive(Debug)]
pub(super) struct Instance {
    /// The coordinator's view.
    pub(super) view: View,
    /// Round of the vote that opened it.
    pub(super) opened: View,
    /// The first block of each height.
    pub(super) first: BTreeMap<Height, BlockId>,
    /// The highest complete block that follows the head at the anchor.
    pub(super) best: (Height, BlockId),
    /// The highest block that the coordinator itself has sent, and that is complete.
    pub(super) heard: Height,
    /// Time from which on the coordinator counts as silent.
    pub(super) deadline: Time,
    /// Two blocks of the coordinator for one slot.
    pub(super) evidence: Option<Evidence>,
    /// The last own block, if this replica coordinates, and the time at which it was emitted.
    pub(super) emitted: Option<(Height, BlockId, Time)>,
}

/// A kept block.
#[derive(Debug)]
pub(super) struct KeptBlock {
    pub(super) signed: Signed<CBlock>,
    /// Whether its coordinator has sent it itself.
    pub(super) is_direct: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CBlocks {
    pub(super) kept: BTreeMap<BlockId, KeptBlock>,
    children: BTreeMap<BlockId, Vec<BlockId>>,
    pub(super) instances: BTreeMap<Digest, Instance>,
    early: BTreeMap<ReplicaId, VecDeque<(Signed<CBlock>, bool)>>,
    by_height: BTreeSet<(Height, BlockId)>,
    /// Blocks that are asked for.
    wanted: Wanted<BlockId>,
}

impl CBlocks {
    /// Opens an instance, unless it is open, and returns the blocks that have waited for it.
    pub(super) fn open(
        &mut self,
        state: &ChainState,
        deadline: Time,
    ) -> Vec<(ReplicaId, Signed<CBlock>, bool)> {
        let anchor = state.anchor.id;
        self.instances.entry(anchor).or_insert_with(|| Instance {
            view: state.view,
            opened: state.anchor.round,
            first: BTreeMap::new(),
            best: (state.height, state.head),
            heard: state.height,
            deadline,
            evidence: None,
            emitted: None,
        });
        let mut waiting = Vec::new();
        for (peer, early) in &mut self.early {
            let all = std::mem::take(early);
            let (now, later): (VecDeque<_>, VecDeque<_>) =
                all.into_iter().partition(|(block, _)| block.body.anchor == anchor);
            *early = later;
            waiting.extend(now.into_iter().map(|(block, is_direct)| (*peer, block, is_direct)));
        }
        waiting
    }

    /// Keeps a block of an unknown instance, the newest ones of each peer.
    pub(super) fn keep_early(&mut self, link: ReplicaId, block: Signed<CBlock>, is_direct: bool) {
        let early = self.early.entry(link).or_default();
        early.push_back((block, is_direct));
        if early.len() > EARLY_MAX {
            early.pop_front();
        }
    }

    /// Keeps a block of an open instance.
    pub(super) fn keep(&mut self, signed: Signed<CBlock>, is_direct: bool) {
        let block = &signed.body.block;
        let (id, parent) = (block.id(), block.parent);
        self.by_height.insert((block.height, id));
        self.wanted.remove(id);
        let is_new = !self.kept.contains_key(&id);
        let kept = self.kept.entry(id).or_insert(KeptBlock { signed, is_direct });
        kept.is_direct |= is_direct;
        if is_new {
            self.children.entry(parent).or_default().push(id);
        }
    }

    pub(super) fn get(&self, id: BlockId) -> Option<&Signed<CBlock>> {
        self.kept.get(&id).map(|kept| &kept.signed)
    }

    /// Returns the kept blocks of an instance on top of a block, at the next height.
    pub(super) fn next(
        &self,
        (height, parent): (Height, BlockId),
        anchor: Digest,
    ) -> impl Iterator<Item = BlockId> {
        let children = self.children.get(&parent).into_iter().flatten().copied();
        let is_next = move |block: &CBlock| block.anchor == anchor && block.block.height == height.next();
        children.filter(move |id| self.get(*id).is_some_and(|signed| is_next(&signed.body)))
    }

    /// Notes that a peer is asked for a block because a vote of this round names it.
    pub(super) fn want(&mut self, id: BlockId, round: View, peer: ReplicaId) {
        self.wanted.insert(id, round, peer);
    }

    /// Returns the round of the vote for which a block is asked for.
    pub(super) fn wanted(&self, id: BlockId) -> Option<View> {
        self.wanted.named_in(id)
    }

    /// Returns the first block that is not kept, on the path from a block down to a height.
    pub(super) fn missing(&self, id: BlockId, above: Height) -> Option<BlockId> {
        let mut at = id;
        loop {
            let Some(signed) = self.get(at) else { return Some(at) };
            if signed.body.block.height <= above.next() {
                return None;
            }
            at = signed.body.block.parent;
        }
    }

    /// Returns the blocks on the path to one above a height, oldest first, at most `most`.
    pub(super) fn path(&self, id: BlockId, above: Height, most: usize) -> SignedBlocks {
        let (mut path, mut at) = (Vec::new(), id);
        while let Some(signed) = self.get(at)
            && signed.body.block.height > above
        {
            path.push(signed);
            at = signed.body.block.parent;
        }
        path.into_iter().rev().take(most).cloned().collect()
    }

    /// Returns the headers from `low` up to its descendant `high`. `None` where they are not kept.
    pub(super) fn headers(&self, low: BlockId, high: BlockId) -> Option<Vec<Block>> {
        let (mut headers, mut at) = (Vec::new(), high);
        loop {
            let block = &self.get(at)?.body.block;
            headers.push(block.clone());
            if at == low {
                headers.reverse();
                return Some(headers);
            }
            at = block.parent;
        }
    }

    /// Forgets blocks below the height that is served, and all that a committed vote has settled. The arguments are its round, and
    /// the state after it. Blocks are served as long as the votes that name them.
    pub(super) fn settle(&mut self, round: View, state: &ChainState, served: Height) {
        while let Some((low, id)) = self.by_height.first().copied()
            && low < served
        {
            self.by_height.pop_first();
            let Some(kept) = self.kept.remove(&id) else { continue };
            let parent = kept.signed.body.block.parent;
            if let Some(children) = self.children.get_mut(&parent) {
                children.retain(|child| *child != id);
                if children.is_empty() {
                    self.children.remove(&parent);
                }
            }
        }
        self.instances.retain(|_, instance| instance.opened >= state.anchor.round);
        for instance in self.instances.values_mut() {
            instance.first = instance.first.split_off(&state.height.next());
        }
        // A19. The blocks below a base point may never arrive: the coordinator is followed from its head on.
        if let Some(instance) = self.instances.get_mut(&state.anchor.id)
            && instance.best.0 < state.height
        {
            instance.best = (state.height, state.head);
        }
        self.wanted.settle(round);
    }
}
