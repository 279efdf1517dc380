//! Snapshots in slices: each turn writes a part, so that no turn is long and the log can be reclaimed.

use crate::executor::Executor;
use crate::fault::HostFault;
use quorate_app::Snapshot;
use quorate_storage::{BoxedStore, SnapshotWriter};
use quorate_types::{Height, Mark};

/// Bytes of a snapshot that one turn writes.
const SNAPSHOT_SLICE_BYTES: usize = 4 << 20;

struct SnapshotInProgress {
    snapshot: Snapshot,
    writer: SnapshotWriter,
    /// The mark that is durable before the snapshot becomes visible: a snapshot never contains more than the log.
    mark: Mark,
    /// The encoded chunk; reused.
    chunk: Vec<u8>,
}

/// The snapshot that is being written, and the time of the next one. The application executes meanwhile: its snapshot
/// shares memory with it and copies what changes.
pub(crate) struct SnapshotProgress {
    /// The growth of the log after which a snapshot is due. The growth is at least the bytes of the last snapshot, so
    /// snapshots never write more than the log does.
    every_bytes: u64,
    /// Bytes that the last snapshot wrote; 0 before the first one of this process.
    last_bytes: u64,
    /// Bytes of log after the newest snapshot when the host was opened. Without them a host that is killed repeatedly
    /// never writes a snapshot and executes more at each start.
    replayed_bytes: u64,
    /// Bytes of log when the last snapshot began.
    begun_at: u64,
    last: Height,
    running: Option<SnapshotInProgress>,
    /// Whether a step was postponed for a sync of the log: the next sync is the snapshot's.
    is_next: bool,
}

impl SnapshotProgress {
    pub(crate) fn new(every_bytes: u64, last: Height, replayed_bytes: u64) -> Self {
        Self { every_bytes, last_bytes: 0, replayed_bytes, begun_at: 0, last, running: None, is_next: false }
    }

    /// Whether a snapshot is being written.
    pub(crate) fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the sync of this turn is the snapshot's, and the log's sync waits for the next turn. Without this
    /// alternation one of the two starves the other.
    pub(crate) fn is_next(&self) -> bool {
        self.is_next
    }

    /// Begins a snapshot when one is due, or takes the next step of the one that is being written. A step makes at most
    /// one sync, and none when the log `has_synced` in this turn. Returns the mark that the snapshot waits for.
    pub(crate) fn step(
        &mut self,
        has_synced: bool,
        store: &mut BoxedStore,
        executor: &mut Executor,
    ) -> Result<Mark, HostFault> {
        self.is_next = has_synced && self.is_busy();
        if self.is_next {
            return Ok(Mark::default());
        }
        let log_bytes = store.ledger().log_bytes;
        match self.running.take() {
            Some(running) => self.write_slice(running, store),
            None if self.grown(log_bytes) < self.every_bytes.max(self.last_bytes) => Ok(Mark::default()),
            // A snapshot contains executed heights alone: these are decided for good.
            None if executor.height() > self.last && !executor.has_work() => {
                (self.replayed_bytes, self.begun_at) = (0, log_bytes);
                self.last = executor.height();
                let snapshot = executor.snapshot();
                let writer =
                    store.begin_snapshot(self.last, snapshot.header().to_vec(), snapshot.ids())?;
                let mark = store.appended();
                self.running = Some(SnapshotInProgress { snapshot, writer, mark, chunk: Vec::new() });
                Ok(mark)
            }
            None => Ok(Mark::default()),
        }
    }

    /// Bytes of log since the last snapshot.
    fn grown(&self, log_bytes: u64) -> u64 {
        self.replayed_bytes.saturating_add(log_bytes.saturating_sub(self.begun_at))
    }

    fn write_slice(
        &mut self,
        mut running: SnapshotInProgress,
        store: &mut BoxedStore,
    ) -> Result<Mark, HostFault> {
        let mark = running.mark;
        let mut written = 0;
        if running.writer.needed().is_empty() {
            if mark <= store.durable() && store.commit_step(&mut running.writer)? {
                self.last_bytes = running.writer.bytes();
                return Ok(mark);
            }
            self.running = Some(running);
            return Ok(mark);
        }
        while written < SNAPSHOT_SLICE_BYTES {
            let Some(index) = running.writer.needed().first().copied() else { break };
            running.chunk.clear();
            running.snapshot.encode(index, &mut running.chunk);
            store.write_chunk(&mut running.writer, index, &running.chunk)?;
            written = written.saturating_add(running.chunk.len()).saturating_add(64);
        }
        store.sync_chunks(&mut running.writer)?;
        self.running = Some(running);
        Ok(mark)
    }
}
