//! Violations: two conflicting commits, and an honest vote that conflicts with an honest commit.

use quorate_types::{Block, BlockId, Height, View};
use std::collections::BTreeMap;

/// A vote of an honest replica.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voted {
    pub(crate) by: usize,
    pub(crate) view: View,
    pub(crate) height: Height,
    pub(crate) block: BlockId,
}

#[derive(Clone, Copy, Debug)]
struct Committed {
    by: usize,
    /// View of its votes.
    view: View,
    block: BlockId,
    /// Whether a timer has committed it, and not votes that decide at once.
    is_by_timer: bool,
    /// Whether a client may have its reply: then it must hold after a power cut as well.
    is_acknowledged: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Oracle {
    blocks: BTreeMap<BlockId, Block>,
    votes: Vec<Voted>,
    commits: Vec<Committed>,
    found: Option<String>,
}

impl Oracle {
    pub(crate) fn block(&mut self, block: Block) {
        self.blocks.entry(block.id()).or_insert(block);
    }

    pub(crate) fn get(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(&id)
    }

    pub(crate) fn found(&self) -> Option<&String> {
        self.found.as_ref()
    }

    pub(crate) fn find(&mut self, what: String) {
        self.found.get_or_insert(what);
    }

    pub(crate) fn commits(&self) -> usize {
        self.commits.len()
    }

    pub(crate) fn voted(&mut self, voted: Voted) {
        if let Some(commit) = self.commits.iter().find(|commit| self.conflicts(commit, &voted)) {
            let Voted { by, view, height, block } = voted;
            let found = format!("{by} votes for {block:?}, {height} in {view}, in conflict with {commit:?}");
            self.find(found);
        }
        self.votes.push(voted);
    }

    pub(crate) fn committed(&mut self, by: usize, view: Option<View>, block: BlockId, is_by_timer: bool) {
        let view = view.or_else(|| self.get(block).map(|block| block.view)).unwrap_or_default();
        let commit = Committed { by, view, block, is_by_timer, is_acknowledged: false };
        let beside =
            |other: &&Committed| !self.extends(block, other.block) && !self.extends(other.block, block);
        if let Some(other) = self.commits.iter().find(beside) {
            self.find(format!("{commit:?} and {other:?}"));
        }
        if let Some(voted) = self.votes.iter().find(|voted| self.conflicts(&commit, voted)) {
            self.find(format!("{commit:?} beside {voted:?}"));
        }
        self.commits.push(commit);
    }

    /// Notes that all commits of a replica are durable.
    pub(crate) fn acknowledged(&mut self, by: usize) {
        self.commits
            .iter_mut()
            .filter(|commit| commit.by == by)
            .for_each(|commit| commit.is_acknowledged = true);
    }

    /// Notes a power cut: commits without a reply may be forgotten.
    pub(crate) fn forget(&mut self) {
        self.commits.retain(|commit| commit.is_acknowledged);
    }

    /// Whether an honest vote conflicts with a commit. Of q_R votes f may be liars', so honest votes for another block of the
    /// same view are permitted. In later views every vote must extend the committed block.
    fn conflicts(&self, commit: &Committed, voted: &Voted) -> bool {
        let Some(block) = self.blocks.get(&commit.block) else { return false };
        let is_same = voted.view == commit.view && commit.is_by_timer && voted.height >= block.height;
        (voted.view > commit.view || is_same) && !self.extends(voted.block, commit.block)
    }

    fn extends(&self, high: BlockId, low: BlockId) -> bool {
        let mut at = high;
        while at != low {
            let Some(block) = self.blocks.get(&at) else { return false };
            at = block.parent;
        }
        true
    }
}
