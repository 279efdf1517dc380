//! Snapshots: a state at one moment, in chunks.
//!
//! A chunk is encoded on demand. A host that knows the digests of an earlier snapshot writes only the changed chunks.

use crate::panics::locate_panic;
use quorate_types::{DecodeError, Digest};
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
    digests: Vec<Digest>,
    chunks: Vec<Arc<dyn Chunk>>,
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

    /// Adds the next chunk. Two chunks with equal digests have equal encodings.
    pub fn push(&mut self, digest: Digest, chunk: Arc<dyn Chunk>) {
        self.digests.push(digest);
        self.chunks.push(chunk);
    }

    /// Adds the chunks of another snapshot and returns its header.
    pub fn append(&mut self, mut other: Self) -> Vec<u8> {
        self.digests.append(&mut other.digests);
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

    /// Returns the digests of the chunks, in order.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        &self.digests
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
        self.chunks.iter().map(|chunk| {
            let mut bytes = Vec::new();
            chunk.encode(&mut bytes);
            bytes
        })
    }
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
    /// The digest of the restored state is not the one in the header.
    #[error("the snapshot is damaged: its state has digest {found}, but its header has {expected}")]
    WrongState {
        /// The digest in the header.
        expected: Digest,
        /// The digest of the restored state.
        found: Digest,
    },
}
