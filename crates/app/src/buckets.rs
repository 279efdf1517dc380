//! A fixed number of copy-on-write buckets with cached ids. Key-value state, sessions and registered keys use them.
//!
//! The encoding of a bucket is its chunk in a snapshot, so a bucket has the id of that chunk. Only a changed bucket is
//! hashed again.

use crate::snapshot::{Chunk, RestoreError, Snapshot, digest_of_chunks};
use quorate_types::chunk::CHUNK_ID_BYTES;
use quorate_types::{ChunkId, DecodeError, Digest, Reader};
use std::sync::Arc;

/// The contents of one bucket.
pub(crate) trait Bucket: Chunk + Clone + Default + 'static {
    /// Decodes the output of [`Chunk::encode`] for the bucket at `index` of `count`. Refuses entries that belong
    /// elsewhere.
    fn decode(reader: &mut Reader<'_>, index: usize, count: usize) -> Result<Self, DecodeError>;
}

struct Slot<T> {
    content: Arc<T>,
    /// Whether the index is in `Buckets::dirty`. The id is then out of date.
    dirty: bool,
}

pub(crate) struct Buckets<T> {
    slots: Vec<Slot<T>>,
    ids: Vec<[u8; CHUNK_ID_BYTES]>,
    dirty: Vec<usize>,
    scratch: Vec<u8>,
}

impl<T: Bucket> Buckets<T> {
    /// Returns `count` empty buckets. They share one allocation until the first write.
    pub(crate) fn new(count: usize) -> Self {
        assert!(count > 0, "a map needs at least one bucket");
        let empty = Arc::new(T::default());
        let mut scratch = Vec::new();
        empty.encode(&mut scratch);
        let slot = || Slot { content: Arc::clone(&empty), dirty: false };
        Self {
            slots: (0..count).map(|_| slot()).collect(),
            ids: vec![ChunkId::of(&scratch).to_array(); count],
            dirty: Vec::new(),
            scratch,
        }
    }

    /// Returns the number of buckets.
    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the bucket at `index` modulo their number.
    #[allow(clippy::indexing_slicing, reason = "the index is reduced modulo the length, which is not 0")]
    pub(crate) fn get(&self, index: usize) -> &T {
        &self.slots[index % self.slots.len()].content
    }

    /// Returns the bucket at `index` modulo their number for a change, and marks it dirty.
    #[allow(clippy::indexing_slicing, reason = "the index is reduced modulo the length, which is not 0")]
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut T {
        let index = index % self.slots.len();
        let slot = &mut self.slots[index];
        if !slot.dirty {
            slot.dirty = true;
            self.dirty.push(index);
        }
        Arc::make_mut(&mut slot.content)
    }

    /// Returns all buckets in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|slot| &*slot.content)
    }

    fn refresh(&mut self) {
        for index in self.dirty.drain(..) {
            if let (Some(slot), Some(id)) = (self.slots.get_mut(index), self.ids.get_mut(index)) {
                slot.dirty = false;
                self.scratch.clear();
                slot.content.encode(&mut self.scratch);
                *id = ChunkId::of(&self.scratch).to_array();
            }
        }
    }

    /// Returns the digest of all buckets, which is the digest of the list of their ids.
    pub(crate) fn digest(&mut self) -> Digest {
        self.refresh();
        digest_of_chunks(self.ids.as_flattened())
    }

    /// Adds every bucket to a snapshot.
    pub(crate) fn snapshot(&mut self, into: &mut Snapshot) {
        self.refresh();
        for (slot, id) in self.slots.iter().zip(&self.ids) {
            let content: Arc<T> = Arc::clone(&slot.content);
            into.push(ChunkId::from_array(*id), content);
        }
    }

    /// Decodes `count` buckets from the same number of chunks.
    pub(crate) fn restore(
        count: usize,
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Self, RestoreError> {
        let mut buckets = Self::new(count);
        for (index, slot) in buckets.slots.iter_mut().enumerate() {
            let bytes = chunks.next().ok_or(RestoreError::Missing)?;
            let mut reader = Reader::new(&bytes);
            slot.content = Arc::new(T::decode(&mut reader, index, count)?);
            reader.finish()?;
            slot.dirty = true;
            buckets.dirty.push(index);
        }
        Ok(buckets)
    }
}
