//! The service of simulated replicas: the key-value store with a journal of applied operations and their heights.
//!
//! Each operation begins with its number in the history. The oracles thereby see which operation was applied at which
//! height, and in which order, without asking the replica.

use quorate_app::{Application, At, Kv, RestoreError, Snapshot};
use quorate_history::{Op, OpId};
use quorate_types::{Digest, Height};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Name of the service in genesis. The hash of genesis, and so the hash of every seed, depends on it.
pub(crate) const APPLICATION: &str = "witness 1";

/// Number of buckets of the store. Few keys are in use.
const BUCKETS: usize = 16;

/// Operations that a replica has applied since the last read.
#[derive(Clone, Default, Debug)]
pub(crate) struct Journal(Arc<Mutex<Vec<(Height, OpId)>>>);

impl Journal {
    pub(crate) fn look(&self) -> MutexGuard<'_, Vec<(Height, OpId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A deliberate flaw of a store, which an oracle has to notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum StoreFlaw {
    /// No flaw.
    #[default]
    None,
    /// The store applies this operation twice.
    Twice(OpId),
    /// The store skips this operation and reports success.
    Skip(OpId),
    /// The store answers this operation with a wrong result.
    Answer(OpId),
    /// The store applies the first operation after a restart twice.
    AgainAfterRestart,
    /// The store applies the first operation after a restored snapshot twice.
    AgainAfterRestore,
    /// After a restart, the store applies operations twice whose number is a multiple of this.
    Often(u64),
    /// After a restart, the store skips operations whose number is a multiple of this, and reports success.
    Never(u64),
    /// After a restart, the store answers operations with a wrong result whose number is a multiple of this.
    Wrong(u64),
}

/// The key-value store with a journal.
#[derive(Debug)]
pub(crate) struct InstrumentedStore {
    store: Kv,
    journal: Journal,
    store_flaw: StoreFlaw,
    /// Number of times that the replica was opened.
    opens: u64,
    /// Whether the state is that of a snapshot.
    is_restored: bool,
}

impl InstrumentedStore {
    pub(crate) fn new(journal: Journal, store_flaw: StoreFlaw, opens: u64) -> Self {
        Self { store: Kv::with_buckets(BUCKETS), journal, store_flaw, opens, is_restored: false }
    }

    /// Encodes an operation as a client submits it.
    pub(crate) fn encode(id: OpId, op: &Op) -> Vec<u8> {
        let mut bytes = id.0.to_le_bytes().to_vec();
        op.encode(&mut bytes);
        bytes
    }

    /// Whether a store with a flaw after restarts or restored snapshots shows it.
    fn is_reopened(&self) -> bool {
        self.opens > 1 && (self.is_restored || self.store_flaw != StoreFlaw::AgainAfterRestore)
    }

    fn apply_one(&mut self, at: &At, id: OpId, op: &[u8], reply: &mut Vec<u8>) {
        self.journal.look().push((at.height, id));
        self.store.apply(at, op, reply);
    }
}

impl Application for InstrumentedStore {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn version(&self) -> u32 {
        1
    }

    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        let Some((id, op)) = op.split_first_chunk::<8>() else {
            // The operation is not from the workload, so the store reports it as malformed.
            return self.store.apply(at, op, reply);
        };
        let id = OpId(u64::from_le_bytes(*id));
        match self.store_flaw {
            StoreFlaw::Twice(which) if which == id => {
                self.apply_one(at, id, op, &mut Vec::new());
                self.apply_one(at, id, op, reply);
            }
            StoreFlaw::AgainAfterRestart | StoreFlaw::AgainAfterRestore if self.is_reopened() => {
                self.store_flaw = StoreFlaw::None;
                self.apply_one(at, id, op, &mut Vec::new());
                self.apply_one(at, id, op, reply);
            }
            StoreFlaw::Often(every) if self.opens > 1 && id.0.is_multiple_of(every) => {
                self.apply_one(at, id, op, &mut Vec::new());
                self.apply_one(at, id, op, reply);
            }
            StoreFlaw::Never(every) if self.opens > 1 && id.0.is_multiple_of(every) => {
                self.store.apply(at, &[], reply);
            }
            StoreFlaw::Wrong(every) if self.opens > 1 && id.0.is_multiple_of(every) => {
                self.apply_one(at, id, op, &mut Vec::new());
                reply.extend_from_slice(b"\x04perjured");
            }
            StoreFlaw::Skip(which) if which == id => self.store.apply(at, &[], reply),
            StoreFlaw::Answer(which) if which == id => {
                self.apply_one(at, id, op, &mut Vec::new());
                reply.extend_from_slice(b"\x04perjured");
            }
            _ => self.apply_one(at, id, op, reply),
        }
    }

    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        self.store.query(op, room, reply);
    }

    fn digest(&mut self) -> Digest {
        self.store.digest()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.store.snapshot()
    }

    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        self.is_restored = true;
        self.store.restore(header, chunks)
    }
}
