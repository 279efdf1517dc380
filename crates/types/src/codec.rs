//! The canonical codec.
//!
//! Integers are little-endian and have a fixed width. Lengths and counts are `u32` and have a named limit. The codec
//! has no padding, no optional forms and no trailing bytes. A value has exactly one encoding, because encodings are
//! hashed and signed. A decoder checks a length against its limit and against the remaining bytes *before* it
//! allocates. A peer's length field can therefore never make a replica allocate more than the peer sent.

use std::fmt;
use std::sync::Arc;

/// The reason why bytes do not decode. The fault is always the sender's.
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
        /// The name of the value that is too long.
        what: &'static str,
        /// The length that the sender claimed.
        length: u64,
        /// The named limit.
        limit: u64,
    },
    /// A tag that names no variant.
    #[error("unknown tag in {0}")]
    Tag(&'static str),
    /// A field with a forbidden value.
    #[error("bad value in {0}")]
    Value(&'static str),
}

/// A value with exactly one encoding.
pub trait Wire {
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads one value. The bytes behind it stay in the reader.
    ///
    /// # Errors
    /// Fails when the bytes are not the canonical encoding of a value.
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError>
    where
        Self: Sized;

    /// Returns the encoding as a new vector.
    fn to_bytes(&self) -> Vec<u8> {
        // Most values are small, so one allocation suffices for them.
        let mut out = Vec::with_capacity(128);
        self.encode(&mut out);
        out
    }

    /// Reads one value that fills `bytes`.
    ///
    /// # Errors
    /// Fails in the cases of [`Wire::decode`], and when bytes are left over.
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
    /// Returns a reader of all of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that are not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes all remaining bytes.
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

    /// Takes one byte.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Takes two bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Takes four bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Takes eight bytes, little-endian.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`].
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Takes one byte that is 0 or 1.
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

    /// Takes a `u32` length and that number of bytes, at most `limit`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] or [`DecodeError::Truncated`].
    pub fn bytes(&mut self, what: &'static str, limit: usize) -> Result<&'a [u8], DecodeError> {
        let length = self.length(what, limit)?;
        self.take(length)
    }

    /// Takes a `u32` length and UTF-8 text of that length.
    ///
    /// # Errors
    /// Fails in the cases of [`Reader::bytes`], and with [`DecodeError::Value`] when the bytes are not UTF-8.
    pub fn text(&mut self, what: &'static str, limit: usize) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what, limit)?).map_err(|_| DecodeError::Value(what))
    }

    /// Takes a `u32` length or count of at most `limit`.
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

    /// Takes a `u32` count and that number of values. Each value takes at least `least` bytes. A count that the
    /// remaining bytes cannot hold is therefore refused before any allocation.
    ///
    /// # Errors
    /// Fails in the cases of [`Reader::length`], and with each error of `item`.
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

    /// Checks that all bytes are read.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] when bytes are left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// Appends a length or count. A list longer than `u32::MAX` has no encoding that decodes. The limits keep every list
/// far below that length.
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

/// Appends a tag and the parts of the variant that it names.
pub fn put_tagged(out: &mut Vec<u8>, tag: u8, parts: &[&dyn Wire]) {
    out.push(tag);
    for part in parts {
        part.encode(out);
    }
}

/// Implements [`Wire`] for a struct: the encodings of all its fields, in this order. A field with `[max, least]` is a list
/// of at most `max` values of at least `least` bytes each.
///
/// ```
/// use quorate_types::codec::Wire;
///
/// #[derive(PartialEq, Debug)]
/// struct Point {
///     x: u8,
///     y: u8,
/// }
/// quorate_types::wire_struct!(Point { y, x });
///
/// assert_eq!(Point { x: 1, y: 2 }.to_bytes(), [2, 1]);
/// assert_eq!(Point::from_bytes(&[2, 1]), Ok(Point { x: 1, y: 2 }));
/// ```
#[macro_export]
macro_rules! wire_struct {
    ($name:ident { $($field:ident $([$max:expr, $least:expr])?),* $(,)? }) => {
        impl $crate::codec::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                $($crate::wire_field!(encode &self.$field, out $(, $max)?);)*
            }
            fn decode(reader: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                Ok(Self { $($field: $crate::wire_field!(decode $field, reader $(, $max, $least)?)?),* })
            }
        }
    };
}

/// Encodes or decodes one field, for [`wire_struct!`](crate::wire_struct) and macros like it.
#[doc(hidden)]
#[macro_export]
macro_rules! wire_field {
    (encode $value:expr, $out:ident) => {
        $crate::codec::Wire::encode($value, $out)
    };
    (encode $list:expr, $out:ident, $max:expr) => {
        $crate::codec::put_list($out, $list)
    };
    (decode $field:ident, $reader:ident) => {
        $crate::codec::Wire::decode($reader)
    };
    (decode $field:ident, $reader:ident, $max:expr, $least:expr) => {
        $reader.list(stringify!($field), $max, $least, $crate::codec::Wire::decode)
    };
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

/// The encoding of `None` is the byte 0, that of `Some` the byte 1 and the value.
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
    fn length_field_alone_never_allocates() {
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
    fn values_have_one_encoding() {
        assert_eq!(Option::<u8>::from_bytes(&[2, 1]), Err(DecodeError::Value("bool")));
        assert_eq!(u8::from_bytes(&[2, 1]), Err(DecodeError::Trailing));
        assert_eq!(u64::from_bytes(&[1, 2]), Err(DecodeError::Truncated));
        assert_eq!(Option::<u16>::from_bytes(&Some(7u16).to_bytes()), Ok(Some(7)));
    }
}
