//! Blocks that are being fetched, and the peers that are asked.

use quorate_types::{BlockId, Height, ReplicaId, ReplicaSet, Time};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Want {
    /// Peers that may have the block, in the order in which they were named.
    pub(super) peers: Vec<ReplicaId>,
    /// The same peers as a set.
    pub(super) named: ReplicaSet,
    /// Peers that had their turn since all peers were asked.
    pub(super) tried: ReplicaSet,
    /// The highest known height of the block. A parent is below its children.
    pub(super) height: Height,
    /// Whether the block was named otherwise than as a parent.
    pub(super) by_name: bool,
    /// Whether a block was refused because it is not below its child.
    pub(super) too_high: bool,
    pub(super) since: Time,
    pub(super) ask_at: Time,
    /// Whether the first of `peers` has announced that the bodies are on their way.
    pub(super) announced: bool,
    /// The peer that was asked last in its turn, and the time.
    pub(super) asked: Option<(ReplicaId, Time)>,
    /// Peers that did not have the block when asked.
    pub(super) refused: ReplicaSet,
    /// Peers to ask at once that were asked before: they may have received the block since.
    pub(super) again: ReplicaSet,
    /// The number of times that all peers have been asked.
    pub(super) rounds: usize,
    /// A running number, and the key in [`Wants::by_age`]. The oldest want goes when there is no room.
    number: u64,
}

impl Want {
    pub(super) fn new(height: Height, now: Time, ask_at: Time) -> Self {
        Self { height, since: now, ask_at, ..Self::default() }
    }
}

/// All wanted blocks.
#[derive(Debug, Default)]
pub(super) struct Wants {
    /// The wants. The methods alone add and remove them.
    pub(super) by_id: BTreeMap<BlockId, Want>,
    /// The same wants by number.
    by_age: BTreeMap<u64, BlockId>,
    /// The number of wants so far.
    pub(super) begun: u64,
}

impl Wants {
    /// Returns the want of a block, or begins one; with `most` wants the oldest is dropped for it. A liar's proposals
    /// must not keep this replica from fetching decided blocks. Its proposals in earlier views are older than the
    /// blocks that the present view takes over and decides, and decided blocks are wanted again.
    pub(super) fn begin(&mut self, id: BlockId, most: usize, new: impl FnOnce() -> Want) -> &mut Want {
        if self.by_id.len() >= most
            && !self.by_id.contains_key(&id)
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_id.remove(&oldest);
        }
        let (by_age, begun) = (&mut self.by_age, &mut self.begun);
        self.by_id.entry(id).or_insert_with(|| {
            let number = *begun;
            *begun = begun.wrapping_add(1);
            by_age.insert(number, id);
            Want { number, ..new() }
        })
    }

    pub(super) fn remove(&mut self, id: BlockId) {
        if let Some(want) = self.by_id.remove(&id) {
            self.by_age.remove(&want.number);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Want) -> bool) {
        let by_age = &mut self.by_age;
        self.by_id.retain(|_, want| {
            let stays = keep(want);
            if !stays {
                by_age.remove(&want.number);
            }
            stays
        });
    }
}
