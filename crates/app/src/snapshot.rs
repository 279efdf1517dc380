//! A state at one moment, in chunks.
//!
//! Chunks are encoded when they are asked for. A host that remembers the digests of an earlier snapshot
//! writes only the chunks that changed.

use crate::panics::told;
use quorate_types::{DecodeError, Digest};
use std::sync::Arc;

/// A part of a state that can be encoded on its own.
pub trait Chunk: Send + Sync {
    /// Appends the encoding, of which there is exactly one.
    fn encode(&self, out: &mut Vec<u8>);
}

/// A state at one moment. Holding one makes the service copy what it changes, chunk by chunk.
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
    /// A snapshot without chunks.
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

    /// What stands before the chunks.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    pub(crate) fn set_header(&mut self, header: Vec<u8>) {
        self.header = header;
    }

    /// The digests of the chunks, in order.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// Appends the encoding of a chunk; false when there is no such chunk.
    pub fn encode(&self, index: usize, out: &mut Vec<u8>) -> bool {
        let chunk = self.chunks.get(index);
        if let Some(chunk) = chunk {
            told(|| format!("the encoding of chunk {index} of a snapshot"), || chunk.encode(out));
        }
        chunk.is_some()
    }

    /// All chunks, each encoded when it is its turn: what `restore` takes.
    pub fn chunks(&self) -> impl Iterator<Item = Vec<u8>> {
        self.chunks.iter().map(|chunk| {
            let mut bytes = Vec::new();
            chunk.encode(&mut bytes);
            bytes
        })
    }
}

/// Why bytes are not a snapshot of this service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    /// A header or chunk is not well-formed.
    #[error("snapshot is damaged: {0}")]
    Malformed(#[from] DecodeError),
    /// There are fewer chunks than the header says.
    #[error("snapshot is incomplete: chunks are missing")]
    Missing,
    /// There are more chunks than the header says.
    #[error("snapshot is damaged: there are too many chunks")]
    Surplus,
    /// It belongs to another application or version.
    #[error("snapshot is of application {found:?}, this replica runs {expected:?}")]
    WrongApplication {
        /// What this replica runs.
        expected: String,
        /// What the snapshot says.
        found: String,
    },
    /// It has another format.
    #[error("snapshot has format {0}, which this version does not read")]
    WrongFormat(u16),
    /// The state that came out is not the one that the header promises.
    #[error("snapshot is damaged: the state in it has digest {found}, its header says {expected}")]
    WrongState {
        /// What the header says.
        expected: Digest,
        /// What came out.
        found: Digest,
    },
}
