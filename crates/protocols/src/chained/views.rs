//! The pacemaker (§7), the idle rule (§15), and a leader's wait (`hotstuff2`).
//!
//! A certificate alone changes the view. A replica whose timer expires sends a TIMEOUT and stays in its view. A quorum of
//! timeouts is the certificate that lets all replicas into the next view; it comes with the highest certificate for a
//! block that any of them knows.

use super::message::listed;
use super::{Chained, Content, InView, LeaderWait, Rules, Timer, noted};
use quorate_consensus::parts::pacemaker::Complaints;
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Cx, Reject, Seal, Signed, To};
use quorate_types::{Height, ReplicaId, ReplicaSet, View};

impl<R: Rules> Chained<R> {
    /// Whether the highest certificate is that of the view before.
    fn follows(&self) -> bool {
        self.high_qc.view().next() == self.pacemaker.view()
    }

    /// Returns the proof of the current view: the highest certificate, and timeouts where it is not of the view before.
    pub(super) fn proof(&self) -> ViewProof {
        let timeouts = self.pacemaker.timeouts().filter(|_| !self.follows()).cloned();
        ViewProof { qc: self.high_qc.clone(), timeouts }
    }

    /// Returns the view that a proof lets into (§7 `after`).
    pub(super) fn lets_into(&self, proof: &ViewProof) -> View {
        // With terms a certificate of the failed view may arrive as well, and lead less far.
        let after = proof.timeouts.as_ref().map(|timeouts| self.leaders.after(timeouts.view));
        proof.qc.view().next().max(after.unwrap_or_default())
    }

    /// §7 `enter_view`. N1: enters a later view, for which the caller has a certificate.
    pub(super) fn enter(&mut self, cx: &mut Cx<'_, Self>, view: View, timeouts: Option<TimeoutCertificate>) {
        let by_timeout = timeouts.is_some();
        if !self.pacemaker.enter(view, timeouts) {
            return;
        }
        self.in_view = InView { must_propose: by_timeout, ..InView::default() };
        self.find_leader(cx);
        if by_timeout {
            self.begin_leader_wait(cx);
            self.last_view_change = R::NOTES.view_change;
            self.note(cx, noted::VIEW_CHANGE, Height::ZERO);
        }
        self.busy = self.is_busy(cx);
        self.arm(cx);
        self.lead(cx);
    }

    /// Does the leader's work in the current view: proposes, or announces that it has nothing to propose.
    fn lead(&mut self, cx: &mut Cx<'_, Self>) {
        if self.in_view.leader != Some(cx.me()) || self.proposed >= self.pacemaker.view() {
            return;
        }
        if self.busy || self.in_view.must_propose {
            if !self.waits_for_certificates(cx) {
                self.try_propose(cx);
            }
        } else if !std::mem::replace(&mut self.in_view.has_announced, true) {
            // N8. §15: all replicas learn the certificate that completed the last commit.
            cx.send_unheld(To::All, Content::Advance(self.proof()).into());
        }
    }

    /// Begins the leader's wait in a view that was entered by timeouts: 2 Δ, a third of the view's timer.
    pub(super) fn begin_leader_wait(&mut self, cx: &mut Cx<'_, Self>) {
        if R::LEADER_WAITS {
            let until = cx.now().plus(self.pacemaker.duration_ns() / 3);
            self.in_view.leader_wait = Some(LeaderWait { until, heard: ReplicaSet::EMPTY });
        }
    }

    /// Whether the leader waits for the highest certificates of other replicas. The wait ends early when all have sent
    /// theirs, or when the certificate of the view before is known: none is higher.
    fn waits_for_certificates(&self, cx: &mut Cx<'_, Self>) -> bool {
        let Some(wait) = self.in_view.leader_wait.filter(|_| !self.follows()) else { return false };
        let has_all = wait.heard.len().saturating_add(1) >= cx.committee().n();
        if has_all || cx.now() >= wait.until {
            return false;
        }
        cx.timers().set(Timer::LeaderWait, wait.until);
        true
    }

    /// Sends this replica's highest certificate to the leader of a view that it has just entered otherwise than by the
    /// leader's proposal.
    pub(super) fn report(&mut self, cx: &mut Cx<'_, Self>, from: ReplicaId) {
        if !R::LEADER_WAITS || std::mem::replace(&mut self.in_view.has_reported, true) {
            return;
        }
        let leader = self.in_view.leader;
        let leader_has_it = leader == Some(from) && self.follows();
        if leader != Some(cx.me()) && !leader_has_it {
            let to = leader.map_or(To::All, To::One);
            cx.send_unheld(to, Content::Advance(self.proof()).into());
        }
    }

    /// Determines the leader of the current view from the highest certificate. N11: its messages are read first. After a vote
    /// the next message that matters is the next leader's, which leads the view that this replica then enters.
    pub(super) fn find_leader(&mut self, cx: &mut Cx<'_, Self>) {
        let (committee, view) = (cx.committee(), self.pacemaker.view());
        self.in_view.leader = self.leaders.leader(committee, cx.blocks(), view, self.high_qc.block());
        self.urgent.follow(cx, self.in_view.leader);
    }

    /// Restarts the timer of the current view if work waits, and cancels it otherwise.
    fn arm(&mut self, cx: &mut Cx<'_, Self>) {
        self.has_executed = false;
        if self.busy {
            let at = cx.now().plus(self.pacemaker.duration_ns());
            cx.timers().set(Timer::View, at);
        } else {
            cx.timers().cancel(Timer::View);
        }
    }

    /// N7. §15: whether work waits that this replica knows of.
    fn is_busy(&self, cx: &mut Cx<'_, Self>) -> bool {
        cx.pending().undecided > 0 || !self.chain.is_quiet(cx.blocks(), &self.high_qc)
    }

    /// §15: arms or cancels the timer and does the leader's work after each event, which may have made this replica busy
    /// or idle.
    pub(super) fn update_activity(&mut self, cx: &mut Cx<'_, Self>) {
        let committee = cx.committee();
        self.leaders.keep_up(committee, cx.blocks(), self.chain.committed().id);
        let is_busy = self.is_busy(cx);
        if std::mem::replace(&mut self.busy, is_busy) != is_busy {
            self.arm(cx);
        }
        if self.in_view.leader.is_none() {
            self.find_leader(cx);
        }
        self.lead(cx);
    }

    pub(super) fn on_view_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.busy {
            return;
        }
        // N10: the lag of this replica's own execution is no fault of the leader, as long as the execution goes on.
        if !(cx.pending().lagging && self.has_executed) {
            self.time_out(cx);
        }
        self.arm(cx);
    }

    /// §7 `complain`: times out in the current view, or sends the timeout again.
    pub(super) fn time_out(&mut self, cx: &mut Cx<'_, Self>) {
        let view = self.pacemaker.view();
        let attempt = self.pacemaker.time_out();
        self.rules.note_timeout(self.leaders.after(view).minus(1));
        let last_vote = self.own_vote.filter(|vote| vote.body.view > self.high_qc.view());
        // N2. §2: the next leader relies on the certificate, and the rules on their state.
        self.record(cx);
        let to = self.timeout_receivers(cx, attempt);
        cx.send(to, Content::Timeout(view, self.proof(), last_vote).into());
        self.note(cx, R::NOTES.timed_out, Height::ZERO);
    }

    /// Returns the receivers of a timeout: all, or the next leader and one more replica with each further expiry.
    fn timeout_receivers(&mut self, cx: &mut Cx<'_, Self>, attempt: u32) -> To {
        if self.complaints == Complaints::Broadcast {
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

    pub(super) fn on_timeout(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        view: View,
        proof: &ViewProof,
        last_vote: Option<Signed<BlockVote>>,
    ) -> Result<(), Reject> {
        let (by, before) = (seal.by, self.pacemaker.view());
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        // C1, N3: the certificate counts even if the rest of the message is wrong.
        self.take_certificate(cx, &proof.qc, by);
        if self.lets_into(proof) != view {
            return Err(Reject::Invalid("not the view that it proves"));
        }
        if let Some(vote) = last_vote {
            if vote.by != by {
                return Err(Reject::Invalid("somebody else's vote"));
            }
            // N4. §7c: a vote whose collector has crashed completes its certificate all the same.
            let _: Result<(), Reject> = self.on_vote(cx, vote);
        }
        self.take_timeouts(cx, proof);
        // N5. §7: a replica that is behind receives the proof of this replica's view.
        let is_behind = view < self.pacemaker.view() || proof.qc.view() < self.high_qc.view();
        if is_behind && by != cx.me() && self.pacemaker.may_send_proof(by, cx.now()) {
            cx.send_unheld(To::One(by), Content::Advance(self.proof()).into());
        }
        if view < self.pacemaker.view() {
            return Err(Reject::Stale);
        }
        self.pacemaker.add_timeout(by, view, listed::<R>(proof.qc.view()), signature);
        if self.complaints == Complaints::Linear && self.pacemaker.view() > before {
            cx.send_unheld(To::All, Content::Advance(self.proof()).into());
        }
        self.count_timeouts(cx);
        Ok(())
    }

    fn count_timeouts(&mut self, cx: &mut Cx<'_, Self>) {
        let count = self.pacemaker.timed_out().len();
        // N6. §7, amplification: one of f + 1 replicas that have timed out is honest.
        let joins = self.complaints == Complaints::Broadcast && !self.pacemaker.has_timed_out();
        if joins && count >= cx.committee().weak() {
            self.time_out(cx);
        }
        // N1. A quorum of timeouts lets all replicas on. The own timeout counts from its own copy.
        if let Some(timeouts) = self.pacemaker.certificate(cx.committee().quorum()) {
            let view = self.leaders.after(timeouts.view);
            let proof = ViewProof { qc: self.high_qc.clone(), timeouts: Some(timeouts.clone()) };
            self.pacemaker.note_proof_sent(cx.committee().ids(), cx.now());
            cx.send_unheld(To::All, Content::Advance(proof).into());
            self.enter(cx, view, Some(timeouts));
            self.in_view.has_reported = true;
        }
    }

    pub(super) fn on_advance(&mut self, cx: &mut Cx<'_, Self>, from: ReplicaId, proof: &ViewProof) {
        self.take_certificate(cx, &proof.qc, from);
        self.take_timeouts(cx, proof);
        if self.lets_into(proof) == self.pacemaker.view()
            && from != cx.me()
            && let Some(wait) = &mut self.in_view.leader_wait
        {
            wait.heard.insert(from);
        }
    }

    /// §7 `process_nvc`: enters the view that timeouts let into.
    pub(super) fn take_timeouts(&mut self, cx: &mut Cx<'_, Self>, proof: &ViewProof) {
        if let Some(timeouts) = &proof.timeouts {
            self.enter(cx, self.leaders.after(timeouts.view), Some(timeouts.clone()));
        }
    }
}
