//! A scenario: leaders and partitions, view by view.

use super::partition::{NODES_MAX, Partition};
use quorate_types::ReplicaId;
use std::fmt;

/// One view of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Round {
    /// The leader; `None`: the protocol's own.
    pub leader: Option<ReplicaId>,
    /// The partition of the nodes.
    pub partition: Partition,
}

/// A scenario. Node `i` is replica `i`, or the first half of that twin. Node `n + k` is the second half of the `k`-th
/// twin.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Scenario {
    /// Number of replicas in the committee.
    pub n: usize,
    /// The twins, in the order of their ids.
    pub twins: Vec<ReplicaId>,
    /// The first views.
    pub rounds: Vec<Round>,
}

/// The reason why a scenario is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadScenario(pub String);

impl Scenario {
    /// Returns the number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.n.saturating_add(self.twins.len())
    }

    /// Returns the replica of a node.
    #[must_use]
    pub fn owner(&self, node: usize) -> Option<ReplicaId> {
        match node.checked_sub(self.n) {
            None => u16::try_from(node).ok().map(ReplicaId),
            Some(second) => self.twins.get(second).copied(),
        }
    }

    /// Returns the name of a node: `3` is replica 3 or the first half of a twin, `3'` its second half.
    #[must_use]
    pub fn name(&self, node: usize) -> String {
        let owner = self.owner(node).map_or_else(|| "?".to_owned(), |id| id.to_string());
        if node < self.n { owner } else { format!("{owner}'") }
    }

    /// Returns the node of a name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<usize> {
        (0..self.nodes()).find(|node| self.name(*node) == name)
    }

    /// Checks the scenario.
    ///
    /// # Errors
    /// Returns the reason why it is invalid.
    pub fn check(&self) -> Result<(), BadScenario> {
        let bad = |what: String| Err(BadScenario(what));
        if self.n == 0 || self.nodes() > NODES_MAX {
            return bad(format!("{} nodes; there may be 1 to {NODES_MAX}", self.nodes()));
        }
        if !self.twins.is_sorted_by(|a, b| a < b) || self.twins.iter().any(|id| id.index() >= self.n) {
            return bad(format!("twins have to be different replicas below {}, in order", self.n));
        }
        for (view, round) in self.rounds.iter().enumerate() {
            if round.partition.nodes() != self.nodes() {
                let found = round.partition.nodes();
                return bad(format!("view {view}: {found} nodes in parts, there are {}", self.nodes()));
            }
            if round.leader.is_some_and(|leader| leader.index() >= self.n) {
                return bad(format!("view {view}: its leader is not below {}", self.n));
            }
        }
        Ok(())
    }

    /// Returns the leaders from the first view on, up to the first view without one.
    #[must_use]
    pub fn leaders(&self) -> Vec<ReplicaId> {
        self.rounds.iter().map_while(|round| round.leader).collect()
    }
}

impl fmt::Display for Scenario {
    /// Formats each view as `0 | 1 2 3 3'`, with its leader where one is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (view, round) in self.rounds.iter().enumerate() {
            let comma = if view == 0 { "" } else { ", " };
            write!(f, "{comma}view {view}")?;
            if let Some(leader) = round.leader {
                write!(f, " led by {leader}")?;
            }
            let part = |nodes: Vec<usize>| {
                nodes.into_iter().map(|node| self.name(node)).collect::<Vec<_>>().join(" ")
            };
            let parts: Vec<String> = round.partition.members().into_iter().map(part).collect();
            write!(f, ": {}", parts.join(" | "))?;
        }
        Ok(())
    }
}
