//! What is committed, and when (§8; `optsync` §4, §7): after 2 Δ in which nothing contradicted the own vote, or at once
//! by q_R votes.

use super::message::SyncMessage;
use super::normal::{End, UNKNOWN, end_of};
use super::words::rank;
use super::{SyncHotStuff, SyncRecord, Timer, Variant, noted};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{Ancestry, Tip};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Alarm, Certificate, Commit, Cx, Reject, To};
use quorate_types::{Height, ReplicaId};

impl<V: Variant> SyncHotStuff<V> {
    /// S6. §4: the own vote is durable and on its way to all, so 2 Δ from now everything that contradicts it is here.
    pub(super) fn wait_for_silence(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        // §18: what contradicts a vote that was only said again may have come while nobody listened.
        let may = self.returning.standing() == Standing::Running && !self.is_quit() && height > self.resaid;
        if may && height > self.chain.committed().height {
            let voters = self.own_vote.map(|(id, _)| self.certificates.voters((self.view, height), id));
            let is_with_all = voters == Some(cx.committee().n());
            self.waits.begin(cx.now(), self.waits_from, height, is_with_all);
            self.arm_commit(cx);
        } else if !self.is_quit() && height > self.chain.committed().height {
            self.unshown.insert(height);
            self.show_unshown(cx);
        }
    }

    /// S7. §8, Lemma 1 c; `optsync` §8: what this replica has voted for is known to all as certified before it votes on top of it,
    /// also where its own wait was over before there was a certificate, or there never was one. Somebody who has missed its
    /// header would vote beside it else, when a wait for what lies above is nearly over.
    pub(super) fn show_unshown(&mut self, cx: &mut Cx<'_, Self>) {
        if self.returning.is_silent() {
            return;
        }
        self.unshown.extend(self.waits.past(cx.now()));
        for height in self.unshown.clone() {
            let Some(end) = self.voted_for(height) else { continue };
            let exact = self.certificate_of(end).filter(|certificate| !certificate.is_genesis());
            let is_exact = exact.is_some();
            let lowest = || self.certificate_from(cx.blocks(), self.view, end).cloned();
            if let Some(certificate) = exact.or_else(lowest) {
                self.unshown.remove(&height);
                if !is_exact {
                    self.begin_later(cx);
                }
                cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            }
        }
    }

    /// The same, where what is voted on top of was not voted for here: others may have missed its header as well, and nobody else
    /// who knows of its certificate may be heard of in time (`optsync` §8).
    pub(super) fn show_skipped(&mut self, cx: &mut Cx<'_, Self>, parent: End) {
        if parent.0 <= self.voted_end(cx.blocks()).0 {
            return;
        }
        if let Some(certificate) = self.certificate_from(cx.blocks(), self.view, parent).cloned() {
            cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            self.begin_later(cx);
        }
    }

    /// Of a certificate of what lies above not everybody knows yet where it lies ([`Self::agrees`]). Where nobody else is on the
    /// side of what was skipped ([`Variant::may_wait_longer`]), a liar could make one commit later than others for nothing.
    fn begin_later(&mut self, cx: &Cx<'_, Self>) {
        if V::may_wait_longer(cx.committee().n()) {
            self.waits_from = cx.now().plus(self.delta.times(UNKNOWN));
        }
    }

    /// Sets the timer to the next thing that it is for.
    pub(super) fn arm_commit(&mut self, cx: &mut Cx<'_, Self>) {
        // What is due now would not be looked at again.
        self.show_certified(cx);
        if let Some(at) = self.waits.next_look(cx.now()) {
            cx.timers().set(Timer::Commit, at);
        } else if !self.is_stuck(cx.blocks()) {
            cx.timers().cancel(Timer::Commit);
        } else if cx.timers().get(Timer::Commit).is_none() {
            let at = cx.now().plus(self.delta.quarter());
            cx.timers().set(Timer::Commit, at);
        }
    }

    pub(super) fn on_commit_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.show_certified(cx);
        while let Some(wait) = self.waits.next_over() {
            self.expired = self.expired.max(wait.of);
            // S7. §8: with Δ kept there is a certificate by now; without one there would be nothing to show after a cold start.
            if wait.is_with_all() {
                self.waits.hold(wait);
            } else {
                self.unshown.insert(wait.of);
                self.doubt(cx, "a commit timer ended without a certificate");
            }
        }
        self.wait_anew(cx);
        self.arm_commit(cx);
        self.commit_waits(cx);
    }

    /// Every replica has voted for a block: each has its certificate as soon as their votes are there.
    pub(super) fn note_with_all(&mut self, cx: &mut Cx<'_, Self>, block: End) {
        if self.voted_for(block.0) == Some(block) {
            self.waits.note_with_all(cx.now(), |of| of <= block.0);
        }
    }

    /// S7. §8, Lemma 1 c: where not all have voted half of Δ after this replica, it shows to all why they need not.
    pub(super) fn show_certified(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        if let Some(first) = self.waits.to_show(now).first()
            && let Some((height, certificate)) = self.highest_certified(cx.blocks())
            && height >= *first
        {
            cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            self.waits.note_with_all(now, |of| of <= height);
        }
    }

    /// The highest certificate of the view on the chain of the own votes, and up to which of them it is for.
    fn highest_certified(&self, blocks: &BlockTree) -> Option<(Height, Certificate)> {
        let mut of_view = self.certificates.of_view(self.view);
        of_view.find_map(|certificate| Some((self.proves(blocks, certificate)?, certificate.clone())))
    }

    /// Up to which of the own votes of the view one of its certificates is for.
    fn proves(&self, blocks: &BlockTree, certificate: &Certificate) -> Option<Height> {
        let end = end_of(certificate);
        let voted = self.voted.as_ref().map(|header| (header.body.block.height, header.body.block.id()));
        match voted {
            Some(voted) if voted.0 < end.0 => self.is_on(blocks, end, voted).then_some(voted.0),
            Some(voted) => self.is_on(blocks, voted, end).then_some(end.0),
            None => (self.voted_for(end.0) == Some(end)).then_some(end.0),
        }
    }

    /// Whether all that may be voted for was voted for, and nothing of it is committed.
    fn is_stuck(&self, blocks: &BlockTree) -> bool {
        !self.is_quit() && self.voted_end(blocks).0 >= self.highest_voted_for()
    }

    /// §19: of what was voted for in doubt no timer commits anything, and a commit would want a new vote. Where there can be
    /// none the certificate of the last one, or of the base, is shown to all, and it waits anew: all have what its leader has
    /// said for it, from this replica's vote or what it has handed on, and nobody votes for what contradicts that.
    fn wait_anew(&mut self, cx: &mut Cx<'_, Self>) {
        let may = self.returning.standing() == Standing::Running && self.is_stuck(cx.blocks());
        let voted = self.voted.as_ref().map(|header| &header.body.block);
        let is_out = voted.is_none_or(|block| self.own_vote.is_some_and(|(id, _)| id == block.id()));
        let last = voted.map(|block| block.height);
        if may
            && is_out
            && self.waits.are_in_vain(cx)
            && let Some((height, certificate)) = self.highest_certified(cx.blocks())
            && last.is_none_or(|last| last == height)
            && height > self.chain.committed().height
        {
            self.waits.clear();
            cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            self.waits.begin(cx.now(), self.waits_from, height, true);
            // The leader can bring nothing to vote for before that.
            self.expect_progress(cx);
        }
    }

    /// The highest block whose time is over and of which the guard thinks well.
    pub(super) fn commit_waits(&mut self, cx: &mut Cx<'_, Self>) {
        for wait in self.waits.held() {
            let now = cx.now();
            // What costs little comes first: there may be many of them, for a while after a doubt.
            if self.waits.is_sound(cx, &wait)
                && let Some(end) = self.voted_for(wait.of)
                && self.is_certified(cx.blocks(), end)
                && self.agrees(cx.blocks(), end, now)
            {
                // S8. §8: what is below is committed with it.
                return self.commit(cx, end, noted::COMMITTED);
            }
        }
    }

    /// The block that this replica has voted for at a height of this view, or that its votes there rest on.
    fn voted_for(&self, height: Height) -> Option<End> {
        let voted = self.voted.as_ref().map(|header| header.body.block.height);
        let heard = self.heard.at(height).filter(|_| voted.is_some_and(|voted| height <= voted));
        heard.map(|(id, _)| (height, *id)).or(self.first_voted.filter(|base| base.0 == height))
    }

    pub(super) fn commit(&mut self, cx: &mut Cx<'_, Self>, (height, id): End, rule: &'static str) {
        let committed = self.chain.committed();
        if height <= committed.height {
            return;
        }
        let Some(tip) = self.chain.tip(cx.blocks(), id) else { return };
        match self.chain.ancestry(cx.blocks(), tip) {
            Ancestry::Extends => {
                cx.commit(Commit::Chain(id));
                self.note(cx, rule, height);
                if rule == noted::COMMITTED {
                    self.timer_committed = self.view;
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

    /// O1. `optsync` §4: q_R votes. All hear of them before anything else happens, then they decide.
    pub(super) fn take_responsive(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let (view, height) = rank(certificate);
        let committed = self.chain.committed();
        if height == committed.height && certificate.block() != committed.id {
            self.doubt(cx, "q_R votes contradict what is committed");
        }
        if height < committed.height || !self.certificates.add_responsive(certificate) {
            return;
        }
        cx.record(&SyncRecord::Responsive(certificate.clone()));
        if self.may_settle(height) && self.certificates.is_highest_responsive(certificate) {
            cx.record(&SyncRecord::SettledResponsive(certificate.clone()));
        }
        if view == self.view {
            self.decide(cx, certificate);
        } else if view < self.view && self.extends_committed(cx.blocks(), certificate) == Some(false) {
            self.doubt(cx, "q_R votes of a view that was left, beside what is committed");
        }
        self.take_certificate(cx, certificate);
    }

    /// q_R votes of the current view decide.
    pub(super) fn decide(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        // O2. `optsync` §7: only in a view that was not left, else those who have left it may not hear of it in time.
        if self.is_quit() || self.returning.is_silent() {
            return;
        }
        // O3. Unheld, and before the commit: whoever enters the next view has it by then.
        cx.send_unheld(To::All, SyncMessage::Notify(certificate.clone()));
        let end = end_of(certificate);
        if let Some(height) = self.proves(cx.blocks(), certificate) {
            self.waits.note_with_all(cx.now(), |of| of <= height);
        }
        if end.0 > self.chain.committed().height {
            // O6. The leader does its work, although this replica may never vote for what is committed when it comes (§5).
            self.expect_progress(cx);
        }
        // The highest one may wait for its body; it must not hold this one up, nor be forgotten for it.
        self.responsive = self.responsive.max(Some(end));
        self.commit_responsive(cx);
        self.commit(cx, end, noted::COMMITTED_BY_VOTES);
    }

    /// What q_R votes have decided in this view, as soon as its headers are here.
    pub(super) fn commit_responsive(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(end) = self.responsive
            && !self.is_quit()
        {
            self.commit(cx, end, noted::COMMITTED_BY_VOTES);
        }
    }

    pub(super) fn on_notify(
        &mut self,
        cx: &mut Cx<'_, Self>,
        certificate: &Certificate,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        if V::responsive_quorum(cx.committee().n()).is_none() {
            return Err(Reject::Invalid("nobody decides by q_R votes here"));
        }
        let (view, height) = rank(certificate);
        if view == self.view && height > self.chain.committed().height {
            // What it decides may have been shown to others only.
            self.mention(cx, end_of(certificate), link);
        }
        if self.certificates.is_responsive(view, height) {
            return Err(Reject::Duplicate);
        }
        self.take_responsive(cx, certificate);
        Ok(())
    }

    /// The bound on delays has not held, or somebody lies about it. Said aloud; nothing else follows (§13).
    pub(super) fn doubt(&self, cx: &mut Cx<'_, Self>, why: &'static str) {
        cx.alarm(Alarm::SynchronyDoubt { view: self.view, peer: None, why });
    }
}
