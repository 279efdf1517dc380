//! A disk of real files: one file for the segments of the log, and one folder of files for snapshots.
//!
//! All segments lie in one file, so that one sync covers a write that crosses the end of a segment. Writes bypass the
//! page cache if the file system supports that, and use it otherwise; [`FileDisk::mode`] returns the mode. Reads use
//! the cache.

use crate::disk::Disk;
use crate::fault::Fault;
use crate::folder::LOG_FILE;
use crate::number::{to_u32, to_usize};
use crate::page_buffer::PageBuffer;
use crate::{PAGE_BYTES, SEGMENT_BYTES};
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) const SNAPSHOTS_FOLDER: &str = "snapshots";
/// The ending of the name of a file that is not visible yet.
pub(crate) const UNFINISHED: &str = ".tmp";
/// The number of zeros that one write has.
const ZEROS_BYTES: usize = 1 << 20;

/// The failures that durable data survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// Every sync reaches the device. Durable data survives a power cut.
    #[default]
    Fsync,
    /// Syncs do nothing. Durable data survives a crash of the process, but not of the machine.
    Os,
}

/// The way of writing the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Writes bypass the page cache.
    Direct,
    /// Writes use the page cache.
    Buffered,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        })
    }
}

/// The configuration of a disk of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileDiskConfig {
    /// The failures that durable data survives.
    pub durability: Durability,
    /// Whether to try direct I/O. Without syncs it is not tried, because the page cache is faster.
    pub direct: bool,
    /// Bytes of a segment. The number is a multiple of [`PAGE_BYTES`], and the same at each opening.
    pub segment_bytes: u32,
    /// Bytes of segments that exist at least after opening, filled with zeros. Segments that are added later are only
    /// reserved, and their first write costs more.
    pub prepared_bytes: u64,
    /// The salt; see [`Disk::salt`].
    pub salt: u64,
}

impl Default for FileDiskConfig {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            direct: true,
            segment_bytes: SEGMENT_BYTES,
            prepared_bytes: u64::from(SEGMENT_BYTES),
            salt: 0,
        }
    }
}

/// An unfinished snapshot file.
#[derive(Debug)]
struct Unfinished {
    name: String,
    file: File,
    is_synced: bool,
}

/// A disk of real files in one folder.
#[derive(Debug)]
pub struct FileDisk {
    folder: PathBuf,
    config: FileDiskConfig,
    /// The log's file with the page cache, for reads, and for writes without direct I/O.
    log: File,
    /// The log's file without the page cache.
    direct: Option<File>,
    segments: u32,
    /// The first slot whose segment is reserved and not written, and the bytes of it that are filled with zeros.
    unfilled: (u32, usize),
    zeros: PageBuffer,
    unfinished: Option<Unfinished>,
    syncs: u64,
    /// The longest sync since the last query.
    longest_sync: Duration,
}

impl FileDisk {
    /// Opens the disk in a folder that `folder::format` has made.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`], also when the log's file is gone. Fails with [`Fault::Full`] when the prepared
    /// segments do not fit.
    pub fn open(folder: &Path, config: FileDiskConfig) -> Result<Self, Fault> {
        assert!(to_usize(config.segment_bytes).is_multiple_of(PAGE_BYTES) && config.segment_bytes > 0);
        let doing = "opening the log";
        let path = folder.join(LOG_FILE);
        let log = OpenOptions::new().read(true).write(true).open(&path);
        let log = log.map_err(|error| failed(doing, &error))?;
        let direct =
            (config.direct && config.durability == Durability::Fsync).then(|| open_direct(&path)).flatten();
        let length = log.metadata().map_err(|error| failed(doing, &error))?.len();
        // A file that was truncated ends inside a segment. What the segment still has is read, with zeros behind it.
        let segments = length.div_ceil(u64::from(config.segment_bytes));
        let end = segments.saturating_mul(u64::from(config.segment_bytes));
        if length < end {
            reserve(&log, (length, end), doing)?;
        }
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        let mut disk = Self {
            folder: folder.to_owned(),
            config,
            log,
            direct,
            segments,
            unfilled: (segments, 0),
            zeros: PageBuffer::new(PAGE_BYTES),
            unfinished: None,
            syncs: 0,
            longest_sync: Duration::ZERO,
        };
        disk.remove_unfinished()?;
        let prepared = config.prepared_bytes.div_ceil(u64::from(config.segment_bytes));
        while u64::from(disk.segments) < prepared {
            disk.grow()?;
        }
        while disk.prepare()? {}
        if disk.segments > segments {
            disk.sync_log(File::sync_all, doing)?;
        }
        Ok(disk)
    }

    /// Returns the way of writing the log.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.direct {
            Some(_) => Mode::Direct,
            None => Mode::Buffered,
        }
    }

    /// Returns the failures that durable data survives.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.config.durability
    }

    fn snapshots(&self) -> PathBuf {
        self.folder.join(SNAPSHOTS_FOLDER)
    }

    /// Removes unfinished snapshot files. Creates the folder of snapshots if it is missing.
    fn remove_unfinished(&self) -> Result<(), Fault> {
        let doing = "reading the folder of snapshots";
        let folder = self.snapshots();
        if !folder.is_dir() {
            let made = fs::create_dir(&folder).and_then(|()| File::open(&self.folder)?.sync_all());
            made.map_err(|error| failed(doing, &error))?;
        }
        for entry in fs::read_dir(&folder).map_err(|error| failed(doing, &error))? {
            let path = entry.map_err(|error| failed(doing, &error))?.path();
            if path.to_string_lossy().ends_with(UNFINISHED) {
                fs::remove_file(&path).map_err(|error| failed(doing, &error))?;
            }
        }
        Ok(())
    }

    fn at(&self, slot: u32, offset: u32) -> u64 {
        u64::from(slot) * u64::from(self.config.segment_bytes) + u64::from(offset)
    }

    fn write_at(&mut self, bytes: &[u8], at: u64, doing: &'static str) -> Result<(), Fault> {
        if let Some(direct) = &self.direct {
            match direct.write_all_at(bytes, at) {
                Ok(()) => return Ok(()),
                // The file system opens files for direct I/O but does not support it, so it is not tried again.
                Err(error) if error.kind() == ErrorKind::InvalidInput => self.direct = None,
                Err(error) => return Err(failed(doing, &error)),
            }
        }
        self.log.write_all_at(bytes, at).map_err(|error| failed(doing, &error))
    }

    /// Syncs the log. The counter also counts syncs that are skipped without durability, because it measures the work.
    fn sync_log(&mut self, sync: impl Fn(&File) -> io::Result<()>, doing: &'static str) -> Result<(), Fault> {
        self.syncs = self.syncs.saturating_add(1);
        if self.config.durability == Durability::Os {
            return Ok(());
        }
        let began = Instant::now();
        let result = sync(&self.log);
        self.add_sync_time(began);
        result.map_err(|error| failed(doing, &error))
    }

    /// Adds a wait for the device that began at `began`.
    fn add_sync_time(&mut self, began: Instant) {
        self.longest_sync = self.longest_sync.max(began.elapsed());
    }

    /// Makes changes of names in the folder of snapshots durable.
    fn sync_names(&mut self, doing: &'static str) -> Result<(), Fault> {
        self.syncs = self.syncs.saturating_add(1);
        if self.config.durability == Durability::Os {
            return Ok(());
        }
        let began = Instant::now();
        let result = File::open(self.snapshots()).and_then(|folder| folder.sync_all());
        self.add_sync_time(began);
        result.map_err(|error| failed(doing, &error))
    }
}

fn open_direct(path: &Path) -> Option<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).ok()?;
    OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
}

pub(crate) fn failed(doing: &'static str, error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Fault::Full { doing },
        _ => Fault::Io { doing, error: error.to_string() },
    }
}

/// Extends the log's file from its end to another one, with zeros.
fn reserve(log: &File, (from, to): (u64, u64), doing: &'static str) -> Result<(), Fault> {
    match rustix::fs::fallocate(log, FallocateFlags::empty(), from, to.saturating_sub(from)) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => {
            // Without a reservation the file must be written, or a later write could find the disk full.
            let page = [0; PAGE_BYTES];
            for at in (from..to).step_by(PAGE_BYTES) {
                let length = usize::try_from(to.saturating_sub(at)).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
                let written = log.write_all_at(page.get(..length).unwrap_or(&page), at);
                written.map_err(|error| failed(doing, &error))?;
            }
            Ok(())
        }
        Err(error) => {
            // A partial reservation would count as the beginning of a segment.
            let _ = log.set_len(from);
            Err(failed(doing, &error.into()))
        }
    }
}

impl Disk for FileDisk {
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    fn segment_bytes(&self) -> u32 {
        self.config.segment_bytes
    }

    fn segments(&self) -> u32 {
        self.segments
    }

    fn salt(&self) -> u64 {
        self.config.salt
    }

    fn grow(&mut self) -> Result<u32, Fault> {
        let doing = "adding a segment to the log";
        let at = self.at(self.segments, 0);
        reserve(&self.log, (at, at.saturating_add(u64::from(self.config.segment_bytes))), doing)?;
        let slot = self.segments;
        self.segments += 1;
        Ok(slot)
    }

    fn prepare(&mut self) -> Result<bool, Fault> {
        let (slot, filled) = self.unfilled;
        if slot >= self.segments {
            return Ok(false);
        }
        let segment_bytes = to_usize(self.config.segment_bytes);
        let length = ZEROS_BYTES.min(segment_bytes - filled);
        let mut zeros = std::mem::replace(&mut self.zeros, PageBuffer::new(PAGE_BYTES));
        if zeros.len() != length {
            zeros.clear();
            zeros.extend(&vec![0; length]);
        }
        let at = self.at(slot, to_u32(filled));
        self.write_at(zeros.as_slice(), at, "filling a segment of the log with zeros")?;
        let filled = filled + length;
        self.unfilled = if filled == segment_bytes { (slot + 1, 0) } else { (slot, filled) };
        let more = self.unfilled.0 < self.segments;
        if more {
            self.zeros = zeros;
        }
        Ok(more)
    }

    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault> {
        // A written segment needs no zeros, and earlier ones are already in use.
        if self.unfilled.0 <= slot {
            self.unfilled = (slot + 1, 0);
        }
        let at = self.at(slot, offset);
        self.write_at(pages, at, "writing the log")
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.sync_log(File::sync_data, "syncing the log")
    }

    fn syncs(&self) -> u64 {
        self.syncs
    }

    fn take_longest_sync_ns(&mut self) -> u64 {
        u64::try_from(std::mem::take(&mut self.longest_sync).as_nanos()).unwrap_or(u64::MAX)
    }

    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault> {
        let read = self.log.read_exact_at(into, self.at(slot, offset));
        read.map_err(|error| failed("reading the log", &error))
    }

    fn blob_begin(&mut self, name: &str) -> Result<(), Fault> {
        let path = self.snapshots().join(format!("{name}{UNFINISHED}"));
        let file = File::create(path).map_err(|error| failed("beginning a snapshot file", &error))?;
        self.unfinished = Some(Unfinished { name: name.to_owned(), file, is_synced: false });
        Ok(())
    }

    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let doing = "writing a snapshot file";
        let Some(blob) = &mut self.unfinished else {
            return Err(failed(doing, &ErrorKind::NotFound.into()));
        };
        blob.is_synced = false;
        io::Write::write_all(&mut blob.file, bytes).map_err(|error| failed(doing, &error))
    }

    fn blob_sync(&mut self) -> Result<(), Fault> {
        let doing = "syncing a snapshot file";
        let Some(mut blob) = self.unfinished.take() else {
            return Err(failed(doing, &ErrorKind::NotFound.into()));
        };
        self.syncs = self.syncs.saturating_add(1);
        let began = Instant::now();
        let result = match self.config.durability {
            Durability::Fsync => blob.file.sync_all(),
            Durability::Os => Ok(()),
        };
        self.add_sync_time(began);
        blob.is_synced = result.is_ok();
        self.unfinished = Some(blob);
        result.map_err(|error| failed(doing, &error))
    }

    fn blob_commit(&mut self) -> Result<(), Fault> {
        let doing = "finishing a snapshot file";
        let Some(blob) = self.unfinished.take_if(|blob| blob.is_synced) else {
            return Err(failed(doing, &ErrorKind::NotFound.into()));
        };
        let folder = self.snapshots();
        let from = folder.join(format!("{}{UNFINISHED}", blob.name));
        fs::rename(from, folder.join(&blob.name)).map_err(|error| failed(doing, &error))?;
        self.sync_names(doing)
    }

    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault> {
        let doing = "reading the folder of snapshots";
        let mut blobs = Vec::new();
        for entry in fs::read_dir(self.snapshots()).map_err(|error| failed(doing, &error))? {
            let entry = entry.map_err(|error| failed(doing, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.ends_with(UNFINISHED) {
                let metadata = entry.metadata().map_err(|error| failed(doing, &error))?;
                blobs.push((name, metadata.len()));
            }
        }
        blobs.sort_unstable();
        Ok(blobs)
    }

    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        let doing = "reading a snapshot file";
        let file = File::open(self.snapshots().join(name)).map_err(|error| failed(doing, &error))?;
        file.read_exact_at(into, offset).map_err(|error| failed(doing, &error))
    }

    fn blob_delete(&mut self, name: &str) -> Result<(), Fault> {
        let deleted = fs::remove_file(self.snapshots().join(name));
        deleted.map_err(|error| failed("deleting a snapshot file", &error))
    }
}

#[cfg(test)]
mod tests;
