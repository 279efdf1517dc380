//! The blocks that are known, as a tree that hangs on the last decided or stable one.

use quorate_types::{Block, BlockId, Height};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What became of a block that was inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// New, and its parent is known (or it needs none).
    New,
    /// Known before.
    Known,
    /// New, and this parent is missing.
    Orphan(BlockId),
}

/// A block on a path is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("block {0} is missing")]
pub struct Missing(pub BlockId);

/// Blocks by id. A block whose parent is zero has no ancestors and is never an orphan: protocols without a
/// chain (PBFT) use the tree as a table.
#[derive(Clone, Debug, Default)]
pub struct BlockTree {
    blocks: BTreeMap<BlockId, Arc<Block>>,
    /// Those of them that were heard of and not inserted.
    bare: BTreeSet<BlockId>,
    root: BlockId,
    fresh: Vec<BlockId>,
}

impl BlockTree {
    /// The last stable or decided block: everything live above it extends the decided path below it. Zero at
    /// the start.
    #[must_use]
    pub fn root(&self) -> BlockId {
        self.root
    }

    /// Moves the root.
    pub fn set_root(&mut self, root: BlockId) {
        self.root = root;
    }

    /// Adds a block: the host looks for its bodies, and for those of what it hangs on.
    pub fn insert(&mut self, block: Block) -> Inserted {
        let (id, parent) = (block.id(), block.parent);
        if self.blocks.contains_key(&id) && !self.bare.contains(&id) {
            return Inserted::Known;
        }
        self.bare.insert(id);
        self.blocks.insert(id, Arc::new(block));
        self.admit(id);
        if parent == BlockId::ZERO || parent == self.root || self.blocks.contains_key(&parent) {
            Inserted::New
        } else {
            Inserted::Orphan(parent)
        }
    }

    /// Adds the header of a block alone: where it hangs is known, and nobody looks for its bodies until it is inserted, is
    /// wanted, or something that hangs on it is. For what one replica alone has said, and may have made up.
    pub fn hear(&mut self, block: Block) {
        let id = block.id();
        if let Entry::Vacant(place) = self.blocks.entry(id) {
            place.insert(Arc::new(block));
            self.bare.insert(id);
        }
    }

    /// Whether only the header of a block counts so far.
    #[must_use]
    pub fn is_bare(&self, id: BlockId) -> bool {
        self.bare.contains(&id)
    }

    /// From now on the host looks for the bodies of a block that was heard of, and of what it hangs on.
    pub fn admit(&mut self, id: BlockId) {
        let mut at = id;
        while self.bare.remove(&at) {
            self.fresh.push(at);
            at = self.blocks.get(&at).map(|block| block.parent).unwrap_or_default();
        }
    }

    /// The blocks that were inserted or admitted since the last call: the host looks for their bodies.
    pub fn take_fresh(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.fresh)
    }

    /// A block that is known.
    #[must_use]
    pub fn get(&self, id: BlockId) -> Option<&Arc<Block>> {
        self.blocks.get(&id)
    }

    /// Whether a block is known.
    #[must_use]
    pub fn contains(&self, id: BlockId) -> bool {
        self.blocks.contains_key(&id)
    }

    /// How many blocks are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether `ancestor` lies on the path from `block` down to the root (a block extends itself). `None` only
    /// for a gap above the root.
    #[must_use]
    pub fn extends(&self, block: BlockId, ancestor: BlockId) -> Option<bool> {
        let mut at = block;
        loop {
            if at == ancestor {
                return Some(true);
            }
            if at == self.root || at == BlockId::ZERO {
                return Some(false);
            }
            at = self.blocks.get(&at)?.parent;
        }
    }

    /// The blocks above `to` up to and including `from`, oldest first.
    ///
    /// # Errors
    /// [`Missing`] when a block of the path is not known or `from` does not extend `to`.
    pub fn path(&self, from: BlockId, to: BlockId) -> Result<Vec<BlockId>, Missing> {
        let mut path = Vec::new();
        let mut at = from;
        while at != to {
            path.push(at);
            at = self.blocks.get(&at).ok_or(Missing(at))?.parent;
        }
        path.reverse();
        Ok(path)
    }

    /// Forgets all blocks at or below a height, but the root.
    pub fn prune(&mut self, height: Height) {
        let root = self.root;
        self.blocks.retain(|id, block| block.height > height || *id == root);
        let blocks = &self.blocks;
        self.bare.retain(|id| blocks.contains_key(id));
    }

    /// All blocks, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (&BlockId, &Arc<Block>)> {
        self.blocks.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{Digest, PayloadId, ReplicaId, View};

    fn block(parent: BlockId, height: u64) -> Block {
        Block {
            parent,
            height: Height(height),
            view: View(0),
            proposer: ReplicaId(0),
            time_ns: 0,
            payload: PayloadId::ZERO,
            extra: Digest::ZERO,
        }
    }

    /// A header alone says where it hangs, and costs the host nothing before something rests on it.
    #[test]
    fn headers_that_were_heard_of_are_admitted_with_what_hangs_on_them() {
        let mut tree = BlockTree::default();
        let one = block(BlockId::ZERO, 1);
        let two = block(one.id(), 2);
        let three = block(two.id(), 3);
        let beside = block(one.id(), 7);
        [&one, &two, &beside].into_iter().for_each(|block| tree.hear(block.clone()));
        assert_eq!((tree.take_fresh(), tree.extends(two.id(), one.id())), (vec![], Some(true)));
        assert_eq!(tree.insert(three.clone()), Inserted::New);
        assert_eq!(tree.take_fresh(), [three.id(), two.id(), one.id()]);
        assert_eq!(tree.insert(two.clone()), Inserted::Known);
        assert!(tree.is_bare(beside.id()) && !tree.is_bare(two.id()));
        tree.hear(two);
        assert_eq!(tree.insert(beside.clone()), Inserted::New);
        assert_eq!(tree.take_fresh(), [beside.id()]);
        tree.hear(block(three.id(), 4));
        tree.prune(Height(7));
        assert!(tree.is_empty() && tree.bare.is_empty());
    }

    #[test]
    fn paths_and_gaps() {
        let mut tree = BlockTree::default();
        let one = block(BlockId::ZERO, 1);
        let two = block(one.id(), 2);
        let three = block(two.id(), 3);
        assert_eq!(tree.insert(one.clone()), Inserted::New);
        assert_eq!(tree.insert(one.clone()), Inserted::Known);
        assert_eq!(tree.insert(three.clone()), Inserted::Orphan(two.id()));
        assert_eq!(tree.extends(three.id(), one.id()), None);
        assert_eq!(tree.path(three.id(), one.id()), Err(Missing(two.id())));
        tree.insert(two.clone());
        assert_eq!(tree.extends(three.id(), one.id()), Some(true));
        assert_eq!(tree.extends(one.id(), three.id()), Some(false));
        assert_eq!(tree.path(three.id(), one.id()), Ok(vec![two.id(), three.id()]));
        tree.set_root(two.id());
        tree.prune(Height(2));
        assert_eq!(tree.len(), 2);
        assert_eq!(tree.extends(three.id(), two.id()), Some(true));
    }
}
