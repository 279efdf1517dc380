//! Ids of entries or blocks that peers were asked for (`apollo` §5: `wanted`).
//!
//! A second entry of a round counts only while its id is wanted. So no peer may take the room of another one: a Byzantine peer
//! could name ids without end, and an entry that a later author extends would be refused.

use quorate_types::{ReplicaId, View};
use std::collections::BTreeMap;

/// Ids that one peer has named at most: two whole answers.
pub(super) const WANTED_PER_PEER_MAX: usize = 512;

/// Wanted ids of each peer that has named them, each with the round of the entry that names it.
#[derive(Debug)]
pub(super) struct Wanted<I>(BTreeMap<ReplicaId, BTreeMap<I, View>>);

impl<I> Default for Wanted<I> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<I: Ord + Copy> Wanted<I> {
    /// Notes that a peer is asked for an id, because an entry of `round` names it. The highest round gives way: what is far
    /// ahead is asked for again when it is near.
    pub(super) fn insert(&mut self, id: I, round: View, peer: ReplicaId) {
        let named = self.0.entry(peer).or_default();
        named.insert(id, round);
        if named.len() > WANTED_PER_PEER_MAX
            && let Some(highest) = named.iter().max_by_key(|(_, round)| **round).map(|(id, _)| *id)
        {
            named.remove(&highest);
        }
    }

    /// Returns the highest round of an entry that names an id.
    pub(super) fn named_in(&self, id: I) -> Option<View> {
        self.0.values().filter_map(|named| named.get(&id)).max().copied()
    }

    /// Forgets an id that has arrived.
    pub(super) fn remove(&mut self, id: I) {
        self.0.values_mut().for_each(|named| {
            named.remove(&id);
        });
    }

    /// Forgets the ids that entries up to this round have named.
    pub(super) fn settle(&mut self, round: View) {
        self.0.retain(|_, named| {
            named.retain(|_, named_in| *named_in > round);
            !named.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_the_highest_round_gives_way_and_other_peers_keep_theirs() {
        let mut wanted = Wanted::default();
        wanted.insert(7_000, View(1), ReplicaId(1));
        for id in 0..2_000_u64 {
            wanted.insert(id, View(id + 10), ReplicaId(0));
        }
        assert_eq!(wanted.named_in(7_000), Some(View(1)));
        assert_eq!((wanted.named_in(0), wanted.named_in(1_999)), (Some(View(10)), None));
        assert_eq!(wanted.0.values().map(BTreeMap::len).sum::<usize>(), WANTED_PER_PEER_MAX + 1);
        wanted.settle(View(10_000));
        assert!(wanted.0.is_empty());
    }
}
