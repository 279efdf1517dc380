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
    /// Who has it, as far as anybody says.
    shown: ReplicaSet,
}

impl RotatingSyncHotStuff {
    /// Somebody has shown a block. Its bodies are on their way, if all goes well.
    pub(super) fn mention(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, by: ReplicaId) {
        let due = cx.now().plus(self.delta.quarter());
        self.mention_until(cx, id, by, due);
    }

    /// What is certified is asked for at once, of those who have voted for it: an honest one is among them.
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
        let now = cx.now();
        let missing = self.missing.entry(id).or_insert(Missing { due, shown: ReplicaSet::EMPTY });
        missing.shown.insert(by);
        if due < missing.due && due <= now {
            // There is no time any more to wait for whoever has shown it before.
            missing.due = due;
            let shown = missing.shown;
            shown.iter().for_each(|peer| cx.want(id, peer));
        } else if missing.due <= now {
            // Also who was asked before: it may have shown a header whose bodies it lacked, and votes now (§8, Lemma 1 a).
            cx.want(id, by);
        }
        self.arm_fetch(cx);
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
        let due = self.missing.iter().filter(|(_, missing)| missing.due <= now);
        for (id, missing) in due.map(|(id, missing)| (*id, *missing)).collect::<Vec<_>>() {
            if self.ready(cx, id).is_some() {
                self.missing.remove(&id);
            } else {
                missing.shown.iter().for_each(|peer| cx.want(id, peer));
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
        let now = cx.now();
        match self.missing.values().map(|missing| missing.due).filter(|due| *due > now).min() {
            Some(due) => cx.timers().set(Timer::Fetch, due),
            None => cx.timers().cancel(Timer::Fetch),
        }
    }
}
