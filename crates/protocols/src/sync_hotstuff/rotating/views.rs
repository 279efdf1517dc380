//! How a view ends, and how the next one begins (§11, 1 to 3; §19).

use super::super::leaving::{Leaving, Next};
use super::super::words::leader;
use super::message::RotatingMessage;
use super::words::Evidence;
use super::{IfIdle, RotatingSyncHotStuff, Timer, noted, reason};
use quorate_consensus::{Certificate, Cx, Reject, Seal, To};
use quorate_types::View;

/// Δ between f + 1 blames and the next view: a certificate with which somebody has left the view is here by then.
const WAIT: u64 = 1;
/// Δ, with a heartbeat, in which a view with an honest leader is certified everywhere.
const PATIENCE: u64 = 5;

impl RotatingSyncHotStuff {
    /// R8. §11, 3: the view was not certified in time. Voting goes on.
    pub(super) fn on_view_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.note(cx, noted::BLAMED, Default::default());
        // R8. What let into the view is on the disk first: where power fails, liars could show f + 1 blames of a view of which
        // nobody else knows any more what was certified below it (§8, Lemma 1 c). It is said again as long as nothing comes: one
        // may have been lost with its link.
        cx.send(To::All, RotatingMessage::Blame(self.view));
        self.expect_certificate(cx);
    }

    /// R8. 5 Δ + τ from now the view is certified, or its leader is blamed.
    fn expect_certificate(&mut self, cx: &mut Cx<'_, Self>) {
        let until = cx.now().plus(self.delta.times(PATIENCE)).plus(self.heartbeat_ns);
        cx.timers().set(Timer::View, until);
    }

    /// R13. f + 1 blames, of whom one is honest, end the view.
    pub(super) fn on_blame(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, view: View) -> Result<(), Reject> {
        if view < self.view || (view == self.view && self.is_quit()) {
            return Err(Reject::Stale);
        }
        match self.blames.add(seal, view, cx.committee().weak())? {
            Some(blames) => self.on_blames(cx, &blames),
            None => Ok(()),
        }
    }

    pub(super) fn on_evidence(&mut self, cx: &mut Cx<'_, Self>, evidence: &Evidence) -> Result<(), Reject> {
        match evidence {
            Evidence::Blames(blames) => self.on_blames(cx, blames),
            Evidence::Conflict(_) | Evidence::Certificates(_) => {
                if let Evidence::Certificates(both) = evidence {
                    self.take_certificate(cx, &both.0);
                    self.take_certificate(cx, &both.1);
                }
                self.break_silence(cx, evidence);
                Ok(())
            }
        }
    }

    /// f + 1 replicas blame a view.
    pub(super) fn on_blames(&mut self, cx: &mut Cx<'_, Self>, blames: &Certificate) -> Result<(), Reject> {
        let view = blames.view();
        // R11. §11, 5: also in a view that was left by a certificate: whoever leaves it now may go on from below.
        self.check_silence(cx, view, None);
        self.stop_waiting(cx, view);
        if view < self.view || (view == self.view && self.is_quit()) {
            return Err(Reject::Stale);
        }
        // R13. At once and whatever the disk does: the wait of Δ begins now.
        cx.send_unheld(To::All, RotatingMessage::Evidence(Evidence::Blames(blames.clone())));
        self.set_view(cx, view);
        self.blames_held = Some(blames.clone());
        self.view_changes = self.view_changes.saturating_add(1);
        self.last_view_change = reason::BLAMED;
        self.leaving = Some(Leaving::Wait { since: cx.now() });
        self.end_timers(cx);
        self.note(cx, noted::QUIT, Default::default());
        if let Some(heard) = self.heard_in(view, 0) {
            // Its own vote may be on its way to the disk.
            heard.is_broken = true;
        }
        self.record_entered(cx);
        if !self.returning.is_silent() {
            self.arm_entry(cx, WAIT);
        }
        Ok(())
    }

    /// Timers that belong to one view. Those of commits belong to none: R10, a certificate ends no wait.
    fn end_timers(&mut self, cx: &mut Cx<'_, Self>) {
        cx.timers().retain(|timer| matches!(timer, Timer::Return | Timer::Fetch | Timer::Commit));
    }

    pub(super) fn arm_entry(&mut self, cx: &mut Cx<'_, Self>, deltas: u64) {
        let at = cx.now().plus(self.delta.times(deltas));
        cx.timers().set(Timer::Enter, at);
    }

    pub(super) fn wait_to_enter(&mut self, cx: &mut Cx<'_, Self>) {
        self.leaving = Some(Leaving::Wait { since: cx.now() });
        self.arm_entry(cx, WAIT);
    }

    /// R13. §11, 1: after f + 1 blames the next view is entered Δ later, and not while the bound on delays may not have
    /// held (§19).
    pub(super) fn try_enter(&mut self, cx: &mut Cx<'_, Self>) {
        if self.returning.is_silent() {
            return; // §18: the wait begins when silence is over.
        }
        let Some(leaving) = &mut self.leaving else { return };
        match leaving.go_on(cx.now(), self.delta, WAIT, |since, fresh| cx.sound(since, fresh)) {
            Next::Stay => {}
            Next::Enter => self.enter(cx, self.view.next()),
            Next::Look(deltas) => self.arm_entry(cx, deltas),
            Next::Ask => {
                self.ask_all(cx);
                self.arm_entry(cx, 2);
            }
        }
    }

    fn set_view(&mut self, cx: &Cx<'_, Self>, view: View) {
        self.view = view;
        self.leader = leader(cx.committee(), view);
    }

    /// A view begins.
    pub(super) fn enter(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        self.set_view(cx, view);
        self.leaving = None;
        self.collected = false;
        // R4. §11, 1: the lock is what is certified now, and stays as it is for the whole view.
        self.lock = self.certificates.highest().clone();
        let tip = self.chain.tip(cx.blocks(), self.lock.block());
        self.locked = tip.map(|tip| tip.height).unwrap_or_default();
        if self.blames_held.as_ref().is_some_and(|blames| blames.view() <= self.lock.view()) {
            self.blames_held = None;
        }
        self.end_timers(cx);
        self.settle(cx);
        self.record_entered(cx);
        self.note(cx, noted::ENTERED, Default::default());
        if !self.returning.is_silent() {
            self.join_view(cx);
        }
    }

    /// Waits for what the leader of the view makes of it, or leads.
    pub(super) fn join_view(&mut self, cx: &mut Cx<'_, Self>) {
        self.expect_certificate(cx);
        if !self.is_certified_before() {
            // R5. §11, 1 and 2: the leader has to know of the highest lock. A certificate of the view before says as much
            // as a status, and was shown to all.
            if self.leader == cx.me() {
                let at = cx.now().plus(self.delta.times(2));
                cx.timers().set(Timer::Collect, at);
            } else {
                let (view, lock) = (self.view, self.lock.clone());
                cx.send(To::One(self.leader), RotatingMessage::Status { view, lock });
            }
        }
        self.try_vote(cx);
        // Nobody may want anything yet.
        self.try_propose(cx, IfIdle::Wait);
    }

    pub(super) fn on_status(
        &mut self,
        cx: &mut Cx<'_, Self>,
        view: View,
        lock: &Certificate,
    ) -> Result<(), Reject> {
        self.take_certificate(cx, lock);
        if leader(cx.committee(), view) != cx.me() {
            return Err(Reject::WrongSender);
        }
        if view < self.view { Err(Reject::Stale) } else { Ok(()) }
    }

    /// R5. §11, 2: whoever is honest has sent its lock.
    pub(super) fn on_collect_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.collected = true;
        self.try_propose(cx, IfIdle::Wait);
    }
}
