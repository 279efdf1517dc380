//! End of a view, and beginning of the next one (§11, 1 to 3; §19).

use super::super::replica::{Form as _, IfIdle, SyncHotStuff, Timer, noted, reason};
use super::super::statements::leader;
use super::evidence::ViewEvidence;
use super::message::RotatingMessage;
use super::state::Rotating;
use quorate_consensus::parts::guarded_wait::GuardedWait;
use quorate_consensus::{Certificate, Cx, Reject, To};
use quorate_types::View;

/// Δ, with a heartbeat, in which a view with an honest leader is certified everywhere.
const PATIENCE: u64 = 5;

impl SyncHotStuff<Rotating> {
    /// R8. §11, 3: blames the leader of a view that was not certified in time. Voting continues.
    pub(super) fn on_progress_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.note(cx, noted::BLAMED, Default::default());
        // R8. The certificate or the blames that let this replica into the view are durable first. Otherwise, after a power
        // cut, liars could show f + 1 blames of a view while nobody knows the certificates below it (§8, Lemma 1 c). The
        // blame is repeated while nothing arrives: it may have been lost with its link.
        cx.send(To::All, RotatingMessage::Blame(self.view));
        self.expect_certificate(cx);
    }

    /// R8. Sets the timer that blames the leader unless the view is certified within 5 Δ + τ.
    fn expect_certificate(&mut self, cx: &mut Cx<'_, Self>) {
        let until = cx.now().plus(self.delta.times(PATIENCE)).plus(self.heartbeat_ns);
        cx.timers().set(Timer::Progress, until);
    }

    pub(super) fn on_evidence(
        &mut self,
        cx: &mut Cx<'_, Self>,
        evidence: &ViewEvidence,
    ) -> Result<(), Reject> {
        match evidence {
            ViewEvidence::Blames(blames) => self.on_blames(cx, blames),
            ViewEvidence::Conflict(_) | ViewEvidence::Certificates(_) => {
                if let ViewEvidence::Certificates(both) = evidence {
                    self.take_certificate(cx, &both.0);
                    self.take_certificate(cx, &both.1);
                }
                self.break_silence(cx, evidence);
                Ok(())
            }
        }
    }

    /// Handles the blames of f + 1 replicas.
    pub(super) fn on_blames(&mut self, cx: &mut Cx<'_, Self>, blames: &Certificate) -> Result<(), Reject> {
        let view = blames.view();
        // R11. §11, 5: also in a view that was left by a certificate. A replica that leaves it now may extend an older block.
        self.check_silence(cx, view, None);
        self.stop_waiting(cx, view);
        if view < self.view || (view == self.view && self.is_quit()) {
            return Err(Reject::Stale);
        }
        // R13. At once and whatever the disk does, because the wait of Δ begins now.
        cx.send_unheld(To::All, RotatingMessage::Evidence(ViewEvidence::Blames(blames.clone())));
        self.set_view(cx, view);
        self.state.blames_held = Some(blames.clone());
        self.view_changes = self.view_changes.saturating_add(1);
        self.last_view_change = reason::BLAMED;
        self.leaving = Some(GuardedWait::begin(cx.now(), self.delta.times(Rotating::WAIT)));
        self.end_timers(cx);
        self.note(cx, noted::QUIT, Default::default());
        if let Some(facts) = self.facts_of(view, 0) {
            // The own vote may be on its way to the disk.
            facts.is_broken = true;
        }
        self.record_entered(cx);
        if !self.recovery.is_silent() {
            self.arm(cx, Timer::Enter, Rotating::WAIT);
        }
        Ok(())
    }

    /// Ends the timers of the view. Commit timers belong to no view: a certificate ends no wait (R10).
    fn end_timers(&mut self, cx: &mut Cx<'_, Self>) {
        cx.timers().retain(|timer| matches!(timer, Timer::Recover | Timer::Fetch | Timer::Commit));
    }

    /// Enters a view.
    pub(super) fn enter_view(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        self.set_view(cx, view);
        // R4. §11, 1: the lock is the highest certificate of now, and does not change during the view.
        self.state.lock = self.state.certificates.highest().clone();
        let tip = self.chain.tip(cx.blocks(), self.state.lock.block());
        self.state.locked = tip.map(|tip| tip.height).unwrap_or_default();
        if self.state.blames_held.as_ref().is_some_and(|blames| blames.view() <= self.state.lock.view()) {
            self.state.blames_held = None;
        }
        self.end_timers(cx);
        self.settle_committed(cx);
        self.record_entered(cx);
        self.note(cx, noted::VIEW_CHANGE, Default::default());
        if !self.recovery.is_silent() {
            self.join_view(cx);
        }
    }

    /// Waits for the leader of the view, or leads it.
    pub(super) fn join_view(&mut self, cx: &mut Cx<'_, Self>) {
        self.expect_certificate(cx);
        if !self.is_certified_before() {
            // R5. §11, 1 and 2: the leader must know the highest lock. A certificate of the view before is as good as a status,
            // and was shown to all.
            if self.leader == cx.me() {
                self.arm(cx, Timer::Collect, 2);
            } else {
                let (view, lock) = (self.view, self.state.lock.clone());
                cx.send(To::One(self.leader), RotatingMessage::Status { view, lock });
            }
        }
        self.try_vote(cx);
        // There may be no request yet.
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

    /// R5. §11, 2: proposes, because all honest replicas have sent their locks.
    pub(super) fn on_collect_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.in_view.collected = true;
        self.try_propose(cx, IfIdle::Wait);
    }
}
