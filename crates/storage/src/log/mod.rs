//! The write-ahead log: records in segments.
//!
//! ```text
//! segment = write*            each begins at a page and is padded with zeros to the next one
//! write   = (Start | Begin) record* (WriteEnd | SyncEnd | SegmentEnd)
//! ```
//!
//! Everything that is written between two syncs carries the same *sync number*, and the last of it is `SyncEnd`.
//! Reading, the log knows at every position which number must come; anything else is the end of the log. Then:
//!
//! * What was synced is not written again, but for the one page in which a log was cut. A write begins on a page
//!   of its own; with direct I/O a page is the least that can be written, so this costs no writing, only the
//!   rest of the page. (Rewriting the last page instead would write as many bytes and put synced records at the
//!   mercy of the next power cut.)
//! * **Torn or damaged?** A bad record under sync number `s` is damage if any write under a higher number exists:
//!   it was made after the sync of `s` had returned. Otherwise the sync of `s` may never have happened, and the
//!   log is cut there. Writes are found by their first record, which has few bytes and lies at a page.
//! * **The cut is final**: opening ends the sync number in progress with a `SyncEnd` of its own and syncs it. All
//!   that is stale beyond the cut has that number or a lower one and can never be read again.
//! * Segments are added, used again, and never deleted. One write and one sync serve all that was appended since
//!   the last ones; where they reach beyond the end of a segment it is two writes and one sync.

pub(crate) mod record;
mod recover;

use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::{to_u32, to_u64, to_usize};
use crate::page_buffer::PageBuffer;
use quorate_types::{Ledger, Wire};
use record::Location;
use std::collections::VecDeque;

/// Bytes that wait at most before they are written without a sync. With the largest record on top this bounds
/// the memory of the log.
const BUFFER_BYTES: usize = 1 << 20;

/// How much of the disk a log may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// Segments at most.
    pub(crate) segments: u32,
    /// The setting that this follows from, for the text of the fault.
    pub(crate) disk_bytes_max: u64,
}

/// A log over a disk.
pub(crate) struct Log<D> {
    disk: D,
    /// Checksum of the salt: where every record's checksum starts.
    seed: u32,
    segment_bytes: usize,
    page_bytes: usize,
    /// Slots of the segments of this log, by generation from `oldest` on. The last one is being written.
    live: VecDeque<u32>,
    oldest: u32,
    /// Slots that were released and are not yet declared so by a segment's start.
    released: Vec<u32>,
    /// Slots declared free under the sync number in progress.
    declared: Vec<u32>,
    /// Slots that may be written.
    free: VecDeque<u32>,
    budget: Budget,
    /// Where in the last segment the buffer will be written.
    position: usize,
    buffer: PageBuffer,
    /// The sync number of what is being written.
    sync: u64,
    /// Something was written and not synced.
    dirty: bool,
    /// How much that is.
    written_bytes: usize,
    /// What the next segment's start says.
    note: u64,
    /// Bytes of records appended, ever growing.
    appended_bytes: u64,
    /// Records read and their bytes, ever growing.
    reads: u64,
    read_bytes: u64,
    /// The generation that was being written at the last sync.
    synced_generation: u32,
    stopped: bool,
    scratch: Vec<u8>,
    ledger: Ledger,
    /// Syncs of the disk before the log was opened.
    synced_before: u64,
}

impl<D: Disk> Log<D> {
    /// Where a record's data begins to fit: what a segment can hold at most, bytes of data.
    pub(crate) fn record_bytes_max(&self) -> usize {
        let own = record::START_BYTES + record::EMPTY_BYTES + record::HEADER_BYTES + 8;
        self.segment_bytes.saturating_sub(own)
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    pub(crate) fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    pub(crate) fn into_disk(self) -> D {
        self.disk
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The disk has been synced, for the log or for what else lies on it.
    pub(crate) fn count_syncs(&mut self) {
        self.ledger.syncs = self.disk.syncs().wrapping_sub(self.synced_before);
    }

    /// The generation that is being written.
    pub(crate) fn generation(&self) -> u32 {
        self.oldest.saturating_add(to_u32(self.live.len())).saturating_sub(1)
    }

    /// The oldest generation that can still be read.
    pub(crate) fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Segments that can be begun before others are released.
    pub(crate) fn room(&self) -> u32 {
        let used = self.live.len().saturating_add(self.released.len()).saturating_add(self.declared.len());
        self.budget.segments.saturating_sub(to_u32(used))
    }

    /// The sync number of what is appended now. It grows by one with each sync.
    pub(crate) fn sync_number(&self) -> u64 {
        self.sync
    }

    /// Bytes that no sync has covered yet, in the buffer or on the disk.
    pub(crate) fn unsynced_bytes(&self) -> usize {
        self.buffer.len().saturating_add(self.written_bytes)
    }

    /// Bytes of all records appended since the log was opened.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.appended_bytes
    }

    /// Records read since the log was opened.
    pub(crate) fn reads(&self) -> u64 {
        self.reads
    }

    /// Bytes of all records read since the log was opened.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// What the start of the next segment is to say.
    pub(crate) fn set_note(&mut self, note: u64) {
        self.note = note;
    }

    /// Changes how much of the disk the log may take.
    pub(crate) fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Appends a record to the buffer. Its data are `parts` one after the other.
    pub(crate) fn append(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Location, Fault> {
        self.check_running()?;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > self.record_bytes_max() {
            return Err(Fault::TooLarge { bytes: length, limit: self.record_bytes_max() });
        }
        let begin = if self.buffer.is_empty() { record::EMPTY_BYTES } else { 0 };
        let end = self.position + self.buffer.len() + begin + record::size(length) + record::EMPTY_BYTES;
        if end > self.segment_bytes {
            self.roll()?;
        } else if self.buffer.is_empty() {
            self.push(record::BEGIN, &[]);
        }
        let location = Location {
            generation: self.generation(),
            offset: to_u32(self.position + self.buffer.len()),
            length: to_u32(length),
        };
        self.push(kind, parts);
        self.appended_bytes = self.appended_bytes.saturating_add(to_u64(record::size(length)));
        if self.buffer.len() >= BUFFER_BYTES {
            self.finish_write(record::WRITE_END)?;
        }
        Ok(location)
    }

    /// Writes what waits and syncs everything. False when there was nothing to do.
    pub(crate) fn write_and_sync(&mut self) -> Result<bool, Fault> {
        self.check_running()?;
        if self.buffer.is_empty() && !self.dirty {
            return Ok(false);
        }
        self.end_sync()?;
        Ok(true)
    }

    fn end_sync(&mut self) -> Result<(), Fault> {
        if self.buffer.is_empty() && self.position >= self.segment_bytes {
            self.roll()?;
        }
        self.finish_write(record::SYNC_END)?;
        let synced = self.disk.sync();
        self.or_stop(synced)?;
        self.count_syncs();
        self.dirty = false;
        self.written_bytes = 0;
        // Opening refuses what is beyond [`record::LIMITS`], so that this is never near its end.
        self.sync += 1;
        self.synced_generation = self.generation();
        // The start that says that these segments are gone is durable.
        self.free.extend(self.declared.drain(..));
        Ok(())
    }

    /// Reads the data of a record and checks them. `None` when its segment was released.
    pub(crate) fn read(&mut self, location: Location) -> Result<Option<&[u8]>, Fault> {
        let Some(slot) = self.slot(location.generation) else {
            return Ok(None);
        };
        let offset = to_usize(location.offset);
        let length = record::HEADER_BYTES.saturating_add(to_usize(location.length));
        self.reads = self.reads.saturating_add(1);
        self.read_bytes = self.read_bytes.saturating_add(to_u64(length));
        self.scratch.clear();
        if location.generation == self.generation() && offset >= self.position {
            let from = offset - self.position;
            let waiting = self.buffer.as_slice().get(from..from.saturating_add(length));
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
                why: "the checksum of a record does not hold".to_owned(),
            }),
        }
    }

    /// The segments of generations below `generation` are no longer needed. They can not be read any more; their
    /// slots are used again once a segment that says so is durable. The oldest that stays must have been begun
    /// before the last sync, so that it is there whatever a power cut takes.
    pub(crate) fn release(&mut self, generation: u32) {
        while self.oldest < generation.min(self.synced_generation) {
            self.released.extend(self.live.pop_front());
            self.oldest += 1;
        }
    }

    /// Makes sure that a segment waits for being written, and fills a part of it with zeros. False when there is
    /// nothing left to do.
    pub(crate) fn prepare(&mut self) -> Result<bool, Fault> {
        self.check_running()?;
        if self.free.is_empty() && self.declared.is_empty() && self.disk.segments() < self.budget.segments {
            let slot = self.disk.grow();
            let slot = self.or_stop(slot)?;
            self.free.push_back(slot);
        }
        let more = self.disk.prepare();
        self.or_stop(more)
    }

    fn slot(&self, generation: u32) -> Option<u32> {
        let index = generation.checked_sub(self.oldest)?;
        self.live.get(to_usize(index)).copied()
    }

    fn push(&mut self, kind: u8, parts: &[&[u8]]) {
        let offset = self.position + self.buffer.len();
        let what = (self.generation(), self.sync, kind);
        record::push(&mut self.buffer, self.seed, offset, what, parts);
    }

    /// Ends the write in the buffer with a record of this kind, and writes it.
    fn finish_write(&mut self, end: u8) -> Result<(), Fault> {
        if self.buffer.is_empty() {
            self.push(record::BEGIN, &[]);
        }
        self.push(end, &[]);
        self.buffer.pad_to(self.page_bytes);
        let slot = self.live.back().copied().unwrap_or_default();
        let written = self.disk.write(slot, to_u32(self.position), self.buffer.as_slice());
        self.or_stop(written)?;
        self.dirty = true;
        self.written_bytes += self.buffer.len();
        self.ledger.log_writes += 1;
        self.ledger.log_bytes += to_u64(self.buffer.len());
        self.position += self.buffer.len();
        self.buffer.clear();
        Ok(())
    }

    /// Ends the segment and begins the next one.
    fn roll(&mut self) -> Result<(), Fault> {
        if self.position < self.segment_bytes {
            self.finish_write(record::SEGMENT_END)?;
        }
        let slot = match self.free.pop_front() {
            Some(slot) => slot,
            None if self.disk.segments() >= self.budget.segments => {
                let limit = self.budget.disk_bytes_max;
                return self.or_stop(Err(Fault::Budget { limit }));
            }
            None => {
                let slot = self.disk.grow();
                self.or_stop(slot)?
            }
        };
        self.live.push_back(slot);
        self.position = 0;
        self.declared.append(&mut self.released);
        let start = record::Start {
            segment_bytes: to_u32(self.segment_bytes),
            page_bytes: to_u32(self.page_bytes),
            oldest: self.oldest,
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
        if self.stopped { Err(Fault::Stopped) } else { Ok(()) }
    }

    /// After any failure nobody knows what the disk holds: nothing more is written.
    fn or_stop<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        self.stopped |= result.is_err();
        result
    }
}

#[cfg(test)]
mod tests;
