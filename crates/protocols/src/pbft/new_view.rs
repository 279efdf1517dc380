//! Beginning a view (§8): NEW-VIEW, its check by every receiver, and what the view takes over.

use super::select::{Selected, Sizes, select};
use super::variant::Variant;
use super::view_message::{EntryProof, NewView, ViewChange};
use super::{Pbft, PbftMessage, PbftRecord, Timer, noted, reason};
use quorate_consensus::{Alarm, Cx, Ready, Reject, Signed, To};
use quorate_types::{BlockId, Height, ReplicaId};

impl<V: Variant> Pbft<V> {
    fn sizes(&self, cx: &Cx<'_, Self>) -> Sizes {
        Sizes { quorum: cx.committee().quorum(), weak: cx.committee().weak(), window: self.window }
    }

    /// The last height that the current view took over (`new_view_max_s`): its leader proposes above it.
    pub(super) fn last_taken_over(&self) -> Height {
        self.current.taken_over.as_ref().map_or(Height::ZERO, Selected::max)
    }

    /// How a block stands that may be the null block of its height, which needs no bodies.
    pub(super) fn readiness(cx: &Cx<'_, Self>, height: Height, block: BlockId) -> Option<Ready> {
        if block == BlockId::null(height) { Some(Ready::Valid) } else { cx.ready(block) }
    }

    /// V6. The leader of the view to come tries again with each view change that it gets: one liar can make `select`
    /// wait for more than a quorum, and the honest ones alone always suffice.
    pub(super) fn try_new_view(&mut self, cx: &mut Cx<'_, Self>) {
        let view = self.current.view;
        let is_made = self.changes.own_new_view.as_ref().is_some_and(|new| new.view == view);
        if self.current.normal || self.current.leader != cx.me() || is_made {
            return;
        }
        let kept = self.changes.received.of_view(view);
        let set: Vec<&ViewChange> = kept.iter().map(|change| &change.body).collect();
        let Some(selected) = select::<V>(&set, self.sizes(cx)) else {
            return;
        };
        if selected.min > self.progress.stable {
            // Its own window ends below some of X: it could not enter that into Q. It is tried again with the checkpoint.
            let proofs = set.iter().map(|change| &change.proof);
            if let Some(best) = proofs.max_by_key(|proof| proof.checkpoint.height) {
                cx.catch_up(best);
            }
            return;
        }
        let changes = kept.iter().map(|change| Signed::clone(change)).collect();
        let new = NewView { view, changes, picks: selected.picks.clone() };
        // V7. The NEW-VIEW is the leader's vote for all that it takes over, as a PRE-PREPARE is for one block: Q has it
        // before it leaves, and the NEW-VIEW itself is durable, so that a restarted leader says the same. It comes
        // first: a log that ends between them says what belongs into Q.
        cx.record(&PbftRecord::NewView(Box::new(new.clone())));
        self.pre_prepare_all(cx, &selected.picks);
        self.changes.own_new_view = Some(Box::new(new.clone()));
        // The view begins here with the own copy, like everywhere else.
        cx.send(To::All, PbftMessage::NewView(Box::new(new)).into());
    }

    /// Enters into Q what is not there yet of what the own NEW-VIEW takes over.
    pub(super) fn pre_prepare_all(&mut self, cx: &mut Cx<'_, Self>, picks: &[(Height, BlockId)]) {
        let view = self.current.view;
        for (height, block) in picks.iter().copied() {
            // Below the window nobody needs it any more.
            if self.check_window(height).is_ok() && !self.instance(height).is_pre_prepared(block, view) {
                let record = self.instance(height).pre_prepare(height, block, view);
                cx.record(&record);
            }
        }
    }

    pub(super) fn on_new_view(&mut self, cx: &mut Cx<'_, Self>, new: Signed<NewView>) -> Result<(), Reject> {
        let view = new.body.view;
        if view < self.current.view {
            return Err(Reject::Stale);
        }
        if view == self.current.view && self.current.normal {
            return if new.by == cx.me() { Ok(()) } else { Err(Reject::Duplicate) };
        }
        // V8. §8, §14: from the leader of the view, and right.
        if new.by != self.leader_of(cx, view) {
            return Err(Reject::WrongSender);
        }
        match self.check_new_view(cx, &new.body) {
            Ok(selected) => {
                self.enter(cx, new, selected);
                Ok(())
            }
            Err(why) => {
                // V9. Only with a quorum behind it: a bad NEW-VIEW that one replica alone has seen must not push it on,
                // or f faulty leaders in a row would carry it f views ahead.
                if view == self.current.view && cx.timers().get(Timer::View).is_some() {
                    let quorum = cx.committee().quorum();
                    let proof = EntryProof::ViewChanges(self.changes.received.of_at_least(view, quorum));
                    self.start_view_change(cx, view.next(), reason::BAD_NEW_VIEW, proof);
                }
                Err(Reject::Invalid(why))
            }
        }
    }

    /// V8. V is a quorum of valid view changes of distinct members for exactly this view, and X is what `select` says
    /// of them. Signatures and proofs were checked by the intake.
    fn check_new_view(&self, cx: &Cx<'_, Self>, new: &NewView) -> Result<Selected, &'static str> {
        let distinct = new.changes.windows(2).all(|pair| matches!(pair, [a, b] if a.by < b.by));
        if !distinct || new.changes.len() < cx.committee().quorum() {
            return Err("too few view changes");
        }
        for change in &new.changes {
            if change.body.view != new.view || !cx.committee().contains(change.by) {
                return Err("view change for another view");
            }
            change.body.check(self.window)?;
            V::check_shown(&change.body, cx.committee(), &self.params)?;
        }
        let set: Vec<&ViewChange> = new.changes.iter().map(|change| &change.body).collect();
        match select::<V>(&set, self.sizes(cx)) {
            Some(selected) if selected.picks == new.picks => Ok(selected),
            _ => Err("another selection"),
        }
    }

    /// The view begins here.
    fn enter(&mut self, cx: &mut Cx<'_, Self>, new: Signed<NewView>, selected: Selected) {
        let view = new.body.view;
        let is_jump = view > self.current.view;
        if is_jump {
            self.leave_view(cx, view);
        }
        let why = if is_jump { reason::SHOWN } else { reason::BEGUN };
        // V10. §4: view and NEW-VIEW are durable before the first PREPARE of the view leaves.
        self.move_to(cx, view, true, why, EntryProof::NewView(Box::new(new)));
        self.note(cx, noted::NEW_VIEW, selected.max());
        cx.timers().cancel(Timer::Resend);
        if selected.min > self.progress.stable
            && let EntryProof::NewView(new) = &self.current.proof
        {
            let proofs = new.body.changes.iter().map(|change| &change.body.proof);
            if let Some(best) = proofs.max_by_key(|proof| proof.checkpoint.height) {
                cx.catch_up(best);
            }
        }
        // What lies above belongs to dead proposals.
        self.progress.known = self.progress.decided.max(self.progress.executed).max(selected.max());
        self.progress.stalled = self.progress.stalled.min(self.progress.known);
        self.progress.next = selected.max().next();
        self.current.taken_over = Some(selected);
        self.adopt(cx);
        self.take_early(cx);
        self.watch_leader(cx);
        self.tell_soon(cx);
        self.try_propose(cx);
        // SUSPECTs of others may have come before the view began here.
        self.check_suspects(cx);
    }

    /// V11. What the view takes over goes through PREPARE and COMMIT again, executed or not, so that laggards can
    /// finish. Called again when the window moves and after a restart.
    pub(super) fn adopt(&mut self, cx: &mut Cx<'_, Self>) {
        let (view, is_leader) = (self.current.view, self.current.leader == cx.me());
        let Some(taken) = self.current.taken_over.as_ref().filter(|_| self.current.normal) else {
            return;
        };
        let picks = taken.picks.clone();
        for (height, block) in picks {
            if self.check_window(height).is_err() {
                continue;
            }
            let instance = self.instance(height);
            if instance.proposal == Some((view, block)) {
                continue;
            }
            if let Some(first) = instance.decided.filter(|first| *first != block) {
                // I2.
                cx.alarm(Alarm::SafetyBroken { height, first, second: block });
                continue;
            }
            instance.proposal = Some((view, block));
            if is_leader && !instance.is_pre_prepared(block, view) {
                // V7, where the window did not reach so far before.
                let record = instance.pre_prepare(height, block, view);
                cx.record(&record);
            }
            if is_leader {
                // Its bundles are decided with it: no need to propose them once more.
                cx.already_proposed(block);
                self.say_pledge(cx, To::All, height, block);
            }
            match Self::readiness(cx, height, block) {
                Some(how) => self.consider(cx, height, block, how),
                None => self.want_from_claimants(cx, height, block),
            }
            self.check_prepared(cx, height);
        }
    }

    /// V12. One round trip: the leader, then all whose Q names the block, one honest replica among them (A2).
    fn want_from_claimants(&self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        let EntryProof::NewView(new) = &self.current.proof else {
            return;
        };
        let me = cx.me();
        let claimants = new.body.holders(height, block);
        let order: Vec<ReplicaId> = std::iter::once(self.current.leader).chain(claimants).collect();
        for peer in order.into_iter().filter(|peer| *peer != me) {
            cx.want(block, peer);
        }
    }

    /// After a restart in a view that has begun here: what it took over stands in its NEW-VIEW.
    pub(super) fn resume_view(&mut self, cx: &mut Cx<'_, Self>) {
        let EntryProof::NewView(new) = &self.current.proof else {
            return;
        };
        let set: Vec<&ViewChange> = new.body.changes.iter().map(|change| &change.body).collect();
        // It was checked before it was recorded.
        self.current.taken_over = select::<V>(&set, self.sizes(cx));
        self.progress.next = self.progress.next.max(self.last_taken_over().next());
        self.adopt(cx);
    }
}
