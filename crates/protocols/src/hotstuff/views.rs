//! The pacemaker (§7) and the idle rule (§15).
//!
//! Views change by certificate only. A replica that waits in vain complains, to all or to the next leaders, and goes on
//! waiting; a quorum of complaints is the certificate that lets everybody on, with the highest certificate for a block
//! that any of them lists, so that the next leader's proposal is acceptable to all.

use super::{HotStuff, HotStuffMessage, Timer, noted, reason};
use quorate_consensus::parts::pacemaker::Complaints;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Cx, Reject, Seal, Signed, To};
use quorate_types::{Height, ReplicaSet, View};

impl HotStuff {
    /// What lets into the current view: the highest certificate, and complaints where it is not of the view before.
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

    /// §7 `enter_view`. N1: the only way from one view into another, and it wants a certificate.
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
            // N8. §15: everybody learns the certificate that completed the last commit.
            cx.send_unheld(To::All, HotStuffMessage::NextView(self.proof()));
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

    /// N7. §15: whether anybody waits for anything that this replica knows of.
    fn is_busy(&self, cx: &mut Cx<'_, Self>) -> bool {
        cx.pending().undecided > 0 || !self.chain.is_quiet(cx.blocks(), &self.high_qc)
    }

    /// §15, at the end of every handler: what has changed may have made this replica busy or idle.
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
            self.complain(cx);
        }
        self.arm(cx);
    }

    /// §7 `complain`.
    pub(super) fn complain(&mut self, cx: &mut Cx<'_, Self>) {
        let view = self.pacemaker.view();
        let attempt = self.pacemaker.give_up();
        let last_vote = self.own_vote.filter(|vote| vote.body.view > self.high_qc.view());
        // N2. §2: what the next leader counts on.
        self.record(cx);
        let to = self.collectors(cx, attempt);
        cx.send(to, HotStuffMessage::Complain { view, proof: self.proof(), last_vote });
        self.note(cx, noted::COMPLAINED, Height::ZERO);
    }

    /// Who hears a complaint: all, or the next leader and with each further expiry one more.
    fn collectors(&mut self, cx: &mut Cx<'_, Self>, attempt: u32) -> To {
        if self.params.complaints == Complaints::Broadcast {
            return To::All;
        }
        let (committee, me) = (cx.committee(), cx.me());
        let next = self.leaders.after(self.pacemaker.view());
        let leader = self.leaders.leader(committee, cx.blocks(), next, self.high_qc.block());
        let Some(leader) = leader else { return To::All };
        let mut to = ReplicaSet::EMPTY;
        let n = u64::try_from(committee.n()).unwrap_or(u64::MAX);
        for step in 0..=u64::from(attempt).min(n) {
            to.insert(committee.rotate(u64::from(leader.0).saturating_add(step)));
        }
        to.remove(me);
        if to.is_empty() { To::One(me) } else { To::Some(to) }
    }

    pub(super) fn on_complain(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        view: View,
        proof: &ViewProof,
        last_vote: Option<Signed<BlockVote>>,
    ) -> Result<(), Reject> {
        let (by, before) = (seal.by, self.pacemaker.view());
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        // H1, N3: what it carries counts, whatever is wrong with the rest.
        self.take_certificate(cx, &proof.qc, by);
        if self.lets_into(proof) != view {
            return Err(Reject::Invalid("not the view that it proves"));
        }
        if let Some(vote) = last_vote {
            if vote.by != by {
                return Err(Reject::Invalid("somebody else's vote"));
            }
            // N4. §7c: a vote that went to a dead leader makes its certificate all the same.
            let _: Result<(), Reject> = self.on_vote(cx, vote);
        }
        self.take_timeouts(cx, proof);
        // N5. §7: whoever is behind is shown what let this replica into its view.
        let is_behind = view < self.pacemaker.view() || proof.qc.view() < self.high_qc.view();
        if is_behind && by != cx.me() && self.pacemaker.may_show(by, cx.now()) {
            cx.send_unheld(To::One(by), HotStuffMessage::NextView(self.proof()));
        }
        if view < self.pacemaker.view() {
            return Err(Reject::Stale);
        }
        self.pacemaker.note(by, view, proof.qc.view(), signature);
        if self.params.complaints == Complaints::Linear && self.pacemaker.view() > before {
            cx.send_unheld(To::All, HotStuffMessage::NextView(self.proof()));
        }
        self.count_complaints(cx);
        Ok(())
    }

    fn count_complaints(&mut self, cx: &mut Cx<'_, Self>) {
        let who = self.pacemaker.who_gave_up();
        // N6. §7, amplification: f + 1 complain, so an honest replica does.
        let joins = self.params.complaints == Complaints::Broadcast && !self.pacemaker.has_given_up();
        if joins && who.len() >= cx.committee().weak() {
            self.complain(cx);
        }
        // N1. A quorum of them, the own one from its own copy, lets everybody on.
        if let Some(timeouts) = self.pacemaker.certificate(cx.committee().quorum()) {
            let view = self.leaders.after(timeouts.view);
            let proof = ViewProof { qc: self.high_qc.clone(), timeouts: Some(timeouts.clone()) };
            self.pacemaker.note_shown(cx.committee().ids(), cx.now());
            cx.send_unheld(To::All, HotStuffMessage::NextView(proof));
            self.enter(cx, view, Some(timeouts));
        }
    }

    /// §7 `process_nvc`.
    pub(super) fn take_timeouts(&mut self, cx: &mut Cx<'_, Self>, proof: &ViewProof) {
        if let Some(timeouts) = &proof.timeouts {
            self.enter(cx, self.leaders.after(timeouts.view), Some(timeouts.clone()));
        }
    }
}
