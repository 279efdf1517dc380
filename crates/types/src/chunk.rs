//! Names of the chunks of a snapshot.

use crate::digest::{Digest, context};

/// The digest and the length of a chunk's encoding. The digest of a state covers the ids of all its chunks, so a replica
/// that receives a state knows each chunk's length before the first byte arrives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ChunkId {
    /// The digest of the encoding.
    pub digest: Digest,
    /// The bytes of the encoding.
    pub length: u32,
}

/// Bytes of an encoded [`ChunkId`].
pub const CHUNK_ID_BYTES: usize = 32 + 4;

impl ChunkId {
    /// Returns the id of a chunk with this encoding. An encoding has less than 4 GiB.
    #[must_use]
    pub fn of(encoding: &[u8]) -> Self {
        let length = u32::try_from(encoding.len()).unwrap_or(u32::MAX);
        Self { digest: Digest::of(&context::BUCKET, encoding), length }
    }

    /// Returns digest and length, little-endian: the form that digests of states cover.
    #[must_use]
    pub fn to_array(self) -> [u8; CHUNK_ID_BYTES] {
        let mut bytes = [0; CHUNK_ID_BYTES];
        let (digest, length) = bytes.split_at_mut(32);
        digest.copy_from_slice(&self.digest.0);
        length.copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Returns the id in this form.
    #[must_use]
    pub fn from_array(bytes: [u8; CHUNK_ID_BYTES]) -> Self {
        let (digest, length) = bytes.split_first_chunk().unwrap_or((&[0; 32], &[]));
        let length = length.first_chunk().copied().map_or(0, u32::from_le_bytes);
        Self { digest: Digest(*digest), length }
    }
}

crate::wire_struct!(ChunkId { digest, length });
