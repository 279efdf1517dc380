//! Blocks and ids that peers ask for and that the log alone has. A turn reads a bounded amount, so that it stays short.

use crate::peer_queues::PeerQueues;
use quorate_replica::Input;
use quorate_storage::{BoxedStore, Fault};
use quorate_types::limits::{DECIDED_PER_ANSWER_MAX, LOADS_PER_PEER_MAX};
use quorate_types::{BlockId, Height, ReplicaId};

/// Questions that one turn answers.
const ANSWERS_PER_TURN: usize = 8;
/// Records that one turn reads; each may lie elsewhere on a slow disk. A block is read whole, with all its bodies. A longer
/// list of ids takes several turns.
const RECORDS_PER_TURN: u64 = 64;
/// Bytes after which a turn reads no more: one full block under the default limits. One block may be as long as eight
/// others.
const BYTES_PER_TURN: u64 = 4 << 20;

/// The reads that remain for a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBudget {
    answers: usize,
    records: u64,
    bytes: u64,
}

impl Default for ReadBudget {
    fn default() -> Self {
        Self { answers: ANSWERS_PER_TURN, records: RECORDS_PER_TURN, bytes: BYTES_PER_TURN }
    }
}

/// A question of a peer that reads of the log answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LogRead {
    /// The block with this id, if it was decided at this height.
    Block { to: ReplicaId, height: Height, id: BlockId },
    /// The ids that were decided from this height on, with those that earlier turns have read.
    Ids { to: ReplicaId, from: Height, ids: Vec<BlockId> },
}

impl LogRead {
    fn to(&self) -> ReplicaId {
        match self {
            Self::Block { to, .. } | Self::Ids { to, .. } => *to,
        }
    }

    /// Returns the answer of a replica that does not have the block or the ids.
    pub(crate) fn refusal(self) -> Input {
        match self {
            Self::Block { to, id, .. } => Input::Stored(to, id, None),
            Self::Ids { to, from, ids } => Input::StoredIds(to, from, ids),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LogReads {
    queues: PeerQueues<LogRead>,
}

impl LogReads {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Puts a question into its peer's queue, or returns it where that queue is full.
    pub(crate) fn push(&mut self, read: LogRead) -> Result<(), LogRead> {
        self.queues.push(read.to(), read, LOADS_PER_PEER_MAX)
    }

    /// Answers questions as far as the budget of this turn allows. A block that is begun is read whole, however long it is.
    pub(crate) fn serve(
        &mut self,
        store: &mut BoxedStore,
        left: &mut ReadBudget,
        answers: &mut Vec<Input>,
    ) -> Result<(), Fault> {
        while left.answers > 0
            && left.records > 0
            && left.bytes > 0
            && let Some((_, read)) = self.queues.pop()
        {
            let (records, bytes) = (store.reads(), store.read_bytes());
            answers.extend(self.read(store, read, left.records)?);
            left.answers = left.answers.saturating_sub(1);
            left.records = left.records.saturating_sub(store.reads().saturating_sub(records));
            left.bytes = left.bytes.saturating_sub(store.read_bytes().saturating_sub(bytes));
        }
        Ok(())
    }

    /// Reads the answer to a question; `None` when another turn continues it.
    fn read(&mut self, store: &mut BoxedStore, read: LogRead, records: u64) -> Result<Option<Input>, Fault> {
        match read {
            LogRead::Block { to, height, id } => {
                // A decided id is a short record. No body is read for an id that was not decided.
                let is_decided = store.decided_ids(height, 1)?.contains(&id);
                let block = if is_decided { store.load(height)?.map(Box::new) } else { None };
                Ok(Some(Input::Stored(to, id, block)))
            }
            LogRead::Ids { to, from, mut ids } => {
                let known = ids.len();
                let most = usize::try_from(records).unwrap_or(usize::MAX);
                let most = most.min(DECIDED_PER_ANSWER_MAX.saturating_sub(known));
                let next = from.plus(u64::try_from(known).unwrap_or(u64::MAX));
                ids.append(&mut store.decided_ids(next, most)?);
                if ids.len() >= DECIDED_PER_ANSWER_MAX || ids.len() < known.saturating_add(most) {
                    return Ok(Some(Input::StoredIds(to, from, ids)));
                }
                self.queues.push_rest(to, LogRead::Ids { to, from, ids });
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_storage::{MemDisk, StoreConfig};
    use quorate_types::{LogEntry, Mark};

    fn block(to: u16, height: u64) -> LogRead {
        LogRead::Block { to: ReplicaId(to), height: Height(height), id: BlockId::ZERO }
    }

    fn ids(to: u16, from: u64) -> LogRead {
        LogRead::Ids { to: ReplicaId(to), from: Height(from), ids: Vec::new() }
    }

    /// A list of ids takes one read for each id. A long list continues in later turns, and other peers have theirs meanwhile.
    #[test]
    fn a_turn_reads_a_bounded_number_of_records() {
        let disk = MemDisk::new(1 << 20, 4096);
        let config = StoreConfig {
            limits: quorate_types::BodyLimits { bundle_bytes_max: 1 << 10, ..Default::default() },
            ..StoreConfig::default()
        };
        let mut store = BoxedStore::open(Box::new(disk), config, &mut |_| {}).unwrap();
        for height in (1..=1_000).map(Height) {
            let decided = LogEntry::Decided { height, id: BlockId::null(height) };
            store.append(Mark(height.0), &decided).unwrap();
        }
        let mut reads = LogReads::default();
        for from in [1, 300, 900] {
            reads.push(ids(3, from)).unwrap();
        }
        for height in [7, 8] {
            let id = BlockId::null(Height(height));
            reads.push(LogRead::Block { to: ReplicaId(1), height: Height(height), id }).unwrap();
        }
        let mut served: Vec<(u16, usize)> = Vec::new();
        let mut turns = 0;
        while !reads.is_empty() {
            turns += 1;
            let (before, mut answers) = (store.reads(), Vec::new());
            reads.serve(&mut store, &mut ReadBudget::default(), &mut answers).unwrap();
            let read = store.reads() - before;
            assert!(read <= RECORDS_PER_TURN + 2, "{read} in turn {turns}");
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
    fn a_refusal_names_the_peer_and_its_question() {
        assert!(matches!(block(3, 1).refusal(), Input::Stored(ReplicaId(3), BlockId::ZERO, None)));
        assert!(
            matches!(ids(3, 2).refusal(), Input::StoredIds(ReplicaId(3), Height(2), ids) if ids.is_empty())
        );
    }
}
