//! Questions and answers of recovery (`sync-hotstuff` §18), and the stages that follow from them, for every synchronous
//! protocol.

use super::recovery::{Recovery, RecoveryStage};
use crate::effect::To;
use crate::protocol::{Cx, Protocol};
use crate::reject::Reject;
use quorate_types::{Height, Incarnation, ReplicaId, Time};

/// A protocol whose replicas recover. The protocol calls the provided methods and implements the others.
pub trait Recovers: Protocol {
    /// The timer that leads to [`Recovers::continue_recovery`].
    const RECOVER: Self::Timer;

    /// Returns the state of the recovery.
    fn recovery(&self) -> &Recovery;
    /// Returns the state of the recovery, to be changed.
    fn recovery_mut(&mut self) -> &mut Recovery;
    /// Returns Δ as a timer.
    fn delta_ns(&self) -> u64;
    /// Returns the question of a recovering replica.
    fn question(&self) -> Self::Message;
    /// Returns the answer to a recovering peer that knows everything up to `above`.
    fn report(&self, me: ReplicaId, incarnation: Incarnation, above: Height) -> Self::Message;
    /// Returns the height above which reports to all have content.
    fn reports_above(&self) -> Height;
    /// Whether this silent replica has all blocks without which it could not take part. Missing ones are fetched.
    fn is_whole(&mut self, cx: &mut Cx<'_, Self>) -> bool;
    /// Notes a new stage in the trace.
    fn note_stage(&self, cx: &mut Cx<'_, Self>, stage: RecoveryStage);
    /// Repeats the last statements unchanged and begins all waits anew: silence is over.
    fn resume(&mut self, cx: &mut Cx<'_, Self>);
    /// Ends all waits and their timers: this replica has become silent.
    fn fall_silent(&mut self, cx: &mut Cx<'_, Self>);

    /// Asks peers that are due to be asked, and enters a stage that time alone allows.
    fn continue_recovery(&mut self, cx: &mut Cx<'_, Self>) {
        let (committee, me, now) = (cx.committee(), cx.me(), cx.now());
        let peers = self.recovery_mut().peers_to_ask(committee, me, now);
        if !peers.is_empty() {
            cx.send_unheld(To::Some(peers), self.question());
        }
        self.advance_recovery(cx);
    }

    /// Asks all peers for all that this replica may have missed.
    fn ask_all(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        self.recovery_mut().asked_all_at = now;
        cx.send_unheld(To::All, self.question());
    }

    /// Enters the next stage as soon as its time has come.
    fn advance_recovery(&mut self, cx: &mut Cx<'_, Self>) {
        let committee = cx.committee();
        while (!self.recovery().is_silent() || self.is_whole(cx))
            && let Some(stage) = self.recovery_mut().advance(committee, cx.now())
        {
            let began = std::mem::replace(&mut self.recovery_mut().has_begun, true);
            self.note_stage(cx, stage);
            cx.send_unheld(To::All, self.report(cx.me(), Incarnation::ZERO, self.reports_above()));
            if !began {
                self.resume(cx);
            }
        }
        match self.recovery().deadline(cx.now()) {
            Some(at) => cx.timers().set(Self::RECOVER, at),
            None => cx.timers().cancel(Self::RECOVER),
        }
    }

    /// Handles the loss of messages of a peer. With more than f such peers anything may be missing: the replica recovers as
    /// after opening.
    fn on_gap(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let (committee, now) = (cx.committee(), cx.now());
        if self.recovery_mut().note_gap(peer, committee, now) {
            self.fall_silent(cx);
            self.note_stage(cx, RecoveryStage::Silent);
        }
        self.continue_recovery(cx);
    }

    /// Handles a link to a peer that is up.
    fn on_connected(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let now = cx.now();
        if self.recovery_mut().note_connected(peer, now) {
            cx.send_unheld(To::One(peer), self.question());
        }
        self.advance_recovery(cx);
    }

    /// Answers a recovering peer, unless it asks too often.
    ///
    /// # Errors
    /// Fails when the peer has had its answers for now.
    fn on_ask(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        incarnation: Incarnation,
        above: Height,
    ) -> Result<(), Reject> {
        let (now, delta_ns): (Time, u64) = (cx.now(), self.delta_ns());
        if !self.recovery_mut().quota.admits(link, now, delta_ns, 1) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        cx.send_unheld(To::One(link), self.report(cx.me(), incarnation, above));
        Ok(())
    }
}
