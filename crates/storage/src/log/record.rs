//! One record of the log.
//!
//! ```text
//! length u32 | CRC-32C u32 | generation of the segment u32 | sync number u64 | kind u8 | data | zeros to 8
//! ```
//!
//! `length` counts the data. The checksum covers everything else, and the salt of the log and the offset in the
//! segment, which are not stored: a record in the wrong place is no record, and nobody who does not know the
//! salt can make a body whose bytes would pass for one.

use crate::number::{to_u32, to_usize};
use crate::page_buffer::PageBuffer;
use quorate_types::{DecodeError, Reader, Wire};

/// Bytes before the data.
pub(crate) const HEADER_BYTES: usize = 21;
const ALIGNMENT: usize = 8;

/// First record of a segment; see [`Start`].
pub(crate) const START: u8 = 1;
/// First record of a write that does not begin a segment.
pub(crate) const BEGIN: u8 = 2;
/// Last record of a write that no sync followed at once: the log goes on at the next page.
pub(crate) const WRITE_END: u8 = 3;
/// Last record before a sync: the log goes on at the next page, with the next sync number.
pub(crate) const SYNC_END: u8 = 4;
/// Last record of a segment: the log goes on in the next generation.
pub(crate) const SEGMENT_END: u8 = 5;
/// The first kind that is not the log's own.
pub(crate) const FIRST_FREE: u8 = 16;

/// Generations and sync numbers from these on are none that a log has counted: only a forged disk has them, and
/// counting on from there would overflow.
pub(crate) const LIMITS: (u32, u64) = (1 << 31, 1 << 63);

/// Bytes of a record without data.
pub(crate) const EMPTY_BYTES: usize = size(0);
/// Bytes of a [`START`] record.
pub(crate) const START_BYTES: usize = size(Start::DATA_BYTES);

/// Bytes that a record with `length` bytes of data takes.
pub(crate) const fn size(length: usize) -> usize {
    HEADER_BYTES.saturating_add(length).next_multiple_of(ALIGNMENT)
}

/// Where the data of a record lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Location {
    /// Generation of the segment; 0 is none.
    pub(crate) generation: u32,
    /// Where the record begins in the segment, bytes.
    pub(crate) offset: u32,
    /// Bytes of its data.
    pub(crate) length: u32,
}

/// Bytes of an encoded location.
pub(crate) const LOCATION_BYTES: usize = 12;

impl Wire for Location {
    fn encode(&self, out: &mut Vec<u8>) {
        self.generation.encode(out);
        self.offset.encode(out);
        self.length.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { generation: reader.u32()?, offset: reader.u32()?, length: reader.u32()? })
    }
}

/// A record that holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'a> {
    pub(crate) generation: u32,
    pub(crate) sync: u64,
    pub(crate) kind: u8,
    pub(crate) data: &'a [u8],
    /// Bytes that it takes, with padding.
    pub(crate) size: usize,
}

/// The record that begins at `offset`, of which `bytes` is the segment from there on; `None` when there is none.
pub(crate) fn parse(seed: u32, offset: usize, bytes: &[u8]) -> Option<Found<'_>> {
    let mut reader = Reader::new(bytes);
    let length = to_usize(reader.u32().ok()?);
    let checksum = reader.u32().ok()?;
    let covered = bytes.get(8..HEADER_BYTES.checked_add(length)?)?;
    let generation = reader.u32().ok()?;
    let sync = reader.u64().ok()?;
    let kind = reader.u8().ok()?;
    // Zeros are the common end of a log: they are no record, whatever the checksum of zeros may be.
    if generation == 0 || kind == 0 || checksum != sum(seed, offset, length, covered) {
        return None;
    }
    Some(Found { generation, sync, kind, data: covered.get(HEADER_BYTES - 8..)?, size: size(length) })
}

/// Appends a record whose data are `parts` one after the other. `offset` is where in the segment it will lie.
pub(crate) fn push(
    out: &mut PageBuffer,
    seed: u32,
    offset: usize,
    (generation, sync, kind): (u32, u64, u8),
    parts: &[&[u8]],
) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let at = out.len();
    let mut header = [0; HEADER_BYTES];
    let fields = to_u32(length).to_le_bytes().into_iter().chain([0; 4]);
    let fields = fields.chain(generation.to_le_bytes()).chain(sync.to_le_bytes());
    for (byte, value) in header.iter_mut().zip(fields.chain([kind])) {
        *byte = value;
    }
    out.extend(&header);
    for part in parts {
        out.extend(part);
    }
    let record = out.as_mut_slice().get_mut(at..).unwrap_or_default();
    let checksum = sum(seed, offset, length, record.get(8..).unwrap_or_default());
    if let Some(field) = record.get_mut(4..8) {
        field.copy_from_slice(&checksum.to_le_bytes());
    }
    out.pad_to(ALIGNMENT);
}

fn sum(seed: u32, offset: usize, length: usize, covered: &[u8]) -> u32 {
    let mut unstored = [0; 8];
    let fields = to_u32(offset).to_le_bytes().into_iter().chain(to_u32(length).to_le_bytes());
    for (byte, value) in unstored.iter_mut().zip(fields) {
        *byte = value;
    }
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &unstored), covered)
}

/// What a segment begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// Bytes of every segment of this log.
    pub(crate) segment_bytes: u32,
    /// Bytes of a page of this log.
    pub(crate) page_bytes: u32,
    /// Segments of generations below this no longer belong to the log. A slot is used again only after this was
    /// synced, so a segment that is half overwritten is never taken for a damaged one.
    pub(crate) oldest: u32,
    /// What the user of the log wants to know even if all earlier segments are gone.
    pub(crate) note: u64,
}

impl Start {
    pub(crate) const DATA_BYTES: usize = 4 + 4 + 4 + 8;
}

impl Wire for Start {
    fn encode(&self, out: &mut Vec<u8>) {
        self.segment_bytes.encode(out);
        self.page_bytes.encode(out);
        self.oldest.encode(out);
        self.note.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            segment_bytes: reader.u32()?,
            page_bytes: reader.u32()?,
            oldest: reader.u32()?,
            note: reader.u64()?,
        })
    }
}
