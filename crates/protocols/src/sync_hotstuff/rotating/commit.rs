//! What is committed, and when (§8, §11, 4 to 6): 2 Δ after the own vote was with all, if its view followed on a certified
//! one and nothing has shown that its leader lies or is replaced.

use super::super::message::VOTE;
use super::heard::OwnVote;
use super::message::RotatingMessage;
use super::words::Header;
use super::{COMMITTED_MAX, IDLE_TOGETHER, RotatingSyncHotStuff, Timer, VIEWS_KEPT_MAX, noted};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{Ancestry, Below, Tip};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Alarm, Commit, Cx, Ready, Signed, To};
use quorate_types::{BlockId, Time, View};

impl RotatingSyncHotStuff {
    /// R10. §11, 5 and 6: the own vote is durable and on its way to all, so 2 Δ from now everything that contradicts it is
    /// here. It may be that the view has been left meanwhile: by a certificate, which ends no wait.
    pub(super) fn wait_for_silence(&mut self, cx: &mut Cx<'_, Self>, view: View, id: BlockId) {
        let Some(heard) = self.views.get_mut(&view) else { return };
        let Some((_, header)) = heard.first.as_ref().filter(|(first, _)| *first == id) else { return };
        if heard.vote != OwnVote::Cast {
            return;
        }
        heard.vote = OwnVote::None;
        // R9. §11, 4: where a view was left out, somebody honest may be locked higher and refuse.
        let follows = header.body.parent_view.next() == view;
        // §18: what contradicts a vote that was only said again may have come while nobody listened.
        let may = self.returning.standing() == Standing::Running && view > self.resaid;
        let is_open = header.body.block.height > self.chain.committed().height;
        if follows && may && is_open && !heard.is_broken {
            heard.vote = OwnVote::Waits;
            let is_with_all = self.certificates.is_shown(view, id);
            self.waits.begin(cx.now(), Time::ZERO, view, is_with_all);
            self.waits.arm(cx, Timer::Commit);
        }
    }

    /// R10. Who has left a view by the certificate of its block before the header came votes for nothing there. It shows the header
    /// to all instead: as by a vote whoever goes on to vote in that view knows of it within Δ, and whoever has voted for another
    /// one is heard within 2 Δ. One liar could let every certificate come before its header, and this replica would never commit.
    pub(super) fn wait_without_vote(&mut self, cx: &mut Cx<'_, Self>) {
        if self.returning.standing() != Standing::Running {
            return;
        }
        // What is waited for in a later view commits what lies below it.
        let no_later =
            self.views.range(..=self.view).rev().take_while(|(_, heard)| heard.vote == OwnVote::None);
        let left = no_later.filter(|(view, heard)| !heard.is_out && (self.began..self.view).contains(view));
        for view in left.map(|(view, _)| *view).collect::<Vec<View>>() {
            if let Some(header) = self.left_without_vote(cx, view) {
                if let Some(heard) = self.views.get_mut(&view) {
                    (heard.vote, heard.is_out) = (OwnVote::Waits, true);
                }
                cx.send_unheld(To::All, RotatingMessage::Show(header));
                self.waits.begin(cx.now(), Time::ZERO, view, true);
                return self.waits.arm(cx, Timer::Commit);
            }
        }
    }

    /// The header of a view that was left, if silence may commit it (R9 to R12): of the certificate by which it was left.
    fn left_without_vote(&self, cx: &mut Cx<'_, Self>, view: View) -> Option<Signed<Header>> {
        let heard = self.views.get(&view).filter(|heard| !heard.is_broken)?;
        let (id, header) = heard.first.as_ref()?;
        let block = &header.body.block;
        let may = header.body.parent_view.next() == view
            && block.height > self.chain.committed().height
            && self.certificates.is_shown(view, *id)
            && self.may_vote(cx, block.height)
            && self.ready(cx, *id) == Some(Ready::Valid)
            && self.chain.ancestry(cx.blocks(), Tip::of(block, *id)) == Ancestry::Extends;
        may.then(|| header.clone())
    }

    /// R12. §8, Lemma 1 c: of what was voted for all have a certificate by the time that they may leave its view without one.
    pub(super) fn show_certified(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        for view in self.waits.to_show(now) {
            let first = self.views.get(&view).and_then(|heard| heard.first.as_ref()).map(|(id, _)| *id);
            let own = first.and_then(|id| self.certificates.get(view, id)).cloned();
            if own.is_some() || self.is_certified(cx.blocks(), view) {
                let certificate = own.unwrap_or_else(|| self.certificates.highest().clone());
                self.show(cx, &certificate);
                self.waits.note_with_all(now, |of| of == view);
            }
        }
    }

    /// R11. §11, 5: silence says nothing in this view any more.
    pub(super) fn stop_waiting(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        if let Some(heard) = self.heard_in(view, 0) {
            heard.is_broken = true;
            heard.vote = OwnVote::None;
        }
        // R6. §4: a disk may stall for as long as it likes. The vote would leave after what contradicts it was heard.
        cx.withdraw(VOTE, view);
        self.waits.retain(|of| of != view);
        self.waits.arm(cx, Timer::Commit);
        if view < self.view {
            // R6. §19: it may have been the last wait that was not in vain.
            self.try_vote(cx);
        }
    }

    pub(super) fn on_commit_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.show_certified(cx);
        while let Some(wait) = self.waits.next_over() {
            // R12. §8: with Δ kept there is a certificate by now; without one there would be nothing to show after a cold
            // start.
            let goes = if wait.is_with_all() {
                self.waits.hold(wait)
            } else {
                self.doubt(cx, "a commit timer ended without a certificate");
                Some(wait.of)
            };
            if let Some(view) = goes {
                self.forget_wait(view);
            }
        }
        self.waits.arm(cx, Timer::Commit);
        self.commit_waits(cx);
        // R6. §19: what has ended without a commit may have been the last wait that was not in vain.
        self.try_vote(cx);
    }

    pub(super) fn forget_wait(&mut self, view: View) {
        if let Some(heard) = self.views.get_mut(&view) {
            heard.vote = OwnVote::None;
        }
    }

    /// Whether the first header of a view has a certificate, its own or that of a block above it.
    fn is_certified(&self, blocks: &BlockTree, view: View) -> bool {
        let Some((id, header)) = self.views.get(&view).and_then(|heard| heard.first.as_ref()) else {
            return false;
        };
        if self.certificates.get(view, *id).is_some() {
            return true;
        }
        let highest = self.chain.tip(blocks, self.certificates.highest().block());
        let tip = Tip::of(&header.body.block, *id);
        highest.is_some_and(|highest| self.chain.extends(blocks, highest, tip.end()) == Some(true))
    }

    /// The highest block whose time is over and of which the guard thinks well.
    pub(super) fn commit_waits(&mut self, cx: &mut Cx<'_, Self>) {
        for wait in self.waits.held() {
            let first = self.views.get(&wait.of).and_then(|heard| heard.first.as_ref());
            let Some(tip) = first.map(|(id, header)| Tip::of(&header.body.block, *id)) else { continue };
            let Some(worth) = self.worth_committing(cx.blocks(), tip) else { continue };
            if self.waits.is_sound(cx, &wait) {
                return self.commit(cx, worth);
            }
        }
    }

    /// The highest block up to this one that is worth committing: what carries nothing is committed with what follows, or a few
    /// of them together, so that all replicas stop at the same height where nobody wants anything.
    fn worth_committing(&self, blocks: &BlockTree, tip: Tip) -> Option<Tip> {
        let mut at = tip;
        while self.is_empty(blocks, at.id) && !at.height.0.is_multiple_of(IDLE_TOGETHER) {
            match self.chain.below(blocks, at) {
                Below::Block(parent) => at = parent,
                Below::Settled(_) => return None,
                // Something is missing: `commit` says what becomes of it.
                Below::Missing(_) => return Some(tip),
            }
        }
        (at.height > self.chain.committed().height).then_some(at)
    }

    /// §8: a block is committed with its ancestors, on the committed chain.
    fn commit(&mut self, cx: &mut Cx<'_, Self>, tip: Tip) {
        let committed = self.chain.committed();
        match self.chain.ancestry(cx.blocks(), tip) {
            Ancestry::Extends => {
                cx.commit(Commit::Chain(tip.id));
                self.note(cx, noted::COMMITTED, tip.height);
                self.relied_on.insert(tip.view, tip.id);
                while self.relied_on.len() > COMMITTED_MAX {
                    self.relied_on.pop_first();
                }
                self.adopt_tip(cx, tip);
            }
            Ancestry::Conflicts(second) => {
                cx.alarm(Alarm::SafetyBroken { height: committed.height, first: committed.id, second });
            }
            Ancestry::Unknown(_) => {} // `on_ready` comes back here.
        }
    }

    /// The committed end moves on, by whatever rule.
    pub(super) fn adopt_tip(&mut self, cx: &mut Cx<'_, Self>, tip: Tip) {
        if tip.height > self.chain.committed().height {
            self.chain.commit(tip);
            self.settle(cx);
            // What was too high to be voted for may not be any more.
            self.try_vote(cx);
        }
    }

    /// Something was decided without this replica's own rules.
    pub(super) fn adopt(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(tip) = self.chain.decided(cx.blocks()) {
            self.adopt_tip(cx, tip);
        }
    }

    /// Forgets what nothing waits for any more.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        let committed = self.chain.committed().height;
        let near = self.view.minus(self.near);
        for heard in self.views.values_mut() {
            let height = heard.first.as_ref().map(|(_, header)| header.body.block.height);
            if height.is_none_or(|height| height <= committed) {
                heard.vote = OwnVote::None;
            }
        }
        self.views.retain(|view, heard| *view >= near || heard.vote != OwnVote::None);
        while self.views.len() > VIEWS_KEPT_MAX {
            self.views.pop_first();
        }
        let views = &self.views;
        self.waits.retain(|of| views.get(&of).is_some_and(|heard| heard.vote == OwnVote::Waits));
        let low = self.lock.view().min(near);
        self.certificates.retain(|view| view >= low || views.contains_key(&view));
        self.settle_missing();
        self.waits.arm(cx, Timer::Commit);
    }

    /// §13: a timer has relied on that nothing would be said in this view beside what it has committed. It may be a leader
    /// that lies late.
    pub(super) fn check_silence(&self, cx: &mut Cx<'_, Self>, view: View, said: Option<BlockId>) {
        if let Some(id) = self.relied_on.get(&view)
            && said != Some(*id)
        {
            self.doubt(cx, "a view in which a timer has committed was contradicted");
        }
    }

    /// The bound on delays has not held, or somebody lies about it. Said aloud; nothing else follows (§13).
    fn doubt(&self, cx: &mut Cx<'_, Self>, why: &'static str) {
        cx.alarm(Alarm::SynchronyDoubt { view: self.view, peer: None, why });
    }
}
