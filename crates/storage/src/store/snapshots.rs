//! Snapshots of a store, and the choice of the one that the state begins with.

use super::Store;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::to_u64;
use crate::snapshot::{Origin, SnapshotWriter, Snapshots, StoredSnapshot};
use quorate_types::{ChunkId, Height};

impl<D: Disk> Store<D> {
    /// Begins a snapshot of the state at `height`, with its header and the id of each chunk. Chunks with equal ids are
    /// equal. [`SnapshotWriter::needed`] returns the chunks that must be written.
    ///
    /// One snapshot is written at a time. Beginning another one abandons an uncommitted one.
    ///
    /// # Errors
    /// Fails with [`Fault::Snapshot`] when a newer one is durable, and with [`Fault::DamagedSnapshot`] when the
    /// previous one cannot be read.
    pub fn begin_snapshot(
        &mut self,
        height: Height,
        header: Vec<u8>,
        ids: &[ChunkId],
    ) -> Result<SnapshotWriter, Fault> {
        self.snapshots.begin(&mut self.log.disk, height, (header, ids), Origin::Own)
    }

    /// Begins a snapshot of a state that comes from peers; see [`Store::begin_snapshot`]. Chunks of the own newest
    /// snapshot are used again, after [`Store::read_again`]. So are the chunks of `carried`, an attempt to receive an
    /// older state, which this one replaces.
    ///
    /// # Errors
    /// Fails in the cases of [`Store::begin_snapshot`].
    pub fn begin_received(
        &mut self,
        height: Height,
        header: Vec<u8>,
        ids: &[ChunkId],
        carried: Option<SnapshotWriter>,
    ) -> Result<SnapshotWriter, Fault> {
        self.snapshots.begin(&mut self.log.disk, height, (header, ids), Origin::Peers(carried.map(Box::new)))
    }

    /// Returns the bytes of the chunks of a received state that neither the newest snapshot nor a carried writer has.
    ///
    /// # Errors
    /// Fails with [`Fault::DamagedSnapshot`] or [`Fault::Io`].
    pub fn missing_bytes(&self, ids: &[ChunkId], carried: Option<&SnapshotWriter>) -> Result<u64, Fault> {
        self.snapshots.missing_bytes(&self.log.disk, ids, carried)
    }

    /// Reads chunks of the own newest snapshot that a received one uses again, at most about `bytes` in a call. Those
    /// that are damaged must be written.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn read_again(&mut self, writer: &mut SnapshotWriter, bytes: u64) -> Result<(), Fault> {
        self.snapshots.read_again(&self.log.disk, writer, bytes)
    }

    /// Returns how many more bytes of snapshots `disk_bytes_max` allows beside the log as it is.
    #[must_use]
    pub fn snapshot_room(&self) -> u64 {
        let disk = &self.log.disk;
        let log = u64::from(disk.segments()).saturating_mul(u64::from(disk.segment_bytes()));
        self.config.disk_bytes_max.saturating_sub(log).saturating_sub(self.snapshots.bytes())
    }

    /// Writes one of the needed chunks. The chunks may come in any order, and in many turns.
    ///
    /// # Errors
    /// Fails with [`Fault::Snapshot`] for a chunk that is not needed, and with each fault of the disk. Fails with
    /// [`Fault::Budget`] when log and snapshots would exceed `disk_bytes_max`.
    pub fn write_chunk(
        &mut self,
        writer: &mut SnapshotWriter,
        index: usize,
        chunk: &[u8],
    ) -> Result<(), Fault> {
        if writer.bytes().saturating_add(to_u64(chunk.len())) > self.snapshot_room() {
            return Err(Fault::Budget { limit: self.config.disk_bytes_max });
        }
        Snapshots::write(&mut self.log.disk, writer, index, chunk)?;
        let ledger = &mut self.log.ledger;
        ledger.snapshot_bytes = ledger.snapshot_bytes.wrapping_add(to_u64(chunk.len()));
        Ok(())
    }

    /// Makes the chunks written so far durable, with one sync. A call every few megabytes keeps each sync short.
    ///
    /// # Errors
    /// Fails with each fault of the disk.
    pub fn sync_chunks(&mut self, writer: &mut SnapshotWriter) -> Result<(), Fault> {
        let synced = Snapshots::sync(&mut self.log.disk, writer);
        self.log.count_syncs();
        synced
    }

    /// Takes one step of making a snapshot durable, all of whose chunks are written. Each step makes one sync, so
    /// that a turn need not make more. Returns true after the last step. The log may then drop heights that the
    /// snapshot covers.
    ///
    /// # Errors
    /// Fails with [`Fault::Snapshot`] when chunks are missing or a newer snapshot is durable, and with each fault of
    /// the disk.
    pub fn commit_step(&mut self, writer: &mut SnapshotWriter) -> Result<bool, Fault> {
        let done = self.snapshots.commit(&mut self.log.disk, writer);
        self.log.count_syncs();
        if !done? {
            return Ok(false);
        }
        self.update_budget();
        self.release(writer.height())?;
        Ok(true)
    }

    /// Takes all steps of committing a snapshot at once.
    ///
    /// # Errors
    /// Fails in the cases of [`Store::commit_step`].
    pub fn commit_snapshot(&mut self, mut writer: SnapshotWriter) -> Result<(), Fault> {
        while !self.commit_step(&mut writer)? {}
        Ok(())
    }

    /// Returns the snapshot that this replica's state begins with.
    ///
    /// # Errors
    /// Fails with [`Fault::DamagedSnapshot`] or [`Fault::Io`].
    pub fn newest_snapshot(&self) -> Result<Option<StoredSnapshot>, Fault> {
        let newest = self.snapshots.heights().last();
        newest.map(|height| self.snapshots.read(&self.log.disk, *height)).transpose()
    }

    /// Returns the height of the newest snapshot with a proof, which peers may receive; `None` without one.
    #[must_use]
    pub fn newest_proven(&self) -> Option<Height> {
        self.snapshots.newest_proven()
    }

    /// Returns the snapshot of this height, if it is kept and has a proof.
    ///
    /// # Errors
    /// Fails with [`Fault::DamagedSnapshot`] or [`Fault::Io`].
    pub fn proven_snapshot(&self, height: Height) -> Result<Option<StoredSnapshot>, Fault> {
        if !self.has_proven(height) {
            return Ok(None);
        }
        self.snapshots.read(&self.log.disk, height).map(Some)
    }

    /// Whether the snapshot of this height is kept and has a proof.
    #[must_use]
    pub fn has_proven(&self, height: Height) -> bool {
        self.snapshots.has_proven(height)
    }

    /// Returns the height of the newest snapshot; zero without one.
    #[must_use]
    pub fn newest_height(&self) -> Height {
        self.snapshots.heights().last().copied().unwrap_or_default()
    }

    /// Reads a part of a chunk: its index, the offset and the number of bytes. The bytes are not checked.
    ///
    /// # Errors
    /// Fails with [`Fault::Snapshot`] beyond the end of the chunk, and with [`Fault::Io`].
    pub fn snapshot_piece(
        &self,
        snapshot: &StoredSnapshot,
        piece: (usize, u32, u32),
    ) -> Result<Vec<u8>, Fault> {
        self.snapshots.piece(&self.log.disk, snapshot, piece)
    }

    /// Reads one chunk of a snapshot.
    ///
    /// # Errors
    /// Fails with [`Fault::DamagedSnapshot`] or [`Fault::Io`].
    pub fn snapshot_chunk(&self, snapshot: &StoredSnapshot, index: usize) -> Result<Vec<u8>, Fault> {
        self.snapshots.chunk(&self.log.disk, snapshot, index)
    }

    /// Returns the reason why log and snapshots give no usable state; `None` when they do. The log itself is whole: the
    /// replica knows all that it has promised.
    #[must_use]
    pub fn missing_state(&self) -> Option<&str> {
        self.missing_state.as_deref()
    }

    /// Notes, durably, that the own states from this height on differ from those that a quorum has signed. The next
    /// opening finds no state, unless a snapshot with a proof, of this height or a later one, has come from peers.
    ///
    /// # Errors
    /// Fails with each fault of the disk.
    pub fn distrust(&mut self, height: Height) -> Result<(), Fault> {
        self.snapshots.distrust(&mut self.log.disk, height)?;
        self.log.count_syncs();
        self.missing_state = Some(wrong_states(height));
        Ok(())
    }

    /// Returns the height from which on the own states are wrong; zero when all are trusted.
    #[must_use]
    pub fn distrusted(&self) -> Height {
        self.snapshots.distrusted()
    }

    /// Returns the height of the newest valid snapshot from which the log has every height. Skips a damaged snapshot
    /// if the log reaches back to an older one. Zero stands for the state before all heights, and for a missing state.
    pub(super) fn choose_snapshot(&mut self) -> Result<Height, Fault> {
        let mut damage = None;
        while let Some(height) = self.snapshots.heights().last().copied() {
            match self.verify(height) {
                Ok(()) if height <= self.config.snapshot_max => break,
                Ok(()) => self.snapshots.exclude(height),
                Err(fault @ Fault::DamagedSnapshot { .. }) => {
                    damage.get_or_insert(fault);
                    self.snapshots.exclude(height);
                }
                Err(fault) => return Err(fault),
            }
        }
        let snapshot = self.snapshots.heights().last().copied().unwrap_or_default();
        let (first, last) = self.kept();
        let distrusted = self.snapshots.distrusted();
        if distrusted > Height::ZERO {
            self.missing_state = Some(wrong_states(distrusted));
            return Ok(Height::ZERO);
        }
        let is_empty = self.snapshots.heights().is_empty();
        if is_empty && self.config.begins_with_snapshot {
            let gone = || "the state that the cluster began with is not in the folder".to_owned();
            self.missing_state = Some(damage.map_or_else(gone, |damage| damage.to_string()));
            return Ok(Height::ZERO);
        }
        // A snapshot above the log is valid too, because it became durable before the decided heights.
        if first <= snapshot.next() || (last <= snapshot && damage.is_none()) {
            return Ok(snapshot);
        }
        let fault = damage.unwrap_or(Fault::Gap { snapshot, first });
        self.missing_state = Some(fault.to_string());
        Ok(Height::ZERO)
    }

    fn verify(&self, height: Height) -> Result<(), Fault> {
        let snapshot = self.snapshots.read(&self.log.disk, height)?;
        for index in 0..snapshot.chunks() {
            self.snapshot_chunk(&snapshot, index)?;
        }
        Ok(())
    }
}

fn wrong_states(from: Height) -> String {
    format!("its states from height {from} on differ from those that a quorum has signed")
}
