//! Snapshots of a store, and which of them it goes on from.

use super::Store;
use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::to_u64;
use crate::snapshot::{SnapshotWriter, Snapshots, StoredSnapshot};
use quorate_types::{Digest, Height};

impl<D: Disk> Store<D> {
    /// Begins a snapshot of the state at `height`: what stands before its chunks, and the digest of each chunk.
    /// Chunks with equal digests are equal. [`SnapshotWriter::needed`] says which must be written.
    ///
    /// One snapshot is written at a time; beginning another one gives up what was not committed.
    ///
    /// # Errors
    /// [`Fault::Snapshot`] when a newer one is durable, [`Fault::DamagedSnapshot`] when the one before cannot be
    /// read any more.
    pub fn begin_snapshot(
        &mut self,
        height: Height,
        header: Vec<u8>,
        digests: &[Digest],
    ) -> Result<SnapshotWriter, Fault> {
        self.snapshots.begin(self.log.disk_mut(), height, header, digests)
    }

    /// Writes one of the needed chunks. They may come in any order, and spread over many turns.
    ///
    /// # Errors
    /// [`Fault::Snapshot`] for one that is not needed, [`Fault::Budget`] when log and snapshots would take more
    /// than `disk_bytes_max`, and whatever the disk reports.
    pub fn write_chunk(
        &mut self,
        writer: &mut SnapshotWriter,
        index: usize,
        chunk: &[u8],
    ) -> Result<(), Fault> {
        let disk = self.log.disk();
        let log = u64::from(disk.segments()).saturating_mul(u64::from(disk.segment_bytes()));
        let snapshots = self.snapshots.bytes().saturating_add(writer.bytes());
        let limit = self.config.disk_bytes_max;
        if log.saturating_add(snapshots).saturating_add(to_u64(chunk.len())) > limit {
            return Err(Fault::Budget { limit });
        }
        Snapshots::write(self.log.disk_mut(), writer, index, chunk)?;
        let ledger = self.log.ledger_mut();
        ledger.snapshot_bytes = ledger.snapshot_bytes.wrapping_add(to_u64(chunk.len()));
        Ok(())
    }

    /// Makes the chunks written so far durable, with one sync: called every few megabytes, it keeps each of them
    /// short.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn sync_chunks(&mut self, writer: &mut SnapshotWriter) -> Result<(), Fault> {
        let synced = Snapshots::sync(self.log.disk_mut(), writer);
        self.log.count_syncs();
        synced
    }

    /// One step of making a snapshot durable whose chunks are all written: each makes one sync, so that a turn
    /// need not make more. True after the last step; the log may go then where the snapshot makes up for it.
    ///
    /// # Errors
    /// [`Fault::Snapshot`] when chunks are missing or a newer one is durable, and whatever the disk reports.
    pub fn commit_step(&mut self, writer: &mut SnapshotWriter) -> Result<bool, Fault> {
        let done = self.snapshots.commit(self.log.disk_mut(), writer);
        self.log.count_syncs();
        if !done? {
            return Ok(false);
        }
        self.share_disk();
        self.release(writer.height())?;
        Ok(true)
    }

    /// Takes all steps at once.
    ///
    /// # Errors
    /// As [`Store::commit_step`].
    pub fn commit_snapshot(&mut self, mut writer: SnapshotWriter) -> Result<(), Fault> {
        while !self.commit_step(&mut writer)? {}
        Ok(())
    }

    /// The snapshot that this replica's state begins with.
    ///
    /// # Errors
    /// [`Fault::DamagedSnapshot`], [`Fault::Io`].
    pub fn newest_snapshot(&self) -> Result<Option<StoredSnapshot>, Fault> {
        let newest = self.snapshots.heights().last();
        newest.map(|height| self.snapshots.read(self.log.disk(), *height)).transpose()
    }

    /// One chunk of a snapshot.
    ///
    /// # Errors
    /// [`Fault::DamagedSnapshot`], [`Fault::Io`].
    pub fn snapshot_chunk(&self, snapshot: &StoredSnapshot, index: usize) -> Result<Vec<u8>, Fault> {
        self.snapshots.chunk(self.log.disk(), snapshot, index)
    }

    /// The newest snapshot that holds and from which on the log knows every height. A damaged one is passed over
    /// if the log reaches back to an older one; zero stands for the state before all heights.
    pub(super) fn choose_snapshot(&mut self) -> Result<Height, Fault> {
        let mut damage = None;
        while let Some(height) = self.snapshots.heights().last().copied() {
            match self.verify(height) {
                Ok(()) => break,
                Err(fault @ Fault::DamagedSnapshot { .. }) => {
                    damage.get_or_insert(fault);
                    self.snapshots.distrust(height);
                }
                Err(fault) => return Err(fault),
            }
        }
        let snapshot = self.snapshots.heights().last().copied().unwrap_or_default();
        let (first, last) = self.kept();
        // A snapshot above the log is as good: it was durable before the decided heights were.
        if first <= snapshot.next() || (last <= snapshot && damage.is_none()) {
            Ok(snapshot)
        } else {
            Err(damage.unwrap_or(Fault::Gap { snapshot, first }))
        }
    }

    fn verify(&self, height: Height) -> Result<(), Fault> {
        let snapshot = self.snapshots.read(self.log.disk(), height)?;
        for index in 0..snapshot.chunks() {
            self.snapshot_chunk(&snapshot, index)?;
        }
        Ok(())
    }
}
