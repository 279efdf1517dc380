//! The differences of two states of one service, for people who search their cause.

use crate::execution::Execution;
use crate::snapshot::Snapshot;
use quorate_types::{ChunkId, Height};
use std::collections::BTreeMap;

/// The entries of a chunk by key.
type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A key whose values differ in two states. `None` for a state that does not have the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DifferentEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The value in the first state.
    pub first: Option<Vec<u8>>,
    /// The value in the second state.
    pub second: Option<Vec<u8>>,
}

/// The differences of two states.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Differences {
    /// The heights, if they differ. States of different heights differ for good reasons.
    pub heights: Option<(Height, Height)>,
    /// The application's times in nanoseconds, if they differ.
    pub times_ns: Option<(u64, u64)>,
    /// Whether the registered keys of clients differ.
    pub clients: bool,
    /// Whether the sessions of clients differ.
    pub sessions: bool,
    /// Whether the headers of the application's snapshots differ.
    pub header: bool,
    /// Indexes of different chunks of the application's snapshots, from 0.
    pub chunks: Vec<usize>,
    /// The number of different keys. `None` if the application does not name the entries of its chunks.
    pub entries: Option<usize>,
    /// The lowest different key.
    pub first_entry: Option<DifferentEntry>,
}

impl Differences {
    /// Whether the states are equal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let rest = Self { entries: None, ..self.clone() };
        rest == Self::default()
    }
}

/// The parts of a state that are compared.
struct Parts {
    snapshot: Snapshot,
    /// The header of the application's snapshot.
    header: Vec<u8>,
}

impl Execution {
    /// Compares this state with another one of the same service.
    pub fn differences(&mut self, other: &mut Self) -> Differences {
        let [first, second] = [self.parts(), other.parts()];
        let [(clients, sessions, chunks), (other_clients, other_sessions, other_chunks)] =
            [self.split(first.snapshot.ids()), other.split(second.snapshot.ids())];
        let mut found = Differences {
            heights: differ(self.height(), other.height()),
            times_ns: differ(self.time_ns(), other.time_ns()),
            clients: clients != other_clients,
            sessions: sessions != other_sessions,
            header: first.header != second.header,
            entries: Some(0),
            ..Differences::default()
        };
        let most = chunks.len().max(other_chunks.len());
        found.chunks = (0..most).filter(|index| chunks.get(*index) != other_chunks.get(*index)).collect();
        let start =
            |parts: &Parts, chunks: &[ChunkId]| parts.snapshot.ids().len().saturating_sub(chunks.len());
        let sides = [(&first, start(&first, chunks)), (&second, start(&second, other_chunks))];
        for index in &found.chunks {
            let [a, b] =
                sides.map(|(parts, start)| self.chunk_entries(&parts.snapshot, start.saturating_add(*index)));
            let (Some(a), Some(b)) = (a, b) else {
                (found.entries, found.first_entry) = (None, None);
                break;
            };
            let count = count_different(&a, &b, &mut found.first_entry);
            found.entries = found.entries.map(|all| all.saturating_add(count));
        }
        found
    }

    /// Returns the entries of a chunk. A chunk beyond the last has none.
    fn chunk_entries(&self, snapshot: &Snapshot, index: usize) -> Option<Entries> {
        let mut bytes = Vec::new();
        if !snapshot.encode(index, &mut bytes) {
            return Some(Entries::new());
        }
        Some(self.application().entries(&bytes)?.into_iter().collect())
    }

    fn parts(&mut self) -> Parts {
        let snapshot = self.snapshot();
        let header = self.application_header(&snapshot);
        Parts { snapshot, header }
    }

    /// Splits the chunks of a snapshot into those of keys, sessions and application.
    fn split<'a>(&self, ids: &'a [ChunkId]) -> (&'a [ChunkId], &'a [ChunkId], &'a [ChunkId]) {
        let [keys, sessions] = self.session_chunks().map(|count| count.min(ids.len()));
        let (keys, rest) = ids.split_at(keys);
        let (sessions, rest) = rest.split_at(sessions.min(rest.len()));
        (keys, sessions, rest)
    }
}

fn differ<T: PartialEq>(first: T, second: T) -> Option<(T, T)> {
    (first != second).then_some((first, second))
}

/// Counts the different keys of two chunks, and keeps the lowest.
fn count_different(first: &Entries, second: &Entries, lowest: &mut Option<DifferentEntry>) -> usize {
    let mut count: usize = 0;
    let only_second = second.keys().filter(|key| !first.contains_key(*key));
    for key in first.keys().chain(only_second) {
        let (a, b) = (first.get(key), second.get(key));
        if a == b {
            continue;
        }
        count = count.saturating_add(1);
        if lowest.as_ref().is_none_or(|lowest| *key < lowest.key) {
            *lowest = Some(DifferentEntry { key: key.clone(), first: a.cloned(), second: b.cloned() });
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Application, At, BucketMap, MapApplication, OnMap, RestoreError};
    use quorate_types::{BodyLimits, ClientAuth, Genesis, ProtocolId, PublicKey};
    use std::sync::Arc;

    /// `key=value` gives a key a value.
    struct Notes;

    impl MapApplication for Notes {
        const NAME: &'static str = "notes";
        const VERSION: u32 = 1;

        fn apply(map: &mut BucketMap, _: &At, op: &[u8], _: &mut Vec<u8>) {
            let at = op.iter().position(|byte| *byte == b'=').unwrap();
            map.insert(&op[..at], &op[at + 1..]);
        }

        fn query(_: &BucketMap, _: &[u8], _: usize, _: &mut Vec<u8>) {}
    }

    /// One chunk without keys.
    struct Opaque(u8);

    struct Byte(u8);

    impl crate::Chunk for Byte {
        fn encode(&self, out: &mut Vec<u8>) {
            out.push(self.0);
        }
    }

    impl Application for Opaque {
        fn name(&self) -> &'static str {
            "notes"
        }
        fn version(&self) -> u32 {
            1
        }
        fn apply(&mut self, _: &At, _: &[u8], _: &mut Vec<u8>) {}
        fn query(&self, _: &[u8], _: usize, _: &mut Vec<u8>) {}
        fn snapshot(&mut self) -> Snapshot {
            let mut snapshot = Snapshot::default();
            snapshot.add(Arc::new(Byte(self.0)));
            snapshot
        }
        fn restore(&mut self, _: &[u8], _: &mut dyn Iterator<Item = Vec<u8>>) -> Result<(), RestoreError> {
            Ok(())
        }
    }

    fn genesis(clients: Vec<PublicKey>) -> Genesis {
        Genesis {
            protocol: ProtocolId::new("pbft"),
            f: 0,
            members: Vec::new(),
            client_auth: ClientAuth::None,
            bodies: BodyLimits::default(),
            client_window: 8,
            clients_max: 4,
            checkpoint_every: 4,
            window: 8,
            application: "notes 1".to_owned(),
            admin: PublicKey([9; 32]),
            clients,
            params: String::new(),
            salt: [0; 32],
            base: None,
        }
    }

    fn notes(entries: &[&str]) -> Execution {
        let mut notes = OnMap::<Notes>::new();
        for entry in entries {
            notes.apply(&At::default(), entry.as_bytes(), &mut Vec::new());
        }
        Execution::new(&genesis(Vec::new()), Box::new(notes)).unwrap()
    }

    #[test]
    fn lowest_different_key_is_named_with_both_values() {
        let mut first = notes(&["a=1", "m=2", "k=3", "only=4"]);
        let mut second = notes(&["a=1", "m=9", "k=8"]);
        let found = first.differences(&mut second);
        let entry =
            DifferentEntry { key: b"k".to_vec(), first: Some(b"3".to_vec()), second: Some(b"8".to_vec()) };
        assert_eq!((found.first_entry, found.entries), (Some(entry), Some(3)));
        let found = notes(&["a=1"]).differences(&mut notes(&[]));
        let entry = DifferentEntry { key: b"a".to_vec(), first: Some(b"1".to_vec()), second: None };
        assert_eq!((found.first_entry, found.entries), (Some(entry), Some(1)));
        assert!(!found.clients && !found.sessions && !found.header && found.heights.is_none());
    }

    #[test]
    fn equal_states_have_no_difference() {
        let found = notes(&["a=1", "b=2"]).differences(&mut notes(&["b=2", "a=1"]));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn registered_keys_and_chunks_without_entries_are_compared_too() {
        let state = |byte, clients| Execution::new(&genesis(clients), Box::new(Opaque(byte))).unwrap();
        let found = state(1, vec![]).differences(&mut state(2, vec![PublicKey([1; 32])]));
        assert!(found.clients && found.chunks == [0] && found.entries.is_none(), "{found:?}");
    }
}
