//! Counting of equal votes of distinct replicas.

use quorate_types::{ReplicaId, ReplicaSet};
use std::collections::BTreeMap;

/// Votes for values of `K` in one slot. Each replica counts once, for the first value that it votes for. Bounded by the
/// number of replicas.
///
/// ```
/// use quorate_consensus::parts::tally::{Tally, Tallied};
/// use quorate_types::ReplicaId;
///
/// let mut votes = Tally::default();
/// assert_eq!(votes.add("a", ReplicaId(0)), Tallied::Counted(1));
/// assert_eq!(votes.add("a", ReplicaId(0)), Tallied::Again);
/// assert_eq!(votes.add("b", ReplicaId(0)), Tallied::Conflict("a"));
/// assert_eq!(votes.add("a", ReplicaId(2)), Tallied::Counted(2));
/// ```
#[derive(Clone, Debug)]
pub struct Tally<K> {
    first: BTreeMap<ReplicaId, K>,
}

/// Result of adding a vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tallied<K> {
    /// Counted; the number of distinct replicas that have voted for this value.
    Counted(usize),
    /// The vote was counted before.
    Again,
    /// The replica voted for another value before; only that vote counts.
    Conflict(K),
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self { first: BTreeMap::new() }
    }
}

impl<K: Copy + Eq> Tally<K> {
    /// Adds a vote.
    pub fn add(&mut self, value: K, by: ReplicaId) -> Tallied<K> {
        match self.first.get(&by) {
            Some(before) if *before == value => Tallied::Again,
            Some(before) => Tallied::Conflict(*before),
            None => {
                self.first.insert(by, value);
                Tallied::Counted(self.count(value))
            }
        }
    }

    /// Counts the distinct replicas that voted for a value.
    #[must_use]
    pub fn count(&self, value: K) -> usize {
        self.first.values().filter(|voted| **voted == value).count()
    }

    /// Returns the replicas that voted for a value.
    #[must_use]
    pub fn voters(&self, value: K) -> ReplicaSet {
        self.first.iter().filter(|(_, voted)| **voted == value).map(|(by, _)| *by).collect()
    }

    /// Returns the value that a replica voted for.
    #[must_use]
    pub fn of(&self, by: ReplicaId) -> Option<K> {
        self.first.get(&by).copied()
    }

    /// Returns a value for which at least `quorum` distinct replicas voted.
    #[must_use]
    pub fn reached(&self, quorum: usize) -> Option<K> {
        self.first.values().copied().find(|value| self.count(*value) >= quorum)
    }
}
