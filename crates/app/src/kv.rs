//! The key-value store: put, get, delete, compare-and-swap, increment, ordered scan, and an operation without effect
//! for measurements.
//!
//! Clients encode [`KvOp`] and decode [`KvResult`]. Both have one encoding for each value. The store answers bytes
//! that do not decode with [`KvError::Malformed`].
//!
//! Values are any bytes. Increment reads and writes decimal text (`"-12"`), so that people can put and read counters
//! with the other operations. A missing key counts as 0.

use crate::application::At;
use crate::bucket_map::BucketMap;
use crate::map_application::{MapApplication, OnMap};
use quorate_types::codec::{put_bytes, put_length};
use quorate_types::{DecodeError, Reader, Wire};

mod ask_again;
#[cfg(test)]
mod tests;

pub use ask_again::may_ask_again;

/// The largest number of bytes of a key.
pub const KEY_BYTES_MAX: usize = 1_024;
/// The largest number of entries in the result of one scan.
pub const SCAN_ENTRIES_MAX: u32 = 1_000;
/// The largest number of bytes of the result of [`KvOp::Echo`].
pub const ECHO_BYTES_MAX: u32 = 1 << 20;

/// An operation, which borrows from its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvOp<'a> {
    /// Sets the value of a key. Result: `Done`.
    Put {
        /// The key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
    },
    /// Reads a key. Result: `Value` or `Absent`.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Removes a key. Result: `Done`, or `Absent` when the store does not have the key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Sets the value of a key that has the expected value. Result: `Done` or `Mismatch`.
    CompareAndSwap {
        /// The key.
        key: &'a [u8],
        /// The expected value; `None` expects that the key has no value.
        expect: Option<&'a [u8]>,
        /// The new value.
        value: &'a [u8],
    },
    /// Adds to a number. Result: `Number`, the new value.
    Increment {
        /// The key.
        key: &'a [u8],
        /// The number to add.
        by: i64,
    },
    /// Reads entries in order of their keys. Result: `Entries`.
    Scan {
        /// The first key of the range.
        from: &'a [u8],
        /// The first key beyond the range; `None` for a range without end.
        to: Option<&'a [u8]>,
        /// The largest number of entries. The store returns at most [`SCAN_ENTRIES_MAX`], and only entries that fit
        /// into the reply.
        limit: u32,
    },
    /// Changes nothing. Result: exactly the requested number of bytes ([`KvResult::Padding`]).
    Echo {
        /// The number of bytes of the result, at most [`ECHO_BYTES_MAX`].
        reply_bytes: u32,
        /// Bytes that give the request its size.
        padding: &'a [u8],
    },
}

impl<'a> KvOp<'a> {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Put { key, value } => {
                out.push(0);
                put_bytes(out, key);
                put_bytes(out, value);
            }
            Self::Get { key } => {
                out.push(1);
                put_bytes(out, key);
            }
            Self::Delete { key } => {
                out.push(2);
                put_bytes(out, key);
            }
            Self::CompareAndSwap { key, expect, value } => {
                out.push(3);
                put_bytes(out, key);
                put_optional(out, expect);
                put_bytes(out, value);
            }
            Self::Increment { key, by } => {
                out.push(4);
                put_bytes(out, key);
                out.extend_from_slice(&by.to_le_bytes());
            }
            Self::Scan { from, to, limit } => {
                out.push(5);
                put_bytes(out, from);
                put_optional(out, to);
                limit.encode(out);
            }
            Self::Echo { reply_bytes, padding } => {
                out.push(6);
                reply_bytes.encode(out);
                put_bytes(out, padding);
            }
        }
    }

    /// Returns the encoding as a new vector.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// Parses an operation that fills `bytes`.
    ///
    /// # Errors
    /// Fails when the bytes are not the encoding of an operation, or a key is too long.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let op = match r.u8()? {
            0 => Self::Put { key: key(r)?, value: value(r)? },
            1 => Self::Get { key: key(r)? },
            2 => Self::Delete { key: key(r)? },
            3 => Self::CompareAndSwap { key: key(r)?, expect: optional(r, value)?, value: value(r)? },
            4 => Self::Increment { key: key(r)?, by: r.array().map(i64::from_le_bytes)? },
            5 => Self::Scan { from: key(r)?, to: optional(r, key)?, limit: r.u32()? },
            6 => Self::Echo { reply_bytes: r.u32()?, padding: value(r)? },
            _ => return Err(DecodeError::Tag("operation")),
        };
        reader.finish()?;
        Ok(op)
    }
}

fn put_optional(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    bytes.is_some().encode(out);
    if let Some(bytes) = bytes {
        put_bytes(out, bytes);
    }
}

fn key<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    reader.bytes("key", KEY_BYTES_MAX)
}

/// Reads a value. The limit on requests, which was checked before, bounds its length.
fn value<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    reader.bytes("value", usize::MAX)
}

fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if reader.bool()? { read(reader).map(Some) } else { Ok(None) }
}

/// The reason why an operation was refused. The state is unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KvError {
    /// The bytes are not an operation, or a key is longer than [`KEY_BYTES_MAX`].
    #[error("not an operation of this store, or a key of more than {KEY_BYTES_MAX} bytes")]
    Malformed,
    /// The value is not the decimal text of a 64-bit number.
    #[error("the value is not a number")]
    NotANumber,
    /// The sum is not a 64-bit number.
    #[error("the number would overflow")]
    Overflow,
    /// The result does not fit into the remaining room of the reply to this bundle.
    #[error(
        "the result does not fit into the reply to this bundle, which reply_bytes_max of the cluster limits: request less, or use a bundle of its own"
    )]
    NoRoom,
    /// The operation writes, but a query may only read.
    #[error("the operation changes the store, so it cannot be a query")]
    NotAQuery,
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KvResult {
    /// The operation was executed.
    Done,
    /// The value of the key.
    Value(Vec<u8>),
    /// The key has no value.
    Absent,
    /// The value of the key differs from the expected one.
    Mismatch,
    /// The new value.
    Number(i64),
    /// Entries of a scan.
    Entries {
        /// Keys and values in order.
        entries: Vec<(Vec<u8>, Vec<u8>)>,
        /// Whether the range has more entries. The next scan begins at the [`successor`] of the last key.
        more: bool,
    },
    /// The number of padding bytes.
    Padding(u32),
    /// The operation was refused.
    Error(KvError),
}

mod tag {
    pub(super) const DONE: u8 = 0;
    pub(super) const VALUE: u8 = 1;
    pub(super) const ABSENT: u8 = 2;
    pub(super) const MISMATCH: u8 = 3;
    pub(super) const NUMBER: u8 = 4;
    pub(super) const ENTRIES: u8 = 5;
    pub(super) const PADDING: u8 = 6;
    pub(super) const ERROR: u8 = 7;
}

const ERRORS: [KvError; 5] =
    [KvError::Malformed, KvError::NotANumber, KvError::Overflow, KvError::NoRoom, KvError::NotAQuery];

/// Bytes of `Entries` before the first entry: tag, `more`, count.
const ENTRIES_HEADER_BYTES: usize = 1 + 1 + 4;

/// A result fills its bytes. `Padding` has no length field, so that it can have any size.
impl Wire for KvResult {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Done => out.push(tag::DONE),
            Self::Value(value) => put_value(out, value),
            Self::Absent => out.push(tag::ABSENT),
            Self::Mismatch => out.push(tag::MISMATCH),
            Self::Number(number) => {
                out.push(tag::NUMBER);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Entries { entries, more } => {
                out.push(tag::ENTRIES);
                more.encode(out);
                put_length(out, entries.len());
                for (key, value) in entries {
                    put_bytes(out, key);
                    put_bytes(out, value);
                }
            }
            Self::Padding(bytes) => put_padding(out, *bytes),
            Self::Error(error) => {
                let code = ERRORS.iter().position(|other| other == error).unwrap_or_default();
                out.push(tag::ERROR);
                out.push(u8::try_from(code).unwrap_or_default());
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.rest().is_empty() {
            return Ok(Self::Padding(0));
        }
        Ok(match reader.u8()? {
            tag::DONE => Self::Done,
            tag::VALUE => Self::Value(reader.take_rest().to_vec()),
            tag::ABSENT => Self::Absent,
            tag::MISMATCH => Self::Mismatch,
            tag::NUMBER => Self::Number(reader.array().map(i64::from_le_bytes)?),
            tag::ENTRIES => {
                let more = reader.bool()?;
                let limit = usize::try_from(SCAN_ENTRIES_MAX).unwrap_or(usize::MAX);
                let entries =
                    reader.list("entries", limit, 8, |r| Ok((key(r)?.to_vec(), value(r)?.to_vec())))?;
                Self::Entries { entries, more }
            }
            tag::PADDING => {
                let zeros = reader.take_rest();
                let bytes = u32::try_from(zeros.len().saturating_add(1)).unwrap_or(u32::MAX);
                if bytes > ECHO_BYTES_MAX || zeros.iter().any(|byte| *byte != 0) {
                    return Err(DecodeError::Value("padding"));
                }
                Self::Padding(bytes)
            }
            tag::ERROR => {
                let code = usize::from(reader.u8()?);
                Self::Error(*ERRORS.get(code).ok_or(DecodeError::Tag("error"))?)
            }
            _ => return Err(DecodeError::Tag("result")),
        })
    }
}

fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    out.push(tag::VALUE);
    out.extend_from_slice(value);
}

fn put_padding(out: &mut Vec<u8>, bytes: u32) {
    if let Some(zeros) = bytes.checked_sub(1) {
        out.push(tag::PADDING);
        let zeros = usize::try_from(zeros).unwrap_or_default();
        out.resize(out.len().saturating_add(zeros), 0);
    }
}

/// Returns the first key behind all keys that begin with `prefix`: the end of a scan of that prefix. Returns `None`
/// when no such key exists.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=last)?.to_vec();
    if let Some(byte) = end.last_mut() {
        *byte = byte.saturating_add(1);
    }
    Some(end)
}

/// Returns the key directly behind `key`, at which the next scan begins.
#[must_use]
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

/// The key-value store.
pub type Kv = OnMap<KvRules>;

/// The rules of the key-value store.
pub struct KvRules;

impl KvRules {
    fn read(map: &BucketMap, op: &KvOp<'_>, room: usize, reply: &mut Vec<u8>) -> Result<(), KvError> {
        match *op {
            KvOp::Get { key } => match map.get(key) {
                Some(value) if value.len() < room => put_value(reply, value),
                Some(_) => return Err(KvError::NoRoom),
                None => reply.push(tag::ABSENT),
            },
            KvOp::Scan { from, to, limit } => return Self::scan(map, from, to, limit, room, reply),
            KvOp::Echo { reply_bytes, .. } => {
                let fits = usize::try_from(reply_bytes).is_ok_and(|bytes| bytes <= room);
                if !fits || reply_bytes > ECHO_BYTES_MAX {
                    return Err(KvError::NoRoom);
                }
                put_padding(reply, reply_bytes);
            }
            KvOp::Put { .. } | KvOp::Delete { .. } | KvOp::CompareAndSwap { .. } | KvOp::Increment { .. } => {
                return Err(KvError::NotAQuery);
            }
        }
        Ok(())
    }

    fn scan(
        map: &BucketMap,
        from: &[u8],
        to: Option<&[u8]>,
        limit: u32,
        room: usize,
        reply: &mut Vec<u8>,
    ) -> Result<(), KvError> {
        let start = reply.len();
        let limit = limit.min(SCAN_ENTRIES_MAX);
        let (mut more, mut count, mut used) = (false, 0u32, ENTRIES_HEADER_BYTES);
        reply.push(tag::ENTRIES);
        reply.extend_from_slice(&[0; ENTRIES_HEADER_BYTES - 1]);
        for (key, value) in map.scan(from, to) {
            let after = used.saturating_add(8).saturating_add(key.len()).saturating_add(value.len());
            if count == limit || after > room {
                more = true;
                break;
            }
            put_bytes(reply, key);
            put_bytes(reply, value);
            (count, used) = (count.saturating_add(1), after);
        }
        // A client could not continue a scan whose result has no entry.
        if more && count == 0 && limit > 0 || used > room {
            reply.truncate(start);
            return Err(KvError::NoRoom);
        }
        let header = reply.get_mut(start..).and_then(|reply| reply.split_first_chunk_mut::<6>());
        if let Some(([_, more_field, count_field @ ..], _)) = header {
            *more_field = u8::from(more);
            count_field.copy_from_slice(&count.to_le_bytes());
        }
        Ok(())
    }

    fn increment(map: &mut BucketMap, key: &[u8], by: i64) -> Result<i64, KvError> {
        let old = match map.get(key) {
            None => 0,
            Some(value) => std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or(KvError::NotANumber)?,
        };
        let new: i64 = i64::checked_add(old, by).ok_or(KvError::Overflow)?;
        map.insert(key, new.to_string().as_bytes());
        Ok(new)
    }

    fn write(map: &mut BucketMap, op: &KvOp<'_>, room: usize, reply: &mut Vec<u8>) -> Result<(), KvError> {
        match *op {
            KvOp::Put { key, value } => {
                map.insert(key, value);
                reply.push(tag::DONE);
            }
            KvOp::Delete { key } => {
                let was = map.remove(key);
                reply.push(if was { tag::DONE } else { tag::ABSENT });
            }
            KvOp::CompareAndSwap { key, expect, value } => {
                let equal = map.get(key) == expect;
                if equal {
                    map.insert(key, value);
                }
                reply.push(if equal { tag::DONE } else { tag::MISMATCH });
            }
            KvOp::Increment { key, by } => {
                let number = Self::increment(map, key, by)?;
                KvResult::Number(number).encode(reply);
            }
            KvOp::Get { .. } | KvOp::Scan { .. } | KvOp::Echo { .. } => {
                return Self::read(map, op, room, reply);
            }
        }
        Ok(())
    }
}

fn answer(result: Result<(), KvError>, reply: &mut Vec<u8>) {
    if let Err(error) = result {
        KvResult::Error(error).encode(reply);
    }
}

impl MapApplication for KvRules {
    const NAME: &'static str = "kv";
    const VERSION: u32 = 1;

    fn apply(map: &mut BucketMap, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        // `and_then` would move the operation, which costs as much as the lookup.
        let result = match KvOp::parse(op) {
            Ok(op) => Self::write(map, &op, at.room, reply),
            Err(_) => Err(KvError::Malformed),
        };
        answer(result, reply);
    }

    fn query(map: &BucketMap, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        let result = match KvOp::parse(op) {
            Ok(op) => Self::read(map, &op, room, reply),
            Err(_) => Err(KvError::Malformed),
        };
        answer(result, reply);
    }
}
