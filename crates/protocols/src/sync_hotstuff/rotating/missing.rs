//! What is missing of blocks that are voted for or certified (§4 `want`, §7): asked for a quarter of Δ after they were first
//! heard of, of the leader and of everybody who has shown them. One who does not answer holds up nobody else.

use super::{RotatingSyncHotStuff, Timer};
use quorate_consensus::{Certificate, Cx};
use quorate_types::{BlockId, ReplicaId, ReplicaSet, Time};
use std::collections::BTreeSet;

/// A block that is not ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    /// From when on it is asked for.
    due: Time,
    /// Whether it was.
    is_asked: bool,
    /// Who has it, as far as anybody says.
    shown: ReplicaSet,
}

impl RotatingSyncHotStuff {
    /// Somebody has shown a block. Its bodies are on their way, if all goes well.
    pub(super) fn mention(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, by: ReplicaId) {
        let due = cx.now().plus(self.delta.quarter());
        self.mention_until(cx, id, by, due);
    }

    /// What is certified is asked for of those who have voted for it: an honest one is among them. At once, but where its header
    /// is here: then its bodies are on their way, as with any block that somebody has shown.
    pub(super) fn take_up_certified(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let id = certificate.block();
        if cx.blocks().get(id).is_none() {
            return self.want_certified(cx, certificate);
        }
        let shown = self.missing.get(&id).map_or(ReplicaSet::EMPTY, |missing| missing.shown);
        for by in certificate.signers.iter().filter(|by| !shown.contains(*by)) {
            self.mention(cx, id, by);
        }
    }

    /// At once, whatever is here of it.
    pub(super) fn want_certified(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let now = cx.now();
        for by in certificate.signers.iter() {
            self.mention_until(cx, certificate.block(), by, now);
        }
    }

    fn mention_until(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, by: ReplicaId, due: Time) {
        if by == cx.me() || self.ready(cx, id).is_some() {
            return self.note_here(cx, id);
        }
        let is_due = due <= cx.now();
        let fresh = Missing { due, is_asked: false, shown: ReplicaSet::EMPTY };
        let missing = self.missing.entry(id).or_insert(fresh);
        let is_first = missing.shown.is_empty();
        missing.shown.insert(by);
        missing.due = missing.due.min(due);
        if missing.is_asked || (is_due && is_first) {
            missing.is_asked = true;
            // Also who was asked before: it may have shown a header whose bodies it lacked, and votes now (§8, Lemma 1 a).
            Self::want(cx, id, by);
        } else if is_due {
            // There is no time any more to wait for whoever has shown it before.
            self.ask_shown(cx, id);
        }
        self.arm_fetch(cx);
    }

    /// Asks all who have shown a block: once, and whoever shows it later when it does.
    fn ask_shown(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if let Some(missing) = self.missing.get_mut(&id) {
            missing.is_asked = true;
            missing.shown.iter().for_each(|peer| Self::want(cx, id, peer));
        }
    }

    /// What this block rests on is certified now: it is asked for, if it is time.
    pub(super) fn ask_late(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.missing.get(&id).is_some_and(|missing| missing.is_asked) && self.ready(cx, id).is_none() {
            self.ask_shown(cx, id);
        }
        self.note_here(cx, id);
    }

    /// What rests on nothing that is certified is not fetched.
    fn want(cx: &mut Cx<'_, Self>, id: BlockId, peer: ReplicaId) {
        if !cx.blocks().is_bare(id) {
            cx.want(id, peer);
        }
    }

    /// What is here is asked for no more.
    pub(super) fn note_here(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.missing.contains_key(&id) && self.ready(cx, id).is_some() {
            self.missing.remove(&id);
            self.arm_fetch(cx);
        }
    }

    pub(super) fn on_fetch_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let due = self.missing.iter().filter(|(_, missing)| !missing.is_asked && missing.due <= now);
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.ready(cx, id).is_some() {
                self.missing.remove(&id);
            } else {
                self.ask_shown(cx, id);
            }
        }
        self.arm_fetch(cx);
    }

    /// Forgets what no view that is remembered speaks of: so it holds no more than those.
    pub(super) fn settle_missing(&mut self) {
        if self.missing.is_empty() {
            return;
        }
        let heads = self.views.values().filter_map(|heard| heard.first.as_ref().map(|(id, _)| *id));
        let certified = self.certificates.down().map(Certificate::block);
        let matters: BTreeSet<BlockId> = heads.chain(certified).collect();
        self.missing.retain(|id, _| matters.contains(id));
    }

    fn arm_fetch(&mut self, cx: &mut Cx<'_, Self>) {
        // Also what is due and was not asked for yet: something else may come first.
        match self.missing.values().filter(|missing| !missing.is_asked).map(|missing| missing.due).min() {
            Some(due) => cx.timers().set(Timer::Fetch, due),
            None => cx.timers().cancel(Timer::Fetch),
        }
    }
}
