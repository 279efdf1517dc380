//! Chains of blocks. Each block carries the certificate of its parent.
//!
//! A header has all that rules about chains need: its parent is the block of the certificate that it carries, and
//! `extra` binds that certificate's view. A certificate for a block proves that honest replicas have checked the
//! certificate inside the block, so no certificate below it is verified again.

use super::block_tree::BlockTree;
use super::certificate::Certificate;
use quorate_types::codec::Wire;
use quorate_types::digest::{Digest, context};
use quorate_types::{Block, BlockId, Height, Payload, PayloadId, View};
use std::collections::BTreeMap;

/// The first view with a leader. The view before is that of genesis.
pub const FIRST_VIEW: View = View(1);

/// Returns the `extra` of a block that carries a certificate. It binds the certificate's view and block, but not its
/// signatures, which may differ from one replica to the next.
#[must_use]
pub fn bind_certificate(view: View, block: BlockId) -> Digest {
    let mut bytes = b"chain: certificate of the parent".to_vec();
    view.encode(&mut bytes);
    block.encode(&mut bytes);
    Digest::of(&context::PROTOCOL, &bytes)
}

/// The fields of a block that rules about chains need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Tip {
    /// The view. It is the first field, so that tips are ordered by view.
    pub view: View,
    /// The height.
    pub height: Height,
    /// The id; zero for genesis.
    pub id: BlockId,
}

impl Tip {
    /// The genesis block: view 0, height 0, and its own parent.
    pub const GENESIS: Self = Self { view: View::ZERO, height: Height::ZERO, id: BlockId::ZERO };

    /// Returns the tip of a block.
    #[must_use]
    pub fn of(block: &Block, id: BlockId) -> Self {
        Self { view: block.view, height: block.height, id }
    }

    /// Returns the height and the id.
    #[must_use]
    pub fn end(&self) -> (Height, BlockId) {
        (self.height, self.id)
    }
}

quorate_types::wire_struct!(Tip { view, height, id });

/// The result of a step down a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    /// The parent.
    Block(Tip),
    /// No block above the committed height: the path passes this block at that height or below. The header of a block that
    /// conflicts with the committed one may be missing, and is not needed.
    Settled(BlockId),
    /// This header is missing.
    Missing(BlockId),
}

/// The relation of a block to the committed block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ancestry {
    /// The block extends the committed one.
    Extends,
    /// The block conflicts with the committed one: its path passes this block at the committed height.
    Conflicts(BlockId),
    /// This header is missing.
    Unknown(BlockId),
}

/// The number of certificates that wait for headers at most. The highest are kept.
const UNFINISHED_MAX: usize = 8;

/// The committed end of the chain, and certificates for blocks with missing headers.
#[derive(Clone, Debug)]
pub struct Chain {
    committed: Tip,
    unfinished: Vec<Certificate>,
    /// The last block that f + 1 peers or a checkpoint have decided. Its header may be missing.
    decided: Option<(Height, BlockId)>,
    empty: PayloadId,
}

impl Chain {
    /// Starts at the block that was committed before.
    #[must_use]
    pub fn new(committed: Tip) -> Self {
        Self { committed, unfinished: Vec::new(), decided: None, empty: empty_payload() }
    }

    /// Returns the committed block. Its view, height and id are known even if its header is missing.
    #[must_use]
    pub fn committed(&self) -> Tip {
        self.committed
    }

    /// Moves the committed end to a higher block; a lower one has no effect.
    pub fn commit(&mut self, tip: Tip) {
        if tip.height > self.committed.height {
            self.committed = tip;
            self.unfinished.retain(|qc| qc.view() > tip.view);
        }
    }

    /// Returns a block by id, `None` where its header is missing. The committed block needs no header.
    #[must_use]
    pub fn tip(&self, blocks: &BlockTree, id: BlockId) -> Option<Tip> {
        if id == self.committed.id {
            return Some(self.committed);
        }
        if id == BlockId::ZERO {
            return Some(Tip::GENESIS);
        }
        blocks.get(id).map(|block| Tip::of(block, id))
    }

    /// Returns the parent of a block above the committed one.
    #[must_use]
    pub fn below(&self, blocks: &BlockTree, tip: Tip) -> Below {
        if tip.height <= self.committed.height {
            return Below::Settled(tip.id);
        }
        let Some(block) = blocks.get(tip.id) else {
            return Below::Missing(tip.id);
        };
        match self.tip(blocks, block.parent) {
            Some(parent) => Below::Block(parent),
            // No replica keeps or sends blocks that conflict with the committed one.
            None if block.height == self.committed.height.next() => Below::Settled(block.parent),
            None => Below::Missing(block.parent),
        }
    }

    /// Returns the relation of a block to the committed one.
    #[must_use]
    pub fn ancestry(&self, blocks: &BlockTree, tip: Tip) -> Ancestry {
        let mut at = tip;
        loop {
            if at.id == self.committed.id {
                return Ancestry::Extends;
            }
            match self.below(blocks, at) {
                Below::Block(parent) => at = parent,
                Below::Settled(id) => return Ancestry::Conflicts(id),
                Below::Missing(id) => return Ancestry::Unknown(id),
            }
        }
    }

    /// Whether a block is the one with this height and id, or extends it. `None` where a header above the committed height
    /// and above that block is missing. The header of that block itself is not needed.
    #[must_use]
    pub fn extends(&self, blocks: &BlockTree, tip: Tip, end: (Height, BlockId)) -> Option<bool> {
        let mut at = tip;
        loop {
            match self.step_towards(blocks, at, end) {
                Ok(parent) => at = parent,
                Err(answer) => return answer,
            }
        }
    }

    /// The same as [`Chain::extends`] for many blocks and one end: `known` keeps the answers for the blocks on the way.
    pub fn extends_knowing(
        &self,
        blocks: &BlockTree,
        tip: Tip,
        end: (Height, BlockId),
        known: &mut BTreeMap<BlockId, Option<bool>>,
    ) -> Option<bool> {
        let (mut at, mut passed) = (tip, Vec::new());
        let answer = loop {
            if let Some(answer) = known.get(&at.id) {
                break *answer;
            }
            passed.push(at.id);
            match self.step_towards(blocks, at, end) {
                Ok(parent) => at = parent,
                Err(answer) => break answer,
            }
        };
        known.extend(passed.into_iter().map(|id| (id, answer)));
        answer
    }

    /// Returns the parent, or the answer of [`Chain::extends`] as an error.
    fn step_towards(
        &self,
        blocks: &BlockTree,
        at: Tip,
        (height, id): (Height, BlockId),
    ) -> Result<Tip, Option<bool>> {
        if at.id == id {
            return Err(Some(true));
        }
        if at.height <= height {
            return Err(Some(false));
        }
        match self.below(blocks, at) {
            Below::Block(parent) => Ok(parent),
            Below::Settled(_) => Err(Some(false)),
            // The header of another block at that height adds nothing.
            Below::Missing(parent) if parent != at.id && at.height == height.next() => {
                Err(Some(parent == id))
            }
            Below::Missing(_) => Err(None),
        }
    }

    /// Whether a block fits the certificate `qc` that it carries, as far as its header shows: parent, bound view, rising
    /// views, and height. Where the parent is unknown, the height may rise by one for each view since the committed block.
    /// A block at a height that no chain reaches would never be settled, and be kept for ever.
    #[must_use]
    pub fn fits(&self, blocks: &BlockTree, block: &Block, qc: &Certificate) -> bool {
        let parent = self.tip(blocks, qc.block());
        let most = block.view.since(self.committed.view);
        block.parent == qc.block()
            && block.height.since(self.committed.height) <= most
            && block.view > qc.view()
            && block.extra == bind_certificate(qc.view(), qc.block())
            && parent.is_none_or(|parent| fits_on(block, parent))
    }

    /// Returns the newest block at a multiple of `every`, on the path from a block down to the committed one.
    #[must_use]
    pub fn newest_at_multiple(&self, blocks: &BlockTree, tip: Tip, every: u64) -> Option<Tip> {
        let mut at = tip;
        while at.height > self.committed.height {
            if at.height.0.is_multiple_of(every.max(1)) {
                return Some(at);
            }
            let Below::Block(parent) = self.below(blocks, at) else { return None };
            at = parent;
        }
        None
    }

    /// Keeps a certificate whose rules wait for headers.
    pub fn wait(&mut self, qc: &Certificate) {
        if qc.view() <= self.committed.view || self.unfinished.iter().any(|known| known.view() == qc.view()) {
            return;
        }
        self.unfinished.push(qc.clone());
        self.unfinished.sort_unstable_by_key(Certificate::view);
        if self.unfinished.len() > UNFINISHED_MAX {
            self.unfinished.remove(0);
        }
    }

    /// Takes the waiting certificates, lowest view first. The caller gives those back to [`Chain::wait`] that still wait.
    pub fn take_waiting(&mut self) -> Vec<Certificate> {
        std::mem::take(&mut self.unfinished)
    }

    /// Notes a block that f + 1 peers or a checkpoint have decided, without this replica's own rules.
    pub fn note_decided(&mut self, height: Height, id: BlockId) {
        if height > self.committed.height && self.decided.is_none_or(|(decided, _)| height > decided) {
            self.decided = Some((height, id));
        }
    }

    /// Returns the last block of [`Chain::note_decided`] above the committed one, once its header is known.
    #[must_use]
    pub fn decided(&self, blocks: &BlockTree) -> Option<Tip> {
        let (height, id) = self.decided.filter(|(height, _)| *height > self.committed.height)?;
        blocks.get(id).filter(|block| block.height == height).map(|block| Tip::of(block, id))
    }

    /// Whether no block above the committed one has to be carried on. The blocks up to the certified one are known and empty
    /// then, and their views are consecutive. Without the last condition a commit certificate could be on another branch,
    /// and a replica without it would wait alone.
    #[must_use]
    pub fn is_quiet(&self, blocks: &BlockTree, certified: &Certificate) -> bool {
        if certified.view() <= self.committed.view {
            return true;
        }
        let Some(mut at) = self.tip(blocks, certified.block()) else { return false };
        while at.id != self.committed.id {
            let Below::Block(parent) = self.below(blocks, at) else { return false };
            let is_empty = blocks.get(at.id).is_some_and(|block| block.payload == self.empty);
            if !is_empty || at.view != parent.view.next() {
                return false;
            }
            at = parent;
        }
        true
    }
}

/// Whether a header fits its parent.
#[must_use]
pub fn fits_on(block: &Block, parent: Tip) -> bool {
    block.parent == parent.id
        && block.height == parent.height.next()
        && block.view > parent.view
        && block.extra == bind_certificate(parent.view, parent.id)
}

/// Returns the payload of an empty block, which only carries others on.
#[must_use]
pub fn empty_payload() -> PayloadId {
    Payload::default().id()
}
