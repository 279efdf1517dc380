//! What is committed, and when (§8; `optsync` §4, §7): after 2 Δ in which nothing contradicted the own vote, or at once
//! by q_R votes.

use super::message::SyncMessage;
use super::normal::{End, end_of};
use super::words::rank;
use super::{SyncHotStuff, SyncRecord, Timer, Variant, noted};
use quorate_consensus::parts::chain::{Hangs, Tip};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Alarm, Basis, Certificate, Commit, Cx, Reject, To};
use quorate_types::{Height, ReplicaId};

impl<V: Variant> SyncHotStuff<V> {
    /// S6. §4: the own vote is durable and on its way to all, so 2 Δ from now everything that contradicts it is here.
    pub(super) fn wait_for_silence(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        // §18: what contradicts a vote that was only said again may have come while nobody listened.
        let may = self.returning.standing() == Standing::Running && !self.is_quit() && height > self.resaid;
        if may && height > self.chain.committed().height {
            self.waits.begin(cx.now(), height);
            self.waits.arm(cx, Timer::Commit);
        }
    }

    pub(super) fn on_commit_timer(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        while let Some(wait) = self.waits.next_over(now) {
            self.expired = self.expired.max(wait.1);
            // S7. §8: with Δ kept there is a certificate by now; without one there would be nothing to show after a cold start.
            if self.voted_for(wait.1).and_then(|end| self.certificate_of(end)).is_some() {
                self.waits.hold(wait);
            } else {
                self.doubt(cx, "a commit timer ended without a certificate");
            }
        }
        self.waits.arm(cx, Timer::Commit);
        self.commit_waits(cx);
    }

    /// The highest block whose time is over and of which the guard thinks well.
    pub(super) fn commit_waits(&mut self, cx: &mut Cx<'_, Self>) {
        for (since, height) in self.waits.held() {
            if let Some(end) = self.voted_for(height)
                && self.agrees(cx.blocks(), end)
                && self.waits.is_sound(cx, since)
            {
                // S8. §8: what is below is committed with it.
                return self.commit(cx, end, Basis::Timer);
            }
        }
    }

    /// The block that this replica has voted for at a height of this view.
    fn voted_for(&self, height: Height) -> Option<End> {
        let voted = self.voted.as_ref().map(|header| header.body.block.height)?;
        self.heard.at(height).filter(|_| height <= voted).map(|(id, _)| (height, *id))
    }

    pub(super) fn commit(&mut self, cx: &mut Cx<'_, Self>, (height, id): End, basis: Basis) {
        let committed = self.chain.committed();
        if height <= committed.height {
            return;
        }
        let Some(tip) = self.chain.tip(cx.blocks(), id) else { return };
        match self.chain.hangs(cx.blocks(), tip) {
            Hangs::On => {
                cx.commit(Commit::Chain(id), basis);
                self.note(cx, noted::COMMITTED, height);
                if basis == Basis::Timer {
                    self.timer_committed = self.view;
                }
                self.adopt_tip(cx, tip);
            }
            Hangs::Beside(second) => {
                cx.alarm(Alarm::SafetyBroken { height: committed.height, first: committed.id, second });
            }
            Hangs::Missing(_) => {} // `on_ready` comes back here.
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
        if let Some(tip) = self.chain.heard(cx.blocks()) {
            self.adopt_tip(cx, tip);
        }
    }

    /// O1. `optsync` §4: q_R votes. All hear of them before anything else happens, then they decide.
    pub(super) fn take_responsive(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let (view, height) = rank(certificate);
        if height < self.chain.committed().height || !self.certificates.add_responsive(certificate) {
            return;
        }
        cx.record(&SyncRecord::Responsive(certificate.clone()));
        if view == self.view {
            self.decide(cx, certificate);
        } else if view < self.view && self.contradicts_committed(cx, certificate) {
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
        // O6. The leader does its work, although this replica may never vote for what is committed when it comes (§5).
        self.expect_progress(cx);
        // The highest one may wait for its body; it must not hold this one up, nor be forgotten for it.
        let end = end_of(certificate);
        self.responsive = self.responsive.max(Some(end));
        self.commit_responsive(cx);
        self.commit(cx, end, Basis::Quorum);
    }

    /// What q_R votes have decided in this view, as soon as its headers are here.
    pub(super) fn commit_responsive(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(end) = self.responsive
            && !self.is_quit()
        {
            self.commit(cx, end, Basis::Quorum);
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

    /// Whether a certified block lies beside the committed one, as far as headers are here.
    fn contradicts_committed(&self, cx: &mut Cx<'_, Self>, certificate: &Certificate) -> bool {
        let committed = self.chain.committed();
        match self.chain.tip(cx.blocks(), certificate.block()) {
            Some(tip) if tip.height >= committed.height => {
                self.chain.extends(cx.blocks(), tip, committed) == Some(false)
            }
            _ => false,
        }
    }

    /// The bound on delays has not held, or somebody lies about it. Said aloud; nothing else follows (§13).
    pub(super) fn doubt(&self, cx: &mut Cx<'_, Self>, why: &'static str) {
        cx.alarm(Alarm::SynchronyDoubt { view: self.view, peer: None, why });
    }
}
