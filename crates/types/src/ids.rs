//! Identifiers and numbers. All are plain values with a fixed encoding.
//!
//! Arithmetic on numbers saturates, because a peer may have chosen them. Counting never reaches the largest view or
//! height. A peer that sends it cannot stop a replica by overflow.

use crate::codec::{DecodeError, Reader, Wire};
use crate::digest::{Digest, hex};
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $read:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0.to_le_bytes());
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                reader.$read().map(Self)
            }
        }
    };
}

macro_rules! counting {
    ($name:ident) => {
        impl $name {
            /// The smallest number.
            pub const ZERO: Self = Self(0);
            /// The largest number. Counting never reaches it.
            pub const MAX: Self = Self(u64::MAX);
            /// Returns the next number (saturating).
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }
            /// Adds `count` (saturating).
            #[must_use]
            pub const fn plus(self, count: u64) -> Self {
                Self(self.0.saturating_add(count))
            }
            /// Subtracts `count` (saturating at zero).
            #[must_use]
            pub const fn minus(self, count: u64) -> Self {
                Self(self.0.saturating_sub(count))
            }
            /// Returns the distance above `earlier`; zero when this number is not above it.
            #[must_use]
            pub const fn since(self, earlier: Self) -> u64 {
                self.0.saturating_sub(earlier.0)
            }
        }
    };
}

number! {
    /// One of the n replicas, `0..n-1`.
    ReplicaId, u16, u16
}
number! {
    /// A period with one designated leader.
    View, u64, u64
}
number! {
    /// A place in the decided sequence; 0 is the genesis state.
    Height, u64, u64
}
number! {
    /// The life of one committee.
    Epoch, u64, u64
}
number! {
    /// Nanoseconds since the start of the replica or of the simulation. They are never wall-clock time.
    Time, u64, u64
}
number! {
    /// One opening of a replica, counted in its log.
    Incarnation, u64, u64
}
number! {
    /// The number of a bundle inside its session: 1, 2, 3 …
    BundleNo, u64, u64
}
counting!(View);
counting!(Height);
counting!(Time);
counting!(Incarnation);
counting!(BundleNo);

impl ReplicaId {
    /// Returns the id as a position in a list of the committee.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

macro_rules! digest_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub Digest);

        impl $name {
            /// All zeros, which stands for none.
            pub const ZERO: Self = Self(Digest::ZERO);
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
        impl Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Digest::decode(reader).map(Self)
            }
        }
    };
}

impl Wire for Digest {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array().map(Self)
    }
}

digest_id! {
    /// The digest of a block's header.
    BlockId
}
digest_id! {
    /// The digest of the list of bundle digests that a block carries.
    PayloadId
}
digest_id! {
    /// The digest of a bundle's content, without its authenticator.
    BundleDigest
}
digest_id! {
    /// The digest of the genesis configuration, which identifies the cluster.
    ClusterId
}

macro_rules! name16 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// Returns the name as 16 bytes of zero-padded ASCII.
            ///
            /// # Panics
            /// Panics when the name is empty, longer than 16 bytes or not printable ASCII. The function is meant for
            /// constants, whose panics stop the compiler.
            #[must_use]
            #[allow(clippy::panic, clippy::indexing_slicing, reason = "meant for constants: a panic stops the compiler")]
            pub const fn new(name: &str) -> Self {
                let bytes = name.as_bytes();
                if bytes.is_empty() || bytes.len() > 16 {
                    panic!("a name must have 1 to 16 bytes");
                }
                let mut padded = [0; 16];
                let mut i = 0;
                while i < bytes.len() {
                    if !bytes[i].is_ascii_graphic() {
                        panic!("a name must be printable ASCII");
                    }
                    padded[i] = bytes[i];
                    i += 1;
                }
                Self(padded)
            }

            /// Parses a name from configuration or input; `None` for text that is no name.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                let fits = !name.is_empty() && name.len() <= 16 && name.bytes().all(|b| b.is_ascii_graphic());
                fits.then(|| Self::new(name))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                let text = self.0.split(|b| *b == 0).next().unwrap_or_default();
                std::str::from_utf8(text).unwrap_or("?")
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0);
            }
            /// Refuses bytes that are not printable ASCII padded with zeros.
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                let bytes: [u8; 16] = reader.array()?;
                let length = bytes.iter().position(|b| *b == 0).unwrap_or(16);
                let (text, padding) = bytes.split_at(length);
                let valid = length > 0 && text.iter().all(u8::is_ascii_graphic) && padding.iter().all(|b| *b == 0);
                valid.then_some(Self(bytes)).ok_or(DecodeError::Value("name"))
            }
        }
    };
}

name16! {
    /// The kind of a statement or message: "vote", "prepare". Kinds that begin with `host.` belong to the host.
    Kind
}
name16! {
    /// The name of a protocol in the registry.
    ProtocolId
}

/// The bytes of an Ed25519 public key, not checked to be a valid one. They are also the identity of a client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PublicKey(pub [u8; 32]);

/// The id of a client, which is its public key.
pub type ClientId = PublicKey;

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key:{}", hex(self.0.get(..4).unwrap_or_default()))
    }
}
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}
impl Wire for PublicKey {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array().map(Self)
    }
}

/// A 64-byte signature. Under ZIP 215 one statement has many valid signatures, so code must never distinguish
/// statements by their signatures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sig:{}", hex(self.0.get(..4).unwrap_or_default()))
    }
}
impl Wire for Signature {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.array().map(Self)
    }
}

/// A run of a client. The id is the place of its opening in the decided sequence: height and index in the block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId {
    /// The height of the block that opened the session.
    pub height: Height,
    /// The position of the opening bundle in that block's payload.
    pub index: u32,
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.height, self.index)
    }
}
crate::wire_struct!(SessionId { height, index });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_padded_and_validated() {
        let kind = Kind::new("prepare");
        assert_eq!(kind.as_str(), "prepare");
        assert_eq!(Kind::from_bytes(&kind.to_bytes()), Ok(kind));
        assert_eq!(Kind::parse("a name with blanks"), None);
        assert_eq!(Kind::parse(""), None);
        let mut bytes = kind.to_bytes();
        bytes[12] = b'x'; // Text after the padding would be a second encoding of the same name.
        assert_eq!(Kind::from_bytes(&bytes), Err(DecodeError::Value("name")));
        assert_eq!(Kind::from_bytes(&[0; 16]), Err(DecodeError::Value("name")));
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(View::MAX.next(), View::MAX);
        assert_eq!(Height::ZERO.minus(1), Height::ZERO);
        assert_eq!(Height(3).since(Height(5)), 0);
    }
}
