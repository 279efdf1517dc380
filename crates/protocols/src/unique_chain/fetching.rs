//! Fetching of missing entries, blocks and bodies (`apollo` §2, §5).
//!
//! Entries are asked for by the protocol, blocks and bodies by the host. Both questions leave at once: one round trip.

use super::entries::Origin;
use super::entry::{Entry, EntryRef};
use super::message::UniqueMessage;
use super::replica::{Form, Timer, UniqueChain};
use quorate_consensus::{Cx, To};
use quorate_types::{Digest, ReplicaId, ReplicaSet, Time, View};
use std::collections::BTreeMap;

/// Entries whose blocks may be on their way at most. For one more they are asked for at once.
const LATE_MAX: usize = 256;

/// Entries whose blocks are asked for later, because they may be on their way.
#[derive(Debug, Default)]
pub(super) struct LateFetches(BTreeMap<Digest, (Time, ReplicaSet)>);

impl<F: Form> UniqueChain<F> {
    /// Fetches from a peer what an entry lacks. U7: if the entry is the author's own copy, the wait of its round lasts long
    /// enough for the answer. For entries that another replica hands on it does not: that replica may never answer.
    pub(super) fn fetch(&mut self, cx: &mut Cx<'_, Self>, id: Digest, link: ReplicaId, origin: Origin) {
        let Some(entry) = self.entries.get(id).map(|frame| frame.entry.clone()) else { return };
        if link == cx.me() || origin == Origin::Answer {
            return;
        }
        if let Some((parent, child)) = self.entries.missing_ancestor(id) {
            self.ask_for_path(cx, parent, child, link);
        }
        let is_in_flight = origin == Origin::Author && self.entries.is_accepted(entry.parent());
        if is_in_flight && self.late_fetches.0.len() < LATE_MAX {
            let due = cx.now().plus(self.delta.quarter());
            let (_, peers) = self.late_fetches.0.entry(id).or_insert((due, ReplicaSet::EMPTY));
            peers.insert(link);
            self.arm_fetch(cx);
        } else {
            F::fetch(self, cx, std::slice::from_ref(&entry), link);
        }
        if origin == Origin::Author && link == entry.author() && entry.round() == self.round.number {
            self.grant_grace(cx);
        }
    }

    /// Fetches from a peer what the entries of its answer lack, with one question for all. They are of one chain, lowest rounds
    /// first.
    pub(super) fn fetch_together(&mut self, cx: &mut Cx<'_, Self>, places: &[EntryRef], link: ReplicaId) {
        let lacking = places.iter().filter(|place| !self.entries.is_accepted(**place));
        let entries: Vec<F::Entry> =
            lacking.filter_map(|place| self.entries.get(place.id)).map(|frame| frame.entry.clone()).collect();
        let Some(last) = entries.last() else { return };
        if let Some((parent, child)) = self.entries.missing_ancestor(last.id()) {
            self.ask_for_path(cx, parent, child, link);
        }
        F::fetch(self, cx, &entries, link);
    }

    /// Asks a peer for the entries on the path to one, unless it was asked for the same just now.
    pub(super) fn ask_for_path(&mut self, cx: &mut Cx<'_, Self>, of: EntryRef, child: View, link: ReplicaId) {
        let EntryRef { round, id } = of;
        self.entries.want(id, child, link);
        let now = cx.now();
        let asked = self.inbox.asked.get(&link);
        let is_new = asked.is_none_or(|(known, at)| *known != id || now >= at.plus(self.delta.times(1)));
        if is_new && link != cx.me() {
            self.inbox.asked.insert(link, (id, now));
            let above = self.entries.base().round.min(round.minus(1));
            cx.send_unheld(To::One(link), UniqueMessage::Want { id, above });
        }
    }

    /// Asks for the blocks and bodies that were on their way for too long.
    pub(super) fn on_fetch_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let due: Vec<Digest> =
            self.late_fetches.0.iter().filter(|(_, (at, _))| *at <= now).map(|(id, _)| *id).collect();
        for id in due {
            let Some((_, peers)) = self.late_fetches.0.remove(&id) else { continue };
            let Some(entry) = self.entries.get(id).map(|frame| frame.entry.clone()) else { continue };
            if !self.entries.is_accepted(entry.place()) {
                peers.iter().for_each(|peer| F::fetch(self, cx, std::slice::from_ref(&entry), peer));
            }
        }
        self.arm_fetch(cx);
    }

    /// Ends the fetch of an entry that is accepted.
    pub(super) fn end_fetch(&mut self, cx: &mut Cx<'_, Self>, id: Digest) {
        if self.late_fetches.0.remove(&id).is_some() {
            self.arm_fetch(cx);
        }
    }

    fn arm_fetch(&mut self, cx: &mut Cx<'_, Self>) {
        match self.late_fetches.0.values().map(|(due, _)| *due).min() {
            Some(due) => cx.timers().set(Timer::Fetch, due),
            None => cx.timers().cancel(Timer::Fetch),
        }
    }
}
