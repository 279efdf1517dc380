//! Chains that conflict with the committed entry (`apollo` §12). They exist only if the bound on delays was broken, or more than
//! f replicas are faulty.
//!
//! Signatures and skip certificates alone show such a chain: bodies are not needed. A late entry of a round that is over may be
//! the first sign of it, so its path is asked for.

use super::entries::Origin;
use super::entry::{Entry, EntryRef};
use super::message::UniqueMessage;
use super::replica::{Form, UniqueChain};
use super::store::SERVED_ROUNDS;
use quorate_consensus::{Alarm, Cx, To};
use quorate_types::{BlockId, Digest, ReplicaId, ReplicaSet, Time, View};
use std::collections::BTreeMap;

/// The late entry of each peer whose path is being checked.
#[derive(Debug, Default)]
pub(super) struct Suspects(BTreeMap<ReplicaId, (Digest, Time)>);

impl<F: Form> UniqueChain<F> {
    /// Whether an entry of a round that is over is worth a check: its author has sent it itself, or it is the tip of a proof, and
    /// its peer has no other one under check since Δ.
    pub(super) fn suspects(
        &mut self,
        cx: &Cx<'_, Self>,
        place: EntryRef,
        link: ReplicaId,
        origin: Origin,
    ) -> bool {
        let (base, now) = (self.entries.base(), cx.now());
        if self.entries.is_wanted(place.id) {
            return true;
        }
        let is_recent = place.round > base.round.minus(SERVED_ROUNDS);
        let known = self.signs.suspects.0.get(&link);
        let is_free =
            known.is_none_or(|(id, since)| *id == place.id || now >= since.plus(self.delta.times(1)));
        let is_shown = !matches!(origin, Origin::Fetched | Origin::Answer) && link != cx.me();
        let is_worth_it = is_shown && is_recent && is_free && self.is_beside(place);
        if is_worth_it {
            self.signs.suspects.0.insert(link, (place.id, now));
        }
        is_worth_it
    }

    /// U12. §8, §12: stops this replica if an entry shows that safety is broken. Its path branches off below the committed entry,
    /// and f + 1 distinct authors are on the branch, or its round is as high as that of the entry that has committed.
    pub(super) fn check_conflict(&mut self, cx: &mut Cx<'_, Self>, id: Digest, link: ReplicaId) {
        let Some(place) = self.entries.get(id).map(|frame| frame.entry.place()) else { return };
        let base = self.entries.base();
        let (mut at, mut own, mut child) = (place, base, place.round);
        let (mut authors, mut lowest) = (ReplicaSet::EMPTY, None);
        loop {
            while own.round > at.round {
                let Some(frame) = self.entries.get(own.id) else { return };
                own = frame.entry.parent();
            }
            if own == at {
                break;
            }
            let Some(frame) = self.entries.get(at.id) else {
                if at.round.plus(SERVED_ROUNDS) > base.round {
                    self.ask_for_path(cx, at, child, link);
                }
                return;
            };
            if frame.entry.place() != at {
                return;
            }
            authors.insert(frame.entry.author());
            lowest = Some(F::block(&frame.entry));
            (at, child) = (frame.entry.parent(), at.round);
        }
        let Some(second) = lowest.filter(|_| at != base) else { return };
        let is_late = self.committed_by.is_some_and(|by| place.round >= by);
        if is_late || authors.len() >= cx.committee().weak() {
            self.break_safety(cx, second);
        }
    }

    /// Whether an entry is of a round that is over, and not on the own chain. Without that chain nothing can be compared.
    pub(super) fn is_beside(&self, place: EntryRef) -> bool {
        place.round <= self.entries.base().round && self.is_ancestor_of_base(place) == Some(false)
    }

    /// Shows the committed entry to a peer that has shown an entry beside it. The peer may need it as a proof, and a stopped
    /// replica answers no question.
    pub(super) fn show_base(&self, cx: &mut Cx<'_, Self>, link: ReplicaId) {
        if let Some(frame) = self.entries.get(self.entries.base().id) {
            cx.send_unheld(To::One(link), UniqueMessage::Entries { entries: vec![frame.clone()] });
        }
    }

    /// Whether the committed entry extends this one; `None` where its path is not kept.
    fn is_ancestor_of_base(&self, entry: EntryRef) -> Option<bool> {
        let mut at = self.entries.base();
        while at.round > entry.round {
            at = self.entries.get(at.id)?.entry.parent();
        }
        Some(at == entry)
    }

    /// U17. §12: reports that an own round between these two was skipped although its entry was signed in time. Either the bound
    /// on delays is broken, or more than f replicas are faulty.
    pub(super) fn note_skipped(&mut self, cx: &mut Cx<'_, Self>, after: View, before: View) {
        let Some(own) = &mut self.own else { return };
        let round = own.entry.round();
        if after < round && round < before && std::mem::take(&mut own.is_fresh) {
            let why = "a round of this replica was skipped although it had signed its entry";
            cx.alarm(Alarm::SynchronyDoubt { view: round, peer: None, why });
        }
    }

    pub(super) fn break_safety(&mut self, cx: &mut Cx<'_, Self>, second: BlockId) {
        let committed = self.chain.committed();
        cx.alarm(Alarm::SafetyBroken { height: committed.height, first: committed.id, second });
    }
}
