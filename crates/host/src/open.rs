//! Opening a host on what its disk kept, and writing snapshots so that the log can be reclaimed.

use crate::executor::Executor;
use crate::outgoing::Outgoing;
use crate::turn::{Fault, Host};
use quorate_app::{Application, Execution, RestoreError, Snapshot};
use quorate_consensus::{Entry, OpenError};
use quorate_crypto::{Scheme, SigningKey};
use quorate_replica::{BadPast, Past, Replica, Setup};
use quorate_storage::{Disk, SnapshotWriter, Store, StoreConfig};
use quorate_types::{Genesis, Height, Mark, Time};
use std::sync::Arc;

/// Bytes of a snapshot that are written in one turn.
const SNAPSHOT_SLICE_BYTES: usize = 4 << 20;

/// What a host is opened with, beside its disk.
pub struct HostSetup {
    /// The protocol.
    pub entry: Entry,
    /// What its replica is opened with.
    pub replica: Setup,
    /// The key that signs its statements.
    pub key: SigningKey,
    /// How signatures are made and checked.
    pub scheme: Scheme,
    /// The service, in its first state.
    pub application: Box<dyn Application>,
    /// Bytes of log that are kept for laggards.
    pub keep_bytes: u64,
    /// Bytes of disk that may be used in all.
    pub disk_bytes_max: u64,
    /// A snapshot is written when the log has grown by this much since the last one, and by as much as that one wrote.
    pub snapshot_every_bytes: u64,
}

/// Why a host does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenFault {
    /// The log holds what this version does not write.
    #[error(transparent)]
    Past(#[from] BadPast),
    /// The protocol refuses.
    #[error(transparent)]
    Protocol(#[from] OpenError),
    /// The snapshot cannot be restored.
    #[error("{0}; move the folder's snapshots away only if the log reaches back to the first block")]
    Snapshot(#[from] RestoreError),
    /// The service is not the one that genesis names.
    #[error("{0}")]
    Application(String),
    /// The log does not reach back to the snapshot.
    #[error(
        "the log begins after height {missing}, and the newest snapshot is older: the folder is incomplete; restore it as a whole"
    )]
    Gap {
        /// The first height that is missing.
        missing: Height,
    },
    /// Executing the log again gave another state than a quorum has signed.
    #[error(
        "the state at height {height} differs from the one that a quorum has signed: the folder or the memory of this machine is corrupt"
    )]
    Diverged {
        /// At which height.
        height: Height,
    },
}

impl<D: Disk> Host<D> {
    /// Opens a host: the newest snapshot, the decided blocks of the log after it, then the replica with its
    /// promises. Its new incarnation is durable when this returns, so links may come up.
    ///
    /// # Errors
    /// When the disk fails or holds what does not fit.
    pub fn open(setup: HostSetup, disk: D, out: &mut dyn Outgoing) -> Result<Self, Fault> {
        let HostSetup {
            entry,
            replica,
            key,
            scheme,
            application,
            keep_bytes,
            disk_bytes_max,
            snapshot_every_bytes,
        } = setup;
        let genesis: Arc<Genesis> = Arc::clone(&replica.genesis);
        let config =
            StoreConfig { limits: genesis.bodies, window: genesis.window, keep_bytes, disk_bytes_max };
        let mut past = Past::default();
        let mut bad = None;
        let mut store = Store::open(disk, config, &mut |entry| {
            if let Err(why) = past.absorb(entry) {
                bad.get_or_insert(why);
            }
        })?;
        if let Some(why) = bad {
            return Err(OpenFault::from(why).into());
        }
        let (execution, again) = restore(&genesis, application, &mut store, &mut past)?;
        past.set_executed(execution.height());
        past.set_kept(store.kept().0);
        for digest in past.wanted_bodies() {
            if let Some(bundle) = store.body(digest)? {
                past.add_body(bundle);
            }
        }
        let snapshots = SnapshotProgress::new(snapshot_every_bytes, execution.height(), again);
        let executor = Executor::new(execution);
        let domain = replica.committee.domain();
        let recorder = out.recorder(&past);
        let mut replica = Replica::open(&entry, replica, past).map_err(OpenFault::from)?;
        if let Some(sink) = recorder {
            replica.record(sink);
        }
        let intake = replica.intake(scheme);
        let mut host = Self::assemble(replica, intake, store, executor, snapshots, key, domain);
        host.turn(Time::ZERO, None, true, &mut |_| true, out)?;
        Ok(host)
    }
}

/// Snapshot and log give the state that this replica had; and how many bytes of the log that took.
fn restore<D: Disk>(
    genesis: &Genesis,
    application: Box<dyn Application>,
    store: &mut Store<D>,
    past: &mut Past,
) -> Result<(Execution, u64), Fault> {
    let mut execution =
        Execution::new(genesis, application).map_err(|wrong| OpenFault::Application(wrong.to_string()))?;
    if let Some(snapshot) = store.newest_snapshot()? {
        let mut failed = None;
        let mut chunks =
            (0..snapshot.chunks()).map_while(|index| match store.snapshot_chunk(&snapshot, index) {
                Ok(chunk) => Some(chunk),
                Err(fault) => {
                    failed = Some(fault);
                    None
                }
            });
        let restored = execution.restore(snapshot.header(), &mut chunks);
        drop(chunks);
        if let Some(fault) = failed {
            return Err(fault.into());
        }
        let state = restored.map_err(OpenFault::from)?;
        if execution.height().0.checked_rem(genesis.checkpoint_every) == Some(0) {
            past.add_state(execution.height(), state);
        }
    }
    let stable = past.stable().checkpoint;
    let (_, last) = store.kept();
    let again = store.bytes_after(execution.height());
    while execution.height() < last {
        let height = execution.height().next();
        let block = store.load(height)?.ok_or(OpenFault::Gap { missing: height })?;
        // Nobody asks for the states of older checkpoints any more.
        if height < stable.height {
            execution.execute_without_digest(&block);
        } else if let Some(state) = execution.execute(&block).state {
            if height == stable.height && state != stable.state {
                return Err(OpenFault::Diverged { height }.into());
            }
            past.add_state(height, state);
        }
    }
    Ok((execution, again))
}

struct Running {
    snapshot: Snapshot,
    writer: SnapshotWriter,
    /// What must be durable before the snapshot may be seen: a snapshot never knows more than the log.
    mark: Mark,
    /// Encoded chunk; reused.
    chunk: Vec<u8>,
}

/// A snapshot that is being written, a slice in each turn, so that no turn is long. The application goes on
/// meanwhile: its snapshot shares memory with it and copies what changes.
pub(crate) struct SnapshotProgress {
    /// A snapshot is due when the log has grown by this much, and by as much as the last one had to write: snapshots
    /// then never write more than the log does.
    every_bytes: u64,
    /// What the last snapshot had to write; 0 before this process has written one.
    last_bytes: u64,
    /// Bytes by which the log had outgrown the newest snapshot when it was opened: who is killed again and again
    /// would never write one, and execute more with each start.
    before: u64,
    /// Bytes that the log had when the last snapshot was begun.
    begun_at: u64,
    last: Height,
    running: Option<Running>,
    /// A step was put off because the log was synced: the next sync is the snapshot's.
    is_next: bool,
}

impl SnapshotProgress {
    fn new(every_bytes: u64, last: Height, before: u64) -> Self {
        Self { every_bytes, last_bytes: 0, before, begun_at: 0, last, running: None, is_next: false }
    }

    /// Whether another step is to be taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Whether the log's sync is to wait for a turn. One of the two would starve the other otherwise.
    pub(crate) fn is_next(&self) -> bool {
        self.is_next
    }

    /// Begins a snapshot when the log has grown enough since the last one, or takes the next step of the one that
    /// was begun, which may make one sync: none when the log `has_synced` in this turn. Returns the mark that it
    /// waits for.
    pub(crate) fn step<D: Disk>(
        &mut self,
        has_synced: bool,
        store: &mut Store<D>,
        executor: &mut Executor,
    ) -> Result<Mark, Fault> {
        self.is_next = has_synced && self.is_busy();
        if self.is_next {
            return Ok(Mark::default());
        }
        let log_bytes = store.ledger().log_bytes;
        match self.running.take() {
            Some(running) => self.write_slice(running, store),
            None if self.grown(log_bytes) < self.every_bytes.max(self.last_bytes) => Ok(Mark::default()),
            // Only what is decided for good may be in a snapshot, and executed heights are.
            None if executor.height() > self.last && !executor.has_work() => {
                (self.before, self.begun_at) = (0, log_bytes);
                self.last = executor.height();
                let snapshot = executor.snapshot();
                let writer =
                    store.begin_snapshot(self.last, snapshot.header().to_vec(), snapshot.digests())?;
                let mark = store.appended();
                self.running = Some(Running { snapshot, writer, mark, chunk: Vec::new() });
                Ok(mark)
            }
            None => Ok(Mark::default()),
        }
    }

    /// Bytes of the log since the last snapshot.
    fn grown(&self, log_bytes: u64) -> u64 {
        self.before.saturating_add(log_bytes.saturating_sub(self.begun_at))
    }

    fn write_slice<D: Disk>(&mut self, mut running: Running, store: &mut Store<D>) -> Result<Mark, Fault> {
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
