//! Blocks that are being fetched.

use quorate_types::{BlockId, Height, ReplicaSet, Time};
use std::collections::BTreeMap;

/// A block of which something is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockFetch {
    /// Height of the block; 0 where the form forgets fetches by their blocks.
    pub(super) height: Height,
    /// Time from which on it is asked for.
    pub(super) due: Time,
    pub(super) is_asked: bool,
    /// Peers that have shown the block, or voted for it.
    pub(super) holders: ReplicaSet,
    /// Peers that were asked for a certificate of its parent. A peer that has voted has one, so each is asked once.
    pub(super) asked_for_certificate: ReplicaSet,
}

/// Fetches by block.
#[derive(Debug, Default)]
pub struct BlockFetches(pub(super) BTreeMap<BlockId, BlockFetch>);

impl BlockFetches {
    /// Returns the fetch of a block, which begins now unless it is running.
    pub(super) fn begin(&mut self, id: BlockId, height: Height, due: Time) -> &mut BlockFetch {
        let (holders, asked_for_certificate) = (ReplicaSet::EMPTY, ReplicaSet::EMPTY);
        let fresh = BlockFetch { height, due, is_asked: false, holders, asked_for_certificate };
        self.0.entry(id).or_insert(fresh)
    }

    /// Returns the holders of a block, which are all asked now.
    pub(super) fn ask(&mut self, id: BlockId) -> Option<ReplicaSet> {
        let fetch = self.0.get_mut(&id)?;
        fetch.is_asked = true;
        Some(fetch.holders)
    }

    /// Whether a block was asked for.
    pub(super) fn is_asked(&self, id: BlockId) -> bool {
        self.0.get(&id).is_some_and(|fetch| fetch.is_asked)
    }

    /// Returns blocks that are due to be asked for.
    pub(super) fn due(&self, now: Time) -> Vec<BlockId> {
        let due = self.0.iter().filter(|(_, fetch)| !fetch.is_asked && fetch.due <= now);
        due.map(|(id, _)| *id).collect()
    }

    /// Returns when the next block is due, which may be in the past.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.0.values().filter(|fetch| !fetch.is_asked).map(|fetch| fetch.due).min()
    }
}
