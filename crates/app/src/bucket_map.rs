//! An ordered map of bytes to bytes with a digest and cheap snapshots, from which applications are built.
//!
//! A hash of the key assigns each entry to one of 4,096 copy-on-write buckets. A checkpoint hashes the changed
//! buckets, and a snapshot shares all of them. State is written and transferred by bucket. A second index has the
//! keys in order for scans. Only new and removed keys change it.
//!
//! The hash of a key is part of the state's digest and never changes. It has 64 bits:
//!
//! * It begins with the length of the key.
//! * Each eight bytes (little-endian, the last padded with zeros) are xored in. The hash is then multiplied by
//!   0x9e37_79b9_7f4a_7c15 and folded (`h ^= h >> 32`).
//! * The bucket is the upper 12 bits of one more product with the same number.
//!
//! The hash spreads keys that no attacker chose. An attacker who chooses keys can fill one bucket, which only makes
//! digests and copies of that bucket slower.

use crate::buckets::{Bucket, Buckets};
use crate::snapshot::{Chunk, RestoreError, Snapshot};
use quorate_types::codec::{put_bytes, put_length};
use quorate_types::{DecodeError, Digest, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The default number of buckets of a map, which is also the largest.
const BUCKETS: usize = 4_096;

/// Returns the bucket of a key.
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
    // The upper bits of a product are mixed best.
    let upper = usize::try_from(hash.wrapping_mul(MULTIPLIER) >> 52).unwrap_or_default();
    upper & (buckets - 1)
}

/// The entries of a bucket. They share keys with the index, so copying a bucket copies only values.
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
    /// All keys. The index is derived data: it is neither hashed nor part of a snapshot.
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
    /// Returns an empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::with_buckets(BUCKETS)
    }

    /// Returns an empty map with `count` buckets. Each bucket is a chunk of a snapshot and is hashed whole, and a
    /// digest hashes the digests of all. Fewer buckets are therefore cheaper for a small map. The digest depends on
    /// `count`.
    ///
    /// # Panics
    /// Panics when `count` is no power of two, or above 4,096.
    #[must_use]
    pub fn with_buckets(count: usize) -> Self {
        assert!(
            count.is_power_of_two() && count <= BUCKETS,
            "{count} buckets; expected a power of two up to {BUCKETS}"
        );
        Self { buckets: Buckets::new(count), order: BTreeSet::new() }
    }

    /// Returns the entries of a chunk of a snapshot, in the order of their keys. `None` if the bytes are no chunk of a map.
    #[must_use]
    pub fn entries(chunk: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut reader = Reader::new(chunk);
        let mut entries = Vec::new();
        for _ in 0..reader.length("entries of a bucket", usize::MAX).ok()? {
            let key = reader.bytes("key", usize::MAX).ok()?.to_vec();
            entries.push((key, reader.bytes("value", usize::MAX).ok()?.to_vec()));
        }
        reader.finish().is_ok().then_some(entries)
    }

    fn bucket_of(&self, key: &[u8]) -> usize {
        bucket_of(key, self.buckets.count())
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether the map has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.buckets.get(self.bucket_of(key)).0.get(key).map(|value| &**value)
    }

    /// Sets the value of a key. A value of the same length is overwritten in place.
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

    /// Removes a key. Returns false when the map does not have it.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        // The index comes first, so that a missing key makes no bucket dirty.
        let was = self.order.remove(key);
        if was {
            let bucket = self.bucket_of(key);
            self.buckets.get_mut(bucket).0.remove(key);
        }
        was
    }

    /// Returns the entries from `from` up to and without `to`, in order of their keys.
    pub fn scan<'a>(
        &'a self,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        // The standard library panics on a range that ends before it begins.
        let to = to.map(|to| to.max(from));
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        self.order
            .range::<[u8], _>((Bound::Included(from), end))
            .map(|key| (&**key, self.get(key).unwrap_or_default()))
    }

    /// Returns the digest of all entries. Equal contents have equal digests for any history.
    pub fn digest(&mut self) -> Digest {
        self.buckets.digest()
    }

    /// Returns the present entries, one chunk for each bucket. As long as the snapshot lives, writes copy the buckets
    /// that they change.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = Snapshot::new(Vec::new());
        self.buckets.snapshot(&mut snapshot);
        snapshot
    }

    /// Returns the map of a snapshot, with the same number of buckets as this one. Takes one chunk for each bucket.
    ///
    /// # Errors
    /// Fails when a chunk is missing, not canonical or in the wrong place. The caller compares the digest, which shows
    /// whether the state is the right one.
    pub fn restore(&self, chunks: &mut dyn Iterator<Item = Vec<u8>>) -> Result<Self, RestoreError> {
        let buckets = Buckets::<Entries>::restore(self.buckets.count(), chunks)?;
        let keys = buckets.iter().flat_map(|entries| entries.0.keys());
        let order = keys.map(Arc::clone).collect();
        Ok(Self { buckets, order })
    }
}
