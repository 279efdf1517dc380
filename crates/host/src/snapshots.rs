//! Snapshots in slices: each turn writes a part, so that no turn is long and the log can be reclaimed.
//!
//! A snapshot has the state after a checkpoint. It becomes visible when the checkpoint is stable, and has its proof, so that
//! peers can receive it. Where a later checkpoint becomes stable first, the snapshot has no proof and serves this replica
//! alone.

use crate::executor::Executor;
use crate::fault::HostFault;
use quorate_app::Snapshot;
use quorate_consensus::CheckpointProof;
use quorate_storage::{BoxedStore, SnapshotWriter};
use quorate_types::codec::Wire as _;
use quorate_types::{Height, Mark};

/// Bytes of a snapshot that one turn writes.
const SNAPSHOT_SLICE_BYTES: usize = 4 << 20;

/// The bytes of a snapshot that is written for a peer although the log has hardly grown.
const WANTED_BYTES_MAX: u64 = 16 << 20;

struct SnapshotInProgress {
    snapshot: Snapshot,
    writer: SnapshotWriter,
    /// The mark that is durable before the snapshot becomes visible: a snapshot never contains more than the log.
    mark: Mark,
    /// The encoded chunk; reused.
    chunk: Vec<u8>,
    /// Whether this checkpoint, or a later one, is stable.
    is_settled: bool,
}

impl SnapshotInProgress {
    /// Whether the next step has to wait for the checkpoint.
    fn is_waiting(&self) -> bool {
        self.writer.needed().is_empty() && !self.is_settled
    }
}

/// The snapshot that is being written, and the time of the next one. The application executes meanwhile: its snapshot
/// shares memory with it and copies what changes.
pub(crate) struct SnapshotProgress {
    /// The growth of the log after which a snapshot is due. The growth is at least the bytes of the last snapshot, so
    /// snapshots never write more than the log does.
    every_bytes: u64,
    /// Heights between two checkpoints.
    checkpoint_every: u64,
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
    pub(crate) fn new(
        (every_bytes, checkpoint_every): (u64, u64),
        last: Height,
        replayed_bytes: u64,
    ) -> Self {
        Self {
            every_bytes,
            checkpoint_every,
            last_bytes: 0,
            replayed_bytes,
            begun_at: 0,
            last,
            running: None,
            is_next: false,
        }
    }

    /// Whether a step of a snapshot can be taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.is_waiting())
    }

    /// Whether the sync of this turn is the snapshot's, and the log's sync waits for the next turn. Without this
    /// alternation one of the two starves the other.
    pub(crate) fn is_next(&self) -> bool {
        self.is_next
    }

    /// Abandons the snapshot that is being written.
    pub(crate) fn abandon(&mut self) {
        (self.running, self.is_next) = (None, false);
    }

    /// Begins a snapshot of the state after the checkpoint that was executed last, if one is due, or if a peer waits for one
    /// (`is_wanted`) and it costs little. `stable` is the newest stable checkpoint. Returns the mark that the snapshot waits
    /// for.
    pub(crate) fn at_checkpoint(
        &mut self,
        (stable, is_wanted): (&CheckpointProof, bool),
        store: &mut BoxedStore,
        executor: &mut Executor,
    ) -> Result<Mark, HostFault> {
        let height = executor.height();
        let is_cheap = self.last_bytes <= WANTED_BYTES_MAX || self.grown(store) >= self.last_bytes / 2;
        let is_due = self.is_due(height, store) || (is_wanted && is_cheap);
        if self.running.is_some() || height <= self.last || !is_due {
            return Ok(Mark::default());
        }
        (self.replayed_bytes, self.begun_at) = (0, store.ledger().log_bytes);
        self.last = height;
        let snapshot = executor.snapshot();
        let mut writer = store.begin_snapshot(height, snapshot.header().to_vec(), snapshot.ids())?;
        let is_settled = stable.checkpoint.height >= height;
        if stable.checkpoint.height == height {
            writer.prove(&stable.to_bytes());
        }
        let mark = store.appended();
        self.running = Some(SnapshotInProgress { snapshot, writer, mark, chunk: Vec::new(), is_settled });
        Ok(mark)
    }

    /// Returns the bytes of log since the last snapshot.
    fn grown(&self, store: &BoxedStore) -> u64 {
        self.replayed_bytes.saturating_add(store.ledger().log_bytes.saturating_sub(self.begun_at))
    }

    /// Whether a snapshot is due at the checkpoint of this height. The log grows at a similar pace at all replicas. Of the
    /// checkpoints that are due, they choose the one whose number has the most factors of two, so that most of them have
    /// snapshots of the same height, and a replica receives a state from several of them.
    fn is_due(&self, height: Height, store: &BoxedStore) -> bool {
        let grown = self.grown(store);
        let least = self.every_bytes.max(self.last_bytes);
        let every = self.checkpoint_every.max(1);
        let since = (height.since(self.last) / every).max(1);
        // Between three and five quarters of the growth there is always a number with this factor.
        let aligned = 1_u64 << (since / 2).max(1).ilog2();
        let number = height.0 / every;
        let quarter = (least / 4).max(1);
        grown >= quarter.saturating_mul(5)
            || (grown >= quarter.saturating_mul(3) && number.is_multiple_of(aligned))
    }

    /// Notes the proof of a stable checkpoint, which the log has from this mark on.
    pub(crate) fn on_proof(&mut self, encoded: &[u8], mark: Mark) {
        let Some(running) = &mut self.running else { return };
        let Ok(proof) = CheckpointProof::from_bytes(encoded) else { return };
        let (height, stable) = (running.writer.height(), proof.checkpoint.height);
        if running.is_settled || stable < height {
            return;
        }
        if stable == height {
            running.writer.prove(encoded);
        }
        running.is_settled = true;
        running.mark = running.mark.max(mark);
    }

    /// Takes the next step of the snapshot that is being written. A step makes at most one sync, and none when the log
    /// `has_synced` in this turn. Returns the mark that the snapshot waits for.
    pub(crate) fn step(&mut self, has_synced: bool, store: &mut BoxedStore) -> Result<Mark, HostFault> {
        self.is_next = has_synced && self.is_busy();
        if self.is_next {
            return Ok(Mark::default());
        }
        match self.running.take() {
            Some(running) if !running.is_waiting() => self.write_slice(running, store),
            waiting => {
                self.running = waiting;
                Ok(Mark::default())
            }
        }
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
