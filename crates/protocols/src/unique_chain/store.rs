//! Entries that a replica keeps: accepted ones, and those of which something is missing (`apollo` §3, §7).
//!
//! All entries have passed their claims: authors and skip certificates have signed. An entry is accepted once its parent is
//! accepted and its blocks are complete. Peers can make this store grow by a bounded number of bytes only.

use super::entry::{Entry, EntryRef, Framed};
use super::wanted::Wanted;
use quorate_types::{Digest, ReplicaId, ReplicaSet, Signature, View};
use std::collections::{BTreeMap, BTreeSet};

/// Accepted rounds below the committed entry that are served to peers.
pub(super) const SERVED_ROUNDS: u64 = 1_024;
/// Rounds below the committed entry for which entries are kept that are not accepted.
const LATE_ROUNDS: u64 = 64;
/// Bytes of entries that one peer has handed over and that are not accepted.
const PENDING_BYTES_MAX: usize = 4 << 20;

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
    /// Entries that are asked for by id.
    wanted: Wanted<Digest>,
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
            wanted: Wanted::default(),
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

    /// Returns the kept entry of the lowest round: no lower one is served.
    pub(super) fn lowest(&self) -> Option<&E> {
        self.by_round.first().and_then(|(_, id)| self.get(*id)).map(|frame| &frame.entry)
    }

    /// Returns the peer that handed an entry over.
    pub(super) fn holder(&self, id: Digest) -> Option<ReplicaId> {
        self.kept.get(&id).map(|kept| kept.holder)
    }

    /// Whether an entry is accepted. Genesis and the committed entry are.
    pub(super) fn is_accepted(&self, entry: EntryRef) -> bool {
        entry == self.base
            || entry == EntryRef::GENESIS
            || self
                .kept
                .get(&entry.id)
                .is_some_and(|kept| kept.accepted && kept.frame.entry.round() == entry.round)
    }

    /// Whether this is the committed entry, and others have decided it: the entry itself is unknown.
    pub(super) fn is_unknown_base(&self, entry: EntryRef) -> bool {
        entry == self.base && entry != EntryRef::GENESIS && !self.contains(entry.id)
    }

    /// Whether an entry is kept under this id whose round is another one.
    pub(super) fn has_other_round(&self, entry: EntryRef) -> bool {
        let other = |kept: &Kept<E>| kept.frame.entry.round() != entry.round;
        self.kept.get(&entry.id).is_some_and(other)
            || (entry.id == self.base.id && entry.round != self.base.round)
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

    /// Notes that a peer is asked for an entry by its id, because an entry of `round` names it.
    pub(super) fn want(&mut self, id: Digest, round: View, peer: ReplicaId) {
        self.wanted.insert(id, round, peer);
    }

    /// Whether an entry is asked for by its id.
    pub(super) fn is_wanted(&self, id: Digest) -> bool {
        self.wanted.named_in(id).is_some()
    }

    /// Keeps an entry that is not accepted yet. Returns the ids of entries of the same peer that gave way.
    pub(super) fn keep(&mut self, frame: Framed<E>, holder: ReplicaId) -> Vec<Digest> {
        let EntryRef { round, id } = frame.entry.place();
        let weight = frame.weight();
        let used = self.pending_bytes.entry(holder).or_default();
        *used = used.saturating_add(weight);
        self.wanted.remove(id);
        self.by_round.insert((round, id));
        self.waiting.entry(frame.entry.parent().id).or_default().push(id);
        self.kept.insert(id, Kept { frame, holder, accepted: false });
        self.make_room(holder, id)
    }

    /// Drops pending entries of a peer, highest rounds first, until its share is kept. The newest entry stays.
    fn make_room(&mut self, holder: ReplicaId, newest: Digest) -> Vec<Digest> {
        let mut gone = Vec::new();
        while self.pending_bytes.get(&holder).is_some_and(|used| *used > PENDING_BYTES_MAX) {
            let is_theirs = |id: &Digest| *id != newest && self.holder(*id) == Some(holder);
            let Some(id) = self.pending().into_iter().rev().find(is_theirs) else { break };
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
        let round = |id: &Digest| self.kept.get(id).map(|kept| (kept.frame.entry.round(), *id));
        let mut pending: Vec<(View, Digest)> = self.waiting.values().flatten().filter_map(round).collect();
        pending.sort_unstable();
        pending.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the nearest ancestor that is not kept, of an entry that is kept and not accepted.
    pub(super) fn missing_ancestor(&self, id: Digest) -> Option<(EntryRef, View)> {
        let mut at = id;
        loop {
            let entry = &self.kept.get(&at)?.frame.entry;
            let parent = entry.parent();
            if self.is_accepted(parent) || parent.round <= self.base.round {
                return None;
            }
            if !self.contains(parent.id) {
                return Some((parent, entry.round()));
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

    /// Returns the accepted entries of a chain from `id` upwards, up to the first one with which `needed` distinct authors
    /// have signed. `None` where no such chain is kept.
    pub(super) fn path_up(&self, id: Digest, needed: usize) -> Option<Vec<&Framed<E>>> {
        let first = self.get(id)?.entry.place();
        // The authors from `id` up to each entry above it. Parents have lower rounds, so they come first.
        let mut authors_up_to: BTreeMap<Digest, ReplicaSet> = BTreeMap::new();
        for (_, at) in self.by_round.range((first.round, first.id)..) {
            let Some(Kept { frame, accepted: true, .. }) = self.kept.get(at) else { continue };
            let below = authors_up_to.get(&frame.entry.parent().id).copied();
            let Some(mut authors) = below.or((*at == id).then_some(ReplicaSet::EMPTY)) else { continue };
            authors.insert(frame.entry.author());
            if authors.len() >= needed {
                return Some(self.path_between(id, *at));
            }
            authors_up_to.insert(*at, authors);
        }
        None
    }

    /// Returns the kept entries from `low` up to its descendant `high`.
    fn path_between(&self, low: Digest, high: Digest) -> Vec<&Framed<E>> {
        let (mut path, mut at) = (Vec::new(), high);
        while let Some(frame) = self.get(at) {
            path.push(frame);
            if at == low {
                break;
            }
            at = frame.entry.parent().id;
        }
        path.reverse();
        path
    }

    /// Moves the committed entry on, and forgets what is far below it. The entries that are committed now stay until the next
    /// commit, however far below they are: the host asks for their evidence.
    pub(super) fn commit(&mut self, base: EntryRef) {
        if base.round <= self.base.round {
            return;
        }
        let served = base.round.minus(SERVED_ROUNDS).min(self.base.round);
        self.base = base;
        if self.tip.round < base.round {
            self.tip = base;
        }
        self.first = self.first.split_off(&base.round.next());
        self.alternates = self.alternates.split_off(&base.round.next());
        self.wanted.settle(base.round);
        while let Some((round, id)) = self.by_round.first().copied()
            && round < served
        {
            self.drop_entry(id);
        }
        // What is not accepted below the committed entry never will be. It is kept for a while, because a check for conflicts
        // may need it.
        let late = base.round.minus(LATE_ROUNDS);
        let is_late = |id: &Digest| self.get(*id).is_some_and(|frame| frame.entry.round() <= late);
        for id in self.pending().into_iter().take_while(is_late).collect::<Vec<Digest>>() {
            self.drop_entry(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::apollo::Proposal;
    use super::*;
    use quorate_types::{Block, BlockId, Height, PayloadId};

    /// A chain in the store: entries with their rounds and authors.
    struct Chain {
        store: EntryStore<Proposal>,
        tip: EntryRef,
        height: Height,
    }

    impl Chain {
        fn new() -> Self {
            Self { store: EntryStore::new(EntryRef::GENESIS), tip: EntryRef::GENESIS, height: Height::ZERO }
        }

        /// Adds an accepted entry on `parent`.
        fn add_on(&mut self, parent: EntryRef, round: u64, author: u16) -> EntryRef {
            let block = Block {
                parent: BlockId(parent.id),
                height: self.height.next(),
                view: View(round),
                proposer: ReplicaId(author),
                time_ns: 0,
                payload: PayloadId::ZERO,
                extra: Digest::ZERO,
            };
            let entry = Proposal { block, parent_round: parent.round };
            let place = entry.place();
            let frame = Framed { entry, skips: Vec::new(), signature: Signature([1; 64]) };
            self.store.keep(frame, ReplicaId(author));
            self.store.accept(place.id);
            place
        }

        fn add(&mut self, round: u64, author: u16) -> EntryRef {
            self.tip = self.add_on(self.tip, round, author);
            self.height = self.height.next();
            self.tip
        }

        /// Returns the rounds of the evidence for an entry.
        fn rounds_up(&self, from: EntryRef, needed: usize) -> Option<Vec<u64>> {
            let path = self.store.path_up(from.id, needed)?;
            Some(path.iter().map(|frame| frame.entry.round().0).collect())
        }
    }

    #[test]
    fn path_up_ends_with_the_last_missing_author() {
        let mut chain = Chain::new();
        let one = chain.add(1, 0);
        let two = chain.add(4, 0);
        chain.add(5, 1);
        chain.add(7, 0);
        assert_eq!(chain.rounds_up(one, 2), Some(vec![1, 4, 5]));
        assert_eq!(chain.rounds_up(two, 2), Some(vec![4, 5]));
        assert_eq!(chain.rounds_up(two, 3), None, "authors are counted, not rounds");
        chain.add(9, 2);
        assert_eq!(chain.rounds_up(two, 3), Some(vec![4, 5, 7, 9]));
    }

    /// A branch that nobody has extended far enough proves nothing.
    #[test]
    fn path_up_follows_the_branch_with_enough_authors() {
        let mut chain = Chain::new();
        let one = chain.add(1, 0);
        for _ in 0..4 {
            // Distinct entries: the height is no part of the parent.
            chain.height = chain.height.next();
            chain.add_on(one, 4, 0);
        }
        chain.add(5, 1);
        assert_eq!(chain.rounds_up(one, 2), Some(vec![1, 5]));
    }

    #[test]
    fn entries_that_are_committed_now_keep_their_evidence() {
        let mut chain = Chain::new();
        let low = chain.add(1, 0);
        let high = chain.add(SERVED_ROUNDS * 3, 1);
        chain.add(SERVED_ROUNDS * 3 + 1, 2);
        chain.store.commit(high);
        assert!(chain.rounds_up(low, 2).is_some() && chain.rounds_up(high, 2).is_some());
        let next = chain.tip;
        chain.store.commit(next);
        assert!(chain.rounds_up(low, 2).is_none(), "it is far below");
        assert!(chain.rounds_up(high, 2).is_some());
    }
}
