//! Votes for blocks in the views that still matter.

use crate::effect::Evidence;
use quorate_types::{BlockId, Height, Kind, ReplicaId, ReplicaSet, Signature, Statement, View};

/// A vote for a block. A replica has one vote in a view, at any height: one slot for each kind and view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockVote {
    /// The view.
    pub view: View,
    /// The block.
    pub block: BlockId,
}

impl BlockVote {
    /// Returns the statement that its author signs.
    #[must_use]
    pub fn statement(&self, kind: Kind) -> Statement {
        Statement::new(kind, self.view, Height::ZERO, self.block.0)
    }
}

quorate_types::wire_struct!(BlockVote { view, block });

/// Returns the evidence of equivocation in two votes of one replica in one view.
#[must_use]
pub fn equivocation(
    kind: Kind,
    by: ReplicaId,
    view: View,
    first: (BlockId, Signature),
    second: (BlockId, Signature),
) -> Evidence {
    let signed = |(block, signature)| (BlockVote { view, block }.statement(kind), signature);
    Evidence { by, first: signed(first), second: signed(second) }
}

/// Votes. The first vote of a replica in a view counts, and only its newest two views are kept: a replica takes the room of
/// two votes, whatever it sends.
#[derive(Clone, Debug, Default)]
pub struct Votes {
    // At most two entries for each member of the committee: a list beats a tree.
    entries: Vec<KeptVote>,
}

#[derive(Clone, Copy, Debug)]
struct KeptVote {
    by: ReplicaId,
    view: View,
    block: BlockId,
    /// Present where votes are signed.
    signature: Option<Signature>,
}

/// The outcome of adding a vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Added {
    /// The vote counts.
    Counted,
    /// The vote was counted before.
    Again,
    /// The replica voted for another block in this view before; only that vote counts.
    Conflict(BlockId, Option<Signature>),
    /// The replica has voted in two later views.
    Old,
}

/// Views of one replica for which votes are kept.
const VIEWS_KEPT: usize = 2;

impl Votes {
    /// Adds a vote.
    pub fn add(&mut self, by: ReplicaId, view: View, block: BlockId, signature: Option<Signature>) -> Added {
        let own = || self.entries.iter().enumerate().filter(|(_, entry)| entry.by == by);
        if let Some((_, known)) = own().find(|(_, entry)| entry.view == view) {
            let is_same = known.block == block;
            return if is_same { Added::Again } else { Added::Conflict(known.block, known.signature) };
        }
        let entry = KeptVote { by, view, block, signature };
        if own().count() < VIEWS_KEPT {
            self.entries.push(entry);
            return Added::Counted;
        }
        let oldest = own().min_by_key(|(_, entry)| entry.view).map(|(at, _)| at);
        match oldest.and_then(|at| self.entries.get_mut(at)) {
            Some(oldest) if oldest.view < view => {
                *oldest = entry;
                Added::Counted
            }
            _ => Added::Old,
        }
    }

    /// Returns the number of distinct replicas that voted for a block in a view.
    #[must_use]
    pub fn count(&self, view: View, block: BlockId) -> usize {
        self.entries.iter().filter(|entry| entry.view == view && entry.block == block).count()
    }

    /// Returns the signed votes for a block in a view, in the order of the voters.
    #[must_use]
    pub fn signed(&self, view: View, block: BlockId) -> Vec<(ReplicaId, Signature)> {
        let votes = self.entries.iter().filter(|entry| entry.view == view && entry.block == block);
        let mut signed: Vec<(ReplicaId, Signature)> =
            votes.filter_map(|entry| Some((entry.by, entry.signature?))).collect();
        signed.sort_unstable_by_key(|(by, _)| *by);
        signed
    }

    /// Returns the replicas that voted for a block, in any view.
    #[must_use]
    pub fn voters(&self, block: BlockId) -> ReplicaSet {
        self.entries.iter().filter(|entry| entry.block == block).map(|entry| entry.by).collect()
    }

    /// Returns the replicas that voted in a view, for any block.
    #[must_use]
    pub fn voted_in(&self, view: View) -> ReplicaSet {
        self.entries.iter().filter(|entry| entry.view == view).map(|entry| entry.by).collect()
    }
}
