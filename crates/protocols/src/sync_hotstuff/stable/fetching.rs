//! Missing parts of a block before it can be voted for: bodies, and a certificate of its parent (§4 `want`, §7).
//!
//! Both are asked for of the leader and of every replica that shows the header: a replica that has voted for it has both. A
//! replica that lacked them when it was asked is asked again when it votes. Every replica must vote within Δ of that vote
//! (§8, Lemma 1 a).

use super::super::replica::{End, SyncHotStuff};
use super::message::SyncMessage;
use super::variant::Variant;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Cx, Reject, To};
use quorate_types::{BlockId, ReplicaId, View};

impl<V: Variant> SyncHotStuff<V> {
    /// S2. §7: a voter for a block has by now the parts that it may have lacked when it was asked.
    pub(super) fn forget_asked(&mut self, id: BlockId, voter: ReplicaId) {
        if let Some(fetch) = self.in_view.fetches.0.get_mut(&id) {
            fetch.asked_for_certificate.remove(voter);
        }
    }

    /// Whether bodies of a block are missing. Bodies of decided blocks count: they have to be executed.
    pub(super) fn lacks_body(cx: &Cx<'_, Self>, id: BlockId) -> bool {
        id != BlockId::ZERO && cx.ready(id).is_none()
    }

    /// Asks for the bodies of a block again if it was asked for before: its parent is certified now.
    pub(super) fn ask_late(&mut self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.in_view.fetches.is_asked(id) {
            self.ask_holders(cx, id);
        }
    }

    /// Asks a peer for the missing parts of a block.
    pub(super) fn ask_for_parts(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, peer: ReplicaId) {
        // A block above nothing certified may be made up, with all its ancestors: its bodies are not fetched.
        let uncertified = self.uncertified_parent(cx.blocks(), id);
        if uncertified.is_none() && Self::lacks_body(cx, id) {
            cx.want(id, peer);
        }
        if let Some((height, block)) = uncertified
            && let Some(fetch) = self.in_view.fetches.0.get_mut(&id)
            && fetch.asked_for_certificate.insert(peer)
        {
            cx.send_unheld(To::One(peer), SyncMessage::Lack { view: self.view, height, block });
        }
    }

    /// Returns the parent of a block of this view, if no certificate of this view proves that the block may be voted for.
    pub(super) fn uncertified_parent(&self, blocks: &BlockTree, id: BlockId) -> Option<End> {
        let block = blocks.get(id).filter(|block| block.view == self.view)?;
        let parent = (block.height.minus(1), block.parent);
        let is_settled = block.height <= self.chain.committed().height;
        (!is_settled && !self.is_certified(blocks, parent)).then_some(parent)
    }

    /// Sends a peer the certificate that it lacks to vote for a block, once for each height.
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
        let is_known = self.chain.tip(cx.blocks(), parent.1).is_some_and(|tip| tip.height == parent.0);
        if !is_known || self.in_view.statements.at(parent.0).is_some_and(|(id, _)| *id != parent.1) {
            return Err(Reject::NotNow("this replica votes for no block above that one"));
        }
        let found = self.certificate_from(cx.blocks(), view, parent).cloned();
        let Some(certificate) = found else {
            return Err(Reject::NotNow("this replica has no certificate of that block either"));
        };
        if !self.in_view.certificates_sent.entry(parent.0).or_default().insert(link) {
            return Err(Reject::Duplicate);
        }
        cx.send_unheld(To::One(link), SyncMessage::Certified(certificate));
        Ok(())
    }
}
