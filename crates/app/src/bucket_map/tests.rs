use super::*;
use proptest::prelude::*;
use quorate_types::ChunkId;

fn restored(snapshot: &Snapshot) -> BucketMap {
    BucketMap::new().restore(&mut snapshot.chunks()).unwrap()
}

fn contents(map: &BucketMap) -> Vec<(Vec<u8>, Vec<u8>)> {
    map.scan(b"", None).map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

/// The bucket of a key is part of every state digest, so it may never change.
#[test]
fn hash_of_keys_never_changes() {
    let buckets: Vec<usize> = [b"" as &[u8], b"a", b"12345678", b"123456789", &[0; 8], &[0; 9], &[0; 16]]
        .map(|key| bucket_of(key, BUCKETS))
        .to_vec();
    assert_eq!(buckets, [0, 497, 829, 3086, 3361, 877, 3399], "{buckets:?}");
}

#[test]
fn keys_with_counters_spread_evenly() {
    let mut counts = vec![0u32; BUCKETS];
    for i in 0..100 * BUCKETS {
        counts[bucket_of(format!("key-{i:08}").as_bytes(), BUCKETS)] += 1;
    }
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!((50..=100).contains(least) && (100..=150).contains(most), "{least}..{most} around 100");
}

proptest! {
    #[test]
    fn map_equals_an_ordered_map_and_its_digest_depends_on_contents_alone(
        ops in prop::collection::vec((0u8..40, prop::option::of(prop::collection::vec(any::<u8>(), 0..4))), 0..80),
        every in 1usize..20,
    ) {
        let (mut map, mut model) = (BucketMap::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        let mut old = None;
        for (i, (key, value)) in ops.iter().enumerate() {
            let key = format!("k{key}").into_bytes();
            match value {
                Some(value) => {
                    map.insert(&key, value);
                    model.insert(key.clone(), value.clone());
                }
                None => prop_assert_eq!(map.remove(&key), model.remove(&key).is_some()),
            }
            prop_assert_eq!(map.get(&key), model.get(&key).map(|v| &**v));
            if i % every == 0 {
                map.digest();
                old = Some((map.snapshot(), contents(&map)));
            }
        }
        prop_assert_eq!(map.len(), model.len());
        prop_assert_eq!(contents(&map), model.clone().into_iter().collect::<Vec<_>>());
        // Another history leads to the same contents: the final entries, backwards, after an entry that is removed
        // again.
        let mut other = BucketMap::new();
        other.insert(b"gone", b"");
        for (key, value) in model.iter().rev() {
            other.insert(key, b"longer than any");
            other.insert(key, value);
        }
        other.remove(b"gone");
        prop_assert_eq!(map.digest(), other.digest());
        prop_assert_eq!(restored(&map.snapshot()).digest(), map.digest());
        // Later writes do not change a snapshot.
        if let Some((snapshot, then)) = old {
            prop_assert_eq!(contents(&restored(&snapshot)), then);
        }
    }

    #[test]
    fn scans_equal_ranges_of_an_ordered_map(
        keys in prop::collection::btree_set(prop::collection::vec(0u8..3, 0..4), 0..30),
        from in prop::collection::vec(0u8..3, 0..4),
        to in prop::option::of(prop::collection::vec(0u8..3, 0..4)),
    ) {
        let mut map = BucketMap::new();
        for key in &keys {
            map.insert(key, key);
        }
        let found: Vec<Vec<u8>> = map.scan(&from, to.as_deref()).map(|(key, _)| key.to_vec()).collect();
        let expected: Vec<Vec<u8>> = keys
            .into_iter()
            .filter(|key| *key >= from && to.as_ref().is_none_or(|to| key < to))
            .collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn write_changes_only_the_chunk_of_its_key() {
    let mut map = BucketMap::new();
    for i in 0..10_000 {
        map.insert(format!("key{i}").as_bytes(), b"value");
    }
    let before = map.snapshot();
    map.insert(b"key77", b"other");
    let after = map.snapshot();
    let changed: Vec<usize> = (0..BUCKETS).filter(|i| before.ids()[*i] != after.ids()[*i]).collect();
    assert_eq!(changed, [bucket_of(b"key77", BUCKETS)]);
    let mut chunk = Vec::new();
    assert!(after.encode(changed[0], &mut chunk));
    assert_eq!(ChunkId::of(&chunk), after.ids()[changed[0]]);
    assert!(!after.encode(BUCKETS, &mut chunk), "a chunk beyond the last was encoded");
}

#[test]
fn map_with_fewer_buckets_has_fewer_chunks() {
    let mut map = BucketMap::with_buckets(8);
    (0..100u8).for_each(|key| map.insert(&[key], b"value"));
    let snapshot = map.snapshot();
    assert_eq!(snapshot.chunks().count(), 8);
    let mut again = BucketMap::with_buckets(8).restore(&mut snapshot.chunks()).unwrap();
    assert_eq!((contents(&again), again.digest()), (contents(&map), map.digest()));
    let more = BucketMap::with_buckets(16).restore(&mut snapshot.chunks());
    assert!(more.is_err(), "a map was restored from too few chunks");
}

#[test]
fn value_of_the_same_length_is_overwritten_in_place() {
    let mut map = BucketMap::new();
    map.insert(b"key", b"before");
    let place = map.get(b"key").unwrap().as_ptr();
    map.insert(b"key", b"behind");
    assert_eq!(map.get(b"key").unwrap().as_ptr(), place);
    let snapshot = map.snapshot();
    map.insert(b"key", b"beyond");
    assert_ne!(map.get(b"key").unwrap().as_ptr(), place, "the value of a snapshot was overwritten");
    assert_eq!(restored(&snapshot).get(b"key"), Some(b"behind" as &[u8]));
}

#[test]
fn chunks_that_are_no_map_are_refused() {
    let mut map = BucketMap::new();
    map.insert(b"a", b"1");
    map.insert(b"b", b"2");
    let chunks: Vec<Vec<u8>> = map.snapshot().chunks().collect();
    let restore = |change: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let mut chunks = chunks.clone();
        change(&mut chunks);
        BucketMap::new().restore(&mut chunks.into_iter()).err()
    };
    assert_eq!(restore(&|_| ()), None);
    assert_eq!(restore(&|chunks| drop(chunks.pop())), Some(RestoreError::Missing));
    let (a, b) = (bucket_of(b"a", BUCKETS), bucket_of(b"b", BUCKETS));
    let wrong = Some(RestoreError::Malformed(DecodeError::Value("bucket")));
    assert_eq!(restore(&|chunks| chunks.swap(a, b)), wrong, "chunks in the wrong place");
    let entry = |chunks: &[Vec<u8>]| chunks[a][4..].to_vec();
    let twice = restore(&|chunks| {
        let again = entry(chunks);
        chunks[a][0] = 2;
        chunks[a].extend(again);
    });
    assert_eq!(twice, wrong, "the same key twice");
    let trailing = restore(&|chunks| chunks[a].push(0));
    assert_eq!(trailing, Some(RestoreError::Malformed(DecodeError::Trailing)));
    let long = restore(&|chunks| chunks[a][..4].copy_from_slice(&[255; 4]));
    assert_eq!(long, Some(RestoreError::Malformed(DecodeError::Truncated)));
    for cut in 1..chunks[a].len() {
        assert!(restore(&|chunks| chunks[a].truncate(cut)).is_some(), "cut at {cut}");
    }
}
