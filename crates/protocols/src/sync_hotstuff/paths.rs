//! Ways down the tree of blocks, each block on them once: a leader that lies may have thousands of headers looked at, and
//! liars ask for what lies on none.

use super::normal::End;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{Below, Chain, Tip};
use quorate_types::{BlockId, Height};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Which blocks extend which, as far as that was asked: for each end what was passed on the way to it.
#[derive(Debug, Default)]
pub(super) struct Relations(RefCell<BTreeMap<End, BTreeMap<BlockId, Option<bool>>>>);

impl Relations {
    /// Whether a block is this end or extends it ([`Chain::extends`]).
    pub(super) fn ask(&self, chain: &Chain, blocks: &BlockTree, tip: Tip, end: End) -> Option<bool> {
        chain.extends_knowing(blocks, tip, end, self.0.borrow_mut().entry(end).or_default())
    }
}

/// Blocks that were passed.
#[derive(Debug, Default)]
pub(super) struct Paths {
    passed: BTreeSet<BlockId>,
}

impl Paths {
    /// Whether a block is another one or is known to extend it. All questions to one value are about the same `to`, up to the
    /// first that is answered with yes.
    pub(super) fn lead(&mut self, chain: &Chain, blocks: &BlockTree, from: End, to: End) -> bool {
        let mut found = from == to;
        self.walk(chain, blocks, from, |end| {
            found |= end == to;
            found || end.0 <= to.0
        });
        found
    }

    /// Passes a block and those below it that are known, down to a height.
    pub(super) fn pass(&mut self, chain: &Chain, blocks: &BlockTree, from: End, low: Height) {
        self.walk(chain, blocks, from, |end| end.0 < low);
        self.passed.insert(from.1);
    }

    pub(super) fn has_passed(&self, id: BlockId) -> bool {
        self.passed.contains(&id)
    }

    /// Down from a block until something says stop, a header is missing, or somebody was there before.
    fn walk(&mut self, chain: &Chain, blocks: &BlockTree, from: End, mut stops: impl FnMut(End) -> bool) {
        let Some(mut at) = chain.tip(blocks, from.1).filter(|tip| tip.height == from.0) else { return };
        while !stops(at.end()) && self.passed.insert(at.id) {
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

    /// Whatever is asked, no block is passed twice.
    #[test]
    fn each_block_is_passed_once() {
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
        assert!(headers.iter().all(|header| paths.has_passed(id(header))));
    }
}
