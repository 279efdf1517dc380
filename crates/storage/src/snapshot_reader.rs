//! Snapshots of a data folder, for a reader beside the running node.

use crate::fault::Fault;
use crate::frozen_disk::FrozenDisk;
use crate::snapshot::{Snapshots, StoredSnapshot};
use std::path::Path;

/// The snapshots of a folder. The node may delete one of them at any time. A read then fails, and a reader that opens the
/// folder again finds a newer one.
#[derive(Debug)]
pub struct SnapshotReader {
    disk: FrozenDisk,
    snapshots: Snapshots,
}

impl SnapshotReader {
    /// Finds the snapshots in a data folder.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn open(folder: &Path) -> Result<Self, Fault> {
        let disk = FrozenDisk::open(folder, 0)?;
        let snapshots = Snapshots::find(&disk)?;
        Ok(Self { disk, snapshots })
    }

    /// Returns the newest snapshot whose state a quorum has signed.
    ///
    /// # Errors
    /// Fails with [`Fault::DamagedSnapshot`], also when the node has deleted it, or with [`Fault::Io`].
    pub fn newest_proven(&self) -> Result<Option<StoredSnapshot>, Fault> {
        let newest = self.snapshots.newest_proven();
        newest.map(|height| self.snapshots.read(&self.disk, height)).transpose()
    }

    /// Reads one chunk of a snapshot.
    ///
    /// # Errors
    /// As [`Self::newest_proven`].
    pub fn chunk(&self, snapshot: &StoredSnapshot, index: usize) -> Result<Vec<u8>, Fault> {
        self.snapshots.chunk(&self.disk, snapshot, index)
    }
}
