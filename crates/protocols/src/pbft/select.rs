//! `select` (§8): the blocks that a set of view changes leaves to be decided. A pure function of the set, used by the leader
//! that makes a NEW-VIEW and by every replica that checks one.

use super::view_message::ViewChange;
use quorate_types::{BlockId, Height, View};

/// Sizes of the committee that `select` needs.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Q.
    pub(super) quorum: usize,
    /// f + 1.
    pub(super) weak: usize,
    /// L.
    pub(super) window: u64,
}

/// Result of `select`: the heights and blocks with which a new view begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Selected {
    /// The newest stable checkpoint that the view changes show: all heights up to it are settled.
    pub(super) min: Height,
    /// X: one block for each height above `min` up to the last height with a justified claim. A claimed block may be a null
    /// block: one that an earlier view took over can be decided like any other.
    pub(super) picks: Vec<(Height, BlockId)>,
}

/// Result of `select` at one height.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pick {
    /// A block that has prepared and may be decided: null or not.
    Claimed(BlockId),
    /// No block can be decided at this height in any earlier view.
    Empty,
}

/// Function that picks a block for one height, by the rule of a variant.
pub(super) type PickFn = fn(&[&ViewChange], Height, &Sizes) -> Option<Pick>;

impl Selected {
    /// Returns the last height that the new view takes over.
    pub(super) fn max(&self) -> Height {
        self.picks.last().map_or(self.min, |(height, _)| *height)
    }
}

/// §8. Selects the blocks of a new view. `None` when the set is too small: it has to grow, perhaps beyond Q. The view changes
/// of all honest replicas always suffice, whatever f liars add.
pub(super) fn select(set: &[&ViewChange], sizes: Sizes, pick: PickFn) -> Option<Selected> {
    if set.len() < sizes.quorum {
        return None;
    }
    let min = set.iter().map(|change| change.stable()).max()?;
    let last = set.iter().filter_map(|change| change.prepared.last()).map(|entry| entry.height).max();
    let end = last.unwrap_or(min).min(min.plus(sizes.window));
    let (mut picks, mut claimed) = (Vec::new(), 0);
    let mut height = min.next();
    // Above the last entry of P only B can hold. Empty heights at the end are left to the new view.
    while height <= end {
        match pick(set, height, &sizes)? {
            Pick::Claimed(block) => {
                picks.push((height, block));
                claimed = picks.len();
            }
            Pick::Empty => picks.push((height, BlockId::null(height))),
        }
        height = height.next();
    }
    picks.truncate(claimed);
    Some(Selected { min, picks })
}

/// Returns the blocks that a sender claims to have prepared at a height. §14: the highest view first, not the first found.
fn candidates(set: &[&ViewChange], height: Height) -> Vec<(View, BlockId)> {
    let prepared = set.iter().filter_map(|change| change.prepared_at(height));
    let mut candidates: Vec<(View, BlockId)> = prepared.map(|entry| (entry.view, entry.block)).collect();
    candidates.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    candidates.dedup();
    candidates
}

/// Variant S (§9): picks the block with the certificate of the highest view. A decided block has one among any Q.
pub(super) fn pick_by_certificate(set: &[&ViewChange], height: Height) -> Pick {
    candidates(set, height).first().map_or(Pick::Empty, |(_, block)| Pick::Claimed(*block))
}

/// Variant H (§8): picks a block by the claims P and Q.
pub(super) fn pick_by_word(set: &[&ViewChange], height: Height, sizes: &Sizes) -> Option<Pick> {
    // All candidates are tried: an invented one hides no good one.
    let candidates = candidates(set, height);
    let good = candidates
        .iter()
        .find(|(view, block)| a1(set, height, *view, *block, sizes) && a2(set, height, *view, *block, sizes));
    if let Some((_, block)) = good {
        return Some(Pick::Claimed(*block));
    }
    // B: a quorum has prepared no block at this height, so none can be decided here in any earlier view.
    let empty = set.iter().filter(|change| change.prepared_at(height).is_none()).count();
    (empty >= sizes.quorum).then_some(Pick::Empty)
}

/// A1: a quorum has prepared no conflicting block, so no other block can be decided in this view or later.
fn a1(set: &[&ViewChange], height: Height, view: View, block: BlockId, sizes: &Sizes) -> bool {
    let agrees = |change: &&&ViewChange| {
        change
            .prepared_at(height)
            .is_none_or(|entry| entry.view < view || (entry.view == view && entry.block == block))
    };
    set.iter().filter(agrees).count() >= sizes.quorum
}

/// A2: at least one honest replica has accepted the block in this view or later: it was proposed, and its body exists.
fn a2(set: &[&ViewChange], height: Height, view: View, block: BlockId, sizes: &Sizes) -> bool {
    let accepted =
        |change: &&&ViewChange| change.pre_prepared_at(height, block).is_some_and(|entry| entry.view >= view);
    set.iter().filter(accepted).count() >= sizes.weak
}
