//! The interface of a disk for the log and the snapshots.

use crate::fault::Fault;

/// A disk. It has segments of one fixed size for the log, which slots number, and named blobs for snapshots.
///
/// An implementation promises that data written before a `sync` that returned `Ok` survives a power cut. Of data
/// written since, any part may survive, in units of 512 bytes. Nothing else changes.
pub trait Disk: Send {
    /// Returns the bytes of a page, a power of two. Offsets and lengths of writes to segments are multiples of it.
    fn page_bytes(&self) -> usize;

    /// Returns the bytes of a segment, a multiple of the page.
    fn segment_bytes(&self) -> u32;

    /// Returns the number of segments. Their slots are `0..segments`.
    fn segments(&self) -> u32;

    /// Returns a number that only this folder knows, the same at each opening. Checksums begin with it. A client that
    /// does not know it cannot make a body whose bytes pass for a record of the log.
    fn salt(&self) -> u64 {
        0
    }

    /// Adds a segment that reads as zeros. Reserves its space, so that no write to it finds the disk full.
    ///
    /// # Errors
    /// Fails with [`Fault::Full`] or [`Fault::Io`].
    fn grow(&mut self) -> Result<u32, Fault>;

    /// Writes zeros into a part of an added and unwritten segment, because a first write costs more than a later one.
    /// Returns false when no such part is left.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    fn prepare(&mut self) -> Result<bool, Fault>;

    /// Writes whole pages at `offset` of the segment in `slot`. Direct I/O needs an address of `pages` that is a
    /// multiple of the page.
    ///
    /// # Errors
    /// Fails with [`Fault::Full`] or [`Fault::Io`].
    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault>;

    /// Makes all writes to segments so far durable.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`]. The writes since the last sync are then in an unknown state.
    fn sync(&mut self) -> Result<(), Fault>;

    /// Returns the number of syncs so far, of any kind.
    fn syncs(&self) -> u64;

    /// Returns the nanoseconds of the longest sync since the last call. A disk that does not wait returns zero.
    fn take_longest_sync_ns(&mut self) -> u64 {
        0
    }

    /// Fills `into` from `offset` of the segment in `slot`.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault>;

    /// Begins a blob that is invisible before [`Disk::blob_commit`]. Discards an earlier unfinished blob. Unfinished
    /// blobs do not survive the next opening of the disk.
    ///
    /// # Errors
    /// Fails with [`Fault::Full`] or [`Fault::Io`].
    fn blob_begin(&mut self, name: &str) -> Result<(), Fault>;

    /// Appends bytes to the unfinished blob, without a sync.
    ///
    /// # Errors
    /// Fails with [`Fault::Full`] or [`Fault::Io`].
    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// Makes the bytes of the unfinished blob durable, with one sync.
    ///
    /// # Errors
    /// Fails with [`Fault::Full`] or [`Fault::Io`].
    fn blob_sync(&mut self) -> Result<(), Fault>;

    /// Makes the unfinished blob, whose bytes are durable, visible under its name. The step is atomic and durable,
    /// and makes one sync.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`], also when bytes were appended since the last [`Disk::blob_sync`].
    fn blob_commit(&mut self) -> Result<(), Fault>;

    /// Returns names and sizes of the visible blobs, in the order of their names.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault>;

    /// Fills `into` from `offset` of a visible blob.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`], also when the blob is shorter.
    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Deletes a visible blob.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    fn blob_delete(&mut self, name: &str) -> Result<(), Fault>;
}

/// The disk of a host, chosen when the process starts. So the host is compiled once for all disks.
impl Disk for Box<dyn Disk> {
    fn page_bytes(&self) -> usize {
        (**self).page_bytes()
    }

    fn segment_bytes(&self) -> u32 {
        (**self).segment_bytes()
    }

    fn segments(&self) -> u32 {
        (**self).segments()
    }

    fn salt(&self) -> u64 {
        (**self).salt()
    }

    fn grow(&mut self) -> Result<u32, Fault> {
        (**self).grow()
    }

    fn prepare(&mut self) -> Result<bool, Fault> {
        (**self).prepare()
    }

    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault> {
        (**self).write(slot, offset, pages)
    }

    fn sync(&mut self) -> Result<(), Fault> {
        (**self).sync()
    }

    fn syncs(&self) -> u64 {
        (**self).syncs()
    }

    fn take_longest_sync_ns(&mut self) -> u64 {
        (**self).take_longest_sync_ns()
    }

    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault> {
        (**self).read(slot, offset, into)
    }

    fn blob_begin(&mut self, name: &str) -> Result<(), Fault> {
        (**self).blob_begin(name)
    }

    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        (**self).blob_append(bytes)
    }

    fn blob_sync(&mut self) -> Result<(), Fault> {
        (**self).blob_sync()
    }

    fn blob_commit(&mut self) -> Result<(), Fault> {
        (**self).blob_commit()
    }

    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault> {
        (**self).blobs()
    }

    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        (**self).blob_read(name, offset, into)
    }

    fn blob_delete(&mut self, name: &str) -> Result<(), Fault> {
        (**self).blob_delete(name)
    }
}
