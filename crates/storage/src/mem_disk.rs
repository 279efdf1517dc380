//! A disk in memory, for the simulator and for runs without durability.
//!
//! The disk distinguishes written and synced data. A crash can therefore lose the difference, wholly or in sectors of
//! 512 bytes. Each fault is a method that the caller calls, so no fault is random.

use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::{to_u32, to_u64, to_usize};
use quorate_types::rng::Rng;
use std::collections::BTreeMap;

const SECTOR: usize = 512;

/// The unsynced writes that survive a crash.
#[derive(Debug)]
pub enum Keep<'a> {
    /// No write.
    Nothing,
    /// All writes, as when only the process dies.
    Everything,
    /// Some sectors, each with one chance in two.
    Sectors(&'a mut Rng),
}

/// A blob operation that a power failure has interrupted. It may have happened.
#[derive(Clone, Debug)]
enum CutOperation {
    Commit(String, Vec<u8>),
    Delete(String),
}

/// A disk in memory.
#[derive(Clone, Debug)]
pub struct MemDisk {
    segment_bytes: u32,
    page_bytes: usize,
    salt: u64,
    segments: Vec<Vec<u8>>,
    /// The number of `segments` that a crash certainly leaves.
    segments_synced: usize,
    /// The old content of each sector that was written since the last sync.
    unsynced_sectors: BTreeMap<(u32, u32), [u8; SECTOR]>,
    blobs: BTreeMap<String, Vec<u8>>,
    /// Name, content, and whether all of it is durable.
    unfinished: Option<(String, Vec<u8>, bool)>,
    cut_operation: Option<CutOperation>,
    tracks_unsynced: bool,
    capacity_bytes: u64,
    operations: u64,
    power_until: u64,
    failing_writes: bool,
    failing_syncs: bool,
    unsynced_bytes: u64,
    synced_bytes: u64,
    syncs: u64,
}

impl MemDisk {
    /// Returns an empty disk with segments of `segment_bytes`, a multiple of `page_bytes`. `page_bytes` is a power of
    /// two and at least 512.
    #[must_use]
    pub fn new(segment_bytes: u32, page_bytes: usize) -> Self {
        assert!(page_bytes.is_power_of_two() && page_bytes >= SECTOR);
        assert!(segment_bytes > 0 && to_usize(segment_bytes).is_multiple_of(page_bytes));
        Self {
            segment_bytes,
            page_bytes,
            salt: 0,
            segments: Vec::new(),
            segments_synced: 0,
            unsynced_sectors: BTreeMap::new(),
            blobs: BTreeMap::new(),
            unfinished: None,
            cut_operation: None,
            tracks_unsynced: true,
            capacity_bytes: u64::MAX,
            operations: 0,
            power_until: u64::MAX,
            failing_writes: false,
            failing_syncs: false,
            unsynced_bytes: 0,
            synced_bytes: 0,
            syncs: 0,
        }
    }

    /// Returns a disk that does not distinguish unsynced data, for runs without durability. It is faster, and
    /// [`MemDisk::crash`] loses nothing.
    #[must_use]
    pub fn volatile(segment_bytes: u32, page_bytes: usize) -> Self {
        Self { tracks_unsynced: false, ..Self::new(segment_bytes, page_bytes) }
    }

    /// Gives the disk a salt of its own; see [`Disk::salt`].
    pub fn set_salt(&mut self, salt: u64) {
        self.salt = salt;
    }

    /// Sets the bytes of segments and blobs at which the disk is full.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
    }

    /// Makes every write fail, or ends that.
    pub fn fail_writes(&mut self, failing: bool) {
        self.failing_writes = failing;
    }

    /// Makes every sync fail, or ends that. A crash decides which writes since the last sync survive.
    pub fn fail_syncs(&mut self, failing: bool) {
        self.failing_syncs = failing;
    }

    /// Cuts the power during the `operations`-th changing operation from now. That operation and all later ones fail
    /// until [`MemDisk::crash`], which also decides whether the interrupted one has happened.
    pub fn cut_power_after(&mut self, operations: u64) {
        self.power_until = self.operations.saturating_add(operations);
    }

    /// Returns the number of changing operations so far: writes, syncs, new segments, and operations on blobs.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Loses power, or the process, and recovers.
    pub fn crash(&mut self, mut keep: Keep<'_>) {
        let kept = |keep: &mut Keep<'_>| match keep {
            Keep::Nothing => false,
            Keep::Everything => true,
            Keep::Sectors(rng) => rng.below(2) == 1,
        };
        // The last segment goes first, because a grown file keeps a beginning of the added part.
        while self.tracks_unsynced && self.segments.len() > self.segments_synced && !kept(&mut keep) {
            self.segments.pop();
        }
        for ((slot, sector), content) in std::mem::take(&mut self.unsynced_sectors) {
            if kept(&mut keep) {
                continue;
            }
            let at = to_usize(sector) * SECTOR;
            let segment = self.segments.get_mut(to_usize(slot));
            if let Some(target) = segment.and_then(|bytes| bytes.get_mut(at..at + SECTOR)) {
                target.copy_from_slice(&content);
            }
        }
        match self.cut_operation.take() {
            Some(CutOperation::Commit(name, bytes)) if kept(&mut keep) => {
                self.blobs.insert(name, bytes);
            }
            Some(CutOperation::Delete(name)) if kept(&mut keep) => {
                self.blobs.remove(&name);
            }
            _ => {}
        }
        self.unfinished = None;
        self.segments_synced = self.segments.len();
        self.unsynced_bytes = 0;
        self.power_until = u64::MAX;
    }

    /// Ends the process, but not the machine. Written data stays readable, and a later power failure can still lose it.
    pub fn kill(&mut self) {
        self.unfinished = None;
        self.cut_operation = None;
        self.power_until = u64::MAX;
    }

    /// Flips one bit of a segment, as bit rot does. Returns false when there is no such byte.
    pub fn flip(&mut self, slot: u32, byte: u32, bit: u8) -> bool {
        let target = self.segments.get_mut(to_usize(slot)).and_then(|bytes| bytes.get_mut(to_usize(byte)));
        flip(target, bit)
    }

    /// Flips one bit of a blob, as bit rot does. Returns false when there is no such byte.
    pub fn flip_blob(&mut self, name: &str, byte: usize, bit: u8) -> bool {
        flip(self.blobs.get_mut(name).and_then(|bytes| bytes.get_mut(byte)), bit)
    }

    /// Cuts the log off at a byte, counted over all segments, as a truncated file is. Zeros follow in the last segment.
    pub fn truncate_log(&mut self, byte: u64) {
        let segment_bytes = u64::from(self.segment_bytes);
        let place = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        self.segments.truncate(place(byte.div_ceil(segment_bytes)));
        let (slot, rest) = (place(byte / segment_bytes), place(byte % segment_bytes));
        let last = self.segments.get_mut(slot).and_then(|bytes| bytes.get_mut(rest..));
        last.unwrap_or_default().fill(0);
        self.segments_synced = self.segments_synced.min(self.segments.len());
    }

    /// Replaces the bytes of a segment from this one on by zeros, as a file system does that has lost them.
    pub fn lose_from(&mut self, slot: u32, byte: u32) {
        let segment = self.segments.get_mut(to_usize(slot));
        segment.and_then(|bytes| bytes.get_mut(to_usize(byte)..)).unwrap_or_default().fill(0);
    }

    /// Cuts a blob off at a byte.
    pub fn truncate_blob(&mut self, name: &str, byte: usize) {
        self.blobs.entry(name.to_owned()).and_modify(|bytes| bytes.truncate(byte));
    }

    /// Returns the bytes written to segments since the last sync.
    #[must_use]
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes
    }

    /// Returns the bytes written to segments and synced, since the disk was created.
    #[must_use]
    pub fn synced_bytes(&self) -> u64 {
        self.synced_bytes
    }

    /// Returns the bytes of segments and blobs.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let segments = to_u64(self.segments.len()).saturating_mul(u64::from(self.segment_bytes));
        let unfinished = self.unfinished.as_ref().map_or(0, |(_, bytes, _)| bytes.len());
        let blobs: usize = self.blobs.values().map(Vec::len).sum();
        segments.saturating_add(to_u64(blobs + unfinished))
    }

    /// Counts an operation. Returns `Err` without power, and `Ok(false)` when the power fails during this operation.
    fn operate(&mut self, doing: &'static str) -> Result<bool, Fault> {
        if self.operations >= self.power_until {
            return Err(no_power(doing));
        }
        self.operations += 1;
        Ok(self.operations < self.power_until)
    }

    fn room_for(&self, bytes: u64, doing: &'static str) -> Result<(), Fault> {
        if self.used_bytes().saturating_add(bytes) > self.capacity_bytes {
            Err(Fault::Full { doing })
        } else {
            Ok(())
        }
    }

    fn keep_sectors(&mut self, slot: u32, offset: u32, length: usize) {
        let Some(segment) = self.segments.get(to_usize(slot)) else {
            return;
        };
        let first = to_usize(offset) / SECTOR;
        for (i, content) in segment.chunks_exact(SECTOR).enumerate().skip(first).take(length / SECTOR) {
            let mut sector = [0; SECTOR];
            sector.copy_from_slice(content);
            self.unsynced_sectors.entry((slot, to_u32(i))).or_insert(sector);
        }
    }
}

fn flip(target: Option<&mut u8>, bit: u8) -> bool {
    match target {
        Some(byte) => {
            *byte ^= 1 << (bit % 8);
            true
        }
        None => false,
    }
}

fn no_power(doing: &'static str) -> Fault {
    Fault::Io { doing, error: "no power".to_owned() }
}

fn injected_fault(doing: &'static str) -> Fault {
    Fault::Io { doing, error: "injected fault".to_owned() }
}

fn outside(doing: &'static str) -> Fault {
    Fault::Io { doing, error: "no such place on the disk".to_owned() }
}

impl Disk for MemDisk {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }

    fn segments(&self) -> u32 {
        to_u32(self.segments.len())
    }

    fn salt(&self) -> u64 {
        self.salt
    }

    fn grow(&mut self) -> Result<u32, Fault> {
        let doing = "adding a segment to the log";
        let powered = self.operate(doing)?;
        self.room_for(u64::from(self.segment_bytes), doing)?;
        let slot = self.segments();
        self.segments.push(vec![0; to_usize(self.segment_bytes)]);
        if powered { Ok(slot) } else { Err(no_power(doing)) }
    }

    fn prepare(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }

    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault> {
        let doing = "writing the log";
        let powered = self.operate(doing)?;
        if self.failing_writes {
            return Err(injected_fault(doing));
        }
        assert!(
            pages.len().is_multiple_of(self.page_bytes) && to_usize(offset).is_multiple_of(self.page_bytes)
        );
        if self.tracks_unsynced {
            self.keep_sectors(slot, offset, pages.len());
        }
        let at = to_usize(offset);
        let segment = self.segments.get_mut(to_usize(slot));
        let target = segment.and_then(|bytes| bytes.get_mut(at..at.saturating_add(pages.len())));
        target.ok_or_else(|| outside(doing))?.copy_from_slice(pages);
        self.unsynced_bytes = self.unsynced_bytes.saturating_add(to_u64(pages.len()));
        if powered { Ok(()) } else { Err(no_power(doing)) }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        let doing = "syncing the log";
        if !self.operate(doing)? {
            return Err(no_power(doing));
        }
        if self.failing_syncs {
            return Err(injected_fault(doing));
        }
        self.unsynced_sectors.clear();
        self.segments_synced = self.segments.len();
        self.synced_bytes = self.synced_bytes.saturating_add(self.unsynced_bytes);
        self.unsynced_bytes = 0;
        self.syncs += 1;
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.syncs
    }

    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault> {
        let at = to_usize(offset);
        let segment = self.segments.get(to_usize(slot));
        let source = segment.and_then(|bytes| bytes.get(at..at.saturating_add(into.len())));
        into.copy_from_slice(source.ok_or_else(|| outside("reading the log"))?);
        Ok(())
    }

    fn blob_begin(&mut self, name: &str) -> Result<(), Fault> {
        let doing = "beginning a snapshot file";
        let powered = self.operate(doing)?;
        self.unfinished = Some((name.to_owned(), Vec::new(), false));
        if powered { Ok(()) } else { Err(no_power(doing)) }
    }

    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let doing = "writing a snapshot file";
        let powered = self.operate(doing)?;
        if self.failing_writes {
            return Err(injected_fault(doing));
        }
        self.room_for(to_u64(bytes.len()), doing)?;
        let (_, blob, is_synced) = self.unfinished.as_mut().ok_or_else(|| outside(doing))?;
        *is_synced = false;
        blob.extend_from_slice(bytes);
        if powered { Ok(()) } else { Err(no_power(doing)) }
    }

    fn blob_sync(&mut self) -> Result<(), Fault> {
        let doing = "syncing a snapshot file";
        if !self.operate(doing)? {
            return Err(no_power(doing));
        }
        if self.failing_syncs {
            return Err(injected_fault(doing));
        }
        let (_, _, is_synced) = self.unfinished.as_mut().ok_or_else(|| outside(doing))?;
        *is_synced = true;
        self.syncs += 1;
        Ok(())
    }

    fn blob_commit(&mut self) -> Result<(), Fault> {
        let doing = "finishing a snapshot file";
        let powered = self.operate(doing)?;
        if self.failing_syncs {
            return Err(injected_fault(doing));
        }
        let unfinished = self.unfinished.take_if(|(_, _, is_synced)| *is_synced);
        let (name, bytes, _) = unfinished.ok_or_else(|| outside(doing))?;
        if !powered {
            self.cut_operation = Some(CutOperation::Commit(name, bytes));
            return Err(no_power(doing));
        }
        self.blobs.insert(name, bytes);
        self.syncs += 1;
        Ok(())
    }

    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault> {
        let sized = |(name, bytes): (&String, &Vec<u8>)| (name.clone(), to_u64(bytes.len()));
        Ok(self.blobs.iter().map(sized).collect())
    }

    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let blob = self.blobs.get(name);
        let source = blob.and_then(|bytes| bytes.get(at..at.saturating_add(into.len())));
        into.copy_from_slice(source.ok_or_else(|| outside("reading a snapshot file"))?);
        Ok(())
    }

    fn blob_delete(&mut self, name: &str) -> Result<(), Fault> {
        let doing = "deleting a snapshot file";
        if !self.operate(doing)? {
            self.cut_operation = Some(CutOperation::Delete(name.to_owned()));
            return Err(no_power(doing));
        }
        self.blobs.remove(name);
        Ok(())
    }
}
