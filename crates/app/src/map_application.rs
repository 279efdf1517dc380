//! Applications whose whole state is one [`BucketMap`].

use crate::application::{Application, At};
use crate::bucket_map::BucketMap;
use crate::snapshot::{RestoreError, Snapshot};
use quorate_types::Digest;
use std::fmt;
use std::marker::PhantomData;

/// The rules of an application whose whole state is one map. [`OnMap`] makes an [`Application`] of them: digest, snapshot and
/// restore come with the map.
///
/// The rules have no `self`, so no state can stand outside of the map. All that [`Application`] says about determinism holds
/// here too.
///
/// ```
/// use quorate_app::{Application, At, BucketMap, MapApplication, OnMap};
///
/// /// Counts the calls for each name.
/// struct Tally;
///
/// impl Tally {
///     fn count(map: &BucketMap, name: &[u8]) -> u64 {
///         map.get(name).and_then(|count| count.first_chunk()).map_or(0, |count| u64::from_le_bytes(*count))
///     }
/// }
///
/// impl MapApplication for Tally {
///     const NAME: &'static str = "tally";
///     const VERSION: u32 = 1;
///
///     fn apply(map: &mut BucketMap, _at: &At, name: &[u8], reply: &mut Vec<u8>) {
///         let count = Self::count(map, name).saturating_add(1);
///         map.insert(name, &count.to_le_bytes());
///         reply.extend_from_slice(count.to_string().as_bytes());
///     }
///
///     fn query(map: &BucketMap, name: &[u8], room: usize, reply: &mut Vec<u8>) {
///         reply.extend(Self::count(map, name).to_string().bytes().take(room));
///     }
/// }
///
/// let (mut tally, mut copy) = (OnMap::<Tally>::default(), OnMap::<Tally>::default());
/// let mut reply = Vec::new();
/// tally.apply(&At::default(), b"visits", &mut reply);
/// assert_eq!(reply, b"1");
/// let snapshot = tally.snapshot();
/// copy.restore(snapshot.header(), &mut snapshot.chunks()).unwrap();
/// assert_eq!(copy.digest(), tally.digest());
/// ```
pub trait MapApplication {
    /// Name of the service. Part of genesis.
    const NAME: &'static str;
    /// Version of operations, results and state. Part of genesis.
    const VERSION: u32;

    /// Applies one operation to the map and appends its result to `reply`; see [`Application::apply`].
    fn apply(map: &mut BucketMap, at: &At, op: &[u8], reply: &mut Vec<u8>);

    /// Answers an operation that changes nothing, with at most `room` bytes; see [`Application::query`].
    fn query(map: &BucketMap, op: &[u8], room: usize, reply: &mut Vec<u8>);
}

/// The application of these rules: a map that is empty at first.
pub struct OnMap<A> {
    map: BucketMap,
    rules: PhantomData<fn() -> A>,
}

impl<A> OnMap<A> {
    /// Returns an application with an empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an application with an empty map of another number of buckets; see [`BucketMap::with_buckets`].
    #[must_use]
    pub fn with_buckets(count: usize) -> Self {
        Self { map: BucketMap::with_buckets(count), rules: PhantomData }
    }

    /// The state.
    #[must_use]
    pub fn map(&self) -> &BucketMap {
        &self.map
    }
}

impl<A> Default for OnMap<A> {
    fn default() -> Self {
        Self { map: BucketMap::new(), rules: PhantomData }
    }
}

impl<A> fmt::Debug for OnMap<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnMap").field(&self.map).finish()
    }
}

impl<A: MapApplication> Application for OnMap<A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn version(&self) -> u32 {
        A::VERSION
    }

    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        A::apply(&mut self.map, at, op, reply);
    }

    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        A::query(&self.map, op, room, reply);
    }

    fn digest(&mut self) -> Digest {
        self.map.digest()
    }

    fn snapshot(&mut self) -> Snapshot {
        self.map.snapshot()
    }

    /// A snapshot of a map has an empty header.
    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        if !header.is_empty() {
            return Err(RestoreError::Surplus);
        }
        self.map = self.map.restore(chunks)?;
        Ok(())
    }

    fn entries(&self, chunk: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        BucketMap::entries(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `key=value` gives a key a value, `key` alone removes it.
    struct Notes;

    impl MapApplication for Notes {
        const NAME: &'static str = "notes";
        const VERSION: u32 = 3;

        fn apply(map: &mut BucketMap, at: &At, op: &[u8], reply: &mut Vec<u8>) {
            match op.iter().position(|byte| *byte == b'=') {
                Some(end) => map.insert(&op[..end], &op[end + 1..]),
                None => drop(map.remove(op)),
            }
            reply.extend_from_slice(&at.height.0.to_le_bytes());
        }

        fn query(map: &BucketMap, op: &[u8], room: usize, reply: &mut Vec<u8>) {
            reply.extend(map.get(op).unwrap_or_default().iter().take(room));
        }
    }

    fn applied(ops: &[&str]) -> OnMap<Notes> {
        let mut notes = OnMap::default();
        for op in ops {
            notes.apply(&At::default(), op.as_bytes(), &mut Vec::new());
        }
        notes
    }

    fn read(notes: &OnMap<Notes>, key: &str, room: usize) -> Vec<u8> {
        let mut reply = b"before".to_vec();
        notes.query(key.as_bytes(), room, &mut reply);
        assert!(reply.starts_with(b"before"));
        reply.split_off(6)
    }

    #[test]
    fn rules_see_the_place_and_the_map_alone() {
        let mut notes = applied(&["a=1", "b=2", "a"]);
        assert_eq!((notes.name(), notes.version(), notes.map().len()), ("notes", 3, 1));
        assert_eq!(
            (read(&notes, "b", 9), read(&notes, "b", 0), read(&notes, "a", 9)),
            (b"2".to_vec(), vec![], vec![])
        );
        let at = At { height: quorate_types::Height(7), ..At::default() };
        let mut reply = b"before".to_vec();
        notes.apply(&at, b"c=3", &mut reply);
        assert_eq!(reply, [&b"before"[..], &7u64.to_le_bytes()].concat());
    }

    #[test]
    fn equal_states_have_equal_digests_whatever_led_to_them() {
        let (mut one, mut other) = (applied(&["a=1", "b=2"]), applied(&["b=3", "c=0", "b=2", "c", "a=1"]));
        assert_eq!(one.digest(), other.digest());
        assert_ne!(one.digest(), applied(&["a=1"]).digest());
    }

    #[test]
    fn snapshot_is_the_whole_state_at_its_moment() {
        let mut notes = applied(&["a=1", "b=2"]);
        let (snapshot, digest) = (notes.snapshot(), notes.digest());
        notes.apply(&At::default(), b"a=9", &mut Vec::new());
        let mut copy = applied(&["z=1"]);
        copy.restore(snapshot.header(), &mut snapshot.chunks()).unwrap();
        assert_eq!(copy.digest(), digest);
        assert_eq!(read(&copy, "a", 9), b"1");
        assert_eq!(read(&copy, "z", 9), b"");
    }

    #[test]
    fn damaged_snapshot_is_refused() {
        let snapshot = applied(&["a=1"]).snapshot();
        let mut notes = applied(&[]);
        assert_eq!(notes.restore(b"x", &mut snapshot.chunks()), Err(RestoreError::Surplus));
        assert!(notes.restore(&[], &mut snapshot.chunks().skip(1).take(3)).is_err());
        assert_eq!(notes.restore(&[], &mut std::iter::empty()), Err(RestoreError::Missing));
    }
}
