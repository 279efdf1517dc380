//! Counting equal votes of distinct replicas.

use quorate_types::{ReplicaId, ReplicaSet};
use std::collections::BTreeMap;

/// Votes for values of `K` about one thing (a slot): each replica counts once, for the first value that it
/// votes for. Bounded by the number of replicas.
///
/// ```
/// use quorate_consensus::parts::tally::{Tally, Vote};
/// use quorate_types::ReplicaId;
///
/// let mut votes = Tally::default();
/// assert_eq!(votes.add("a", ReplicaId(0)), Vote::Counted(1));
/// assert_eq!(votes.add("a", ReplicaId(0)), Vote::Again);
/// assert_eq!(votes.add("b", ReplicaId(0)), Vote::Conflict("a"));
/// assert_eq!(votes.add("a", ReplicaId(2)), Vote::Counted(2));
/// ```
#[derive(Clone, Debug)]
pub struct Tally<K> {
    first: BTreeMap<ReplicaId, K>,
}

/// What became of a vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vote<K> {
    /// Counted; so many distinct replicas have voted for this value now.
    Counted(usize),
    /// The same vote was counted before.
    Again,
    /// The replica voted for another value before; only that one counts.
    Conflict(K),
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self { first: BTreeMap::new() }
    }
}

impl<K: Copy + Eq> Tally<K> {
    /// Counts a vote.
    pub fn add(&mut self, value: K, by: ReplicaId) -> Vote<K> {
        match self.first.get(&by) {
            Some(before) if *before == value => Vote::Again,
            Some(before) => Vote::Conflict(*before),
            None => {
                self.first.insert(by, value);
                Vote::Counted(self.count(value))
            }
        }
    }

    /// Distinct replicas that voted for a value.
    #[must_use]
    pub fn count(&self, value: K) -> usize {
        self.first.values().filter(|voted| **voted == value).count()
    }

    /// Who voted for a value.
    #[must_use]
    pub fn voters(&self, value: K) -> ReplicaSet {
        self.first.iter().filter(|(_, voted)| **voted == value).map(|(by, _)| *by).collect()
    }

    /// What a replica voted for.
    #[must_use]
    pub fn of(&self, by: ReplicaId) -> Option<K> {
        self.first.get(&by).copied()
    }

    /// A value that at least `quorum` distinct replicas voted for.
    #[must_use]
    pub fn reached(&self, quorum: usize) -> Option<K> {
        self.first.values().copied().find(|value| self.count(*value) >= quorum)
    }
}
