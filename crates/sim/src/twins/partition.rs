//! A partition of nodes into parts whose members reach each other.

/// Largest number of nodes of a scenario: replicas, and the second ones of twins.
pub const NODES_MAX: usize = 16;

/// A partition of nodes. Order and names of the parts have no meaning: the first node's part has number 0, and each
/// new part has the next number. So two partitions are the same exactly when they are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partition {
    part: [u8; NODES_MAX],
    nodes: usize,
}

impl Partition {
    /// Returns the partition with one part.
    #[must_use]
    pub fn together(nodes: usize) -> Self {
        Self { part: [0; NODES_MAX], nodes: nodes.min(NODES_MAX) }
    }

    /// Returns the partition in which nodes with equal numbers share a part. `None` for too many nodes.
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

    /// Returns all partitions into at most this number of parts. The one with one part comes first; the others follow
    /// in the order of the nodes' numbers.
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

    /// Adds a node.
    fn with(&self, part: usize) -> Self {
        let mut longer = *self;
        if let Some(slot) = longer.part.get_mut(self.nodes) {
            *slot = u8::try_from(part).unwrap_or(u8::MAX);
            longer.nodes = self.nodes.saturating_add(1);
        }
        longer
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the part of each node.
    #[must_use]
    pub fn numbers(&self) -> &[u8] {
        self.part.get(..self.nodes).unwrap_or_default()
    }

    /// Returns the number of parts.
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

    /// Returns the nodes of each part.
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

    /// Renames the nodes: `node` becomes `names[node]`.
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
