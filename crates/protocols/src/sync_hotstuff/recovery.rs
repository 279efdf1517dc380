//! Recovery (§18): questions, answers, and the stages that follow from them. S16 and R14.

use super::replica::{Form, SyncHotStuff, Timer, noted};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Cx, Reject, Signed, To};
use quorate_types::{BlockId, Height, Incarnation, ReplicaId, Signature};

impl<F: Form> SyncHotStuff<F> {
    /// Asks peers that are due to be asked, and enters a stage that time alone allows.
    pub(super) fn continue_recovery(&mut self, cx: &mut Cx<'_, Self>) {
        let (committee, me, now) = (cx.committee(), cx.me(), cx.now());
        let peers = self.recovery.peers_to_ask(committee, me, now);
        if !peers.is_empty() {
            cx.send_unheld(To::Some(peers), F::ask(self));
        }
        self.advance_recovery(cx);
    }

    /// Asks all peers what has become of the view.
    pub(super) fn ask_all(&mut self, cx: &mut Cx<'_, Self>) {
        self.asked_all_at = cx.now();
        cx.send_unheld(To::All, F::ask(self));
    }

    /// Enters the next stage as soon as its time has come.
    pub(super) fn advance_recovery(&mut self, cx: &mut Cx<'_, Self>) {
        let committee = cx.committee();
        while (!self.recovery.is_silent() || F::is_whole(self, cx))
            && let Some(stage) = self.recovery.advance(committee, cx.now())
        {
            let began = std::mem::replace(&mut self.has_begun, true);
            let is_running = stage == RecoveryStage::Running;
            self.note(cx, if is_running { noted::RUNNING } else { noted::VOTING }, Height::ZERO);
            let above = self.chain.committed().height;
            cx.send_unheld(To::All, F::answer(self, cx.me(), Incarnation::ZERO, above));
            if !began {
                F::resume(self, cx);
            }
        }
        match self.recovery.deadline(cx.now()) {
            Some(at) => cx.timers().set(Timer::Recover, at),
            None => cx.timers().cancel(Timer::Recover),
        }
    }

    /// Handles the loss of messages of a peer.
    pub(super) fn on_gap(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let (committee, now) = (cx.committee(), cx.now());
        if self.recovery.note_gap(peer, committee, now) {
            // With more than f such peers anything may be missing: the replica recovers as after opening.
            self.has_begun = false;
            F::fall_silent(self);
            let keep = |timer| matches!(timer, Timer::Recover | Timer::Fetch);
            cx.timers().retain(keep);
            self.note(cx, noted::SILENT, Height::ZERO);
        }
        self.continue_recovery(cx);
    }

    pub(super) fn on_connected(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        if self.recovery.note_connected(peer, cx.now()) {
            cx.send_unheld(To::One(peer), F::ask(self));
        }
        self.advance_recovery(cx);
    }

    /// Answers a recovering peer, unless it asks too often.
    pub(super) fn on_ask(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        incarnation: Incarnation,
        above: Height,
    ) -> Result<(), Reject> {
        if !self.answer_quota.admits(link, cx.now(), self.delta.times(1)) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        cx.send_unheld(To::One(link), F::answer(self, cx.me(), incarnation, above));
        Ok(())
    }

    /// Whether an answer is to this incarnation, or to nobody's question.
    pub(super) fn is_answered(&self, incarnation: Incarnation) -> bool {
        incarnation == Incarnation::ZERO || incarnation == self.incarnation
    }
}

/// Returns the last vote with the signature of its own copy, if that copy has arrived.
pub(super) fn signed_vote<H: Clone>(
    me: ReplicaId,
    voted: Option<&H>,
    own_copy: Option<(BlockId, Signature)>,
    id: impl Fn(&H) -> BlockId,
) -> Option<Signed<H>> {
    let (header, (block, signature)) = (voted?, own_copy?);
    (id(header) == block).then(|| Signed { body: header.clone(), by: me, signature })
}
