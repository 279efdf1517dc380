//! Scenarios that are equal but for names.
//!
//! Both halves of a twin are alike, so they may be exchanged. Replicas are alike if they lead the same views of the
//! scenario, and are both twins or both not. Where no leaders are set, every replica may lead in its turn, so only
//! the halves of twins are exchanged. The time after the scenario does not count: then all nodes reach each other,
//! and the protocol chooses the leaders.

use super::scenario::{Round, Scenario};
use quorate_types::ReplicaId;

/// New names of the nodes, by node.
type Names = Vec<usize>;

/// All renamings of a scenario's nodes that keep its committee and leaders.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Symmetry {
    names: Vec<Names>,
}

impl Symmetry {
    /// Returns the symmetry of scenarios with these twins and leaders.
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let ids: Vec<usize> = (0..scenario.n).collect();
        let is_led =
            !scenario.rounds.is_empty() && scenario.rounds.iter().all(|round| round.leader.is_some());
        let orders = if is_led { permutations(&ids) } else { vec![ids] };
        let is_allowed = |order: &Vec<usize>| {
            let keeps = |id: &ReplicaId| order.get(id.index()) == Some(&id.index());
            let is_twin = |id: usize| scenario.twins.iter().any(|twin| twin.index() == id);
            scenario.rounds.iter().filter_map(|round| round.leader.as_ref()).all(keeps)
                && order.iter().enumerate().all(|(from, to)| is_twin(from) == is_twin(*to))
        };
        let orders = orders.into_iter().filter(is_allowed);
        Self { names: orders.flat_map(|order| with_twins(scenario, &order)).collect() }
    }

    /// Whether the scenario is that first one.
    pub(crate) fn is_canonical(&self, rounds: &[Round]) -> bool {
        let is_less = |names: &Names| {
            let renamed = rounds.iter().map(|round| round.partition.renamed(names));
            renamed.cmp(rounds.iter().map(|round| round.partition)).is_lt()
        };
        !self.names.iter().any(is_less)
    }

    /// Returns the renamings.
    #[cfg(test)]
    pub(crate) fn names(&self) -> &[Names] {
        &self.names
    }
}

/// Returns the renamings of nodes that follow from one of replicas: the halves of each twin may be exchanged.
fn with_twins(scenario: &Scenario, order: &[usize]) -> Vec<Names> {
    let mut all: Vec<Names> = vec![order.to_vec()];
    for twin in &scenario.twins {
        let to = order.get(twin.index()).copied().unwrap_or_default();
        let place = scenario.twins.iter().position(|other| other.index() == to).unwrap_or_default();
        let second = scenario.n.saturating_add(place);
        all = all
            .into_iter()
            .flat_map(|names| {
                let mut straight = names.clone();
                straight.push(second);
                let mut crossed = names;
                if let Some(first) = crossed.get_mut(twin.index()) {
                    *first = second;
                }
                crossed.push(to);
                [straight, crossed]
            })
            .collect();
    }
    all
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    let Some((first, rest)) = items.split_first() else { return vec![Vec::new()] };
    let mut all = Vec::new();
    for shorter in permutations(rest) {
        for at in 0..=shorter.len() {
            let mut longer = shorter.clone();
            longer.insert(at, *first);
            all.push(longer);
        }
    }
    all
}
