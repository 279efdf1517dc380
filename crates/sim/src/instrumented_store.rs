//! The service of simulated replicas: the key-value store, and a journal of what was applied and where.
//!
//! Each operation begins with its number in the history, so the oracles see at every replica which operation was
//! applied at which height, and in which order, without asking the replica.

use crate::history::OpId;
use crate::model::Op;
use quorate_app::{Application, At, Kv, RestoreError, Snapshot};
use quorate_types::{Digest, Height};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of the service in genesis.
pub(crate) const APPLICATION: &str = "witness 1";

/// Few keys are in use.
const BUCKETS: usize = 16;

/// What a replica applied since somebody looked last.
#[derive(Clone, Default, Debug)]
pub(crate) struct Journal(Arc<Mutex<Vec<(Height, OpId)>>>);

impl Journal {
    pub(crate) fn look(&self) -> MutexGuard<'_, Vec<(Height, OpId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a witness does wrong on purpose, to see that an oracle notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum StoreFlaw {
    /// Nothing.
    #[default]
    None,
    /// Applies this operation twice.
    Twice(OpId),
    /// Does not apply this operation, and says it did.
    Skip(OpId),
    /// Answers this operation with what was not asked.
    Answer(OpId),
    /// Applies the first operation after a restart twice.
    AgainAfterRestart,
    /// After a restart: applies operations twice whose number is a multiple of this.
    Often(u64),
    /// After a restart: leaves out operations whose number is a multiple of this, and says it did them.
    Never(u64),
    /// After a restart: answers operations whose number is a multiple of this with what was not asked.
    Wrong(u64),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct InstrumentedStore {
    store: Kv,
    journal: Journal,
    store_flaw: StoreFlaw,
    /// How often its replica was opened.
    opens: u64,
}

impl InstrumentedStore {
    pub(crate) fn new(journal: Journal, store_flaw: StoreFlaw, opens: u64) -> Self {
        Self { store: Kv::with_buckets(BUCKETS), journal, store_flaw, opens }
    }

    /// An operation as a client submits it.
    pub(crate) fn encode(id: OpId, op: &Op) -> Vec<u8> {
        let mut bytes = id.0.to_le_bytes().to_vec();
        op.encode(&mut bytes);
        bytes
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
            // Not from the workload: the store says that it makes no sense.
            return self.store.apply(at, op, reply);
        };
        let id = OpId(u64::from_le_bytes(*id));
        match self.store_flaw {
            StoreFlaw::Twice(which) if which == id => {
                self.apply_one(at, id, op, &mut Vec::new());
                self.apply_one(at, id, op, reply);
            }
            StoreFlaw::AgainAfterRestart if self.opens > 1 => {
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
        self.store.restore(header, chunks)
    }
}
