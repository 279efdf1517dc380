//! The pacemaker (§5), and the idle rule (`hotstuff` §15).
//!
//! Views change by certificate only. A replica that waits in vain says TIMEOUT, votes in the view no more, and goes on
//! waiting; a quorum of timeouts is the certificate that lets everybody on. It lists the highest certificate for a block
//! that each had, and a proposal that shows it has to rest on the highest of these.

use super::{Jolteon, JolteonMessage, Timer, noted, reason};
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Cx, Reject, Seal, Signed, To};
use quorate_types::{Height, View};

impl Jolteon {
    /// What lets into the current view: the highest certificate, and timeouts where it is not of the view before.
    pub(super) fn proof(&self) -> ViewProof {
        let follows = self.high_qc.view().next() == self.pacemaker.view();
        let timeouts = self.pacemaker.timeouts().filter(|_| !follows).cloned();
        ViewProof { qc: self.high_qc.clone(), timeouts }
    }

    /// The view that a proof lets into (§7 `after`).
    pub(super) fn lets_into(&self, proof: &ViewProof) -> View {
        // With terms a certificate of the view that was given up may come as well, and lead less far.
        let given_up = proof.timeouts.as_ref().map(|timeouts| self.leaders.after(timeouts.view));
        proof.qc.view().next().max(given_up.unwrap_or_default())
    }

    /// §5 `enter`. N1: the only way from one view into another, and it wants a certificate.
    pub(super) fn enter(&mut self, cx: &mut Cx<'_, Self>, view: View, timeouts: Option<TimeoutCertificate>) {
        let by_timeout = timeouts.is_some();
        if !self.pacemaker.enter(view, timeouts) {
            return;
        }
        self.waiting = None;
        self.find_leader(cx);
        self.must_propose = by_timeout;
        if by_timeout {
            self.last_view_change = reason::GIVEN_UP;
            self.note(cx, noted::VIEW_CHANGE, Height::ZERO);
        }
        self.busy = self.is_busy(cx);
        self.arm(cx);
        self.has_announced = false;
        self.lead(cx);
    }

    /// What the leader of the current view has to do: propose, or say that it has nothing to propose.
    fn lead(&mut self, cx: &mut Cx<'_, Self>) {
        if self.leader != Some(cx.me()) || self.proposed >= self.pacemaker.view() {
            return;
        }
        if self.busy || self.must_propose {
            self.try_propose(cx);
        } else if !std::mem::replace(&mut self.has_announced, true) {
            // N8. `hotstuff` §15: everybody learns the certificate that completed the last commit.
            cx.send_unheld(To::All, JolteonMessage::Advance(self.proof()));
        }
    }

    /// Who leads the current view, by the highest certificate that this replica knows.
    pub(super) fn find_leader(&mut self, cx: &mut Cx<'_, Self>) {
        let (committee, view) = (cx.committee(), self.pacemaker.view());
        self.leader = self.leaders.leader(committee, cx.blocks(), view, self.high_qc.block());
    }

    /// The timer of the current view starts anew, if anybody waits for anything.
    fn arm(&mut self, cx: &mut Cx<'_, Self>) {
        self.has_executed = false;
        if self.busy {
            let at = cx.now().plus(self.pacemaker.duration_ns());
            cx.timers().set(Timer::View, at);
        } else {
            cx.timers().cancel(Timer::View);
        }
    }

    /// N7. `hotstuff` §15: whether anybody waits for anything that this replica knows of.
    fn is_busy(&self, cx: &mut Cx<'_, Self>) -> bool {
        cx.pending().undecided > 0 || !self.chain.is_quiet(cx.blocks(), &self.high_qc)
    }

    /// `hotstuff` §15, at the end of every handler: what has changed may have made this replica busy or idle.
    pub(super) fn look_around(&mut self, cx: &mut Cx<'_, Self>) {
        let committee = cx.committee();
        self.leaders.keep_up(committee, cx.blocks(), self.chain.committed().id);
        let was_busy = std::mem::replace(&mut self.busy, false);
        self.busy = self.is_busy(cx);
        if self.busy != was_busy {
            self.arm(cx);
        }
        if self.leader.is_none() {
            self.find_leader(cx);
        }
        self.lead(cx);
    }

    pub(super) fn on_view_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.busy {
            return;
        }
        // A replica whose own execution lags behind says nothing about the leader, as long as it comes nearer.
        if !(cx.pending().lagging && self.has_executed) {
            self.time_out(cx);
        }
        self.arm(cx);
    }

    /// §5 `timeout_now`.
    pub(super) fn time_out(&mut self, cx: &mut Cx<'_, Self>) {
        let view = self.pacemaker.view();
        self.pacemaker.give_up();
        // N2. §5, §7: no vote from here on in this view, nor in one that the timeouts of this view may skip. What was voted
        // for before is in the certificate that is listed.
        self.barred = self.barred.max(self.leaders.after(view).minus(1));
        let last_vote = self.own_vote.filter(|vote| vote.body.view > self.high_qc.view());
        // N3. §4: the bar and the listed certificate are durable before the TIMEOUT leaves; losing them is unsafe.
        self.record(cx);
        cx.send(To::All, JolteonMessage::Timeout { view, proof: self.proof(), last_vote });
        self.note(cx, noted::TIMED_OUT, Height::ZERO);
    }

    pub(super) fn on_timeout(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        view: View,
        proof: &ViewProof,
        last_vote: Option<Signed<BlockVote>>,
    ) -> Result<(), Reject> {
        let by = seal.by;
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        // J1: what it carries counts, whatever is wrong with the rest.
        self.take_certificate(cx, &proof.qc, by);
        if self.lets_into(proof) != view {
            return Err(Reject::Invalid("not the view that it proves"));
        }
        if let Some(vote) = last_vote {
            if vote.by != by {
                return Err(Reject::Invalid("somebody else's vote"));
            }
            // N4. §5: a vote that went to a dead leader makes its certificate all the same.
            let _: Result<(), Reject> = self.on_vote(cx, vote);
        }
        self.take_timeouts(cx, proof);
        // N5. §5: whoever is behind is shown what let this replica into its view.
        let is_behind = view < self.pacemaker.view() || proof.qc.view() < self.high_qc.view();
        if is_behind && by != cx.me() && self.pacemaker.may_show(by, cx.now()) {
            cx.send_unheld(To::One(by), JolteonMessage::Advance(self.proof()));
        }
        if view < self.pacemaker.view() {
            return Err(Reject::Stale);
        }
        self.pacemaker.note(by, view, proof.qc.view(), signature);
        self.count_timeouts(cx);
        Ok(())
    }

    fn count_timeouts(&mut self, cx: &mut Cx<'_, Self>) {
        let who = self.pacemaker.who_gave_up();
        // N6. §5, amplification: f + 1 have timed out, so an honest replica has.
        if !self.pacemaker.has_given_up() && who.len() >= cx.committee().weak() {
            self.time_out(cx);
        }
        // N1. A quorum of them, the own one from its own copy, lets everybody on.
        if let Some(timeouts) = self.pacemaker.certificate(cx.committee().quorum()) {
            let view = self.leaders.after(timeouts.view);
            let proof = ViewProof { qc: self.high_qc.clone(), timeouts: Some(timeouts.clone()) };
            self.pacemaker.note_shown(cx.committee().ids(), cx.now());
            cx.send_unheld(To::All, JolteonMessage::Advance(proof));
            self.enter(cx, view, Some(timeouts));
        }
    }

    /// §5 `process_tc`.
    pub(super) fn take_timeouts(&mut self, cx: &mut Cx<'_, Self>, proof: &ViewProof) {
        if let Some(timeouts) = &proof.timeouts {
            self.enter(cx, self.leaders.after(timeouts.view), Some(timeouts.clone()));
        }
    }
}
