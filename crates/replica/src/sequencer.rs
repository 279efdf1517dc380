//! The sequencer: turns "decided" into "execute height h exactly once, in order". No other file decides that.
//!
//! ```text
//! protocol: commit ──┐                                  next()                        durable, or durable votes
//! f + 1 peers ───────┼──▶ decide(height, id) ──▶ heights without gaps ──▶ in the log ──▶ executor
//! child's parent ────┘
//! ```
//!
//! * A height is decided once. A second decision for another block raises [`Alarm::SafetyBroken`].
//! * A decided block with ancestors decides them too, as soon as all headers between are available.
//! * The next block is the one after the last handed to the executor. It must extend what was decided below it.
//! * If votes are not durable, a block waits here until the own log is durable up to its decision.
//!
//! `ordering.rs` carries these decisions out. Learning from peers is in `peer_decisions.rs`.

mod ordering;
#[cfg(test)]
mod tests;

use crate::outbox::Outbox;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Alarm, Checkpoint};
use quorate_types::{Block, BlockId, FullBlock, Height, Mark};
use std::collections::{BTreeMap, VecDeque};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    /// The last executed height.
    executed: Height,
    /// The last height that was handed to the executor or waits in `undurable`.
    issued: Height,
    /// Decided heights above the stable checkpoint.
    decided: BTreeMap<Height, BlockId>,
    /// The height up to which every height is decided.
    contiguous: Height,
    /// A block that is decided with its ancestors, while the header of an ancestor is missing.
    unrooted: Option<BlockId>,
    /// Decided blocks that go to the executor when their mark is durable, in order. Without durable votes only the own
    /// log has the decision. It must be durable before the block is executed and clients or peers hear of it.
    undurable: VecDeque<(Mark, FullBlock)>,
}

impl Sequencer {
    /// Continues after the heights that were executed and decided before.
    pub(crate) fn restore(executed: Height, decided: impl IntoIterator<Item = (Height, BlockId)>) -> Self {
        let mut sequencer = Self {
            executed,
            issued: executed,
            decided: decided.into_iter().collect(),
            contiguous: executed,
            ..Self::default()
        };
        sequencer.advance();
        sequencer
    }

    /// Decides a height. Returns whether the decision is new.
    ///
    /// # Errors
    /// [`Alarm::SafetyBroken`] when another block was decided at the height.
    pub(crate) fn decide(&mut self, height: Height, id: BlockId) -> Result<bool, Alarm> {
        match self.decided.get(&height) {
            Some(known) if *known == id => Ok(false),
            Some(known) => Err(Alarm::SafetyBroken { height, first: *known, second: id }),
            // The stable checkpoint has settled the heights below it. These are not compared or executed again.
            None if height <= self.executed => Ok(false),
            None => {
                self.decided.insert(height, id);
                self.advance();
                Ok(true)
            }
        }
    }

    fn advance(&mut self) {
        while self.decided.contains_key(&self.contiguous.next()) {
            self.contiguous = self.contiguous.next();
        }
    }

    /// Returns the heights and blocks that a decided block decides: itself and its undecided ancestors, lowest first.
    /// Returns `None` while a header between is missing; [`Sequencer::unrooted`] then names the block.
    pub(crate) fn undecided_path(
        &mut self,
        blocks: &BlockTree,
        id: BlockId,
    ) -> Option<Vec<(Height, BlockId)>> {
        let (mut path, mut at) = (Vec::new(), id);
        while at != blocks.root() && at != BlockId::ZERO {
            let Some(block) = blocks.get(at) else {
                self.unrooted = Some(id);
                return None;
            };
            if self.decided(block.height) == Some(at) {
                break; // Its ancestors are decided too: see `parent_above_gap`.
            }
            path.push((block.height, at));
            at = block.parent;
        }
        self.unrooted = None;
        path.reverse();
        Some(path)
    }

    /// Returns the block that is decided with its ancestors, while the header of an ancestor is missing.
    pub(crate) fn unrooted(&self) -> Option<BlockId> {
        self.unrooted
    }

    /// Returns the parent of the lowest decided block above a gap, with its height. A decision for a block decides its
    /// parent. So f + 1 peers that vouch for a block above a gap close it. The heights between need no vouchers, and
    /// liars about them do no harm.
    pub(crate) fn parent_above_gap(&self, blocks: &BlockTree) -> Option<(Height, BlockId)> {
        let (height, id) = self.decided.range(self.contiguous.next()..).next()?;
        let parent = blocks.get(*id)?.parent;
        (parent != BlockId::ZERO).then(|| (height.minus(1), parent))
    }

    /// Returns the next height to execute with its block, if it is decided.
    pub(crate) fn next(&self) -> Option<(Height, BlockId)> {
        let height = self.issued.next();
        self.decided.get(&height).map(|id| (height, *id))
    }

    /// Returns the alarm if a decided block, where blocks have parents, does not extend the block that was decided below
    /// it: its voters decided on another branch.
    pub(crate) fn conflict_below(&self, block: &Block, stable: &Checkpoint) -> Option<Alarm> {
        let height = block.height.minus(1);
        let decided = self.decided(height);
        let first = decided.or_else(|| (stable.height == height).then_some(stable.block))?;
        let second = block.parent;
        let conflicts = second != BlockId::ZERO && second != first;
        conflicts.then_some(Alarm::SafetyBroken { height, first, second })
    }

    /// Notes that the next height was handed to the executor, or waits for its mark.
    pub(crate) fn issue(&mut self, height: Height) {
        assert!(height == self.issued.next(), "heights execute in order");
        self.issued = height;
    }

    /// Keeps an issued block until its mark is durable.
    pub(crate) fn hold(&mut self, mark: Mark, block: FullBlock) {
        self.undurable.push_back((mark, block));
    }

    /// Takes the next held block whose mark is durable.
    pub(crate) fn take_durable(&mut self, outbox: &Outbox) -> Option<FullBlock> {
        self.undurable.pop_front_if(|(mark, _)| outbox.is_durable(*mark)).map(|(_, block)| block)
    }

    /// Notes that a height was executed.
    pub(crate) fn executed_one(&mut self, height: Height) {
        assert!(height == self.executed.next() && height <= self.issued, "the executor answers in order");
        self.executed = height;
    }

    /// Returns the last height that was handed to the executor or waits for its mark.
    pub(crate) fn issued(&self) -> Height {
        self.issued
    }

    /// Returns the last executed height.
    pub(crate) fn executed(&self) -> Height {
        self.executed
    }

    /// Returns the height up to which every height is decided.
    pub(crate) fn contiguous(&self) -> Height {
        self.contiguous
    }

    /// Returns the block that was decided at a height, as far as the sequencer remembers it.
    pub(crate) fn decided(&self, height: Height) -> Option<BlockId> {
        self.decided.get(&height).copied()
    }

    /// Returns the decided heights that were not issued, lowest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Height, BlockId)> {
        self.decided.range(self.issued.next()..).map(|(height, id)| (*height, *id))
    }

    /// Returns the height at which a block was decided that was not issued.
    pub(crate) fn waiting_at(&self, id: BlockId) -> Option<Height> {
        self.waiting().find(|(_, decided)| *decided == id).map(|(height, _)| height)
    }

    /// Returns the number of blocks that are decided and not executed.
    pub(crate) fn lag(&self) -> u64 {
        self.contiguous.since(self.executed)
    }

    /// Forgets the decided heights up to this one. Those that were not issued must be learned again.
    pub(crate) fn prune(&mut self, settled: Height) {
        self.decided.retain(|height, _| *height > settled);
        if settled > self.issued {
            self.contiguous = self.issued;
            self.advance();
        }
    }
}
