//! The known blocks, as a tree whose root is the last decided or stable block.

use quorate_types::{Block, BlockId, Height};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Result of inserting a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// The block is new, and its parent is known or not needed.
    New,
    /// The block was known before.
    Known,
    /// The block is new, and this parent is missing.
    Orphan(BlockId),
}

/// Error: a block of a path is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("block {0} is missing")]
pub struct UnknownBlock(pub BlockId);

/// Known blocks by id. A block whose parent is zero has no ancestors and is never an orphan: protocols without a chain
/// (PBFT) use the tree as a table.
#[derive(Clone, Debug, Default)]
pub struct BlockTree {
    blocks: BTreeMap<BlockId, Arc<Block>>,
    /// Blocks of which only the header is known.
    bare: BTreeSet<BlockId>,
    root: BlockId,
    fresh: Vec<BlockId>,
}

impl BlockTree {
    /// Returns the last stable or decided block: every live block above it extends the decided path below it. Zero at the
    /// start.
    #[must_use]
    pub fn root(&self) -> BlockId {
        self.root
    }

    /// Moves the root.
    pub fn set_root(&mut self, root: BlockId) {
        self.root = root;
    }

    /// Adds a block. The host fetches its bodies and those of its ancestors.
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

    /// Adds the header of a block alone, which gives its parent. Nobody fetches its bodies until the block or a descendant is
    /// inserted or wanted. For blocks that only one replica has named, and may have invented.
    pub fn hear(&mut self, block: Block) {
        let id = block.id();
        if let Entry::Vacant(place) = self.blocks.entry(id) {
            place.insert(Arc::new(block));
            self.bare.insert(id);
        }
    }

    /// Returns whether only the header of a block is known.
    #[must_use]
    pub fn is_bare(&self, id: BlockId) -> bool {
        self.bare.contains(&id)
    }

    /// Makes the host fetch the bodies of a block of which only the header is known, and of its ancestors.
    pub fn admit(&mut self, id: BlockId) {
        let mut at = id;
        while self.bare.remove(&at) {
            self.fresh.push(at);
            at = self.blocks.get(&at).map(|block| block.parent).unwrap_or_default();
        }
    }

    /// Returns the blocks inserted or admitted since the last call. The host fetches their bodies.
    pub fn take_fresh(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.fresh)
    }

    /// Returns a known block.
    #[must_use]
    pub fn get(&self, id: BlockId) -> Option<&Arc<Block>> {
        self.blocks.get(&id)
    }

    /// Returns whether a block is known.
    #[must_use]
    pub fn contains(&self, id: BlockId) -> bool {
        self.blocks.contains_key(&id)
    }

    /// Returns the number of known blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns whether no block is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns whether `ancestor` is on the path from `block` down to the root; a block extends itself. `None` only for a
    /// gap above the root.
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

    /// Returns the blocks above `to` up to and including `from`, oldest first.
    ///
    /// # Errors
    /// [`UnknownBlock`] when a block of the path is not known or `from` does not extend `to`.
    pub fn path(&self, from: BlockId, to: BlockId) -> Result<Vec<BlockId>, UnknownBlock> {
        let mut path = Vec::new();
        let mut at = from;
        while at != to {
            path.push(at);
            at = self.blocks.get(&at).ok_or(UnknownBlock(at))?.parent;
        }
        path.reverse();
        Ok(path)
    }

    /// Forgets the header of the root, whose id stays: the block is not executed, and arrives anew with its bodies.
    pub fn forget_root(&mut self) {
        self.blocks.remove(&self.root);
        self.bare.remove(&self.root);
    }

    /// Forgets all blocks at or below a height except the root.
    pub fn prune(&mut self, height: Height) {
        let root = self.root;
        self.blocks.retain(|id, block| block.height > height || *id == root);
        let blocks = &self.blocks;
        self.bare.retain(|id| blocks.contains_key(id));
    }

    /// Iterates over all blocks, in the order of their ids.
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

    /// A header alone gives its parent, and the host fetches nothing for it before a descendant needs it.
    #[test]
    fn inserted_block_admits_known_headers_of_its_ancestors() {
        let mut tree = BlockTree::default();
        let one = block(BlockId::ZERO, 1);
        let two = block(one.id(), 2);
        let three = block(two.id(), 3);
        let sibling = block(one.id(), 7);
        [&one, &two, &sibling].into_iter().for_each(|block| tree.hear(block.clone()));
        assert_eq!((tree.take_fresh(), tree.extends(two.id(), one.id())), (vec![], Some(true)));
        assert_eq!(tree.insert(three.clone()), Inserted::New);
        assert_eq!(tree.take_fresh(), [three.id(), two.id(), one.id()]);
        assert_eq!(tree.insert(two.clone()), Inserted::Known);
        assert!(tree.is_bare(sibling.id()) && !tree.is_bare(two.id()));
        tree.hear(two);
        assert_eq!(tree.insert(sibling.clone()), Inserted::New);
        assert_eq!(tree.take_fresh(), [sibling.id()]);
        tree.hear(block(three.id(), 4));
        tree.prune(Height(7));
        assert!(tree.is_empty() && tree.bare.is_empty());
    }

    #[test]
    fn path_ends_at_a_gap() {
        let mut tree = BlockTree::default();
        let one = block(BlockId::ZERO, 1);
        let two = block(one.id(), 2);
        let three = block(two.id(), 3);
        assert_eq!(tree.insert(one.clone()), Inserted::New);
        assert_eq!(tree.insert(one.clone()), Inserted::Known);
        assert_eq!(tree.insert(three.clone()), Inserted::Orphan(two.id()));
        assert_eq!(tree.extends(three.id(), one.id()), None);
        assert_eq!(tree.path(three.id(), one.id()), Err(UnknownBlock(two.id())));
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
