//! Walks down the block tree. A walk visits each block once: a lying leader may cause thousands of headers to be checked, and
//! liars ask for blocks that are on no chain.

use super::super::replica::End;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{Below, Chain, Tip};
use quorate_types::{BlockId, Height};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Known answers to the question which block extends which: for each end the blocks that were visited on the way to it.
#[derive(Debug, Default)]
pub(super) struct Relations(RefCell<BTreeMap<End, BTreeMap<BlockId, Option<bool>>>>);

impl Relations {
    /// Whether a block is this end or extends it ([`Chain::extends`]); `None` where a header is missing.
    pub(super) fn ask(&self, chain: &Chain, blocks: &BlockTree, tip: Tip, end: End) -> Option<bool> {
        chain.extends_knowing(blocks, tip, end, self.0.borrow_mut().entry(end).or_default())
    }
}

/// Blocks that were visited.
#[derive(Debug, Default)]
pub(super) struct Paths {
    visited: BTreeSet<BlockId>,
}

impl Paths {
    /// Whether a block is another one or is known to extend it. All questions to one value have the same `to`, up to the first
    /// positive answer.
    pub(super) fn lead(&mut self, chain: &Chain, blocks: &BlockTree, from: End, to: End) -> bool {
        let mut found = from == to;
        self.walk(chain, blocks, from, |end| {
            found |= end == to;
            found || end.0 <= to.0
        });
        found
    }

    /// Visits a block and its known ancestors down to a height.
    pub(super) fn visit(&mut self, chain: &Chain, blocks: &BlockTree, from: End, low: Height) {
        self.walk(chain, blocks, from, |end| end.0 < low);
        self.visited.insert(from.1);
    }

    pub(super) fn has_visited(&self, id: BlockId) -> bool {
        self.visited.contains(&id)
    }

    /// Walks down from a block until `stops` is true, a header is missing, or a block was visited before.
    fn walk(&mut self, chain: &Chain, blocks: &BlockTree, from: End, mut stops: impl FnMut(End) -> bool) {
        let Some(mut at) = chain.tip(blocks, from.1).filter(|tip| tip.height == from.0) else { return };
        while !stops(at.end()) && self.visited.insert(at.id) {
            let Below::Block(parent) = chain.below(blocks, at) else { return };
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GENESIS, N, chain, end, id};
    use super::*;
    use quorate_consensus::parts::chain::Tip;

    /// No sequence of questions visits a block twice.
    #[test]
    fn each_block_is_visited_once() {
        let headers = chain(N, 1, GENESIS, &(1..=50).collect::<Vec<u64>>());
        let mut blocks = BlockTree::default();
        headers.iter().for_each(|header| _ = blocks.insert(header.block.clone()));
        let chain = Chain::new(Tip::GENESIS);
        let mut paths = Paths::default();
        let mut steps = 0;
        for header in &headers {
            paths.walk(&chain, &blocks, end(header), |_| {
                steps += 1;
                false
            });
        }
        assert!(steps <= 101, "{steps}");
        assert!(headers.iter().all(|header| paths.has_visited(id(header))));
    }
}
