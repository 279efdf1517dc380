//! What peers lack and the log alone has: a line of questions for each of them, served by turns.
//!
//! A question costs its sender some bytes and this replica a read of its disk. So whoever asks for much waits behind its
//! own questions, and nobody else behind them. What one turn reads is bounded, or they would hold up everybody.

use quorate_replica::Input;
use quorate_storage::{Disk, Fault, Store};
use quorate_types::limits::{DECIDED_PER_ANSWER_MAX, LOADS_PER_PEER_MAX};
use quorate_types::{BlockId, Height, ReplicaId};
use std::collections::{BTreeMap, VecDeque};

/// Questions answered in one turn.
const LOADS_PER_TURN: usize = 8;
/// Records read in one turn, each of which may lie elsewhere on a slow disk. A block is read whole, however many bodies it
/// has; a longer list of ids takes several turns.
const READS_PER_TURN: u64 = 64;
/// Bytes after which no more is read in a turn, because one block may be as long as eight others: a full one, as limits are
/// by default.
const BYTES_PER_TURN: u64 = 4 << 20;

/// What a turn may still read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    loads: usize,
    reads: u64,
    bytes: u64,
}

impl Default for Reads {
    fn default() -> Self {
        Self { loads: LOADS_PER_TURN, reads: READS_PER_TURN, bytes: BYTES_PER_TURN }
    }
}

/// A question that reads answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    /// Which block was decided at this height, if it is this one.
    Block { to: ReplicaId, height: Height, id: BlockId },
    /// What was decided from this height on, and what of it was read in earlier turns.
    Ids { to: ReplicaId, from: Height, ids: Vec<BlockId> },
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
            Self::Ids { to, from, ids } => Input::StoredIds(to, from, ids),
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
        let line = self.line(load.to());
        if line.contains(&load) {
            // Whoever reads slowly asks again before it has the answer.
            return Ok(());
        }
        if line.len() >= LOADS_PER_PEER_MAX {
            return Err(load);
        }
        line.push_back(load);
        Ok(())
    }

    fn line(&mut self, peer: ReplicaId) -> &mut VecDeque<Load> {
        let turns = &mut self.turns;
        self.lines.entry(peer).or_insert_with(|| {
            turns.push_back(peer);
            VecDeque::new()
        })
    }

    /// Answers questions, as far as this turn may read for them; what it begins it reads whole, however long it is, but for
    /// lists of ids.
    pub(crate) fn serve<D: Disk>(
        &mut self,
        store: &mut Store<D>,
        left: &mut Reads,
        answers: &mut Vec<Input>,
    ) -> Result<(), Fault> {
        while left.loads > 0
            && left.reads > 0
            && left.bytes > 0
            && let Some(load) = self.pop()
        {
            let (reads, bytes) = (store.reads(), store.read_bytes());
            answers.extend(self.read(store, load, left.reads)?);
            left.loads = left.loads.saturating_sub(1);
            left.reads = left.reads.saturating_sub(store.reads().saturating_sub(reads));
            left.bytes = left.bytes.saturating_sub(store.read_bytes().saturating_sub(bytes));
        }
        Ok(())
    }

    /// Reads what answers a question; `None` when it is to be gone on with in another turn.
    fn read<D: Disk>(
        &mut self,
        store: &mut Store<D>,
        load: Load,
        reads: u64,
    ) -> Result<Option<Input>, Fault> {
        match load {
            Load::Block { to, height, id } => {
                // What was decided is a short record. No body is read for an id that was not.
                let is_decided = store.decided_ids(height, 1)?.contains(&id);
                let block = if is_decided { store.load(height)?.map(Box::new) } else { None };
                Ok(Some(Input::Stored(to, id, block)))
            }
            Load::Ids { to, from, mut ids } => {
                let known = ids.len();
                let most = usize::try_from(reads).unwrap_or(usize::MAX);
                let most = most.min(DECIDED_PER_ANSWER_MAX.saturating_sub(known));
                let next = from.plus(u64::try_from(known).unwrap_or(u64::MAX));
                ids.append(&mut store.decided_ids(next, most)?);
                if ids.len() >= DECIDED_PER_ANSWER_MAX || ids.len() < known.saturating_add(most) {
                    return Ok(Some(Input::StoredIds(to, from, ids)));
                }
                // Its next questions wait for it, and it waits for the turns of others.
                self.line(to).push_front(Load::Ids { to, from, ids });
                Ok(None)
            }
        }
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
    use quorate_storage::{MemDisk, StoreConfig};
    use quorate_types::{LogEntry, Mark};

    fn block(to: u16, height: u64) -> Load {
        Load::Block { to: ReplicaId(to), height: Height(height), id: BlockId::ZERO }
    }

    fn ids(to: u16, from: u64) -> Load {
        Load::Ids { to: ReplicaId(to), from: Height(from), ids: Vec::new() }
    }

    /// A list of ids is as many reads as it has ids. What a turn reads is bounded, whoever asks for how many lists; it goes
    /// on in the next turns, and others have theirs meanwhile.
    #[test]
    fn a_turn_reads_a_bounded_number_of_records() {
        let disk = MemDisk::new(1 << 20, 4096);
        let config = StoreConfig {
            limits: quorate_types::BodyLimits { bundle_bytes_max: 1 << 10, ..Default::default() },
            ..StoreConfig::default()
        };
        let mut store = Store::open(disk, config, &mut |_| {}).unwrap();
        for height in (1..=1_000).map(Height) {
            let decided = LogEntry::Decided { height, id: BlockId::null(height) };
            store.append(Mark(height.0), &decided).unwrap();
        }
        let mut loads = Loads::default();
        for from in [1, 300, 900] {
            loads.push(ids(3, from)).unwrap();
        }
        for height in [7, 8] {
            let id = BlockId::null(Height(height));
            loads.push(Load::Block { to: ReplicaId(1), height: Height(height), id }).unwrap();
        }
        let mut served: Vec<(u16, usize)> = Vec::new();
        let mut turns = 0;
        while !loads.is_empty() {
            turns += 1;
            let (before, mut answers) = (store.reads(), Vec::new());
            loads.serve(&mut store, &mut Reads::default(), &mut answers).unwrap();
            let read = store.reads() - before;
            assert!(read <= READS_PER_TURN + 2, "{read} in turn {turns}");
            for answer in answers {
                served.push(match answer {
                    Input::Stored(to, _, block) => (to.0, usize::from(block.is_some())),
                    Input::StoredIds(to, from, ids) => {
                        let first = ids.first().copied();
                        assert_eq!(first, Some(BlockId::null(from)));
                        assert_eq!(ids.last(), Some(&BlockId::null(from.plus(ids.len() as u64 - 1))));
                        (to.0, ids.len())
                    }
                    _ => unreachable!(),
                });
            }
        }
        assert_eq!(served, [(1, 1), (1, 1), (3, 256), (3, 256), (3, 101)]);
        assert!(turns >= 10, "{turns}");
    }

    #[test]
    fn who_asks_for_much_waits_behind_itself_alone() {
        let mut loads = Loads::default();
        for height in 0..LOADS_PER_PEER_MAX as u64 {
            assert_eq!(loads.push(block(3, height)), Ok(()));
        }
        let (more, list) = (block(3, 1_000), ids(3, 1));
        assert_eq!((loads.push(more.clone()), loads.push(list.clone())), (Err(more), Err(list)));
        assert_eq!(loads.push(block(3, 7)), Ok(()), "it is asked already, and read once");
        for height in 1..=2 {
            assert_eq!(loads.push(block(1, height)), Ok(()), "others have lines of their own");
        }
        assert_eq!(loads.push(ids(0, 9)), Ok(()));
        let order: Vec<Load> = std::iter::from_fn(|| loads.pop()).collect();
        assert_eq!(order[..6], [block(3, 0), block(1, 1), ids(0, 9), block(3, 1), block(1, 2), block(3, 2)]);
        let rest: Vec<Load> = (2..LOADS_PER_PEER_MAX as u64).map(|height| block(3, height)).collect();
        assert_eq!(order[5..], rest, "in the order in which it has asked");
        assert!(loads.is_empty() && loads.turns.is_empty());
        assert_eq!(loads.push(block(3, 1)), Ok(()), "and there is room again");
    }

    #[test]
    fn who_does_not_have_it_says_so() {
        assert!(matches!(block(3, 1).in_vain(), Input::Stored(ReplicaId(3), BlockId::ZERO, None)));
        assert!(
            matches!(ids(3, 2).in_vain(), Input::StoredIds(ReplicaId(3), Height(2), ids) if ids.is_empty())
        );
    }
}
