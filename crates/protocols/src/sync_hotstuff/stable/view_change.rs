//! End of a view, and beginning of the next one (§5, §6).

use super::super::replica::{End, IfIdle, SyncHotStuff, Timer, noted, reason};
use super::super::statements::{FIRST_VIEW, VOTE, leader};
use super::certificates::{accepts, highest_of, lock_of};
use super::early_messages::HeadersTooHigh;
use super::evidence::QuitEvidence;
use super::message::SyncMessage;
use super::paths::Relations;
use super::statements::{Lock, SyncNewView, end_of, rank};
use super::variant::Variant;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::guarded_wait::GuardedWait;
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::{Certificate, Cx, Ready, Reject, Seal, Signed, To};
use quorate_types::{ReplicaId, View};

impl<V: Variant> SyncHotStuff<V> {
    /// §5: blames the leader, which has brought nothing to vote for in time. Voting continues.
    pub(super) fn on_progress_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_quit() || self.recovery.is_silent() {
            return;
        }
        self.note(cx, noted::BLAMED, Default::default());
        // A blame promises nothing. It is repeated while nothing arrives: it may have been lost with its link.
        cx.send_unheld(To::All, SyncMessage::Blame(self.view));
        self.expect_progress(cx);
    }

    /// Sets the timer that blames the leader unless there is something to vote for within 3 Δ + τ.
    pub(super) fn expect_progress(&mut self, cx: &mut Cx<'_, Self>) {
        let until = cx.now().plus(self.delta.times(3)).plus(self.heartbeat_ns);
        cx.timers().set(Timer::Progress, until);
    }

    pub(super) fn on_evidence(
        &mut self,
        cx: &mut Cx<'_, Self>,
        evidence: &QuitEvidence,
    ) -> Result<(), Reject> {
        let view = evidence.view();
        if view < self.view || (view == self.view && self.is_quit()) {
            self.check_silence(cx, evidence);
            return Err(if view < self.view { Reject::Stale } else { Reject::Duplicate });
        }
        // A leader can equivocate in a view long before anybody enters it. Blames prove that an honest replica is there.
        let is_current = view == self.view || (view == self.view.next() && self.is_quit());
        if evidence.is_equivocation() && !is_current {
            // Once in a view: answers are long, and liars could keep the links of all replicas busy with them.
            if self.state.asked_ahead < self.view && self.ask_again(cx) {
                self.state.asked_ahead = self.view;
            }
            return Err(Reject::Early);
        }
        self.quit_view(cx, evidence.clone());
        Ok(())
    }

    /// S11. §5 `quit_view`: sends the evidence to all, at once and whatever the disk does. No timer of the view commits
    /// afterwards.
    pub(super) fn quit_view(&mut self, cx: &mut Cx<'_, Self>, evidence: QuitEvidence) {
        let view = evidence.view();
        if view < self.view || (view == self.view && self.is_quit()) {
            return;
        }
        cx.send_unheld(To::All, SyncMessage::Evidence(evidence.clone()));
        self.check_silence(cx, &evidence);
        self.last_view_change = match evidence {
            QuitEvidence::Conflict(_) | QuitEvidence::Split(_) => reason::CONFLICT,
            QuitEvidence::Blames(_) => reason::BLAMED,
        };
        // S2. §4, §8: a disk may stall for any time. An own vote that has not left yet was cast too early: it would leave after
        // the conflicting statement was heard.
        cx.withdraw(VOTE, self.view);
        let jumps = view > self.view;
        if jumps {
            self.set_view(cx, view);
        }
        self.in_view.waits.clear();
        self.in_view.unshown.clear();
        self.in_view.responsive = None;
        // Blames prove that an honest replica was in the view. All evidence since the last blames has to be shown.
        if !evidence.is_equivocation() {
            self.state.evidence.clear();
        }
        self.state.evidence.push(evidence);
        self.leaving = Some(GuardedWait::begin(cx.now(), self.delta.times(V::WAIT)));
        let keep = |timer| matches!(timer, Timer::Recover | Timer::Fetch);
        cx.timers().retain(keep);
        self.note(cx, noted::QUIT, Default::default());
        self.record_entered(cx);
        if !self.recovery.is_silent() {
            self.arm(cx, Timer::Enter, V::WAIT);
        }
        if jumps {
            // §5: votes and certificates of a view that was left still count.
            self.handle_kept(cx);
        }
    }

    /// §13: reports an equivocation in a view in which a timer has committed. The leader may also have lied late.
    fn check_silence(&self, cx: &mut Cx<'_, Self>, evidence: &QuitEvidence) {
        if evidence.view() == self.state.timer_committed && evidence.is_equivocation() {
            self.doubt(cx, "a leader equivocated in a view in which a timer has committed");
        }
    }

    /// Handles messages that were kept for the view that is the current one now.
    fn handle_kept(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(HeadersTooHigh { span, headers }) = self.state.early.too_high(self.view) {
            self.note_missed(cx, span);
            for header in &headers {
                // They name the base.
                let _: Result<(), Reject> = self.on_header(cx, header, self.leader);
            }
        }
        // S2. §8, Lemma 1 b: all of them arrived before any vote of this view, so all are handled before the first one.
        self.state.is_recalling = true;
        for (message, seal) in self.state.early.take(self.view) {
            // Nobody is at fault for a message that is invalid by now.
            let _: Result<(), Reject> = self.handle(cx, message, seal);
        }
        self.state.is_recalling = false;
        self.try_first_vote(cx);
        self.try_vote(cx);
        self.try_propose(cx, IfIdle::Wait);
    }

    /// §6 `enter_view`.
    pub(super) fn enter_view(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        let jumped = view != self.state.entered.next();
        self.set_view(cx, view);
        self.state.entered = view;
        self.view_changes = self.view_changes.saturating_add(1);
        // S13. §4, §6: the lock is the highest certificate of now, and does not change during the view.
        self.state.lock = self.lock_before(cx.blocks(), view);
        self.state.certificates.prune(view, self.chain.committed().height);
        self.note(cx, noted::VIEW_CHANGE, Default::default());
        cx.timers().cancel(Timer::Enter);
        self.record_entered(cx);
        self.join_view(cx);
        self.handle_kept(cx);
        if let Some(certificate) = self.state.certificates.highest_responsive(view).cloned() {
            self.decide(cx, &certificate);
        }
        if std::mem::take(&mut self.state.is_behind) || jumped {
            self.ask_all(cx);
        }
    }

    /// Returns the lock of all certificates of views before another one.
    pub(super) fn lock_before(&self, blocks: &BlockTree, view: View) -> Lock {
        let (known, committed) = (Relations::default(), self.chain.committed().end());
        let extends = |tip: End, low: End| self.extends_knowing(blocks, tip, low, &known);
        let fits = |tip: &Certificate| extends(end_of(tip), committed);
        lock_of(&self.state.certificates, view, fits, |tip, high| extends(end_of(tip), end_of(high)))
    }

    /// Whether a certified block is the committed one or extends it. A certified block that conflicts with it has the votes of
    /// f liars and of an honest replica that was shown another branch: nobody extends that block.
    pub(super) fn extends_committed(&self, blocks: &BlockTree, tip: &Certificate) -> Option<bool> {
        self.extends(blocks, end_of(tip), self.chain.committed().end())
    }

    /// Reports the lock to the leader, and waits for its NEW-VIEW. The leader itself waits for the locks of all.
    pub(super) fn join_view(&mut self, cx: &mut Cx<'_, Self>) {
        let (view, me) = (self.view, cx.me());
        let wait = if view == FIRST_VIEW { self.heartbeat_ns } else { 0 };
        let until = cx.now().plus(self.delta.times(4)).plus(wait);
        cx.timers().set(Timer::Progress, until);
        if view == FIRST_VIEW {
            return;
        }
        if self.leader == me {
            self.in_view.statuses.insert(me, self.state.lock.clone());
            self.arm(cx, Timer::Collect, 2);
        } else {
            cx.send(To::One(self.leader), SyncMessage::Status { view, lock: self.state.lock.clone() });
        }
    }

    pub(super) fn on_status(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        view: View,
        lock: &Lock,
    ) -> Result<(), Reject> {
        self.take_lock(cx, lock)?;
        if view != self.view || self.is_quit() {
            return Err(Reject::Stale);
        }
        if leader(cx.committee(), view) != cx.me() {
            return Err(Reject::WrongSender);
        }
        if lock.view() >= view {
            return Err(Reject::Invalid("lock of no earlier view"));
        }
        let (now, tip) = (cx.now(), end_of(&lock.tip));
        if tip.0 > self.chain.committed().height {
            // §7: a replica that is locked on a block has it.
            self.fetch(cx, tip, seal.by, now);
        }
        self.in_view.statuses.entry(seal.by).or_insert_with(|| lock.clone());
        Ok(())
    }

    /// Keeps the certificates of a lock, whatever message brought them.
    pub(super) fn take_lock(&mut self, cx: &mut Cx<'_, Self>, lock: &Lock) -> Result<(), Reject> {
        if let Some(responsive) = &lock.responsive {
            if V::responsive_quorum(cx.committee().n()).is_none() {
                return Err(Reject::Invalid("this protocol has no certificates of q_R votes"));
            }
            self.take_responsive(cx, responsive);
        }
        self.take_certificate(cx, &lock.tip);
        Ok(())
    }

    /// S14. §6: the leader extends the highest lock that was reported to it within 2 Δ.
    pub(super) fn on_collect_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_quit() || self.recovery.is_silent() || self.in_view.own_new_view.is_some() {
            return;
        }
        let view = self.view;
        let blocks: &BlockTree = cx.blocks();
        let (known, committed) = (Relations::default(), self.chain.committed().end());
        let extends = |tip: End, low: End| self.extends_knowing(blocks, tip, low, &known);
        let fits = |tip: &Certificate| extends(end_of(tip), committed);
        let lock = highest_of(&self.in_view.statuses, fits, |tip, high| extends(end_of(tip), end_of(high)));
        self.in_view.own_new_view = Some(lock.clone());
        self.record_said(cx);
        cx.send(To::All, SyncMessage::NewView { view, lock });
    }

    /// Handles a NEW-VIEW, from the leader or handed on.
    pub(super) fn on_new_view(
        &mut self,
        cx: &mut Cx<'_, Self>,
        new_view: Signed<SyncNewView>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        self.take_lock(cx, &new_view.body.lock)?;
        let (view, by) = (new_view.body.view, new_view.by);
        if by != leader(cx.committee(), view) {
            return Err(Reject::WrongSender);
        }
        if view != self.view || self.is_quit() || view == FIRST_VIEW {
            return Err(Reject::Stale);
        }
        let statement = SyncNewView::signed_statement(&new_view);
        if let Some(evidence) = self.in_view.statements.conflict(&statement) {
            self.quit_view(cx, evidence);
            return Err(self.equivocated(link));
        }
        let (now, tip) = (cx.now(), end_of(&new_view.body.lock.tip));
        // §6, §7: at once, and from every replica that hands it on: one that does not answer must not delay the others.
        if tip.0 > self.chain.committed().height {
            [by, link].into_iter().for_each(|peer| self.fetch(cx, tip, peer, now));
        }
        if !self.in_view.statements.add_new_view(&statement) {
            return Err(Reject::Duplicate);
        }
        // §6: handed on even where this replica does not extend its tip: others must see two different ones.
        if by != cx.me() {
            cx.send_unheld(To::All, SyncMessage::Forward { new_view: new_view.clone() });
        }
        self.in_view.new_view = Some(new_view);
        self.try_first_vote(cx);
        self.try_vote(cx);
        // A recovering leader of a view whose base is certified receives its own NEW-VIEW last.
        self.try_propose(cx, IfIdle::Wait);
        Ok(())
    }

    /// S15. §6: votes once in a view for a base that ranks no lower than the lock. No commit timer runs for that vote: others
    /// with a higher lock may refuse.
    pub(super) fn try_first_vote(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(shown) = &self.in_view.new_view else { return };
        if self.in_view.first_voted.is_some()
            || self.is_quit()
            || self.state.is_recalling
            || self.recovery.is_silent()
        {
            return;
        }
        let shown = shown.body.lock.clone();
        let (_, height) = rank(&shown.tip);
        let base = shown.tip.block();
        if self.ready(cx, base) != Some(Ready::Valid) {
            return; // `on_ready` tries again.
        }
        let now = cx.now();
        let blocks: &BlockTree = cx.blocks();
        let above = |tip: &Certificate, low: &Certificate| self.extends(blocks, end_of(tip), end_of(low));
        if self.extends_committed(blocks, &shown.tip) != Some(true)
            || !accepts(&self.state.lock, &shown, above)
            || !self.agrees(blocks, end_of(&shown.tip), now)
        {
            return self.note(cx, noted::REFUSED, height);
        }
        self.in_view.first_voted = Some((height, base));
        self.record_entered(cx);
        self.expect_progress(cx);
        self.arm_commit(cx);
        self.note(cx, noted::FIRST_VOTED, height);
        cx.send(To::All, SyncMessage::FirstVote { view: self.view, height, base });
    }
}
