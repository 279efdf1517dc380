//! Rounds: entering, relays, waits, blames and skip certificates (`apollo` §5 to §7, §18).

use super::entries::Origin;
use super::entry::{Entry, EntryRef, RoundProof};
use super::message::UniqueMessage;
use super::replica::{Form, InRound, Timer, UniqueChain, noted};
use super::statements::author;
use quorate_consensus::parts::blames::blame;
use quorate_consensus::parts::guarded_wait::{GuardedWait, WaitStep};
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::{Certificate, Cx, Reject, Seal, To};
use quorate_types::{Height, ReplicaId, View};

/// The way into a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EnteredBy {
    /// The own entry of the round before, which its author receives anyway.
    OwnEntry,
    /// Anything else.
    Other,
}

/// A proof of a later round whose tip is not accepted.
#[derive(Debug)]
pub(super) struct WaitingProof {
    round: View,
    tip_round: View,
    skips: Vec<Certificate>,
}

impl<F: Form> UniqueChain<F> {
    /// Returns the proof of the current round. There is none while the tip's acceptance is about to end the round. Nor is there one
    /// after blocks were adopted that peers have decided, because their entries may be unknown.
    pub(super) fn proof(&self) -> Option<RoundProof<F::Entry>> {
        let (round, place) = (self.round.number, self.entries.tip());
        let tip = self.entries.get(place.id).cloned();
        if (tip.is_none() && place != EntryRef::GENESIS) || place.round >= round {
            return None;
        }
        let skips: Vec<Certificate> =
            self.skips.range(place.round.next()..round).map(|(_, skip)| skip.clone()).collect();
        let is_whole = place.round.plus(u64::try_from(skips.len()).unwrap_or(u64::MAX)).next() == round;
        is_whole.then(|| RoundProof { round, tip, skips, resync: round <= self.resync_until })
    }

    fn send_proof(&self, cx: &mut Cx<'_, Self>, to: To) {
        if let Some(proof) = self.proof() {
            cx.send_unheld(to, UniqueMessage::Proof(Box::new(proof)));
        }
    }

    /// U5. §5, enter_round: the author of the round receives a relay always, however the round was reached. Safety depends on
    /// it: without the relay it would propose late, and be blamed.
    pub(super) fn enter_round(&mut self, cx: &mut Cx<'_, Self>, round: View, by: EnteredBy) {
        if round <= self.round.number {
            return;
        }
        self.begin_round(cx, round);
        if self.leader != cx.me() && by == EnteredBy::Other {
            self.send_proof(cx, To::One(self.leader));
        }
        if !self.recovery.is_silent() {
            self.begin_wait(cx);
        }
        F::on_round(self, cx);
        self.take_far(cx);
        // Blames of this round may have arrived before it began.
        if self.round.number == round
            && let Some(skip) = self.blames.certificate(round, cx.committee().weak())
        {
            self.skip_round(cx, skip);
        }
    }

    /// Replaces the state of the round. U13: the messages of its author are read first.
    pub(super) fn begin_round(&mut self, cx: &mut Cx<'_, Self>, round: View) {
        self.round = InRound { number: round, ..InRound::default() };
        self.leader = author(cx.committee(), round);
        cx.urgent(Some(self.leader).filter(|leader| *leader != cx.me()));
        cx.timers().cancel(Timer::Speak);
        cx.timers().cancel(Timer::Round);
    }

    /// U6. §6: begins the wait after which the author of the round is blamed.
    pub(super) fn begin_wait(&mut self, cx: &mut Cx<'_, Self>) {
        let ns = F::round_ns(self);
        self.round.wait = Some(GuardedWait::begin(cx.now(), ns));
        self.round.entered.get_or_insert(cx.now());
        let at = cx.now().plus(ns);
        cx.timers().set(Timer::Round, at);
    }

    /// U7. §5, §6: the wait lasts 2 Δ from the author's own copy on, if something has to be fetched from it; once in a round.
    /// Bodies that may be on their way are asked for a quarter of Δ later.
    pub(super) fn grant_grace(&mut self, cx: &mut Cx<'_, Self>) {
        if std::mem::replace(&mut self.round.graced, true) {
            return;
        }
        let until = cx.now().plus(self.delta.times(2)).plus(self.delta.quarter());
        if let Some(GuardedWait::Wait { over, .. }) = &mut self.round.wait
            && *over < until
        {
            *over = until;
            cx.timers().set(Timer::Round, until);
        }
    }

    /// U8. §5, §18: blames the author of the round when the wait is over, and not in doubt.
    pub(super) fn step_wait(&mut self, cx: &mut Cx<'_, Self>) {
        if self.recovery.is_silent() {
            return; // `sync-hotstuff` §18: the wait begins when silence is over.
        }
        let Some(wait) = &mut self.round.wait else { return };
        let now = cx.now();
        match wait.step(now, self.delta, |since, fresh| cx.sound(since, fresh)) {
            WaitStep::Stay => {}
            WaitStep::Act => {
                self.blame(cx);
                // Repeated, because a receiver may be restarting.
                self.begin_wait(cx);
            }
            WaitStep::Answered => self.begin_wait(cx),
            WaitStep::CheckAgain => {
                let at = now.plus(self.delta.times(1));
                cx.timers().set(Timer::Round, at);
            }
            WaitStep::Ask => {
                self.ask_all(cx);
                let at = now.plus(self.delta.times(2));
                cx.timers().set(Timer::Round, at);
            }
        }
    }

    fn blame(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(proof) = self.proof() else { return };
        let round = proof.round;
        if self.leader != cx.me() {
            self.signs.blamed = Some((round, cx.now()));
        }
        self.note(cx, noted::BLAMED, round, Height::ZERO);
        cx.send_unheld(To::All, UniqueMessage::Blame(Box::new(proof)));
    }

    /// U9. §5: f + 1 blames, of which one is honest, are a skip certificate.
    pub(super) fn on_blame(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        proof: RoundProof<F::Entry>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let round = proof.round;
        if round < self.round.number {
            // The peer is behind, and this proof brings it here.
            self.help(cx, link);
            return Err(Reject::Stale);
        }
        let _: Result<(), Reject> = self.take_proof(cx, proof, link);
        match self.blames.add(seal, round, cx.committee().weak())? {
            Some(skip) if round == self.round.number => self.skip_round(cx, skip),
            _ => {}
        }
        Ok(())
    }

    /// Skips the current round, and shows all peers why.
    fn skip_round(&mut self, cx: &mut Cx<'_, Self>, skip: Certificate) {
        let round = self.round.number;
        self.signs.skipped = self.signs.skipped.saturating_add(1);
        self.note(cx, noted::SKIPPED, round, Height::ZERO);
        self.note_skip(cx, skip);
        self.enter_round(cx, round.next(), EnteredBy::Other);
        self.send_proof(cx, To::All);
    }

    /// Keeps a skip certificate of a round above the tip.
    fn note_skip(&mut self, cx: &mut Cx<'_, Self>, skip: Certificate) {
        let round = skip.view();
        debug_assert_eq!(skip.statement, blame(round), "claims have been checked");
        self.note_skipped(cx, round.minus(1), round.next());
        if round > self.entries.tip().round {
            self.skips.entry(round).or_insert(skip);
        }
    }

    /// Sends a peer that is behind the proof of this replica's round, at a limited rate.
    fn help(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let (now, delta_ns) = (cx.now(), self.delta.times(1));
        if peer != cx.me() && self.served.proofs.admits(peer, now, delta_ns, 1) {
            self.send_proof(cx, To::One(peer));
        }
    }

    /// §5: handles a relay.
    pub(super) fn on_proof(
        &mut self,
        cx: &mut Cx<'_, Self>,
        proof: RoundProof<F::Entry>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        // §7: a replica that has recovered lately may have missed the messages that would bring it here.
        if proof.resync && proof.round < self.round.number {
            self.help(cx, link);
        }
        self.take_proof(cx, proof, link)
    }

    /// U10. §5: takes the tip of a proof, and enters its round once that tip is accepted. A tip whose round is no higher than
    /// that of the own tip is not needed: the own tip and the last skip certificates prove as much.
    pub(super) fn take_proof(
        &mut self,
        cx: &mut Cx<'_, Self>,
        proof: RoundProof<F::Entry>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let RoundProof { round, tip, skips, .. } = proof;
        let mut tip_round = View::ZERO;
        if let Some(tip) = tip {
            tip_round = tip.entry.round();
            // U12: an entry beside the own chain may prove a conflict.
            let place = tip.entry.place();
            let is_useful = self.entries.is_unknown_base(place) || self.is_beside(place);
            if tip_round > self.entries.tip().round || is_useful {
                // The proof counts even if its tip is refused.
                let _: Result<(), Reject> = self.take_entry(cx, tip, link, Origin::Tip);
            }
        }
        self.note_skipped(cx, tip_round, round);
        if round <= self.round.number {
            return Err(Reject::Stale);
        }
        let waiting = WaitingProof { round, tip_round, skips };
        if tip_round <= self.entries.tip().round {
            self.adopt_proof(cx, waiting);
        } else if self.inbox.proofs.get(&link).is_none_or(|known| known.round <= round) {
            self.inbox.proofs.insert(link, waiting);
        }
        Ok(())
    }

    /// Keeps the skip certificates of a proof whose tip is accepted, and enters its round.
    fn adopt_proof(&mut self, cx: &mut Cx<'_, Self>, proof: WaitingProof) {
        proof.skips.into_iter().for_each(|skip| self.note_skip(cx, skip));
        self.enter_round(cx, proof.round, EnteredBy::Other);
    }

    /// Adopts the proofs whose tips are accepted by now.
    pub(super) fn take_waiting_proofs(&mut self, cx: &mut Cx<'_, Self>) {
        let (tip, cur) = (self.entries.tip().round, self.round.number);
        let is_due = |proof: &WaitingProof| proof.tip_round <= tip || proof.round <= cur;
        let due: Vec<ReplicaId> =
            self.inbox.proofs.iter().filter(|(_, proof)| is_due(proof)).map(|(peer, _)| *peer).collect();
        for peer in due {
            if let Some(proof) = self.inbox.proofs.remove(&peer) {
                self.adopt_proof(cx, proof);
            }
        }
    }
}
