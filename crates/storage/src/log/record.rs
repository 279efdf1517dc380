//! Records of the log.
//!
//! ```text
//! length u32 | CRC-32C u32 | generation of the segment u32 | sync number u64 | kind u8 | data | zeros to 8
//! ```
//!
//! `length` counts the data. The checksum covers all other fields, and also the salt of the log and the offset in the
//! segment, which are not stored. A record in the wrong place is therefore invalid. Only someone who knows the salt
//! can make a body whose bytes pass for a record.

use crate::number::{to_u32, to_usize};
use crate::page_buffer::PageBuffer;
use quorate_types::Reader;

/// Bytes before the data.
pub(crate) const HEADER_BYTES: usize = 21;
const ALIGNMENT: usize = 8;

/// The first record of a segment; see [`Start`].
pub(crate) const START: u8 = 1;
/// The first record of a write that does not begin a segment.
pub(crate) const BEGIN: u8 = 2;
/// The last record of a write without a sync. The log continues at the next page.
pub(crate) const WRITE_END: u8 = 3;
/// The last record before a sync. The log continues at the next page, with the next sync number.
pub(crate) const SYNC_END: u8 = 4;
/// The last record of a segment. The log continues in the next generation.
pub(crate) const SEGMENT_END: u8 = 5;
/// The first kind that the log does not use itself.
pub(crate) const FIRST_FREE: u8 = 16;

/// Limits of generations and sync numbers, which no log reaches. Only a forged disk has larger ones, and counting on
/// from them would overflow.
pub(crate) const LIMITS: (u32, u64) = (1 << 31, 1 << 63);

/// The bytes of a record without data.
pub(crate) const EMPTY_BYTES: usize = size(0);
/// The bytes of a [`START`] record.
pub(crate) const START_BYTES: usize = size(Start::DATA_BYTES);

/// Returns the bytes of a record with `length` bytes of data.
pub(crate) const fn size(length: usize) -> usize {
    HEADER_BYTES.saturating_add(length).next_multiple_of(ALIGNMENT)
}

/// The location of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Location {
    /// The generation of the segment; 0 for none.
    pub(crate) generation: u32,
    /// The offset of the record in the segment, in bytes.
    pub(crate) offset: u32,
    /// The bytes of the record's data.
    pub(crate) length: u32,
}

/// The bytes of an encoded location.
pub(crate) const LOCATION_BYTES: usize = 12;

quorate_types::wire_struct!(Location { generation, offset, length });

/// A valid record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedRecord<'a> {
    pub(crate) generation: u32,
    pub(crate) sync: u64,
    pub(crate) kind: u8,
    pub(crate) data: &'a [u8],
    /// The bytes of the record, with padding.
    pub(crate) size: usize,
}

/// Parses the record at `offset` of a segment; `bytes` is the rest of the segment. Returns `None` for an invalid
/// record.
pub(crate) fn parse(seed: u32, offset: usize, bytes: &[u8]) -> Option<ParsedRecord<'_>> {
    let mut reader = Reader::new(bytes);
    let length = to_usize(reader.u32().ok()?);
    let checksum = reader.u32().ok()?;
    let covered = bytes.get(8..HEADER_BYTES.checked_add(length)?)?;
    let generation = reader.u32().ok()?;
    let sync = reader.u64().ok()?;
    let kind = reader.u8().ok()?;
    // Zeros are the usual end of a log. They are no record, for any checksum of zeros.
    if generation == 0 || kind == 0 || checksum != sum(seed, offset, length, covered) {
        return None;
    }
    Some(ParsedRecord { generation, sync, kind, data: covered.get(HEADER_BYTES - 8..)?, size: size(length) })
}

/// Appends a record whose data are `parts`, one after the other. `offset` is its place in the segment.
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

/// The data of the first record of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// Bytes of every segment of this log.
    pub(crate) segment_bytes: u32,
    /// Bytes of a page of this log.
    pub(crate) page_bytes: u32,
    /// The oldest generation that belongs to the log. A slot is used again only after this number was synced, so a half
    /// overwritten segment never counts as a damaged one.
    pub(crate) oldest: u32,
    /// A number that the user of the log can read even if all earlier segments are released.
    pub(crate) note: u64,
}

impl Start {
    pub(crate) const DATA_BYTES: usize = 4 + 4 + 4 + 8;
}

quorate_types::wire_struct!(Start { segment_bytes, page_bytes, oldest, note });
