//! What is being fetched, and of whom.

use quorate_types::{BlockId, Height, ReplicaId, ReplicaSet, Time};
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Want {
    /// Who may have it, in the order in which they were named.
    pub(super) peers: Vec<ReplicaId>,
    /// The same.
    pub(super) named: ReplicaSet,
    pub(super) next: usize,
    /// The highest that is known of it; that of a parent is below those of its children.
    pub(super) height: Height,
    /// Whether it was named as anything but a parent.
    pub(super) by_name: bool,
    /// Whether a block was given for it that is higher than what names it.
    pub(super) too_high: bool,
    pub(super) since: Time,
    pub(super) ask_at: Time,
    /// Whether the first of `peers` has said that the bodies are on their way.
    pub(super) announced: bool,
    /// Who was asked last.
    pub(super) asked: Option<ReplicaId>,
    /// Who did not have the block when asked.
    pub(super) refused: ReplicaSet,
    /// Who is wanted to be asked at once, and was asked before: it may have got the block since.
    pub(super) again: ReplicaSet,
    /// How often all have been asked.
    pub(super) rounds: usize,
    /// Counts up: the oldest goes when there is no room. Its key in [`Wants::by_age`].
    number: u64,
}

impl Want {
    pub(super) fn new(height: Height, now: Time, ask_at: Time) -> Self {
        Self {
            peers: Vec::new(),
            named: ReplicaSet::EMPTY,
            next: 0,
            height,
            by_name: false,
            too_high: false,
            since: now,
            ask_at,
            announced: false,
            asked: None,
            refused: ReplicaSet::EMPTY,
            again: ReplicaSet::EMPTY,
            rounds: 0,
            number: 0,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Wants {
    by_id: BTreeMap<BlockId, Want>,
    /// By number; has exactly what `by_id` has.
    by_age: BTreeMap<u64, BlockId>,
    begun: u64,
}

impl Wants {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many were begun so far.
    #[cfg(test)]
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    pub(super) fn get(&self, id: BlockId) -> Option<&Want> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: BlockId) -> Option<&mut Want> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Want> {
        self.by_id.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&BlockId, &mut Want)> {
        self.by_id.iter_mut()
    }

    /// One that is known, or a new one, for which the oldest goes where there are `most`. A liar's proposals must not keep
    /// this replica from fetching what counts: what it proposed in views that are over is older than what this one takes
    /// over and decides, and whatever is decided is asked for again.
    pub(super) fn begin(&mut self, id: BlockId, most: usize, new: impl FnOnce() -> Want) -> &mut Want {
        if self.by_id.len() >= most
            && !self.by_id.contains_key(&id)
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_id.remove(&oldest);
        }
        let (by_age, begun) = (&mut self.by_age, &mut self.begun);
        self.by_id.entry(id).or_insert_with(|| {
            let number = *begun;
            *begun = begun.wrapping_add(1);
            by_age.insert(number, id);
            Want { number, ..new() }
        })
    }

    pub(super) fn remove(&mut self, id: BlockId) {
        if let Some(want) = self.by_id.remove(&id) {
            self.by_age.remove(&want.number);
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Want) -> bool) {
        let by_age = &mut self.by_age;
        self.by_id.retain(|_, want| {
            let stays = keep(want);
            if !stays {
                by_age.remove(&want.number);
            }
            stays
        });
    }
}
