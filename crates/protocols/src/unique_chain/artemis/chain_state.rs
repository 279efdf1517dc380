//! The coordinator's state on a vote chain, a pure function of that chain (§2). So a change of the coordinator needs no message
//! of its own: replicas on the same chain are in the same view.

use super::super::entry::{Entry, EntryRef};
use super::vote::{Vote, VoteKind};
use quorate_types::{BlockId, Height, ReplicaSet, View};

/// State after a vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainState {
    /// The coordinator's view.
    pub view: View,
    /// The vote that opened the view; zero for genesis.
    pub anchor: EntryRef,
    /// Voters that have flagged the coordinator.
    pub flags: ReplicaSet,
    /// The newest block that was voted for; zero for genesis.
    pub head: BlockId,
    /// Its height.
    pub height: Height,
}

quorate_types::wire_struct!(ChainState { view, anchor, flags, head, height });

impl ChainState {
    /// State before the first vote.
    pub const GENESIS: Self = Self {
        view: View(1),
        anchor: EntryRef::GENESIS,
        flags: ReplicaSet::EMPTY,
        head: BlockId::ZERO,
        height: Height::ZERO,
    };

    /// A5. §2: returns the state after a further vote, whose block has this height. The view changes when f + 1 distinct voters
    /// have flagged its coordinator, or one has shown that it equivocates.
    #[must_use]
    pub fn after(mut self, vote: &Vote, height: Height, weak: usize) -> Self {
        (self.head, self.height) = (vote.block, height);
        if vote.kind == VoteKind::NoProgress {
            self.flags.insert(vote.voter);
        }
        if self.flags.len() >= weak || matches!(vote.kind, VoteKind::Equivocation(_)) {
            self.view = self.view.next();
            self.anchor = vote.place();
            self.flags = ReplicaSet::EMPTY;
        }
        self
    }
}
