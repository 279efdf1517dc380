//! One scenario: who leads, and who reaches whom, view by view.

use super::partition::{NODES_MAX, Partition};
use quorate_types::ReplicaId;
use std::fmt;

/// What happens in one view.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Round {
    /// Who leads; `None` for whom the protocol's own rule names.
    pub leader: Option<ReplicaId>,
    /// Who reaches whom.
    pub partition: Partition,
}

/// See the module. Node `i` is replica `i`, for twins the first of the two; node `n + k` is the second of the
/// `k`-th twin.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Scenario {
    /// How many replicas the committee has.
    pub n: usize,
    /// Which of them are twins, in the order of their ids.
    pub twins: Vec<ReplicaId>,
    /// The first views.
    pub rounds: Vec<Round>,
}

/// Why something is no scenario.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadScenario(pub String);

impl Scenario {
    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.n.saturating_add(self.twins.len())
    }

    /// Whose node it is.
    #[must_use]
    pub fn owner(&self, node: usize) -> Option<ReplicaId> {
        match node.checked_sub(self.n) {
            None => u16::try_from(node).ok().map(ReplicaId),
            Some(second) => self.twins.get(second).copied(),
        }
    }

    /// How a node is written: `3` is replica 3 or the first of a twin, `3'` its second.
    #[must_use]
    pub fn name(&self, node: usize) -> String {
        let owner = self.owner(node).map_or_else(|| "?".to_owned(), |id| id.to_string());
        if node < self.n { owner } else { format!("{owner}'") }
    }

    /// The node that is written like this.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<usize> {
        (0..self.nodes()).find(|node| self.name(*node) == name)
    }

    /// Checks that it makes sense.
    ///
    /// # Errors
    /// What does not.
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

    /// The leaders that are set, from the first view on: as far as all are.
    #[must_use]
    pub fn leaders(&self) -> Vec<ReplicaId> {
        self.rounds.iter().map_while(|round| round.leader).collect()
    }
}

impl fmt::Display for Scenario {
    /// `0 | 1 2 3 3'` for each view, with its leader where one is set.
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
