//! Same slot, and held until durable. Both are judged by the frames that leave and the bytes that the disk had synced
//! by then, never by the replica's own account.

use super::finding::{Judged, Oracle};
use crate::frame::Content;
use memchr::memmem;
use quorate_types::codec::Wire as _;
use quorate_types::{Digest, Height, Kind, ReplicaId, Slot, View};
use std::collections::BTreeMap;

/// Number of synced bytes that are remembered for each replica. Older ones are looked up on the disk.
const TAIL_BYTES: usize = 32 << 10;

/// Interval between promises that are looked up on the disk although their sync was seen. There are a few in each
/// long run, because each copies and reads the whole disk.
const LOOK_EVERY: u64 = 2_048;

/// A slot, ordered by its most distinctive field: most of the work is comparing.
type Key = (Height, View, Kind, Digest);

/// Promises of one replica.
#[derive(Default, Debug)]
struct Promised {
    signed: BTreeMap<Key, Digest>,
    /// The newest bytes that the disk has synced.
    tail: Vec<u8>,
    /// Kinds of all statements so far, with the highest floor that this disk has synced.
    floors: BTreeMap<Kind, View>,
}

impl Promised {
    fn synced(&mut self, bytes: &[u8]) {
        for (kind, floor) in &mut self.floors {
            *floor = highest_floor(bytes, *kind).map_or(*floor, |synced| synced.max(*floor));
        }
        if self.tail.len() > TAIL_BYTES {
            let half = self.tail.len() / 2;
            self.tail.drain(..half);
        }
        self.tail.extend_from_slice(bytes);
    }

    /// Whether the encoded guard entry of this slot was synced recently, or floors above the slot were synced at any
    /// time.
    fn has_synced(&self, slot: &Slot, guard: &[u8]) -> bool {
        // Floors come first because they cost nothing: most slots of a kind with floors are reserved.
        self.floors.get(&slot.kind).is_some_and(|floor| slot.view < *floor)
            || memmem::rfind(&self.tail, guard).is_some()
    }

    /// Watches floors of this kind from now on.
    fn watch(&mut self, kind: Kind) {
        self.floors.insert(kind, highest_floor(&self.tail, kind).unwrap_or_default());
    }
}

/// The oracle for promises.
#[derive(Debug)]
pub(crate) struct PromiseOracle {
    of: Vec<Promised>,
    buffer: Vec<u8>,
    /// Number of judged promises.
    checked: u64,
}

impl PromiseOracle {
    pub(crate) fn new(n: usize) -> Self {
        let mut of = Vec::new();
        of.resize_with(n, Promised::default);
        Self { of, buffer: Vec::new(), checked: 0 }
    }

    /// Records bytes that a replica's disk has synced.
    pub(crate) fn synced(&mut self, by: ReplicaId, bytes: &[u8]) {
        if !bytes.is_empty()
            && let Some(promised) = self.of.get_mut(by.index())
        {
            promised.synced(bytes);
        }
    }

    /// Returns the number of different promises that were judged.
    pub(crate) fn checked(&self) -> u64 {
        self.checked
    }

    /// Returns a description of an equivocation when a Byzantine replica signs two subjects for one slot.
    pub(crate) fn equivocation(&mut self, by: ReplicaId, content: &Content) -> Option<String> {
        let signed = content.statement.filter(|_| content.is_once)?;
        let key = (signed.height, signed.view, signed.kind, signed.scope);
        let first = *self.of.get_mut(by.index())?.signed.entry(key).or_insert(signed.subject);
        (first != signed.subject).then(|| format!("signed {content} and {} for the same slot", first.short()))
    }

    /// Judges a frame that leaves. `later` holds the bytes that the disk has synced since then, in the same turn.
    ///
    /// `on_disk` checks whether a crash would leave a disk that keeps the replica from equivocating. It checks the
    /// current disk, if its argument says that this one counts, and a disk that has survived. It is called only where
    /// the recently synced bytes do not decide.
    pub(crate) fn leaves(
        &mut self,
        by: ReplicaId,
        content: &Content,
        later: &[u8],
        on_disk: &mut dyn FnMut(bool) -> bool,
    ) -> Judged {
        let (Some(statement), Some(promised)) = (content.statement, self.of.get_mut(by.index())) else {
            return Ok(());
        };
        if !content.is_once {
            return Ok(());
        }
        let key = (statement.height, statement.view, statement.kind, statement.scope);
        match promised.signed.get(&key) {
            Some(subject) if *subject == statement.subject => return Ok(()),
            Some(subject) => {
                let what =
                    format!("replica {by} signs {content} after it signed {subject:?} for the same slot");
                return Err((Oracle::SameSlot, what));
            }
            None => {}
        }
        promised.signed.insert(key, statement.subject);
        self.checked = self.checked.saturating_add(1);
        self.buffer.clear();
        statement.encode(&mut self.buffer);
        let slot = statement.slot();
        if !promised.floors.contains_key(&slot.kind) {
            // Any replica may reserve a slot of this kind from now on.
            self.of.iter_mut().for_each(|promised| promised.watch(slot.kind));
        }
        let recent = self.of.get(by.index()).is_some_and(|promised| promised.has_synced(&slot, &self.buffer));
        // Some promises are looked up anyway: the oracle does not trust its own memory.
        let is_sample = later.is_empty() && self.checked.is_multiple_of(LOOK_EVERY);
        // The lookup would also find entries that were synced only since then.
        let is_held = (recent && !is_sample) || on_disk(!binds(later, &slot, &self.buffer));
        if is_held {
            Ok(())
        } else {
            Err((Oracle::Held, format!("replica {by} sends {content} before its guard entry is on disk")))
        }
    }
}

/// Whether the bytes contain an encoded guard entry, or floors above its slot.
fn binds(bytes: &[u8], slot: &Slot, guard: &[u8]) -> bool {
    memmem::find(bytes, guard).is_some()
        || highest_floor(bytes, slot.kind).is_some_and(|floor| slot.view < floor)
}

/// Returns the highest floor of a kind in the bytes: the kind, a view, and then no height as in a statement.
fn highest_floor(bytes: &[u8], kind: Kind) -> Option<View> {
    let needle = kind.to_bytes();
    let floors = memmem::find_iter(bytes, &needle).filter_map(|at| {
        let (view, rest) = bytes.get(at.saturating_add(needle.len())..)?.split_first_chunk::<8>()?;
        (rest.get(..8) != Some(&[0; 8])).then(|| View(u64::from_le_bytes(*view)))
    });
    floors.max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{Floors, Statement};

    const R1: ReplicaId = ReplicaId(1);

    fn content(view: u64, subject: u8, is_once: bool) -> Content {
        let kind = Kind::new("vote");
        let statement = Statement::new(kind, View(view), Height(4), Digest([subject; 32]));
        Content { kind, view: View(view), height: Height(4), statement: Some(statement), is_once }
    }

    fn oracle(verdict: Judged) -> Option<Oracle> {
        verdict.err().map(|(oracle, _)| oracle)
    }

    #[test]
    fn second_subject_for_a_slot_is_found() {
        let mut promises = PromiseOracle::new(2);
        let mut synced = |_| true;
        assert_eq!(promises.leaves(R1, &content(1, 7, true), b"", &mut synced), Ok(()));
        assert_eq!(promises.leaves(R1, &content(1, 7, true), b"", &mut synced), Ok(()), "said again");
        assert_eq!(promises.leaves(R1, &content(2, 8, true), b"", &mut synced), Ok(()), "another view");
        assert_eq!(
            promises.leaves(ReplicaId(0), &content(1, 8, true), b"", &mut synced),
            Ok(()),
            "another replica"
        );
        assert_eq!(
            promises.leaves(R1, &content(1, 8, false), b"", &mut synced),
            Ok(()),
            "may change its mind"
        );
        assert_eq!(
            oracle(promises.leaves(R1, &content(1, 8, true), b"", &mut synced)),
            Some(Oracle::SameSlot)
        );
    }

    #[test]
    fn promise_that_leaves_before_its_sync_is_found() {
        let mut promises = PromiseOracle::new(2);
        let mut never = |_| false;
        let encoded = content(1, 7, true).statement.unwrap().to_bytes();
        promises.synced(R1, &[b"before", &encoded[..], b"after"].concat());
        assert_eq!(promises.leaves(R1, &content(1, 7, true), b"", &mut never), Ok(()));
        assert_eq!(
            oracle(promises.leaves(R1, &content(1, 9, true), b"", &mut never)),
            Some(Oracle::SameSlot)
        );
        assert_eq!(oracle(promises.leaves(R1, &content(2, 9, true), b"", &mut never)), Some(Oracle::Held));
    }

    /// A promise that leaves before the next sync of its turn may have been synced long ago. The disk is looked up,
    /// and only bytes synced by then count.
    #[test]
    fn guard_entry_synced_after_departure_does_not_count() {
        let mut promises = PromiseOracle::new(2);
        let mut now = |counts| counts;
        let held = content(1, 7, true);
        let encoded = held.statement.unwrap().to_bytes();
        let floors = Floors { height: Height(2), views: vec![(Kind::new("vote"), View(5))] }.to_bytes();
        assert_eq!(promises.leaves(R1, &content(4, 7, true), b"of another", &mut now), Ok(()));
        assert_eq!(promises.leaves(R1, &content(5, 7, true), &floors, &mut now), Ok(()), "floors below");
        let guard = [b"before", &encoded[..], b"after"].concat();
        assert_eq!(oracle(promises.leaves(R1, &held, &guard, &mut now)), Some(Oracle::Held));
        assert_eq!(oracle(promises.leaves(R1, &content(2, 7, true), &floors, &mut now)), Some(Oracle::Held));
        let mut survived = |_| true;
        assert_eq!(promises.leaves(R1, &content(3, 7, true), &floors, &mut survived), Ok(()));
    }

    /// Floors above a slot bind like its guard entry. A slot above the floors is not bound, and a guard entry of that
    /// slot is no floor.
    #[test]
    fn reserved_slot_is_held() {
        let mut promises = PromiseOracle::new(2);
        let mut never = |_| false;
        let floors = Floors { height: Height(2), views: vec![(Kind::new("vote"), View(5))] };
        let next = Statement::new(Kind::new("vote"), View(8), Height(0), Digest([7; 32]));
        promises.synced(R1, &[&floors.to_bytes()[..], b"after", &next.to_bytes()].concat());
        assert_eq!(promises.leaves(R1, &content(4, 7, true), b"", &mut never), Ok(()));
        for view in [5, 7] {
            let verdict = promises.leaves(R1, &content(view, 7, true), b"", &mut never);
            assert_eq!(oracle(verdict), Some(Oracle::Held), "view {view}");
        }
    }
}
