//! Snapshots: a state at one moment, in chunks.
//!
//! A chunk is encoded on demand. A host that knows the ids of an earlier snapshot writes only the changed chunks.
//!
//! The digest of a state is the digest of header and chunk ids of its snapshot. A replica that receives a state from
//! peers therefore checks the list of chunks against a signed checkpoint, and then each chunk by itself.

use crate::panics::locate_panic;
use quorate_types::chunk::CHUNK_ID_BYTES;
use quorate_types::digest::context;
use quorate_types::{ChunkId, DecodeError, Digest, DigestWriter};
use std::sync::Arc;

/// A part of a state with an encoding of its own.
pub trait Chunk: Send + Sync {
    /// Appends the only encoding of the chunk.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A state at one moment. As long as it lives, the service copies each chunk that it changes.
#[derive(Clone, Default)]
pub struct Snapshot {
    header: Vec<u8>,
    ids: Vec<ChunkId>,
    chunks: Vec<Arc<dyn Chunk>>,
}

/// Returns the digest of encoded chunk ids.
pub(crate) fn digest_of_chunks(ids: &[u8]) -> Digest {
    Digest::of(&context::BUCKETS, ids)
}

/// Returns the digest of the state with this header and these chunks: see [`Snapshot::digest`].
pub(crate) fn digest_of_state(header: &[u8], ids: &[ChunkId]) -> Digest {
    let mut list = Vec::with_capacity(ids.len().saturating_mul(CHUNK_ID_BYTES));
    ids.iter().for_each(|id| list.extend_from_slice(&id.to_array()));
    let chunks = digest_of_chunks(&list);
    if header.is_empty() {
        return chunks;
    }
    let mut writer = DigestWriter::new(&context::SNAPSHOT);
    writer.update(&chunks.0).update(header);
    writer.finish()
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} chunks)", self.chunks.len())
    }
}

impl Snapshot {
    /// Returns a snapshot without chunks.
    #[must_use]
    pub fn new(header: Vec<u8>) -> Self {
        Self { header, ..Self::default() }
    }

    /// Adds the next chunk, whose id is [`ChunkId::of`] its encoding. A service that keeps the ids of unchanged chunks
    /// encodes and hashes only the changed ones.
    pub fn push(&mut self, id: ChunkId, chunk: Arc<dyn Chunk>) {
        debug_assert!(
            id == ChunkId::of(&encoding(&*chunk)),
            "a chunk of the snapshot has the id of another one"
        );
        self.ids.push(id);
        self.chunks.push(chunk);
    }

    /// Encodes a chunk to find its id, and adds it.
    pub fn add(&mut self, chunk: Arc<dyn Chunk>) {
        self.push(ChunkId::of(&encoding(&*chunk)), chunk);
    }

    /// Adds the chunks of another snapshot and returns its header.
    pub fn append(&mut self, mut other: Self) -> Vec<u8> {
        self.ids.append(&mut other.ids);
        self.chunks.append(&mut other.chunks);
        other.header
    }

    /// Returns the header, which precedes the chunks.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    pub(crate) fn set_header(&mut self, header: Vec<u8>) {
        self.header = header;
    }

    /// Returns the ids of the chunks, in order.
    #[must_use]
    pub fn ids(&self) -> &[ChunkId] {
        &self.ids
    }

    /// Returns the digest of the state: of the ids of all chunks and of the header, where there is one.
    #[must_use]
    pub fn digest(&self) -> Digest {
        digest_of_state(&self.header, &self.ids)
    }

    /// Appends the encoding of a chunk. Returns false when the snapshot has no such chunk.
    pub fn encode(&self, index: usize, out: &mut Vec<u8>) -> bool {
        let chunk = self.chunks.get(index);
        if let Some(chunk) = chunk {
            locate_panic(|| format!("the encoding of chunk {index} of a snapshot"), || chunk.encode(out));
        }
        chunk.is_some()
    }

    /// Returns the encodings of all chunks in order, as `restore` takes them. Each is encoded on demand.
    pub fn chunks(&self) -> impl Iterator<Item = Vec<u8>> {
        self.chunks.iter().map(|chunk| encoding(&**chunk))
    }
}

fn encoding(chunk: &dyn Chunk) -> Vec<u8> {
    let mut bytes = Vec::new();
    chunk.encode(&mut bytes);
    bytes
}

/// The reason why bytes are not a snapshot of this service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// A header or chunk is not well-formed.
    #[error("the snapshot is damaged: {0}")]
    Malformed(#[from] DecodeError),
    /// The snapshot has too few chunks.
    #[error("the snapshot is incomplete: chunks are missing")]
    Missing,
    /// The snapshot has too many chunks.
    #[error("the snapshot is damaged: it has too many chunks")]
    Surplus,
    /// The snapshot belongs to another application or version.
    #[error("the snapshot is of application {found:?}, but this replica runs {expected:?}")]
    WrongApplication {
        /// The application of this replica.
        expected: String,
        /// The application of the snapshot.
        found: String,
    },
    /// The snapshot has an unknown format.
    #[error("the snapshot has format {0}, which this version does not read")]
    WrongFormat(u16),
    /// The new cluster has too many keys together with those of the snapshot.
    #[error(
        "the registered keys of the snapshot and those of the new cluster are more than a cluster may have"
    )]
    TooManyKeys,
    /// The digest of the restored state is not the one in the header.
    #[error("the snapshot is damaged: its state has digest {found}, but its header has {expected}")]
    WrongState {
        /// The digest in the header.
        expected: Digest,
        /// The digest of the restored state.
        found: Digest,
    },
}
