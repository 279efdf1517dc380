//! Blames, and the wait between two views (§5, §19).

use super::replica::{Form, SyncHotStuff, Timer};
use quorate_consensus::parts::guarded_wait::{GuardedWait, WaitStep};
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::{Cx, Reject, Seal};
use quorate_types::View;

impl<F: Form> SyncHotStuff<F> {
    /// S10, R13. §5: f + 1 blames, of which one is honest, end the view.
    pub(super) fn on_blame(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, view: View) -> Result<(), Reject> {
        if view < self.view || (view == self.view && self.is_quit()) {
            return Err(Reject::Stale);
        }
        match self.blames.add(seal, view, cx.committee().weak())? {
            Some(blames) => F::leave_blamed(self, cx, blames),
            None => Ok(()),
        }
    }

    /// S12, R13. §5: enters the next view after the wait, and not while the bound on delays may not have held (§19).
    pub(super) fn try_enter(&mut self, cx: &mut Cx<'_, Self>) {
        if self.recovery.is_silent() {
            return; // §18: the wait begins when silence is over.
        }
        let Some(leaving) = &mut self.leaving else { return };
        match leaving.step(cx.now(), self.delta, |since, fresh| cx.sound(since, fresh)) {
            WaitStep::Stay => {}
            WaitStep::Act | WaitStep::Answered => F::enter(self, cx, self.view.next()),
            WaitStep::CheckAgain => self.arm(cx, Timer::Enter, 1),
            WaitStep::Ask => {
                self.ask_all(cx);
                self.arm(cx, Timer::Enter, 2);
            }
        }
    }

    /// Begins the wait after which this replica enters the next view.
    pub(super) fn begin_leaving(&mut self, cx: &mut Cx<'_, Self>) {
        self.leaving = Some(GuardedWait::begin(cx.now(), self.delta.times(F::WAIT)));
        self.arm(cx, Timer::Enter, F::WAIT);
    }
}
