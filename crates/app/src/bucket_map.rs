//! An ordered map of bytes to bytes with a digest and cheap snapshots: the block from which applications are
//! built.
//!
//! Entries lie in 4,096 copy-on-write buckets by a hash of the key. A checkpoint hashes the buckets that
//! changed, a snapshot shares all of them, and a bucket is the unit in which state is written and transferred.
//! A second index holds the keys in order for scans; only new and removed keys touch it.
//!
//! The hash of a key is part of the state's digest and never changes: 64 bits, begun with the length, each
//! eight bytes (little-endian, the last padded with zeros) xored in, multiplied by 0x9e37_79b9_7f4a_7c15 and
//! folded (`h ^= h >> 32`); the bucket is the upper 12 bits of one more product with the same number. It spreads
//! keys that nobody chose. Whoever chooses keys can fill one bucket, which makes digests and copies of that
//! bucket slower and nothing else.

use crate::buckets::{Bucket, Buckets};
use crate::snapshot::{Chunk, RestoreError, Snapshot};
use quorate_types::codec::{put_bytes, put_length};
use quorate_types::{DecodeError, Digest, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// How many buckets a map has unless it is told otherwise, and at most.
const BUCKETS: usize = 4_096;

/// Where a key lies among so many buckets.
fn bucket_of(key: &[u8], buckets: usize) -> usize {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(MULTIPLIER);
        hash ^ hash >> 32
    };
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = mix(0, u64::try_from(key.len()).unwrap_or(u64::MAX));
    for word in words {
        hash = mix(hash, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = mix(hash, last);
    }
    // The upper bits are the best mixed ones of a product.
    let upper = usize::try_from(hash.wrapping_mul(MULTIPLIER) >> 52).unwrap_or_default();
    upper & (buckets - 1)
}

/// Keys are shared with the index; a bucket that is copied copies values alone.
#[derive(Clone, Default)]
struct Entries(BTreeMap<Arc<[u8]>, Box<[u8]>>);

impl Chunk for Entries {
    fn encode(&self, out: &mut Vec<u8>) {
        put_length(out, self.0.len());
        for (key, value) in &self.0 {
            put_bytes(out, key);
            put_bytes(out, value);
        }
    }
}

impl Bucket for Entries {
    fn decode(reader: &mut Reader<'_>, index: usize, buckets: usize) -> Result<Self, DecodeError> {
        let mut previous: Option<&[u8]> = None;
        let mut entries = BTreeMap::new();
        for _ in 0..reader.length("entries of a bucket", usize::MAX)? {
            let key = reader.bytes("key", usize::MAX)?;
            let value = reader.bytes("value", usize::MAX)?;
            if previous.is_some_and(|previous| previous >= key) || bucket_of(key, buckets) != index {
                return Err(DecodeError::Value("bucket"));
            }
            previous = Some(key);
            entries.insert(Arc::from(key), Box::from(value));
        }
        Ok(Self(entries))
    }
}

/// An ordered map of bytes to bytes with a digest and cheap snapshots.
pub struct BucketMap {
    buckets: Buckets<Entries>,
    /// Every key. Derived: neither hashed nor part of a snapshot.
    order: BTreeSet<Arc<[u8]>>,
}

impl std::fmt::Debug for BucketMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BucketMap({} entries)", self.len())
    }
}

impl Default for BucketMap {
    fn default() -> Self {
        Self::new()
    }
}

impl BucketMap {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::with_buckets(BUCKETS)
    }

    /// An empty map of another number of buckets: each is a chunk of a snapshot and is hashed whole, and a digest hashes
    /// the digests of all, so a small map is cheaper with fewer. The digest depends on it.
    ///
    /// # Panics
    /// When it is no power of two, or above 4,096.
    #[must_use]
    pub fn with_buckets(count: usize) -> Self {
        assert!(count.is_power_of_two() && count <= BUCKETS, "a power of two up to {BUCKETS}");
        Self { buckets: Buckets::new(count), order: BTreeSet::new() }
    }

    fn bucket_of(&self, key: &[u8]) -> usize {
        bucket_of(key, self.buckets.count())
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.buckets.get(self.bucket_of(key)).0.get(key).map(|value| &**value)
    }

    /// Gives a key a value. A value of the same length is overwritten in place.
    pub fn insert(&mut self, key: &[u8], value: &[u8]) {
        let bucket = self.bucket_of(key);
        let entries = &mut self.buckets.get_mut(bucket).0;
        match entries.get_mut(key) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            Some(old) => *old = Box::from(value),
            None => {
                let key: Arc<[u8]> = Arc::from(key);
                entries.insert(Arc::clone(&key), Box::from(value));
                self.order.insert(key);
            }
        }
    }

    /// Removes a key; false when it was not there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        // The index is asked first: what is not there makes no bucket dirty.
        let was = self.order.remove(key);
        if was {
            let bucket = self.bucket_of(key);
            self.buckets.get_mut(bucket).0.remove(key);
        }
        was
    }

    /// Entries from `from` up to and without `to`, in order of their keys. The caller stops when it has enough.
    pub fn scan<'a>(
        &'a self,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        // A range that ends before it begins would be a panic in the standard library.
        let to = to.map(|to| to.max(from));
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        self.order
            .range::<[u8], _>((Bound::Included(from), end))
            .map(|key| (&**key, self.get(key).unwrap_or_default()))
    }

    /// Digest of all entries: equal for equal contents, whatever led to them.
    pub fn digest(&mut self) -> Digest {
        self.buckets.digest()
    }

    /// The present entries, one chunk for each bucket. Writes copy the buckets that they meet as long as the
    /// snapshot lives.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = Snapshot::new(Vec::new());
        self.buckets.snapshot(&mut snapshot);
        snapshot
    }

    /// The map of a snapshot, with as many buckets as this one; takes as many chunks.
    ///
    /// # Errors
    /// When a chunk is missing, not canonical or in the wrong place. Whether the state is the right one is
    /// told by its digest.
    pub fn restore(&self, chunks: &mut dyn Iterator<Item = Vec<u8>>) -> Result<Self, RestoreError> {
        let buckets = Buckets::<Entries>::restore(self.buckets.count(), chunks)?;
        let keys = buckets.iter().flat_map(|entries| entries.0.keys());
        let order = keys.map(Arc::clone).collect();
        Ok(Self { buckets, order })
    }
}
