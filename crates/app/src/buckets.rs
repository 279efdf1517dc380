//! A fixed number of copy-on-write buckets with cached digests. Key-value state, sessions and registered keys use them.
//!
//! The digest of a bucket is the digest of its encoding, which is also its chunk in a snapshot. Only a changed bucket
//! is hashed again.

use crate::snapshot::{Chunk, RestoreError, Snapshot};
use quorate_types::digest::context;
use quorate_types::{DecodeError, Digest, Reader};
use std::sync::Arc;

/// The contents of one bucket.
pub(crate) trait Bucket: Chunk + Clone + Default + 'static {
    /// Decodes the output of [`Chunk::encode`] for the bucket at `index` of `count`. Refuses entries that belong
    /// elsewhere.
    fn decode(reader: &mut Reader<'_>, index: usize, count: usize) -> Result<Self, DecodeError>;
}

struct Slot<T> {
    content: Arc<T>,
    /// Whether the index is in `Buckets::dirty`. The digest is then out of date.
    dirty: bool,
}

pub(crate) struct Buckets<T> {
    slots: Vec<Slot<T>>,
    digests: Vec<[u8; 32]>,
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
            digests: vec![Digest::of(&context::BUCKET, &scratch).0; count],
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
            if let (Some(slot), Some(digest)) = (self.slots.get_mut(index), self.digests.get_mut(index)) {
                slot.dirty = false;
                self.scratch.clear();
                slot.content.encode(&mut self.scratch);
                *digest = Digest::of(&context::BUCKET, &self.scratch).0;
            }
        }
    }

    /// Returns the digest of all buckets, which is the digest of the list of their digests.
    pub(crate) fn digest(&mut self) -> Digest {
        self.refresh();
        Digest::of(&context::BUCKETS, self.digests.as_flattened())
    }

    /// Adds every bucket to a snapshot.
    pub(crate) fn snapshot(&mut self, into: &mut Snapshot) {
        self.refresh();
        for (slot, digest) in self.slots.iter().zip(&self.digests) {
            let content: Arc<T> = Arc::clone(&slot.content);
            into.push(Digest(*digest), content);
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
