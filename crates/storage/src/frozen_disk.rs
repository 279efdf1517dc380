//! The disk of a stopped replica, for reading alone. The files of the folder are never changed: whatever is written stays in
//! memory. So a replica can be opened as its node would open it, and its folder stays as it is.

use crate::disk::Disk;
use crate::fault::Fault;
use crate::file_disk::{SNAPSHOTS_FOLDER, UNFINISHED, failed};
use crate::folder::LOG_FILE;
use crate::number::{to_u64, to_usize};
use crate::{PAGE_BYTES, SEGMENT_BYTES};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub struct FrozenDisk {
    snapshots: PathBuf,
    log: File,
    /// Bytes of the log's file.
    log_bytes: u64,
    segments: u32,
    salt: u64,
    /// Pages that were written, by number.
    written: BTreeMap<u64, Vec<u8>>,
    /// Blobs that were committed, or deleted (`None`).
    blobs: BTreeMap<String, Option<Vec<u8>>>,
    unfinished: Option<(String, Vec<u8>)>,
    syncs: u64,
}

impl FrozenDisk {
    /// Opens the disk in a folder that `folder::format` has made. The salt is that of the folder.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`], also when the log's file is gone.
    pub fn open(folder: &Path, salt: u64) -> Result<Self, Fault> {
        let doing = "opening the log";
        let log = File::open(folder.join(LOG_FILE)).map_err(|error| failed(doing, &error))?;
        let log_bytes = log.metadata().map_err(|error| failed(doing, &error))?.len();
        Ok(Self {
            snapshots: folder.join(SNAPSHOTS_FOLDER),
            log,
            log_bytes,
            segments: u32::try_from(log_bytes.div_ceil(u64::from(SEGMENT_BYTES))).unwrap_or(u32::MAX),
            salt,
            written: BTreeMap::new(),
            blobs: BTreeMap::new(),
            unfinished: None,
            syncs: 0,
        })
    }

    /// Returns the bytes of the files: log and snapshots.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn file_bytes(&self) -> Result<u64, Fault> {
        let blobs = self.files()?;
        Ok(blobs.values().fold(self.log_bytes, |bytes, blob| bytes.saturating_add(*blob)))
    }

    /// Returns the visible snapshot files of the folder, with their sizes.
    fn files(&self) -> Result<BTreeMap<String, u64>, Fault> {
        let doing = "reading the folder of snapshots";
        let mut files = BTreeMap::new();
        let entries = match fs::read_dir(&self.snapshots) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(files),
            entries => entries.map_err(|error| failed(doing, &error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed(doing, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.ends_with(UNFINISHED) {
                let metadata = entry.metadata().map_err(|error| failed(doing, &error))?;
                files.insert(name, metadata.len());
            }
        }
        Ok(files)
    }

    /// Reads the log as it was written to its file. Behind its end are zeros.
    fn read_file(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        let there = usize::try_from(self.log_bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(into.len());
        let (from_file, behind) = into.split_at_mut(there);
        behind.fill(0);
        self.log.read_exact_at(from_file, at).map_err(|error| failed("reading the log", &error))
    }
}

fn place(slot: u32, offset: u32) -> u64 {
    u64::from(slot).saturating_mul(u64::from(SEGMENT_BYTES)).saturating_add(u64::from(offset))
}

impl Disk for FrozenDisk {
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    fn segment_bytes(&self) -> u32 {
        SEGMENT_BYTES
    }

    fn segments(&self) -> u32 {
        self.segments
    }

    fn salt(&self) -> u64 {
        self.salt
    }

    fn grow(&mut self) -> Result<u32, Fault> {
        let slot = self.segments;
        self.segments = slot.saturating_add(1);
        Ok(slot)
    }

    fn prepare(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault> {
        let first = place(slot, offset) / to_u64(PAGE_BYTES);
        self.written.extend((first..).zip(pages.chunks(PAGE_BYTES).map(<[u8]>::to_vec)));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.syncs = self.syncs.saturating_add(1);
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.syncs
    }

    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault> {
        let (begin, page_bytes) = (place(slot, offset), to_u64(PAGE_BYTES));
        let end = begin.saturating_add(to_u64(into.len()));
        self.read_file(begin, into)?;
        for (number, page) in self.written.range(begin / page_bytes..end.div_ceil(page_bytes)) {
            let at = number.saturating_mul(page_bytes);
            let (from, to) = (at.max(begin), at.saturating_add(page_bytes).min(end));
            let within = |low: u64| to_usize(u32::try_from(from.saturating_sub(low)).unwrap_or(u32::MAX));
            let length = to_usize(u32::try_from(to.saturating_sub(from)).unwrap_or(u32::MAX));
            let target = into.get_mut(within(begin)..).and_then(|rest| rest.get_mut(..length));
            let source = page.get(within(at)..).and_then(|rest| rest.get(..length));
            if let (Some(target), Some(source)) = (target, source) {
                target.copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn blob_begin(&mut self, name: &str) -> Result<(), Fault> {
        self.unfinished = Some((name.to_owned(), Vec::new()));
        Ok(())
    }

    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if let Some((_, blob)) = &mut self.unfinished {
            blob.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn blob_sync(&mut self) -> Result<(), Fault> {
        self.sync()
    }

    fn blob_commit(&mut self) -> Result<(), Fault> {
        if let Some((name, blob)) = self.unfinished.take() {
            self.blobs.insert(name, Some(blob));
        }
        self.sync()
    }

    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault> {
        let mut blobs = self.files()?;
        for (name, blob) in &self.blobs {
            match blob {
                Some(blob) => blobs.insert(name.clone(), to_u64(blob.len())),
                None => blobs.remove(name),
            };
        }
        Ok(blobs.into_iter().collect())
    }

    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        let doing = "reading a snapshot file";
        let missing = |kind: ErrorKind| failed(doing, &kind.into());
        match self.blobs.get(name) {
            Some(Some(blob)) => {
                let from = usize::try_from(offset).ok().and_then(|at| blob.get(at..));
                let from = from.and_then(|rest| rest.get(..into.len()));
                into.copy_from_slice(from.ok_or_else(|| missing(ErrorKind::UnexpectedEof))?);
                Ok(())
            }
            Some(None) => Err(missing(ErrorKind::NotFound)),
            None => {
                let file = File::open(self.snapshots.join(name)).map_err(|error| failed(doing, &error))?;
                file.read_exact_at(into, offset).map_err(|error| failed(doing, &error))
            }
        }
    }

    fn blob_delete(&mut self, name: &str) -> Result<(), Fault> {
        self.blobs.insert(name.to_owned(), None);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{FileDisk, FileDiskConfig, Store, StoreConfig};
    use quorate_types::{ChunkId, Height, LogEntry, Mark};

    const SALT: u64 = 5;

    fn record(number: u8) -> LogEntry {
        LogEntry::Record(vec![number; 9_000].into())
    }

    /// Makes a folder with a log of three records and a snapshot of one chunk.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        File::create_new(folder.path().join(LOG_FILE)).unwrap();
        let config = FileDiskConfig { salt: SALT, ..FileDiskConfig::default() };
        let disk = FileDisk::open(folder.path(), config).unwrap();
        let mut store = Store::open(disk, StoreConfig::default(), &mut |_| {}).unwrap();
        for number in 1..=3 {
            store.append(Mark(u64::from(number)), &record(number)).unwrap();
            store.write_and_sync().unwrap();
        }
        let mut writer =
            store.begin_snapshot(Height(4), b"header".to_vec(), &[ChunkId::of(b"chunk")]).unwrap();
        store.write_chunk(&mut writer, 0, b"chunk").unwrap();
        store.sync_chunks(&mut writer).unwrap();
        store.commit_snapshot(writer).unwrap();
        folder
    }

    fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        for path in [folder.to_owned(), folder.join(SNAPSHOTS_FOLDER)] {
            for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_file() {
                    files.insert(entry.clone(), fs::read(entry).unwrap());
                }
            }
        }
        files
    }

    /// Opens a disk, and returns the records of its log.
    fn records(disk: FrozenDisk) -> (Store<FrozenDisk>, Vec<LogEntry>) {
        let mut entries = Vec::new();
        let store = Store::open(disk, StoreConfig::default(), &mut |entry| entries.push(entry)).unwrap();
        entries.retain(|entry| matches!(entry, LogEntry::Record(_)));
        (store, entries)
    }

    #[test]
    fn stopped_replica_reads_what_it_has_written_and_its_files_stay_the_same() {
        let folder = folder();
        let before = files(folder.path());
        let (mut store, found) = records(FrozenDisk::open(folder.path(), SALT).unwrap());
        assert_eq!(found, [record(1), record(2), record(3)]);
        assert_eq!(store.newest_snapshot().unwrap().unwrap().height(), Height(4));

        store.append(Mark(4), &record(4)).unwrap();
        store.write_and_sync().unwrap();
        let mut writer =
            store.begin_snapshot(Height(5), b"header".to_vec(), &[ChunkId::of(b"other")]).unwrap();
        store.write_chunk(&mut writer, 0, b"other").unwrap();
        store.sync_chunks(&mut writer).unwrap();
        store.commit_snapshot(writer).unwrap();
        let (store, found) = records(store.into_disk());
        assert_eq!(found, [record(1), record(2), record(3), record(4)], "writes are kept in memory");
        let newest = store.newest_snapshot().unwrap().unwrap();
        assert_eq!(
            (newest.height(), store.snapshot_chunk(&newest, 0).unwrap()),
            (Height(5), b"other".to_vec())
        );
        assert_eq!(files(folder.path()), before, "and no file has changed");
    }

    #[test]
    fn damage_is_noticed_as_its_node_would_notice_it() {
        let folder = folder();
        let path = folder.path().join(LOG_FILE);
        let mut log = fs::read(&path).unwrap();
        let at = log.windows(8).position(|bytes| bytes == [1; 8]).unwrap();
        log[at] ^= 1;
        fs::write(&path, log).unwrap();
        let disk = FrozenDisk::open(folder.path(), SALT).unwrap();
        let opened = Store::open(disk, StoreConfig::default(), &mut |_| {});
        assert!(matches!(opened, Err(Fault::Damaged { .. })), "{opened:?}");
    }
}
