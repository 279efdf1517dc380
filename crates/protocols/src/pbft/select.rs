//! `select` (§8): what a set of view changes leaves to be decided. A pure function of the set, used by the leader
//! that makes a NEW-VIEW and by everybody who checks one.

use super::variant::Variant;
use super::view_message::ViewChange;
use quorate_types::{BlockId, Height, View};

/// What `select` needs to know of the committee.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Q.
    pub(super) quorum: usize,
    /// f + 1.
    pub(super) weak: usize,
    /// L.
    pub(super) window: u64,
}

/// What a new view begins with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Selected {
    /// The newest stable checkpoint that the view changes show: everything up to it is settled.
    pub(super) min: Height,
    /// X: one block for each height above `min` up to the last at which something may have been decided. That may
    /// be a null block: one that an earlier view took over can have been decided like any other.
    pub(super) picks: Vec<(Height, BlockId)>,
}

impl Selected {
    /// The last height that the new view takes over.
    pub(super) fn max(&self) -> Height {
        self.picks.last().map_or(self.min, |(height, _)| *height)
    }
}

/// §8. `None` when the set says too little: then it has to grow, maybe beyond Q. The view changes of all honest
/// replicas always say enough, whatever f liars add.
pub(super) fn select<V: Variant>(set: &[&ViewChange], sizes: Sizes) -> Option<Selected> {
    if set.len() < sizes.quorum {
        return None;
    }
    let min = set.iter().map(|change| change.stable()).max()?;
    let last = set.iter().filter_map(|change| change.prepared.last()).map(|entry| entry.height).max();
    let end = last.unwrap_or(min).min(min.plus(sizes.window));
    let mut picks = Vec::new();
    let (mut height, mut count) = (min.next(), 0);
    // Above the last entry of P only B can hold.
    while height <= end {
        let pick = V::pick(set, height, &sizes)?;
        picks.push((height, pick.unwrap_or_else(|| BlockId::null(height))));
        if pick.is_some() {
            count = picks.len();
        }
        height = height.next();
    }
    // What fills holes is not needed at the end. A null block that somebody has prepared is no such filling.
    picks.truncate(count);
    Some(Selected { min, picks })
}

/// What somebody has prepared at a height. §14: the highest view first, not the first that is found.
fn candidates(set: &[&ViewChange], height: Height) -> Vec<(View, BlockId)> {
    let prepared = set.iter().filter_map(|change| change.prepared_at(height));
    let mut candidates: Vec<(View, BlockId)> = prepared.map(|entry| (entry.view, entry.block)).collect();
    candidates.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    candidates.dedup();
    candidates
}

/// Variant S (§9): what has a certificate of the highest view; whatever was decided has one among any Q.
pub(super) fn pick_by_certificate(set: &[&ViewChange], height: Height) -> Option<BlockId> {
    candidates(set, height).first().map(|(_, block)| *block)
}

/// Variant H (§8): P and Q are the word of those who send them.
pub(super) fn pick_by_word(set: &[&ViewChange], height: Height, sizes: &Sizes) -> Option<Option<BlockId>> {
    // All of them are tried: one that is invented hides none that holds.
    let candidates = candidates(set, height);
    let good = candidates
        .iter()
        .find(|(view, block)| a1(set, height, *view, *block, sizes) && a2(set, height, *view, *block, sizes));
    if let Some((_, block)) = good {
        return Some(Some(*block));
    }
    // B: a quorum has nothing prepared here, so nothing can be decided here in any view before.
    let empty = set.iter().filter(|change| change.prepared_at(height).is_none()).count();
    (empty >= sizes.quorum).then_some(None)
}

/// A1: a quorum has prepared nothing that speaks against it: nothing else can be decided in this view or later.
fn a1(set: &[&ViewChange], height: Height, view: View, block: BlockId, sizes: &Sizes) -> bool {
    let agrees = |change: &&&ViewChange| {
        change
            .prepared_at(height)
            .is_none_or(|entry| entry.view < view || (entry.view == view && entry.block == block))
    };
    set.iter().filter(agrees).count() >= sizes.quorum
}

/// A2: one honest replica at least has accepted it in this view or later: it was proposed, and its body exists.
fn a2(set: &[&ViewChange], height: Height, view: View, block: BlockId, sizes: &Sizes) -> bool {
    let accepted =
        |change: &&&ViewChange| change.pre_prepared_at(height, block).is_some_and(|entry| entry.view >= view);
    set.iter().filter(accepted).count() >= sizes.weak
}
