//! One state that is being received: its chunks, and the peers that send them.

use super::send;
use crate::outgoing::Outgoing;
use quorate_consensus::CheckpointProof;
use quorate_replica::{PieceAt, TransferMessage};
use quorate_storage::{BoxedStore, Fault, SnapshotWriter};
use quorate_types::codec::Wire as _;
use quorate_types::limits::{CHUNK_PIECE_BYTES_MAX, PIECES_PER_PEER_MAX};
use quorate_types::{ChunkId, Height, ReplicaId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes that one peer is asked for before the first of them arrive.
const WINDOW_BYTES: usize = 1 << 20;
/// The time after which a peer that sends nothing is asked no more for a while.
const PATIENCE_NS: u64 = 2_000_000_000;
/// The time for which a slow peer is not asked.
const SLOW_NS: u64 = 5_000_000_000;
/// Bytes of chunks that become durable with one sync.
const SYNC_BYTES: usize = 4 << 20;
/// Bytes of the own snapshot that one turn reads again.
const READ_AGAIN_BYTES: u64 = 4 << 20;

/// A chunk that a peer was asked for.
#[derive(Debug)]
struct Task {
    id: ChunkId,
    /// The bytes that have arrived.
    bytes: Vec<u8>,
    /// The end of the bytes that were requested.
    asked: usize,
}

/// The chunks that one peer sends.
#[derive(Debug, Default)]
struct Source {
    tasks: BTreeMap<usize, Task>,
    /// The time of the last progress.
    at: Time,
    /// The end of a pause.
    paused_until: Time,
}

impl Source {
    /// Returns the bytes that were requested and have not arrived.
    fn outstanding(&self) -> usize {
        self.tasks.values().map(|task| task.asked.saturating_sub(task.bytes.len())).sum()
    }
}

/// The steps of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Chunks arrive.
    Chunks,
    /// The snapshot becomes durable and visible, with its proof.
    Snapshot,
}

/// See the module.
pub(super) struct Receiving {
    proof: CheckpointProof,
    writer: SnapshotWriter,
    /// Chunks that nobody was asked for.
    unassigned: BTreeSet<usize>,
    sources: BTreeMap<ReplicaId, Source>,
    stage: Stage,
    unsynced: usize,
    /// Bytes of all chunks to receive, and those that have arrived.
    total: u64,
    received: u64,
    /// The time of the last tick.
    now: Time,
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// More chunks must arrive, or more steps follow.
    Unfinished,
    /// All chunks are there.
    Complete,
    /// The state is durable. The replica must be opened on it.
    Installed,
}

impl Receiving {
    pub(super) fn new(
        proof: CheckpointProof,
        mut writer: SnapshotWriter,
        store: &mut BoxedStore,
    ) -> Result<Self, Fault> {
        let empty = ChunkId::of(&[]);
        let index = writer.needed().iter().copied().find(|index| writer.id(*index) == Some(empty));
        if let Some(index) = index {
            // There is nothing to ask for.
            store.write_chunk(&mut writer, index, &[])?;
        }
        Ok(Self {
            unassigned: writer.needed().clone(),
            total: writer.needed_bytes(),
            proof,
            writer,
            sources: BTreeMap::new(),
            stage: Stage::Chunks,
            unsynced: 0,
            received: 0,
            now: Time::ZERO,
        })
    }

    pub(super) fn height(&self) -> Height {
        self.proof.checkpoint.height
    }

    /// Returns the bytes that have arrived, and those of all chunks to receive.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.received, self.total)
    }

    /// Whether chunks are still missing.
    pub(super) fn is_receiving(&self) -> bool {
        self.stage == Stage::Chunks && !self.writer.is_complete()
    }

    /// Returns the writer with the chunks so far.
    pub(super) fn writer(&self) -> &SnapshotWriter {
        &self.writer
    }

    /// Returns the bytes of the chunks that are written or still missing.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.writer.bytes().saturating_add(self.writer.needed_bytes())
    }

    /// Returns the writer with the chunks so far, for a newer state.
    pub(super) fn into_writer(self) -> SnapshotWriter {
        self.writer
    }

    /// Asks the peers that have this state for chunks.
    pub(super) fn ask(&mut self, now: Time, peers: impl Iterator<Item = ReplicaId>, out: &mut dyn Outgoing) {
        let height = self.height();
        for peer in peers {
            let Self { sources, unassigned, writer, .. } = self;
            let source = sources.entry(peer).or_default();
            if source.paused_until > now {
                continue;
            }
            let mut outstanding = source.outstanding();
            let was_idle = outstanding == 0;
            loop {
                let requested = continue_tasks(source, (peer, height), outstanding, out);
                outstanding = outstanding.saturating_add(requested);
                if outstanding >= WINDOW_BYTES || source.tasks.len() >= PIECES_PER_PEER_MAX / 2 {
                    break;
                }
                let Some(index) = unassigned.pop_first() else { break };
                let Some(id) = writer.id(index) else { continue };
                source.tasks.insert(index, Task { id, bytes: Vec::new(), asked: 0 });
            }
            if was_idle {
                source.at = now;
            }
        }
    }

    /// Takes in a part of a chunk.
    ///
    /// # Errors
    /// Fails with the reason why the peer lies, or with a fault of the disk.
    pub(super) fn on_piece(
        &mut self,
        (now, from): (Time, ReplicaId),
        at: PieceAt,
        bytes: &[u8],
        store: &mut BoxedStore,
    ) -> Result<Result<(), &'static str>, Fault> {
        let index = usize::try_from(at.index).unwrap_or(usize::MAX);
        let Some(source) = self.sources.get_mut(&from) else { return Ok(Ok(())) };
        let Some(task) = source.tasks.get_mut(&index) else { return Ok(Ok(())) };
        let begins = usize::try_from(at.offset).unwrap_or(usize::MAX);
        if begins != task.bytes.len() || begins >= task.asked || bytes.len() != piece_bytes(task.id, begins) {
            // No answer to the last question: the chunk was requested anew since, or the peer sends what nobody asked for.
            return Ok(Ok(()));
        }
        source.at = now;
        task.bytes.extend_from_slice(bytes);
        if u32::try_from(task.bytes.len()) != Ok(task.id.length) {
            return Ok(Ok(()));
        }
        let Some(task) = source.tasks.remove(&index) else { return Ok(Ok(())) };
        // The id follows from the state that a quorum has signed (ADR 0015).
        if ChunkId::of(&task.bytes) != task.id {
            self.unassigned.insert(index);
            return Ok(Err("chunk differs from its digest"));
        }
        self.received = self.received.saturating_add(u64::from(task.id.length));
        self.unsynced = self.unsynced.saturating_add(task.bytes.len()).saturating_add(64);
        store.write_chunk(&mut self.writer, index, &task.bytes)?;
        Ok(Ok(()))
    }

    /// Gives the chunks of a peer back, so that others are asked for them.
    pub(super) fn give_up(&mut self, peer: ReplicaId) {
        if let Some(source) = self.sources.remove(&peer) {
            self.unassigned.extend(source.tasks.into_keys());
        }
    }

    /// Gives up peers that have sent nothing for long, for a while. Returns whether there were any.
    pub(super) fn tick(&mut self, now: Time) -> bool {
        self.now = now;
        let mut has_late = false;
        for source in self.sources.values_mut() {
            if !source.tasks.is_empty() && now.since(source.at) >= PATIENCE_NS {
                self.unassigned.extend(std::mem::take(&mut source.tasks).into_keys());
                source.paused_until = now.plus(SLOW_NS);
                has_late = true;
            }
        }
        has_late
    }

    /// Returns the time of the next call of [`Self::tick`] or [`Self::ask`].
    pub(super) fn deadline(&self) -> Option<Time> {
        let times = self.sources.values().map(|source| {
            if source.tasks.is_empty() { source.paused_until } else { source.at.plus(PATIENCE_NS) }
        });
        times.filter(|at| *at > self.now).min().filter(|_| self.is_receiving())
    }

    /// Whether a step has work that needs no arrival.
    pub(super) fn has_work(&self, may_install: bool) -> bool {
        match self.stage {
            Stage::Chunks if self.writer.is_complete() => may_install || self.unsynced > 0,
            Stage::Chunks => self.unsynced >= SYNC_BYTES || self.has_unread(),
            Stage::Snapshot => true,
        }
    }

    fn has_unread(&self) -> bool {
        self.writer.needed().is_empty() && !self.writer.is_complete()
    }

    /// Takes a step with at most one sync.
    pub(super) fn step(&mut self, may_install: bool, store: &mut BoxedStore) -> Result<Received, Fault> {
        match self.stage {
            Stage::Chunks => {
                let before = self.writer.needed().len();
                store.read_again(&mut self.writer, READ_AGAIN_BYTES)?;
                if self.writer.needed().len() > before {
                    self.note_damaged();
                }
                let is_complete = self.writer.is_complete();
                if self.unsynced >= SYNC_BYTES || (is_complete && self.unsynced > 0) {
                    store.sync_chunks(&mut self.writer)?;
                    self.unsynced = 0;
                } else if is_complete && may_install {
                    self.writer.prove(&self.proof.to_bytes());
                    self.stage = Stage::Snapshot;
                }
                return Ok(if is_complete { Received::Complete } else { Received::Unfinished });
            }
            Stage::Snapshot => {
                if store.commit_step(&mut self.writer)? {
                    return Ok(Received::Installed);
                }
            }
        }
        Ok(Received::Unfinished)
    }

    /// Notes that chunks of the own snapshot are damaged and must be received.
    fn note_damaged(&mut self) {
        let assigned: BTreeSet<usize> =
            self.sources.values().flat_map(|source| source.tasks.keys().copied()).collect();
        self.unassigned = self.writer.needed().difference(&assigned).copied().collect();
        self.total = self.received.saturating_add(self.writer.needed_bytes());
    }
}

/// Returns the number of bytes of the part of a chunk that begins at an offset.
fn piece_bytes(id: ChunkId, offset: usize) -> usize {
    let length = usize::try_from(id.length).unwrap_or(usize::MAX);
    length.saturating_sub(offset).min(CHUNK_PIECE_BYTES_MAX)
}

/// Requests the next parts of the chunks that a peer sends. Returns the number of requested bytes.
fn continue_tasks(
    source: &mut Source,
    (peer, height): (ReplicaId, Height),
    outstanding: usize,
    out: &mut dyn Outgoing,
) -> usize {
    let mut requested = 0_usize;
    for (index, task) in &mut source.tasks {
        loop {
            let bytes = piece_bytes(task.id, task.asked);
            if bytes == 0 || outstanding.saturating_add(requested) >= WINDOW_BYTES {
                break;
            }
            let at = PieceAt {
                height,
                index: u32::try_from(*index).unwrap_or(u32::MAX),
                offset: u32::try_from(task.asked).unwrap_or(u32::MAX),
                length: u32::try_from(bytes).unwrap_or(u32::MAX),
            };
            send(out, peer, TransferMessage::AskPiece(at));
            task.asked = task.asked.saturating_add(bytes);
            requested = requested.saturating_add(bytes);
        }
    }
    requested
}
