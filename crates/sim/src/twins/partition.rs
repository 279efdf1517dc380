//! Which nodes reach each other: a set of nodes in parts.

/// Nodes that a scenario may have: replicas, and the second ones of twins.
pub const NODES_MAX: usize = 16;

/// Nodes in parts. The order of the parts and their names mean nothing: the part of the first node is number 0, and a
/// new part has the next number, so that two partitions are the same exactly when they are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partition {
    part: [u8; NODES_MAX],
    nodes: usize,
}

impl Partition {
    /// So many nodes that all reach each other.
    #[must_use]
    pub fn together(nodes: usize) -> Self {
        Self { part: [0; NODES_MAX], nodes: nodes.min(NODES_MAX) }
    }

    /// The partition in which nodes of one part have the same number, whichever. `None` for too many nodes.
    #[must_use]
    pub fn of(numbers: &[usize]) -> Option<Self> {
        if numbers.len() > NODES_MAX {
            return None;
        }
        let mut names: Vec<usize> = Vec::new();
        let mut part = [0; NODES_MAX];
        for (slot, number) in part.iter_mut().zip(numbers) {
            let at = names.iter().position(|name| name == number).unwrap_or_else(|| {
                names.push(*number);
                names.len().saturating_sub(1)
            });
            *slot = u8::try_from(at).unwrap_or(u8::MAX);
        }
        Some(Self { part, nodes: numbers.len() })
    }

    /// All partitions of so many nodes into at most so many parts: first the one in which all are together, then in
    /// the order of the nodes' numbers.
    #[must_use]
    pub fn all(nodes: usize, parts_max: usize) -> Vec<Self> {
        let mut all = vec![Self::together(0)];
        for _ in 0..nodes.min(NODES_MAX) {
            let longer = |shorter: &Self| -> Vec<Self> {
                let most = shorter.parts().saturating_add(1).min(parts_max.max(1));
                (0..most).map(|part| shorter.with(part)).collect()
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    /// With one node more.
    fn with(&self, part: usize) -> Self {
        let mut longer = *self;
        if let Some(slot) = longer.part.get_mut(self.nodes) {
            *slot = u8::try_from(part).unwrap_or(u8::MAX);
            longer.nodes = self.nodes.saturating_add(1);
        }
        longer
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The number of each node's part, by node.
    #[must_use]
    pub fn numbers(&self) -> &[u8] {
        self.part.get(..self.nodes).unwrap_or_default()
    }

    /// How many parts there are.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.numbers().iter().max().map_or(0, |most| usize::from(*most).saturating_add(1))
    }

    /// Whether two nodes are in the same part.
    #[must_use]
    pub fn joins(&self, a: usize, b: usize) -> bool {
        let numbers = self.numbers();
        matches!((numbers.get(a), numbers.get(b)), (Some(a), Some(b)) if a == b)
    }

    /// The nodes of each part, in the order of the parts.
    #[must_use]
    pub fn members(&self) -> Vec<Vec<usize>> {
        let mut members = vec![Vec::new(); self.parts()];
        for (node, part) in self.numbers().iter().enumerate() {
            if let Some(members) = members.get_mut(usize::from(*part)) {
                members.push(node);
            }
        }
        members
    }

    /// The same with other names for the nodes: what holds of `node` here holds of `names[node]` there.
    #[must_use]
    pub(crate) fn renamed(&self, names: &[usize]) -> Self {
        let mut numbers = vec![0; self.nodes];
        for (part, name) in self.numbers().iter().zip(names) {
            if let Some(slot) = numbers.get_mut(*name) {
                *slot = usize::from(*part);
            }
        }
        Self::of(&numbers).unwrap_or(*self)
    }
}
