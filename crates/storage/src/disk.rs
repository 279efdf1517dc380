//! What the log and the snapshots ask of a disk.

use crate::fault::Fault;

/// A disk: segments of one fixed size, named by their slot, for the log; and named blobs for snapshots.
///
/// Whoever implements it promises: what was written before a `sync` that returned `Ok` is there after a power
/// cut; what was written since is there in any part, in units of 512 bytes; nothing else changes.
pub trait Disk: Send {
    /// Bytes of a page, a power of two. Offsets and lengths of writes to segments are multiples of it.
    fn page_bytes(&self) -> usize;

    /// Bytes of a segment: a multiple of the page.
    fn segment_bytes(&self) -> u32;

    /// How many segments there are; their slots are `0..segments`.
    fn segments(&self) -> u32;

    /// Known to this folder alone, and the same at each opening. Checksums begin with it, so that a client who
    /// does not know it cannot make a body whose bytes would pass for a record of the log.
    fn salt(&self) -> u64 {
        0
    }

    /// Adds a segment that reads as zeros and reserves its space, so that no write to it finds the disk full.
    ///
    /// # Errors
    /// [`Fault::Full`], [`Fault::Io`].
    fn grow(&mut self) -> Result<u32, Fault>;

    /// Writes zeros into a part of a segment that has been added and not been written yet, because writing for
    /// the first time costs more than writing again. False when there is no such part.
    ///
    /// # Errors
    /// [`Fault::Io`].
    fn prepare(&mut self) -> Result<bool, Fault>;

    /// Writes whole pages at `offset` of the segment in `slot`. Direct I/O is possible when `pages` begins at an
    /// address that is a multiple of the page.
    ///
    /// # Errors
    /// [`Fault::Full`], [`Fault::Io`].
    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault>;

    /// Makes everything written to segments so far durable.
    ///
    /// # Errors
    /// [`Fault::Io`]. Nothing may be assumed about the writes since the last sync then.
    fn sync(&mut self) -> Result<(), Fault>;

    /// Syncs so far, of any kind.
    fn syncs(&self) -> u64;

    /// How long the longest sync since the last call has taken, in nanoseconds; zero where nothing is waited for.
    fn take_longest_sync_ns(&mut self) -> u64 {
        0
    }

    /// Reads at `offset` of the segment in `slot` and fills `into`.
    ///
    /// # Errors
    /// [`Fault::Io`].
    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault>;

    /// Starts a blob that nobody sees before [`Disk::blob_commit`]; an earlier unfinished one is thrown away.
    /// Unfinished ones do not survive the next opening of the disk.
    ///
    /// # Errors
    /// [`Fault::Full`], [`Fault::Io`].
    fn blob_begin(&mut self, name: &str) -> Result<(), Fault>;

    /// Adds bytes to the unfinished blob. Syncs nothing.
    ///
    /// # Errors
    /// [`Fault::Full`], [`Fault::Io`].
    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault>;

    /// Makes the bytes of the unfinished blob durable, with one sync.
    ///
    /// # Errors
    /// [`Fault::Full`], [`Fault::Io`].
    fn blob_sync(&mut self) -> Result<(), Fault>;

    /// Makes the unfinished blob, whose bytes are durable, visible under its name, atomically and durably, with
    /// one sync.
    ///
    /// # Errors
    /// [`Fault::Io`], also when bytes were added since the last [`Disk::blob_sync`].
    fn blob_commit(&mut self) -> Result<(), Fault>;

    /// Names and sizes of the visible blobs, in the order of their names.
    ///
    /// # Errors
    /// [`Fault::Io`].
    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault>;

    /// Reads at `offset` of a visible blob and fills `into`.
    ///
    /// # Errors
    /// [`Fault::Io`], also when the blob is shorter.
    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault>;

    /// Deletes a visible blob.
    ///
    /// # Errors
    /// [`Fault::Io`].
    fn blob_delete(&mut self, name: &str) -> Result<(), Fault>;
}
