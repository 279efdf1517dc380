//! What peers lack and the log alone has: a line of questions for each of them, served by turns.
//!
//! A question costs its sender some bytes and this replica a read of its disk. So whoever asks for much waits behind its
//! own questions, and nobody else behind them.

use quorate_replica::Input;
use quorate_types::limits::LOADS_PER_PEER_MAX;
use quorate_types::{BlockId, Height, ReplicaId};
use std::collections::{BTreeMap, VecDeque};

/// A question that a read answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    /// Which block was decided at this height, if it is this one.
    Block { to: ReplicaId, height: Height, id: BlockId },
    /// What was decided from this height on.
    Ids { to: ReplicaId, from: Height },
}

impl Load {
    fn to(&self) -> ReplicaId {
        match self {
            Self::Block { to, .. } | Self::Ids { to, .. } => *to,
        }
    }

    /// The answer of whoever does not have it.
    pub(crate) fn in_vain(self) -> Input {
        match self {
            Self::Block { to, id, .. } => Input::Stored(to, id, None),
            Self::Ids { to, from } => Input::StoredIds(to, from, Vec::new()),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// None is empty.
    lines: BTreeMap<ReplicaId, VecDeque<Load>>,
    /// Whose lines these are, in the order of their turns.
    turns: VecDeque<ReplicaId>,
}

impl Loads {
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Puts a question into its peer's line, or gives it back where that is full.
    pub(crate) fn push(&mut self, load: Load) -> Result<(), Load> {
        let turns = &mut self.turns;
        let line = self.lines.entry(load.to()).or_insert_with(|| {
            turns.push_back(load.to());
            VecDeque::new()
        });
        if line.len() >= LOADS_PER_PEER_MAX {
            return Err(load);
        }
        line.push_back(load);
        Ok(())
    }

    /// The next question: the first one of whoever has waited longest for a turn.
    pub(crate) fn pop(&mut self) -> Option<Load> {
        let peer = self.turns.pop_front()?;
        let line = self.lines.get_mut(&peer)?;
        let load = line.pop_front();
        if line.is_empty() {
            self.lines.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        load
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(to: u16, height: u64) -> Load {
        Load::Block { to: ReplicaId(to), height: Height(height), id: BlockId::ZERO }
    }

    #[test]
    fn who_asks_for_much_waits_behind_itself_alone() {
        let mut loads = Loads::default();
        for height in 0..LOADS_PER_PEER_MAX as u64 {
            assert_eq!(loads.push(block(3, height)), Ok(()));
        }
        let more = Load::Ids { to: ReplicaId(3), from: Height(1) };
        assert_eq!((loads.push(block(3, 7)), loads.push(more)), (Err(block(3, 7)), Err(more)));
        for height in 1..=2 {
            assert_eq!(loads.push(block(1, height)), Ok(()), "others have lines of their own");
        }
        let ids = Load::Ids { to: ReplicaId(0), from: Height(9) };
        assert_eq!(loads.push(ids), Ok(()));
        let order: Vec<Load> = std::iter::from_fn(|| loads.pop()).collect();
        assert_eq!(order[..6], [block(3, 0), block(1, 1), ids, block(3, 1), block(1, 2), block(3, 2)]);
        let rest: Vec<Load> = (2..LOADS_PER_PEER_MAX as u64).map(|height| block(3, height)).collect();
        assert_eq!(order[5..], rest, "in the order in which it has asked");
        assert!(loads.is_empty() && loads.turns.is_empty());
        assert_eq!(loads.push(block(3, 1)), Ok(()), "and there is room again");
    }

    #[test]
    fn who_does_not_have_it_says_so() {
        assert!(matches!(block(3, 1).in_vain(), Input::Stored(ReplicaId(3), BlockId::ZERO, None)));
        let ids = Load::Ids { to: ReplicaId(3), from: Height(2) };
        assert!(matches!(ids.in_vain(), Input::StoredIds(ReplicaId(3), Height(2), ids) if ids.is_empty()));
    }
}
