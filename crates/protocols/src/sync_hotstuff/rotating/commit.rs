//! Commits and their times (§8, §11, 4 to 6): 2 Δ after all have the own vote, if its view followed a certified one and no
//! statement shows that its leader equivocates or is replaced.

use super::super::replica::{SyncHotStuff, Timer, noted};
use super::super::statements::VOTE;
use super::header::Header;
use super::message::RotatingMessage;
use super::state::Rotating;
use super::view_facts::OwnVote;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{Ancestry, Below, Tip};
use quorate_consensus::{Cx, Ready, Signed, To};
use quorate_types::{BlockId, Time, View};

/// Maximum number of views that are kept; of more views the first do not commit by their timers.
const VIEWS_KEPT_MAX: usize = 4_096;
/// Empty blocks are committed at heights that are multiples of it, unless a block with a payload follows.
const IDLE_TOGETHER: u64 = 8;

impl SyncHotStuff<Rotating> {
    /// R10. §11, 5 and 6: begins the wait for an own vote, which is durable and on its way to all. All conflicting statements
    /// arrive within 2 Δ. The view may have been left meanwhile by a certificate, which ends no wait.
    pub(super) fn wait_for_silence(&mut self, cx: &mut Cx<'_, Self>, view: View, id: BlockId) {
        let is_running = self.is_running();
        let Some(facts) = self.state.views.get_mut(&view) else { return };
        let Some((_, header)) = facts.first.as_ref().filter(|(first, _)| *first == id) else { return };
        if facts.vote != OwnVote::Cast {
            return;
        }
        facts.vote = OwnVote::None;
        // R9. §11, 4: if a view was left out, an honest replica may have a higher lock and refuse.
        let follows = header.body.parent_view.next() == view;
        // §18: no wait begins for a repeated vote. Conflicting statements may have been lost during the silence.
        let may = is_running && view > self.state.repeated;
        let is_open = header.body.block.height > self.chain.committed().height;
        if follows && may && is_open && !facts.is_broken {
            facts.vote = OwnVote::Waits;
            let is_with_all = self.state.certificates.is_shown(view, id);
            self.state.waits.begin(cx.now(), Time::ZERO, view, is_with_all);
            self.state.waits.arm(cx, Timer::Commit);
        }
    }

    /// R10. Begins a wait without a vote. A replica that has left a view by the certificate of its block, before the header
    /// arrived, does not vote there. It shows the header to all instead. As after a vote, later voters of that view know the
    /// header within Δ, and votes for another block arrive within 2 Δ. Otherwise one liar could let every certificate arrive
    /// before its header, and this replica would never commit.
    pub(super) fn wait_without_vote(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.is_running() {
            return;
        }
        // A wait in a later view commits the blocks below.
        let no_later =
            self.state.views.range(..=self.view).rev().take_while(|(_, facts)| facts.vote == OwnVote::None);
        let left =
            no_later.filter(|(view, facts)| !facts.is_out && (self.state.began..self.view).contains(view));
        for view in left.map(|(view, _)| *view).collect::<Vec<View>>() {
            if let Some(header) = self.left_without_vote(cx, view) {
                if let Some(facts) = self.state.views.get_mut(&view) {
                    (facts.vote, facts.is_out) = (OwnVote::Waits, true);
                }
                cx.send_unheld(To::All, RotatingMessage::Show(header));
                self.state.waits.begin(cx.now(), Time::ZERO, view, true);
                return self.state.waits.arm(cx, Timer::Commit);
            }
        }
    }

    /// Returns the header of a view that was left by its certificate, if silence may commit it (R9 to R12).
    fn left_without_vote(&self, cx: &mut Cx<'_, Self>, view: View) -> Option<Signed<Header>> {
        let facts = self.state.views.get(&view).filter(|facts| !facts.is_broken)?;
        let (id, header) = facts.first.as_ref()?;
        let block = &header.body.block;
        let may = header.body.parent_view.next() == view
            && block.height > self.chain.committed().height
            && self.state.certificates.is_shown(view, *id)
            && self.may_vote(cx, block.height)
            && self.ready(cx, *id) == Some(Ready::Valid)
            && self.chain.ancestry(cx.blocks(), Tip::of(block, *id)) == Ancestry::Extends;
        may.then(|| header.clone())
    }

    /// R12. §8, Lemma 1 c: shows certificates of own votes. All have them before they may leave the view without one.
    pub(super) fn show_certified(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        for view in self.state.waits.to_show(now) {
            let first = self.first_header(view).map(|(id, _)| *id);
            let own = first.and_then(|id| self.state.certificates.get(view, id)).cloned();
            if own.is_some() || self.is_certified(cx.blocks(), view) {
                let certificate = own.unwrap_or_else(|| self.state.certificates.highest().clone());
                self.show(cx, &certificate);
                self.state.waits.note_with_all(now, |of| of == view);
            }
        }
    }

    /// R11. §11, 5: ends the wait of a view in which silence proves nothing any more.
    pub(super) fn stop_waiting(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        if let Some(facts) = self.facts_of(view, 0) {
            facts.is_broken = true;
            facts.vote = OwnVote::None;
        }
        // R6. §4: a disk may stall for any time. The vote would leave after the conflicting statement was heard.
        cx.withdraw(VOTE, view);
        self.state.waits.retain(|of| of != view);
        self.state.waits.arm(cx, Timer::Commit);
        if view < self.view {
            // R6. §19: that wait may have been the last one that was not in vain.
            self.try_vote(cx);
        }
    }

    pub(super) fn on_commit_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.show_certified(cx);
        while let Some(wait) = self.state.waits.next_over() {
            // R12. §8: if Δ holds there is a certificate by now. Without one the commit could not be proved after a cold start.
            let goes = if wait.is_with_all() {
                self.state.waits.hold(wait)
            } else {
                self.doubt(cx, "a commit timer ended without a certificate");
                Some(wait.of)
            };
            if let Some(view) = goes {
                self.forget_wait(view);
            }
        }
        self.state.waits.arm(cx, Timer::Commit);
        self.commit_sound_waits(cx);
        // R6. §19: a wait that has ended without a commit may have been the last one that was not in vain.
        self.try_vote(cx);
    }

    pub(super) fn forget_wait(&mut self, view: View) {
        if let Some(facts) = self.state.views.get_mut(&view) {
            facts.vote = OwnVote::None;
        }
    }

    /// Whether the first header of a view has a certificate, its own or that of a block above it.
    fn is_certified(&self, blocks: &BlockTree, view: View) -> bool {
        let Some((id, header)) = self.first_header(view) else {
            return false;
        };
        if self.state.certificates.get(view, *id).is_some() {
            return true;
        }
        let highest = self.chain.tip(blocks, self.state.certificates.highest().block());
        let tip = Tip::of(&header.body.block, *id);
        highest.is_some_and(|highest| self.chain.extends(blocks, highest, tip.end()) == Some(true))
    }

    /// Commits the highest block whose wait is over, if the guard is sound.
    pub(super) fn commit_sound_waits(&mut self, cx: &mut Cx<'_, Self>) {
        for wait in self.state.waits.held() {
            let first = self.first_header(wait.of);
            let Some(tip) = first.map(|(id, header)| Tip::of(&header.body.block, *id)) else { continue };
            let Some(worth) = self.worth_committing(cx.blocks(), tip) else { continue };
            if self.state.waits.is_sound(cx, &wait) {
                return self.commit(cx, worth.end(), noted::COMMITTED);
            }
        }
    }

    /// Returns the highest block up to this one that is worth committing. Empty blocks are committed with later ones, or some
    /// together, so that all replicas of an idle cluster stop at the same height.
    fn worth_committing(&self, blocks: &BlockTree, tip: Tip) -> Option<Tip> {
        let mut at = tip;
        while self.is_empty(blocks, at.id) && !at.height.0.is_multiple_of(IDLE_TOGETHER) {
            match self.chain.below(blocks, at) {
                Below::Block(parent) => at = parent,
                Below::Settled(_) => return None,
                // A block is missing: `commit` decides what follows.
                Below::Missing(_) => return Some(tip),
            }
        }
        (at.height > self.chain.committed().height).then_some(at)
    }

    /// Forgets views and certificates for which nothing waits any more.
    pub(super) fn settle_committed(&mut self, cx: &mut Cx<'_, Self>) {
        let committed = self.chain.committed().height;
        let near = self.view.minus(self.state.near);
        for facts in self.state.views.values_mut() {
            let height = facts.first.as_ref().map(|(_, header)| header.body.block.height);
            if height.is_none_or(|height| height <= committed) {
                facts.vote = OwnVote::None;
            }
        }
        self.state.views.retain(|view, facts| *view >= near || facts.vote != OwnVote::None);
        while self.state.views.len() > VIEWS_KEPT_MAX {
            self.state.views.pop_first();
        }
        let views = &self.state.views;
        self.state.waits.retain(|of| views.get(&of).is_some_and(|facts| facts.vote == OwnVote::Waits));
        let low = self.state.lock.view().min(near);
        self.state.certificates.retain(|view| view >= low || views.contains_key(&view));
        self.settle_fetches();
        self.state.waits.arm(cx, Timer::Commit);
    }

    /// §13: reports a statement that conflicts with a block which a timer has committed in this view. The leader may also have
    /// lied late.
    pub(super) fn check_silence(&self, cx: &mut Cx<'_, Self>, view: View, said: Option<BlockId>) {
        if let Some(id) = self.state.relied_on.get(&view)
            && said != Some(*id)
        {
            self.doubt(cx, "a statement conflicts with a block that a timer has committed");
        }
    }
}
