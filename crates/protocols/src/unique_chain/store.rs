//! Entries that a replica keeps: accepted ones, and those of which something is missing (`apollo` §3, §7).
//!
//! All entries have passed their claims: authors and skip certificates have signed. An entry is accepted once its parent is
//! accepted and its blocks are complete. Peers can make this store grow by a bounded number of bytes only.

use super::entry::{Entry, EntryRef, Framed};
use quorate_types::{Digest, ReplicaId, ReplicaSet, Signature, View};
use std::collections::{BTreeMap, BTreeSet};

/// Accepted rounds below the committed entry that are served to peers.
const SERVED_ROUNDS: u64 = 1_024;
/// Bytes of entries that one peer has handed over and that are not accepted.
const PENDING_BYTES_MAX: usize = 4 << 20;
/// Entries that are wanted by their ids at most.
const WANTED_MAX: usize = 4_096;

/// A kept entry.
#[derive(Debug)]
struct Kept<E> {
    frame: Framed<E>,
    /// Peer that handed it over.
    holder: ReplicaId,
    accepted: bool,
}

/// An own entry of another round's author, seen first in its round.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) id: Digest,
    pub(super) signature: Signature,
}

/// See the module.
#[derive(Debug)]
pub(super) struct EntryStore<E> {
    kept: BTreeMap<Digest, Kept<E>>,
    by_round: BTreeSet<(View, Digest)>,
    /// Entries that are not accepted, by parent.
    waiting: BTreeMap<Digest, Vec<Digest>>,
    /// The first entry of each round above the committed one.
    first: BTreeMap<View, First>,
    /// Peers that have handed over a second entry of a round as their tip.
    alternates: BTreeMap<View, ReplicaSet>,
    /// Entries that are asked for by id, each with the round of the entry that names it.
    wanted: BTreeMap<Digest, View>,
    pending_bytes: BTreeMap<ReplicaId, usize>,
    /// The accepted entry of the highest round; the first one accepted wins.
    tip: EntryRef,
    /// The committed entry. It counts as accepted although it may not be kept.
    base: EntryRef,
}

impl<E: Entry> EntryStore<E> {
    pub(super) fn new(base: EntryRef) -> Self {
        Self {
            kept: BTreeMap::new(),
            by_round: BTreeSet::new(),
            waiting: BTreeMap::new(),
            first: BTreeMap::new(),
            alternates: BTreeMap::new(),
            wanted: BTreeMap::new(),
            pending_bytes: BTreeMap::new(),
            tip: base,
            base,
        }
    }

    pub(super) fn tip(&self) -> EntryRef {
        self.tip
    }

    pub(super) fn base(&self) -> EntryRef {
        self.base
    }

    pub(super) fn contains(&self, id: Digest) -> bool {
        self.kept.contains_key(&id)
    }

    pub(super) fn get(&self, id: Digest) -> Option<&Framed<E>> {
        self.kept.get(&id).map(|kept| &kept.frame)
    }

    /// Returns the peer that handed an entry over.
    pub(super) fn holder(&self, id: Digest) -> Option<ReplicaId> {
        self.kept.get(&id).map(|kept| kept.holder)
    }

    /// Whether an entry is accepted. Genesis and the committed entry are.
    pub(super) fn is_accepted(&self, entry: EntryRef) -> bool {
        entry == self.base
            || entry == EntryRef::GENESIS
            || self.kept.get(&entry.id).is_some_and(|kept| kept.accepted)
    }

    /// Returns the first entry of a round.
    pub(super) fn first(&self, round: View) -> Option<First> {
        self.first.get(&round).copied()
    }

    /// Notes the first entry of a round.
    pub(super) fn note_first(&mut self, round: View, first: First) {
        self.first.entry(round).or_insert(first);
    }

    /// Whether a peer may hand over a second entry of a round, as the tip of a proof: one each.
    pub(super) fn admits_alternate(&mut self, round: View, peer: ReplicaId) -> bool {
        self.alternates.entry(round).or_insert(ReplicaSet::EMPTY).insert(peer)
    }

    /// Notes that an entry is asked for by its id, because an entry of `round` names it.
    pub(super) fn want(&mut self, id: Digest, round: View) {
        if self.wanted.len() < WANTED_MAX {
            self.wanted.insert(id, round);
        }
    }

    /// Whether an entry is asked for by its id.
    pub(super) fn is_wanted(&self, id: Digest) -> bool {
        self.wanted.contains_key(&id)
    }

    /// Keeps an entry that is not accepted yet. Returns the ids of entries of the same peer that gave way.
    pub(super) fn keep(&mut self, frame: Framed<E>, holder: ReplicaId) -> Vec<Digest> {
        let EntryRef { round, id } = frame.entry.place();
        let weight = frame.weight();
        let used = self.pending_bytes.entry(holder).or_default();
        *used = used.saturating_add(weight);
        self.wanted.remove(&id);
        self.by_round.insert((round, id));
        self.waiting.entry(frame.entry.parent().id).or_default().push(id);
        self.kept.insert(id, Kept { frame, holder, accepted: false });
        self.make_room(holder, id)
    }

    /// Drops pending entries of a peer, highest rounds first, until its share is kept. The newest entry stays.
    fn make_room(&mut self, holder: ReplicaId, newest: Digest) -> Vec<Digest> {
        let mut gone = Vec::new();
        while self.pending_bytes.get(&holder).is_some_and(|used| *used > PENDING_BYTES_MAX) {
            let is_theirs = |(_, id): &&(View, Digest)| {
                let kept = self.kept.get(id);
                *id != newest && kept.is_some_and(|kept| !kept.accepted && kept.holder == holder)
            };
            let Some((_, id)) = self.by_round.iter().rev().find(is_theirs).copied() else { break };
            self.drop_entry(id);
            gone.push(id);
        }
        gone
    }

    fn no_longer_pending(&mut self, holder: ReplicaId, weight: usize) {
        if let Some(used) = self.pending_bytes.get_mut(&holder) {
            *used = used.saturating_sub(weight);
        }
    }

    /// Drops an entry.
    pub(super) fn drop_entry(&mut self, id: Digest) {
        let Some(kept) = self.kept.remove(&id) else { return };
        self.by_round.remove(&(kept.frame.entry.round(), id));
        if !kept.accepted {
            self.no_longer_pending(kept.holder, kept.frame.weight());
            let parent = kept.frame.entry.parent().id;
            if let Some(waiting) = self.waiting.get_mut(&parent) {
                waiting.retain(|child| *child != id);
                if waiting.is_empty() {
                    self.waiting.remove(&parent);
                }
            }
        }
    }

    /// Accepts an entry. Returns whether its round is the highest of all accepted ones.
    pub(super) fn accept(&mut self, id: Digest) -> bool {
        let Some(kept) = self.kept.get_mut(&id) else { return false };
        kept.accepted = true;
        let (holder, weight) = (kept.holder, kept.frame.weight());
        let (place, parent) = (kept.frame.entry.place(), kept.frame.entry.parent().id);
        self.no_longer_pending(holder, weight);
        if let Some(waiting) = self.waiting.get_mut(&parent) {
            waiting.retain(|child| *child != id);
            if waiting.is_empty() {
                self.waiting.remove(&parent);
            }
        }
        let is_highest = place.round > self.tip.round;
        if is_highest {
            self.tip = place;
        }
        is_highest
    }

    /// Returns the entries that wait for this parent.
    pub(super) fn waiting_for(&self, parent: Digest) -> Vec<Digest> {
        self.waiting.get(&parent).cloned().unwrap_or_default()
    }

    /// Returns all entries that are not accepted, lowest rounds first.
    pub(super) fn pending(&self) -> Vec<Digest> {
        let is_pending = |id: &Digest| self.kept.get(id).is_some_and(|kept| !kept.accepted);
        self.by_round.iter().map(|(_, id)| *id).filter(is_pending).collect()
    }

    /// Returns the nearest ancestor that is not kept, of an entry that is kept and not accepted. Another entry of the committed
    /// one's round is such an ancestor: it may prove a conflict.
    pub(super) fn missing_ancestor(&self, id: Digest) -> Option<(EntryRef, View)> {
        let mut at = id;
        loop {
            let entry = &self.kept.get(&at)?.frame.entry;
            let parent = entry.parent();
            if self.is_accepted(parent) || parent.round < self.base.round {
                return None;
            }
            if !self.contains(parent.id) {
                return Some((parent, entry.round()));
            }
            if parent.round == self.base.round {
                return None;
            }
            at = parent.id;
        }
    }

    /// Returns the authors on the path from a kept entry down to the round of the committed one, and the place at which it
    /// arrives there. `None` where its path is not known.
    pub(super) fn descent(&self, id: Digest) -> Option<(ReplicaSet, EntryRef)> {
        let (mut authors, mut at) = (ReplicaSet::EMPTY, id);
        loop {
            let entry = &self.get(at)?.entry;
            authors.insert(entry.author());
            let parent = entry.parent();
            if parent.round <= self.base.round {
                return Some((authors, parent));
            }
            at = parent.id;
        }
    }

    /// Whether an accepted entry is the committed one or extends it. `None` where its path is not kept.
    pub(super) fn extends_base(&self, entry: EntryRef) -> Option<bool> {
        let mut at = entry;
        loop {
            if at == self.base {
                return Some(true);
            }
            if at.round <= self.base.round {
                return Some(false);
            }
            at = self.get(at.id)?.entry.parent();
        }
    }

    /// Returns the accepted entries on the path to `id` above a round, oldest first, at most `most`.
    pub(super) fn path(&self, id: Digest, above: View, most: usize) -> Vec<Framed<E>> {
        let (mut path, mut at) = (Vec::new(), id);
        while let Some(kept) = self.kept.get(&at)
            && kept.accepted
            && kept.frame.entry.round() > above
        {
            path.push(&kept.frame);
            at = kept.frame.entry.parent().id;
        }
        path.into_iter().rev().take(most).cloned().collect()
    }

    /// Moves the committed entry on, and forgets what is far below it.
    pub(super) fn commit(&mut self, base: EntryRef) {
        if base.round <= self.base.round {
            return;
        }
        self.base = base;
        if self.tip.round < base.round {
            self.tip = base;
        }
        self.first = self.first.split_off(&base.round.next());
        self.alternates = self.alternates.split_off(&base.round.next());
        self.wanted.retain(|_, round| *round > base.round);
        let served = base.round.minus(SERVED_ROUNDS);
        while let Some((round, id)) = self.by_round.first().copied()
            && round < served
        {
            self.drop_entry(id);
        }
        // What is not accepted below the committed entry never will be.
        let below = self.by_round.range(..=(base.round, Digest([u8::MAX; 32])));
        let dead = below.filter(|(_, id)| self.kept.get(id).is_some_and(|kept| !kept.accepted));
        for id in dead.map(|(_, id)| *id).collect::<Vec<Digest>>() {
            self.drop_entry(id);
        }
    }
}
