//! Beginning a view (§8): NEW-VIEW, its check by every receiver, and the blocks that the view takes over.

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

    /// Returns the last height that the current view took over (`new_view_max_s`): its leader proposes above it.
    pub(super) fn last_taken_over(&self) -> Height {
        self.current.taken_over.as_ref().map_or(Height::ZERO, Selected::max)
    }

    /// Returns the state of a block. The null block of its height needs no bodies.
    pub(super) fn readiness(cx: &Cx<'_, Self>, height: Height, block: BlockId) -> Option<Ready> {
        if block == BlockId::null(height) { Some(Ready::Valid) } else { cx.ready(block) }
    }

    /// V6. Makes a NEW-VIEW, as the leader of the view to come. It tries again with each view change: one liar can make `select`
    /// wait for more than a quorum, and the view changes of all honest replicas always suffice.
    pub(super) fn try_new_view(&mut self, cx: &mut Cx<'_, Self>) {
        let view = self.current.view;
        let is_made = self.changes.own_new_view.as_ref().is_some_and(|new| new.view == view);
        if self.current.normal || self.current.leader != cx.me() || is_made {
            return;
        }
        let kept = self.changes.received.of_view(view);
        let set: Vec<&ViewChange> = kept.iter().map(|change| &change.body).collect();
        let Some(selected) = select(&set, self.sizes(cx), V::pick) else {
            return;
        };
        if selected.min > self.progress.stable {
            // The own window ends below some of X, which could not enter Q. The leader tries again with the checkpoint.
            let proofs = set.iter().map(|change| &change.proof);
            if let Some(best) = proofs.max_by_key(|proof| proof.checkpoint.height) {
                cx.catch_up(best);
            }
            return;
        }
        let changes = kept.iter().map(|change| Signed::clone(change)).collect();
        let new = NewView { view, changes, picks: selected.picks.clone() };
        // V7. The NEW-VIEW is the leader's vote for all blocks that it takes over, as a PRE-PREPARE is for one block: Q names
        // them before it leaves. The NEW-VIEW itself is durable, so that a restarted leader sends the same. Its record
        // comes first: a log that ends between the records still determines Q.
        cx.record(&PbftRecord::NewView(Box::new(new.clone())));
        self.pre_prepare_all(cx, &selected.picks);
        self.changes.own_new_view = Some(Box::new(new.clone()));
        // The view begins at the leader with the own copy.
        cx.send(To::All, PbftMessage::NewView(Box::new(new)).into());
    }

    /// Enters the blocks that the own NEW-VIEW takes over into Q, as far as Q lacks them.
    pub(super) fn pre_prepare_all(&mut self, cx: &mut Cx<'_, Self>, picks: &[(Height, BlockId)]) {
        let view = self.current.view;
        for (height, block) in picks.iter().copied() {
            // Heights below the window need no entry any more.
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
        // V8. §8, §14: from the leader of the view, and correct.
        if new.by != self.leader_of(cx, view) {
            return Err(Reject::WrongSender);
        }
        match self.check_new_view(cx, &new.body) {
            Ok(selected) => {
                self.enter(cx, new, selected);
                Ok(())
            }
            Err(why) => {
                // V9. Only with a quorum behind it: a wrong NEW-VIEW that one replica alone has received must not make it leave
                // the view, or f faulty leaders in a row would carry it f views ahead.
                if view == self.current.view && cx.timers().get(Timer::View).is_some() {
                    let quorum = cx.committee().quorum();
                    let proof = EntryProof::ViewChanges(self.changes.received.of_at_least(view, quorum));
                    self.start_view_change(cx, view.next(), reason::BAD_NEW_VIEW, proof);
                }
                Err(Reject::Invalid(why))
            }
        }
    }

    /// V8. Checks that V is a quorum of valid view changes of distinct members for exactly this view, and that X is the result of
    /// `select`. The intake has checked signatures and proofs.
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
        match select(&set, self.sizes(cx), V::pick) {
            Some(selected) if selected.picks == new.picks => Ok(selected),
            _ => Err("another selection"),
        }
    }

    /// Begins a view with its NEW-VIEW.
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
        // Heights above belong to dead proposals.
        self.progress.known = self.progress.decided.max(self.progress.executed).max(selected.max());
        self.progress.stalled = self.progress.stalled.min(self.progress.known);
        self.progress.next = selected.max().next();
        self.current.taken_over = Some(selected);
        self.adopt(cx);
        self.take_early(cx);
        self.watch_leader(cx);
        self.send_status_soon(cx);
        self.try_propose(cx);
        // SUSPECTs of others may have arrived before the view began here.
        self.check_suspects(cx);
    }

    /// V11. Proposes the blocks that the view takes over: they go through PREPARE and COMMIT again, executed or not, so that
    /// laggards can decide them. Called again when the window moves and after a restart.
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
                // V7, for heights that the window did not reach before.
                let record = instance.pre_prepare(height, block, view);
                cx.record(&record);
            }
            if is_leader {
                // Its bundles are decided with it and must not be proposed once more.
                cx.already_proposed(block);
                self.send_pledge(cx, To::All, height, block);
            }
            match Self::readiness(cx, height, block) {
                Some(how) => self.consider(cx, height, block, how),
                None => self.want_from_claimants(cx, height, block),
            }
            self.check_prepared(cx, height);
        }
    }

    /// V12. Requests a block from the leader, then from all replicas whose Q names it. One of them is honest (A2), so one round
    /// trip suffices.
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

    /// Resumes a view that had begun before a restart: its NEW-VIEW names the blocks that it took over.
    pub(super) fn resume_view(&mut self, cx: &mut Cx<'_, Self>) {
        let EntryProof::NewView(new) = &self.current.proof else {
            return;
        };
        let set: Vec<&ViewChange> = new.body.changes.iter().map(|change| &change.body).collect();
        // The NEW-VIEW was checked before it was recorded.
        self.current.taken_over = select(&set, self.sizes(cx), V::pick);
        self.progress.next = self.progress.next.max(self.last_taken_over().next());
        self.adopt(cx);
    }
}
