//! What is missing before a header can be voted for: bodies, and a certificate of its parent (§4 `want`, §7).
//!
//! Each is asked for a quarter of Δ after its header was first seen, of the leader and of everybody who shows that header:
//! who has voted for it has both. One who does not answer holds up nobody else, and one who had neither yet when it was
//! asked (it may show a header that it cannot vote for) is asked again when it votes: within Δ of that vote all have to
//! (§8, Lemma 1 a).

use super::message::SyncMessage;
use super::normal::End;
use super::words::leader;
use super::{SyncHotStuff, Timer, Variant};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Cx, Reject, To};
use quorate_types::{BlockId, Height, ReplicaId, ReplicaSet, Time, View};

/// A block that cannot be voted for yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    height: Height,
    /// From when on it is asked for.
    due: Time,
    /// Who has shown it.
    shown: ReplicaSet,
    /// Who was asked for a certificate of its parent, since it has voted if it has; bodies are asked for as often as one
    /// likes.
    asked: ReplicaSet,
}

impl<V: Variant> SyncHotStuff<V> {
    /// Somebody has shown a block.
    pub(super) fn mention(&mut self, cx: &mut Cx<'_, Self>, block: End, link: ReplicaId) {
        let due = cx.now().plus(self.delta.quarter());
        self.mention_until(cx, block, link, due);
    }

    /// The same, asked for from then on.
    pub(super) fn mention_until(
        &mut self,
        cx: &mut Cx<'_, Self>,
        (height, id): End,
        link: ReplicaId,
        due: Time,
    ) {
        if link == cx.me() || self.is_complete(cx, id) {
            return self.note_here(cx, id);
        }
        let fresh = Missing { height, due, shown: ReplicaSet::EMPTY, asked: ReplicaSet::EMPTY };
        let now = cx.now();
        let missing = self.missing.entry(id).or_insert(fresh);
        missing.shown.insert(link);
        if due < missing.due && due <= now {
            // There is no time any more to wait for whoever has shown it before.
            missing.due = due;
            self.ask_shown(cx, id);
        } else if missing.due <= now {
            self.ask_for(cx, id, link);
        }
        self.arm_fetch(cx);
    }

    /// S2. §7: whoever votes for a block has by now what it may have lacked when it was asked.
    pub(super) fn forget_asked(&mut self, id: BlockId, voter: ReplicaId) {
        if let Some(missing) = self.missing.get_mut(&id) {
            missing.asked.remove(voter);
        }
    }

    /// Something of a block has come: what lacks nothing is asked for no more.
    pub(super) fn note_here(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.missing.contains_key(&id) && self.is_complete(cx, id) {
            self.missing.remove(&id);
            self.arm_fetch(cx);
        }
    }

    fn is_complete(&self, cx: &mut Cx<'_, Self>, id: BlockId) -> bool {
        !Self::lacks_body(cx, id) && self.uncertified_parent(cx.blocks(), id).is_none()
    }

    /// Also of what is decided: it has to be executed.
    fn lacks_body(cx: &Cx<'_, Self>, id: BlockId) -> bool {
        id != BlockId::ZERO && cx.ready(id).is_none()
    }

    pub(super) fn on_fetch_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        let due = self.missing.iter().filter(|(_, missing)| missing.due <= now);
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.is_complete(cx, id) {
                self.missing.remove(&id);
            } else {
                self.ask_shown(cx, id);
            }
        }
        self.arm_fetch(cx);
    }

    /// Asks the leader and all who have shown a block.
    fn ask_shown(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        let (first, me) = (leader(cx.committee(), self.view), cx.me());
        let shown = self.missing.get(&id).map(|missing| missing.shown).unwrap_or_default();
        let peers = std::iter::once(first).chain(shown.iter()).filter(|peer| *peer != me);
        peers.for_each(|peer| self.ask_for(cx, id, peer));
    }

    /// Asks a peer for what is missing of a block.
    fn ask_for(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, peer: ReplicaId) {
        if Self::lacks_body(cx, id) {
            cx.want(id, peer);
        }
        if let Some((height, block)) = self.uncertified_parent(cx.blocks(), id)
            && self.missing.get_mut(&id).is_some_and(|missing| missing.asked.insert(peer))
        {
            cx.send_unheld(To::One(peer), SyncMessage::Lack { view: self.view, height, block });
        }
    }

    /// The parent of a block of this view that could be voted for, if no certificate of this view says so.
    fn uncertified_parent(&self, blocks: &BlockTree, id: BlockId) -> Option<End> {
        let block = blocks.get(id).filter(|block| block.view == self.view)?;
        let parent = (block.height.minus(1), block.parent);
        let is_settled = block.height <= self.chain.committed().height;
        (!is_settled && !self.is_certified(blocks, parent)).then_some(parent)
    }

    /// Forgets what lies at or below a settled height, but for bodies that nobody was asked for yet: what q_R votes have
    /// decided has to be executed.
    pub(super) fn settle_missing(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        let now = cx.now();
        self.missing.retain(|_, missing| missing.height > height || missing.due > now);
        self.lent = self.lent.split_off(&height);
    }

    fn arm_fetch(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        match self.missing.values().map(|missing| missing.due).filter(|due| *due > now).min() {
            Some(due) => cx.timers().set(Timer::Fetch, due),
            None => cx.timers().cancel(Timer::Fetch),
        }
    }

    /// A peer cannot vote for what this replica may have voted for: once for each height it is shown why it can.
    pub(super) fn on_lack(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        view: View,
        parent: End,
    ) -> Result<(), Reject> {
        if view != self.view {
            return Err(Reject::Stale);
        }
        let is_here = self.chain.tip(cx.blocks(), parent.1).is_some_and(|tip| tip.height == parent.0);
        if !is_here || self.heard.at(parent.0).is_some_and(|(id, _)| *id != parent.1) {
            return Err(Reject::NotNow("not on what is voted for here"));
        }
        let blocks: &BlockTree = cx.blocks();
        let found = self.certificate_from(blocks, view, parent).cloned();
        let Some(certificate) = found else { return Err(Reject::NotNow("not certified here either")) };
        if !self.lent.entry(parent.0).or_default().insert(link) {
            return Err(Reject::Duplicate);
        }
        cx.send_unheld(To::One(link), SyncMessage::Certified(certificate));
        Ok(())
    }
}
