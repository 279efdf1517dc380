//! The write-ahead log: records in segments.
//!
//! ```text
//! segment = write*            each begins at a page and is padded with zeros to the next page
//! write   = (Start | Begin) record* (WriteEnd | SyncEnd | SegmentEnd)
//! ```
//!
//! All data written between two syncs has the same *sync number*, and its last record is `SyncEnd`. A reader knows the
//! expected number at every position. Any other number is the end of the log. This gives the following properties:
//!
//! * Synced data is never written again, except for the one page at which a log was cut. Each write begins on a page
//!   of its own. A page is the smallest unit of direct I/O, so this costs no further writing, only the rest of the
//!   page. Rewriting the last page would write the same number of bytes, and a power cut could destroy synced
//!   records.
//! * **Torn or damaged?** A bad record under sync number `s` is damage if any write under a higher number exists.
//!   That write began after the sync of `s` had returned. Otherwise the sync of `s` may never have happened, and the
//!   log is cut at the record. Writes are found by their first record, which is short and lies at the beginning of a
//!   page.
//! * **The cut is final:** opening ends the sync number in progress with a `SyncEnd` of its own, and syncs it. Stale
//!   data beyond the cut has that number or a lower one, so it can never be read again.
//! * Segments are added, used again, and never deleted. One write and one sync serve all records appended since the
//!   last ones. Records that cross the end of a segment need two writes and one sync.

pub(crate) mod record;
mod recover;
mod segments;

use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::{to_u32, to_u64, to_usize};
use crate::page_buffer::PageBuffer;
use quorate_types::{Ledger, Wire};
use record::Location;
use segments::Segments;

pub(crate) use segments::Budget;

/// The largest number of buffered bytes before a write without a sync. This limit and the largest record bound the
/// memory of the log.
const BUFFER_BYTES: usize = 1 << 20;

/// A log over a disk.
pub(crate) struct Log<D> {
    pub(crate) disk: D,
    /// The checksum of the salt, from which every record's checksum starts.
    seed: u32,
    segment_bytes: usize,
    page_bytes: usize,
    segments: Segments,
    pending: Pending,
    pub(crate) totals: Totals,
    /// The number in the start of the next segment.
    pub(crate) note: u64,
    is_stopped: bool,
    scratch: Vec<u8>,
    pub(crate) ledger: Ledger,
    /// Syncs of the disk before the log was opened.
    syncs_before: u64,
}

/// Data that no sync has covered yet.
struct Pending {
    /// The place of the buffer in the last segment.
    position: usize,
    buffer: PageBuffer,
    /// The sync number of the data.
    sync: u64,
    /// Whether data was written and not synced.
    is_dirty: bool,
    /// The bytes of that data.
    written_bytes: usize,
}

impl Pending {
    /// Returns the place of the next record in the last segment.
    fn offset(&self) -> usize {
        self.position + self.buffer.len()
    }
}

/// Counters since the log was opened.
#[derive(Default)]
pub(crate) struct Totals {
    /// Bytes of appended records.
    pub(crate) appended_bytes: u64,
    /// Records read.
    pub(crate) reads: u64,
    /// Bytes of records read.
    pub(crate) read_bytes: u64,
}

impl<D: Disk> Log<D> {
    /// Returns the largest number of bytes of data in a record, which one segment can hold.
    pub(crate) fn record_bytes_max(&self) -> usize {
        let own = record::START_BYTES + record::EMPTY_BYTES + record::HEADER_BYTES + 8;
        self.segment_bytes.saturating_sub(own)
    }

    /// Updates the counter of syncs after a sync of the disk, for the log or for other data.
    pub(crate) fn count_syncs(&mut self) {
        self.ledger.syncs = self.disk.syncs().wrapping_sub(self.syncs_before);
    }

    /// Returns the generation that is being written.
    pub(crate) fn generation(&self) -> u32 {
        self.segments.generation()
    }

    /// Returns the oldest generation that can be read.
    pub(crate) fn oldest(&self) -> u32 {
        self.segments.oldest
    }

    /// Returns the number of segments that can be begun before others are released.
    pub(crate) fn room(&self) -> u32 {
        self.segments.room()
    }

    /// Returns the sync number of the next record. It grows by one with each sync.
    pub(crate) fn sync_number(&self) -> u64 {
        self.pending.sync
    }

    /// Returns the unsynced bytes, in the buffer or on the disk.
    pub(crate) fn unsynced_bytes(&self) -> usize {
        self.pending.buffer.len().saturating_add(self.pending.written_bytes)
    }

    /// Changes the share of the disk that the log may use.
    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.segments.budget = budget;
    }

    /// Appends a record to the buffer. The data of the record are `parts`, one after the other.
    pub(crate) fn append(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Location, Fault> {
        self.check_running()?;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > self.record_bytes_max() {
            return Err(Fault::TooLarge { bytes: length, limit: self.record_bytes_max() });
        }
        let begin = if self.pending.buffer.is_empty() { record::EMPTY_BYTES } else { 0 };
        let end = self.pending.offset() + begin + record::size(length) + record::EMPTY_BYTES;
        if end > self.segment_bytes {
            self.roll()?;
        } else if self.pending.buffer.is_empty() {
            self.push(record::BEGIN, &[]);
        }
        let location = Location {
            generation: self.generation(),
            offset: to_u32(self.pending.offset()),
            length: to_u32(length),
        };
        self.push(kind, parts);
        self.totals.appended_bytes = self.totals.appended_bytes.saturating_add(to_u64(record::size(length)));
        if self.pending.buffer.len() >= BUFFER_BYTES {
            self.finish_write(record::WRITE_END)?;
        }
        Ok(location)
    }

    /// Writes the buffer and syncs all data. Returns false when there was nothing to do.
    pub(crate) fn write_and_sync(&mut self) -> Result<bool, Fault> {
        self.check_running()?;
        if self.pending.buffer.is_empty() && !self.pending.is_dirty {
            return Ok(false);
        }
        self.end_sync()?;
        Ok(true)
    }

    fn end_sync(&mut self) -> Result<(), Fault> {
        if self.pending.buffer.is_empty() && self.pending.position >= self.segment_bytes {
            self.roll()?;
        }
        self.finish_write(record::SYNC_END)?;
        let synced = self.disk.sync();
        self.or_stop(synced)?;
        self.count_syncs();
        self.pending.is_dirty = false;
        self.pending.written_bytes = 0;
        // Opening refuses numbers beyond [`record::LIMITS`], so this addition never overflows.
        self.pending.sync += 1;
        self.segments.synced();
        Ok(())
    }

    /// Reads and checks the data of a record. Returns `None` when its segment was released.
    pub(crate) fn read(&mut self, location: Location) -> Result<Option<&[u8]>, Fault> {
        let Some(slot) = self.segments.slot(location.generation) else {
            return Ok(None);
        };
        let offset = to_usize(location.offset);
        let length = record::HEADER_BYTES.saturating_add(to_usize(location.length));
        self.totals.reads = self.totals.reads.saturating_add(1);
        self.totals.read_bytes = self.totals.read_bytes.saturating_add(to_u64(length));
        self.scratch.clear();
        if location.generation == self.generation() && offset >= self.pending.position {
            let from = offset - self.pending.position;
            let waiting = self.pending.buffer.as_slice().get(from..from.saturating_add(length));
            self.scratch.extend_from_slice(waiting.unwrap_or_default());
        } else {
            self.scratch.resize(length.min(self.segment_bytes), 0);
            self.disk.read(slot, location.offset, &mut self.scratch)?;
        }
        match record::parse(self.seed, offset, &self.scratch) {
            Some(found) if found.generation == location.generation => Ok(Some(found.data)),
            _ => Err(Fault::Damaged {
                generation: location.generation,
                offset: location.offset,
                why: "the checksum of a record is wrong".to_owned(),
            }),
        }
    }

    /// Releases the segments of generations below `generation`. They can no longer be read. Their slots are used
    /// again when a segment that declares them is durable. The oldest remaining segment was begun before the last
    /// sync, so no power cut can lose it.
    pub(crate) fn release(&mut self, generation: u32) {
        self.segments.release(generation);
    }

    /// Makes sure that a free segment exists, and fills a part of it with zeros. Returns false when there is nothing
    /// left to do.
    pub(crate) fn prepare(&mut self) -> Result<bool, Fault> {
        self.check_running()?;
        let segments = &self.segments;
        let is_none_ready = segments.free.is_empty() && segments.declared.is_empty();
        if is_none_ready && self.disk.segments() < segments.budget.segments {
            let slot = self.disk.grow();
            let slot = self.or_stop(slot)?;
            self.segments.free.push_back(slot);
        }
        let more = self.disk.prepare();
        self.or_stop(more)
    }

    fn push(&mut self, kind: u8, parts: &[&[u8]]) {
        let offset = self.pending.offset();
        let header = (self.generation(), self.pending.sync, kind);
        record::push(&mut self.pending.buffer, self.seed, offset, header, parts);
    }

    /// Ends the buffered write with a record of kind `end`, and writes it.
    fn finish_write(&mut self, end: u8) -> Result<(), Fault> {
        if self.pending.buffer.is_empty() {
            self.push(record::BEGIN, &[]);
        }
        self.push(end, &[]);
        self.pending.buffer.pad_to(self.page_bytes);
        let (slot, offset) = (self.segments.last_slot(), to_u32(self.pending.position));
        let written = self.disk.write(slot, offset, self.pending.buffer.as_slice());
        self.or_stop(written)?;
        let length = self.pending.buffer.len();
        self.pending.is_dirty = true;
        self.pending.written_bytes += length;
        self.ledger.log_writes += 1;
        self.ledger.log_bytes += to_u64(length);
        self.pending.position += length;
        self.pending.buffer.clear();
        Ok(())
    }

    /// Ends the segment and begins the next one.
    fn roll(&mut self) -> Result<(), Fault> {
        if self.pending.position < self.segment_bytes {
            self.finish_write(record::SEGMENT_END)?;
        }
        let slot = match self.segments.free.pop_front() {
            Some(slot) => slot,
            None if self.disk.segments() >= self.segments.budget.segments => {
                let limit = self.segments.budget.disk_bytes_max;
                return self.or_stop(Err(Fault::Budget { limit }));
            }
            None => {
                let slot = self.disk.grow();
                self.or_stop(slot)?
            }
        };
        self.segments.begin(slot);
        self.pending.position = 0;
        let start = record::Start {
            segment_bytes: to_u32(self.segment_bytes),
            page_bytes: to_u32(self.page_bytes),
            oldest: self.segments.oldest,
            note: self.note,
        };
        self.scratch.clear();
        start.encode(&mut self.scratch);
        let data = std::mem::take(&mut self.scratch);
        self.push(record::START, &[&data]);
        self.scratch = data;
        Ok(())
    }

    fn check_running(&self) -> Result<(), Fault> {
        if self.is_stopped { Err(Fault::Stopped) } else { Ok(()) }
    }

    /// Stops the log on a failure. The content of the disk is then unknown, so nothing more is written.
    fn or_stop<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        self.is_stopped |= result.is_err();
        result
    }
}

#[cfg(test)]
mod tests;
