//! The canonical codec.
//!
//! Little-endian integers of fixed width; lengths and counts are `u32` and have a named limit; no padding, no
//! optional forms, no trailing bytes. A value has exactly one encoding, because encodings are hashed and
//! signed. A decoder checks a length against its limit and against the bytes that are really there *before*
//! it allocates, so a peer's length field can never make a replica allocate more than the peer sent.

use std::fmt;
use std::sync::Arc;

/// Why bytes are not a value. Always the sender's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a value.
    #[error("truncated")]
    Truncated,
    /// Bytes follow the value.
    #[error("trailing bytes")]
    Trailing,
    /// A length or count exceeds its limit.
    #[error("{what}: {length} exceeds {limit}")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// The length that was claimed.
        length: u64,
        /// The named limit.
        limit: u64,
    },
    /// A tag that names nothing.
    #[error("unknown tag in {0}")]
    Tag(&'static str),
    /// A field whose value is not allowed.
    #[error("bad value in {0}")]
    Value(&'static str),
}

/// A value with exactly one encoding.
pub trait Wire {
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads one value; what follows it stays in the reader.
    ///
    /// # Errors
    /// When the bytes are not the canonical encoding of a value.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>
    where
        Self: Sized;

    /// The encoding as bytes of its own.
    fn to_bytes(&self) -> Vec<u8> {
        // Most values are small: one allocation and no growing.
        let mut out = Vec::with_capacity(128);
        self.encode(&mut out);
        out
    }

    /// Reads one value that fills `bytes`.
    ///
    /// # Errors
    /// As [`Wire::decode`], and when bytes are left over.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError>
    where
        Self: Sized,
    {
        let mut reader = Reader::new(bytes);
        let value = Self::decode(&mut reader)?;
        reader.finish()?;
        Ok(value)
    }
}

/// Reads values from bytes.
#[derive(Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({} bytes left)", self.rest.len())
    }
}

impl<'a> Reader<'a> {
    /// A reader of all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes all that is left.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Takes `count` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes an array of fixed size.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// One byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// One byte that is 0 or 1.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`], or [`DecodeError::Value`] for any other byte.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Value("bool")),
        }
    }

    /// Bytes after their `u32` length, of which there may be at most `limit`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] or [`DecodeError::Truncated`].
    pub fn bytes(&mut self, what: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let length = self.length(what, limit)?;
        self.take(length)
    }

    /// UTF-8 text after its `u32` length.
    ///
    /// # Errors
    /// As [`Reader::bytes`]; [`DecodeError::Value`] when it is not UTF-8.
    pub fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what, limit)?).map_err(|_| DecodeError::Value(what))
    }

    /// A `u32` length or count of at most `limit`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] or [`DecodeError::Truncated`].
    pub fn length(&mut self, what: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let claimed = self.u32()?;
        let too_long = || DecodeError::TooLong {
            what,
            length: u64::from(claimed),
            limit: u64::try_from(limit).unwrap_or(u64::MAX),
        };
        let length = usize::try_from(claimed).map_err(|_| too_long())?;
        if length > limit { Err(too_long()) } else { Ok(length) }
    }

    /// A list of values after their `u32` count. Each value takes at least `least` bytes, so a count that the
    /// remaining bytes cannot hold is refused before anything is allocated.
    ///
    /// # Errors
    /// As [`Reader::length`], and whatever `item` returns.
    pub fn list<T>(
        &mut self,
        what: &'static str,
        limit: usize,
        least: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.length(what, limit)?;
        if count.saturating_mul(least.max(1)) > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(item(self)?);
        }
        Ok(values)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] when bytes are left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// A length or count as it stands on the wire. What is longer than `u32::MAX` cannot be decoded by anyone:
/// the limits keep every list far below.
pub fn put_length(out: &mut Vec<u8>, length: usize) {
    u32::try_from(length).unwrap_or(u32::MAX).encode(out);
}

/// Appends bytes after their `u32` length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a list after its `u32` count.
pub fn put_list<T: Wire>(out: &mut Vec<u8>, values: &[T]) {
    put_length(out, values.len());
    for value in values {
        value.encode(out);
    }
}

macro_rules! integer {
    ($($ty:ident),*) => {$(
        impl Wire for $ty {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.$ty()
            }
        }
    )*};
}
integer!(u8, u16, u32, u64);

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.bool()
    }
}

/// `None` is the byte 0, `Some` the byte 1 and the value.
impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if reader.bool()? { T::decode(reader).map(Some) } else { Ok(None) }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::decode(reader).map(Self::new)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(reader)?, B::decode(reader)?))
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::decode(reader).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_field_never_allocates() {
        let mut bytes = Vec::new();
        u32::MAX.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.list("x", usize::MAX, 8, Reader::u64), Err(DecodeError::Truncated));
        let mut reader = Reader::new(&bytes);
        assert!(matches!(reader.bytes("x", 10), Err(DecodeError::TooLong { limit: 10, .. })));
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.bytes("x", usize::MAX), Err(DecodeError::Truncated));
    }

    #[test]
    fn only_one_encoding() {
        assert_eq!(Option::<u8>::from_bytes(&[2, 1]), Err(DecodeError::Value("bool")));
        assert_eq!(u8::from_bytes(&[2, 1]), Err(DecodeError::Trailing));
        assert_eq!(u64::from_bytes(&[1, 2]), Err(DecodeError::Truncated));
        assert_eq!(Option::<u16>::from_bytes(&Some(7u16).to_bytes()), Ok(Some(7)));
    }
}
