//! Chains of blocks of which each carries the certificate of its parent.
//!
//! A header says all that rules about chains need: its parent is the block of the certificate that it carries, and
//! `extra` binds that certificate's view. Whoever holds a certificate for a block knows that honest replicas have
//! checked the certificate inside, so no certificate below it is looked at again.

use super::block_tree::BlockTree;
use super::certificate::Certificate;
use quorate_types::codec::Wire;
use quorate_types::digest::{Digest, context};
use quorate_types::{Block, BlockId, Height, Payload, PayloadId, View};
use std::collections::BTreeMap;

/// The first view with a leader: genesis is of the one before.
pub const FIRST_VIEW: View = View(1);

/// What a block binds as `extra` of the certificate that it carries: its view and block, never its signatures, which
/// may differ from one replica to the next.
#[must_use]
pub fn bind_certificate(view: View, block: BlockId) -> Digest {
    let mut bytes = b"chain: certificate of the parent".to_vec();
    view.encode(&mut bytes);
    block.encode(&mut bytes);
    Digest::of(&context::PROTOCOL, &bytes)
}

/// A block, as far as rules about chains look at it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Tip {
    /// Its view. First, so that tips are ordered by view.
    pub view: View,
    /// Its height.
    pub height: Height,
    /// Its id; zero for genesis.
    pub id: BlockId,
}

impl Tip {
    /// The genesis block: view 0, height 0, its own parent.
    pub const GENESIS: Self = Self { view: View::ZERO, height: Height::ZERO, id: BlockId::ZERO };

    /// A block.
    #[must_use]
    pub fn of(block: &Block, id: BlockId) -> Self {
        Self { view: block.view, height: block.height, id }
    }

    /// Where it ends: its height and its id.
    #[must_use]
    pub fn end(&self) -> (Height, BlockId) {
        (self.height, self.id)
    }
}

impl Wire for Tip {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        self.height.encode(out);
        self.id.encode(out);
    }
    fn decode(reader: &mut quorate_types::Reader<'_>) -> Result<Self, quorate_types::DecodeError> {
        Ok(Self {
            view: View::decode(reader)?,
            height: Height::decode(reader)?,
            id: BlockId::decode(reader)?,
        })
    }
}

/// What became of a step down a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Below {
    /// The parent.
    Block(Tip),
    /// Nothing above the committed height any more: the path passes this block there or below. The header of one that
    /// lies beside the committed block may not be here, and is not needed.
    Settled(BlockId),
    /// This header is missing.
    Missing(BlockId),
}

/// How a block hangs on the committed one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hangs {
    /// It extends it.
    On,
    /// It does not: the path passes this block at the committed height.
    Beside(BlockId),
    /// This header is missing.
    Missing(BlockId),
}

/// Certificates that wait for headers at most: the highest are kept.
const UNFINISHED_MAX: usize = 8;

/// The committed end of the chain, and certificates for blocks whose headers are not all here.
#[derive(Clone, Debug)]
pub struct Chain {
    committed: Tip,
    unfinished: Vec<Certificate>,
    /// What was decided by f + 1 peers or a checkpoint, and whose header is not here.
    heard: Option<(Height, BlockId)>,
    empty: PayloadId,
}

impl Chain {
    /// Starts at what was committed before.
    #[must_use]
    pub fn new(committed: Tip) -> Self {
        Self { committed, unfinished: Vec::new(), heard: None, empty: empty_payload() }
    }

    /// The committed block. Its view, height and id are known even where its header is not.
    #[must_use]
    pub fn committed(&self) -> Tip {
        self.committed
    }

    /// Moves the end on; never back.
    pub fn commit(&mut self, tip: Tip) {
        if tip.height > self.committed.height {
            self.committed = tip;
            self.unfinished.retain(|qc| qc.view() > tip.view);
        }
    }

    /// A block by id; the committed one also without its header. `None` where the header is missing.
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

    /// The parent of a block above the committed one.
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
            // Nobody keeps or hands out what lies beside the committed block.
            None if block.height == self.committed.height.next() => Below::Settled(block.parent),
            None => Below::Missing(block.parent),
        }
    }

    /// Whether a block extends the committed one.
    #[must_use]
    pub fn hangs(&self, blocks: &BlockTree, tip: Tip) -> Hangs {
        let mut at = tip;
        loop {
            if at.id == self.committed.id {
                return Hangs::On;
            }
            match self.below(blocks, at) {
                Below::Block(parent) => at = parent,
                Below::Settled(id) => return Hangs::Beside(id),
                Below::Missing(id) => return Hangs::Missing(id),
            }
        }
    }

    /// Whether a block is the one with this height and id, or extends it; `None` where a header above both the committed
    /// height and that one is missing. That of the other block is not needed.
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

    /// The same for many blocks and one end: what was passed once is `known` then, and is not passed again.
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

    /// The parent, or the answer.
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
            // Whoever lies there instead, its header says nothing more.
            Below::Missing(parent) if parent != at.id && at.height == height.next() => {
                Err(Some(parent == id))
            }
            Below::Missing(_) => Err(None),
        }
    }

    /// Whether a block that carries the certificate `qc` fits to it, as far as the header says: parent, bound view,
    /// views that rise, and the height. Where the parent is not known, that is no more than one for each view since the
    /// committed block: a height that no chain reaches would never be settled, and its block be kept for ever.
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

    /// The newest block at a height that is a multiple of `every`, on the way from a block down to the committed one.
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

    /// A certificate whose rules wait for headers.
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

    /// The certificates that wait, lowest view first. Those that still have to are handed back to [`Chain::wait`].
    pub fn take_waiting(&mut self) -> Vec<Certificate> {
        std::mem::take(&mut self.unfinished)
    }

    /// Something was decided without this replica's own rules: by f + 1 peers, or by a checkpoint.
    pub fn hear(&mut self, height: Height, id: BlockId) {
        if height > self.committed.height && self.heard.is_none_or(|(heard, _)| height > heard) {
            self.heard = Some((height, id));
        }
    }

    /// What was heard of last, once its header is here.
    #[must_use]
    pub fn heard(&self, blocks: &BlockTree) -> Option<Tip> {
        let (height, id) = self.heard.filter(|(height, _)| *height > self.committed.height)?;
        blocks.get(id).filter(|block| block.height == height).map(|block| Tip::of(block, id))
    }

    /// Whether nothing above the committed block has to be carried on: the blocks up to the one that is certified are
    /// known and empty, and no view was left out between them. Without the last condition a commit certificate may lie
    /// off the branch, and whoever lacks it would wait alone.
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

/// Whether a header goes on top of its parent.
#[must_use]
pub fn fits_on(block: &Block, parent: Tip) -> bool {
    block.parent == parent.id
        && block.height == parent.height.next()
        && block.view > parent.view
        && block.extra == bind_certificate(parent.view, parent.id)
}

/// The payload of a block that carries nothing and only carries others on.
#[must_use]
pub fn empty_payload() -> PayloadId {
    Payload::default().id()
}
