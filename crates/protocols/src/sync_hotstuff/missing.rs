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
    /// Whether it was.
    is_asked: bool,
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
        let (shown, asked) = (ReplicaSet::EMPTY, ReplicaSet::EMPTY);
        let fresh = Missing { height, due, is_asked: false, shown, asked };
        let is_due = due <= cx.now();
        let missing = self.missing.entry(id).or_insert(fresh);
        let is_first = missing.shown.is_empty();
        missing.shown.insert(link);
        missing.due = missing.due.min(due);
        if missing.is_asked || (is_due && is_first) {
            missing.is_asked = true;
            self.ask_for(cx, id, link);
        } else if is_due {
            // There is no time any more to wait for whoever has shown it before.
            self.ask_shown(cx, id);
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
        let due = self.missing.iter().filter(|(_, missing)| !missing.is_asked && missing.due <= now);
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.is_complete(cx, id) {
                self.missing.remove(&id);
            } else {
                self.ask_shown(cx, id);
            }
        }
        self.arm_fetch(cx);
    }

    /// Asks the leader and all who have shown a block: once, and whoever shows it later when it does.
    fn ask_shown(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        let Some(missing) = self.missing.get_mut(&id) else { return };
        missing.is_asked = true;
        let mut peers = missing.shown;
        peers.insert(leader(cx.committee(), self.view));
        peers.remove(cx.me());
        peers.iter().for_each(|peer| self.ask_for(cx, id, peer));
    }

    /// What this block rests on is certified now: its bodies are asked for, if it is time.
    pub(super) fn ask_late(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.missing.get(&id).is_some_and(|missing| missing.is_asked) {
            self.ask_shown(cx, id);
        }
    }

    /// Asks a peer for what is missing of a block.
    fn ask_for(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, peer: ReplicaId) {
        // What rests on nothing that is certified may be made up, and all that a liar says lies below it: nobody fetches that.
        let uncertified = self.uncertified_parent(cx.blocks(), id);
        if uncertified.is_none() && Self::lacks_body(cx, id) {
            cx.want(id, peer);
        }
        if let Some((height, block)) = uncertified
            && self.missing.get_mut(&id).is_some_and(|missing| missing.asked.insert(peer))
        {
            cx.send_unheld(To::One(peer), SyncMessage::Lack { view: self.view, height, block });
        }
    }

    /// The parent of a block of this view that could be voted for, if no certificate of this view says so.
    pub(super) fn uncertified_parent(&self, blocks: &BlockTree, id: BlockId) -> Option<End> {
        let block = blocks.get(id).filter(|block| block.view == self.view)?;
        let parent = (block.height.minus(1), block.parent);
        let is_settled = block.height <= self.chain.committed().height;
        (!is_settled && !self.is_certified(blocks, parent)).then_some(parent)
    }

    /// Forgets what lies at or below a settled height, but for bodies that nobody was asked for yet: what q_R votes have
    /// decided has to be executed.
    pub(super) fn settle_missing(&mut self, height: Height) {
        self.missing.retain(|_, missing| missing.height > height || !missing.is_asked);
        self.lent = self.lent.split_off(&height);
    }

    fn arm_fetch(&mut self, cx: &mut Cx<'_, Self>) {
        // Also what is due and was not asked for yet: something else may come first.
        match self.missing.values().filter(|missing| !missing.is_asked).map(|missing| missing.due).min() {
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
        if view != self.view || parent.0 < self.chain.committed().height {
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
