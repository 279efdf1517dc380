//! Recovery (`sync-hotstuff` §18, `apollo` §7, §17). U14.

use super::entries::Origin;
use super::entry::{Entry, RoundProof, rounds_ahead};
use super::message::{Answer, UniqueMessage};
use super::replica::{Form, MessageOf, Timer, UniqueChain, noted};
use quorate_consensus::parts::recovery::{Recovery, RecoveryStage};
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::{Cx, Reject, To};
use quorate_types::{Height, Incarnation, ReplicaId, View};

impl<F: Form> Recovers for UniqueChain<F> {
    const RECOVER: Timer = Timer::Recover;

    fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    fn delta_ns(&self) -> u64 {
        self.delta.times(1)
    }

    fn question(&self) -> MessageOf<F> {
        let proof = RoundProof { resync: true, ..self.shown_proof() };
        UniqueMessage::Ask { incarnation: self.recovery.incarnation(), proof: Box::new(proof) }
    }

    fn report(&self, _: ReplicaId, incarnation: Incarnation, _: Height) -> MessageOf<F> {
        let own = self.own.as_ref().map(|own| own.entry.id());
        UniqueMessage::Answer(Box::new(Answer {
            incarnation,
            stage: self.recovery.stage(),
            proof: self.shown_proof(),
            last: own.and_then(|id| self.entries.get(id)).cloned(),
        }))
    }

    fn reports_above(&self) -> Height {
        Height::ZERO
    }

    /// Full waits follow silence, and they are longer than a fetch: nothing has to be complete before.
    fn is_whole(&mut self, _: &mut Cx<'_, Self>) -> bool {
        true
    }

    fn note_stage(&self, cx: &mut Cx<'_, Self>, stage: RecoveryStage) {
        let what = match stage {
            RecoveryStage::Silent => noted::SILENT,
            RecoveryStage::Voting => noted::VOTING,
            RecoveryStage::Running => noted::RUNNING,
        };
        self.note(cx, what, self.round.number, Height::ZERO);
    }

    /// §7: full waits, and the own last entry again. For n rounds relays are flagged.
    fn resume(&mut self, cx: &mut Cx<'_, Self>) {
        self.resync_until = self.round.number.plus(rounds_ahead(cx.committee()));
        self.begin_wait(cx);
        if let Some(own) = &self.own {
            let (entry, skips) = (own.entry.clone(), own.skips.clone());
            cx.send(To::All, UniqueMessage::Entry { entry, skips });
        }
        F::resume(self, cx);
    }

    fn fall_silent(&mut self, cx: &mut Cx<'_, Self>) {
        self.round.wait = None;
        cx.timers().retain(|timer| matches!(timer, Timer::Recover | Timer::Fetch));
    }
}

impl<F: Form> UniqueChain<F> {
    /// Returns the proof of the current round, or that of the first one where the tip's entry is unknown.
    fn shown_proof(&self) -> RoundProof<F::Entry> {
        let first = RoundProof { round: View(1), tip: None, skips: Vec::new(), resync: false };
        self.proof().unwrap_or(first)
    }

    /// §17: repeats the own last entry to an asker whose answer lacks it. Its acceptance is durable later than the entry itself, so
    /// a power cut may take the acceptance with the signature. The asker may have forgotten the entry, and must not blame it.
    pub(super) fn repeat_own(&self, cx: &mut Cx<'_, Self>, asker: ReplicaId) {
        let Some(own) = &self.own else { return };
        let place = own.entry.place();
        if place.round > self.entries.base().round && !self.entries.contains(place.id) {
            let (entry, skips) = (own.entry.clone(), own.skips.clone());
            cx.send(To::One(asker), UniqueMessage::Entry { entry, skips });
        }
    }

    pub(super) fn on_answer(
        &mut self,
        cx: &mut Cx<'_, Self>,
        link: ReplicaId,
        answer: Answer<F::Entry>,
    ) -> Result<(), Reject> {
        let Answer { incarnation, stage, proof, last } = answer;
        if !self.recovery.is_answered(incarnation) {
            return Err(Reject::Stale);
        }
        // Entries first: they count before this replica blames anybody.
        if let Some(last) = last {
            let _: Result<(), Reject> = self.take_entry(cx, last, link, Origin::Tip);
        }
        let _: Result<(), Reject> = self.take_proof(cx, proof, link);
        self.recovery.note_answer(link, stage);
        self.advance_recovery(cx);
        Ok(())
    }
}
