//! How a view ends, and how the next one begins (§5, §6).

use super::certificates::{accepts, highest_of, lock_of};
use super::early::TooHigh;
use super::leaving::{Leaving, Next};
use super::message::{NewViewWord, SyncMessage, VOTE};
use super::normal::{End, IfIdle, end_of};
use super::paths::Relations;
use super::words::{Evidence, Lock, leader, rank};
use super::{SyncHotStuff, Timer, Variant, noted, reason};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Certificate, Cx, Ready, Reject, Seal, Signed, To};
use quorate_types::{ReplicaId, Time, View};

impl<V: Variant> SyncHotStuff<V> {
    /// §5: the leader has not brought anything to vote for in time. Voting goes on.
    pub(super) fn on_progress_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_quit() || self.returning.is_silent() {
            return;
        }
        self.note(cx, noted::BLAMED, Default::default());
        // A blame promises nothing. It is said again as long as nothing comes: one may have been lost with its link.
        cx.send_unheld(To::All, SyncMessage::Blame(self.view));
        self.expect_progress(cx);
    }

    /// 3Δ + τ from now there is something to vote for, or the leader is blamed.
    pub(super) fn expect_progress(&mut self, cx: &mut Cx<'_, Self>) {
        let until = cx.now().plus(self.delta.times(3)).plus(self.heartbeat_ns);
        cx.timers().set(Timer::Progress, until);
    }

    /// S10. §5: f + 1 blames, of whom one is honest, end the view.
    pub(super) fn on_blame(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, view: View) -> Result<(), Reject> {
        if view < self.view || (view == self.view && self.is_quit()) {
            return Err(Reject::Stale);
        }
        if let Some(blames) = self.blames.add(seal, view, cx.committee().weak())? {
            self.quit_view(cx, Evidence::Blames(blames));
        }
        Ok(())
    }

    pub(super) fn on_evidence(&mut self, cx: &mut Cx<'_, Self>, evidence: &Evidence) -> Result<(), Reject> {
        let view = evidence.view();
        if view < self.view || (view == self.view && self.is_quit()) {
            self.check_silence(cx, evidence);
            return Err(if view < self.view { Reject::Stale } else { Reject::Duplicate });
        }
        // Whoever leads a view can contradict itself in it long before anybody is there. Blames say that an honest replica is.
        let is_here = view == self.view || (view == self.view.next() && self.is_quit());
        if evidence.is_contradiction() && !is_here {
            // Once in a view: answers are long, and liars could have them in everybody's way all the time.
            if self.asked_ahead < self.view && self.ask_again(cx) {
                self.asked_ahead = self.view;
            }
            return Err(Reject::Early);
        }
        self.quit_view(cx, evidence.clone());
        Ok(())
    }

    /// S11. §5 `quit_view`: everybody hears why, at once and whatever the disk does; no timer of the view commits any more.
    pub(super) fn quit_view(&mut self, cx: &mut Cx<'_, Self>, evidence: Evidence) {
        let view = evidence.view();
        if view < self.view || (view == self.view && self.is_quit()) {
            return;
        }
        cx.send_unheld(To::All, SyncMessage::Evidence(evidence.clone()));
        self.check_silence(cx, &evidence);
        self.last_view_change = match evidence {
            Evidence::Conflict(_) | Evidence::Split(_) => reason::CONFLICT,
            Evidence::Blames(_) => reason::BLAMED,
        };
        // S2. §4, §8: a disk may stall for as long as it likes. What this replica has voted for and is not with anybody yet was
        // cast too early: the vote leaves after what contradicts it was heard.
        cx.withdraw(VOTE, self.view);
        let jumps = view > self.view;
        if jumps {
            self.clear_view();
            self.set_view(cx, view);
        }
        self.waits.clear();
        self.unshown.clear();
        self.responsive = None;
        // What shows that somebody honest was in the view before is kept as long as it has to be shown.
        if !evidence.is_contradiction() {
            self.evidence.clear();
        }
        self.evidence.push(evidence);
        self.leaving = Some(Leaving::Wait { since: cx.now() });
        let keep = |timer| matches!(timer, Timer::Return | Timer::Fetch);
        cx.timers().retain(keep);
        self.note(cx, noted::QUIT, Default::default());
        self.record_entered(cx);
        if !self.returning.is_silent() {
            self.arm_entry(cx, V::WAIT);
        }
        if jumps {
            // §5: votes and certificates of a view that was left count still.
            self.hear_kept(cx);
        }
    }

    /// §13: a timer has relied on that nothing like this would come. It may be a leader that lies late.
    fn check_silence(&self, cx: &mut Cx<'_, Self>, evidence: &Evidence) {
        if evidence.view() == self.timer_committed && evidence.is_contradiction() {
            self.doubt(cx, "a leader contradicted itself in a view in which a timer has committed");
        }
    }

    /// What was kept for the view that is the current one now.
    fn hear_kept(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(TooHigh { span, headers }) = self.early.too_high(self.view) {
            self.note_missed(cx, span);
            for header in &headers {
                // They name the base.
                let _: Result<(), Reject> = self.on_header(cx, header, self.leader);
            }
        }
        // S2. §8, Lemma 1 b: all of it was here before anything is voted for, whoever has sent it.
        self.is_recalling = true;
        for (message, seal) in self.early.take(self.view) {
            // What is wrong with it is nobody's fault any more.
            let _: Result<(), Reject> = self.hear(cx, message, seal);
        }
        self.is_recalling = false;
        self.try_first_vote(cx);
        self.try_vote(cx);
        self.try_propose(cx, IfIdle::Wait);
    }

    pub(super) fn arm_entry(&mut self, cx: &mut Cx<'_, Self>, deltas: u64) {
        let at = cx.now().plus(self.delta.times(deltas));
        cx.timers().set(Timer::Enter, at);
    }

    /// S12. §5: the next view is entered after a wait, and not while the bound on delays may not have held (§19).
    pub(super) fn try_enter(&mut self, cx: &mut Cx<'_, Self>) {
        if self.returning.is_silent() {
            return; // §18: the wait begins when silence is over.
        }
        let Some(leaving) = &mut self.leaving else { return };
        match leaving.go_on(cx.now(), self.delta, V::WAIT, |since, fresh| cx.sound(since, fresh)) {
            Next::Stay => {}
            Next::Enter => self.enter_view(cx, self.view.next()),
            Next::Look(deltas) => self.arm_entry(cx, deltas),
            Next::Ask => {
                self.ask_all(cx);
                self.arm_entry(cx, 2);
            }
        }
    }

    fn set_view(&mut self, cx: &Cx<'_, Self>, view: View) {
        self.view = view;
        self.leader = leader(cx.committee(), view);
        self.missed = Default::default();
        self.waits_from = Time::ZERO;
    }

    /// Forgets what belongs to one view.
    fn clear_view(&mut self) {
        self.heard = Default::default();
        self.shown = None;
        self.said_new_view = None;
        self.voted = None;
        self.first_voted = None;
        self.proposed = None;
        self.expired = Default::default();
        self.resaid = Default::default();
        self.statuses.clear();
        self.missing.clear();
        self.lent.clear();
        self.waits.clear();
        self.unshown.clear();
        self.responsive = None;
    }

    /// §6 `enter_view`.
    fn enter_view(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        let jumped = view != self.entered.next();
        self.clear_view();
        self.set_view(cx, view);
        self.entered = view;
        self.leaving = None;
        self.view_changes = self.view_changes.saturating_add(1);
        // S13. §4, §6: the lock is what is certified now, and stays as it is for the whole view.
        self.lock = self.lock_before(cx.blocks(), view);
        self.certificates.prune(view, self.chain.committed().height);
        self.note(cx, noted::VIEW_CHANGE, Default::default());
        cx.timers().cancel(Timer::Enter);
        self.record_entered(cx);
        self.join_view(cx);
        self.hear_kept(cx);
        if let Some(certificate) = self.certificates.highest_responsive(view).cloned() {
            self.decide(cx, &certificate);
        }
        if std::mem::take(&mut self.is_behind) || jumped {
            self.ask_all(cx);
        }
    }

    /// The lock of what is certified now in views before another one.
    pub(super) fn lock_before(&self, blocks: &BlockTree, view: View) -> Lock {
        let (known, committed) = (Relations::default(), self.chain.committed().end());
        let extends = |tip: End, low: End| self.extends_knowing(blocks, tip, low, &known);
        let fits = |tip: &Certificate| extends(end_of(tip), committed);
        lock_of(&self.certificates, view, fits, |tip, high| extends(end_of(tip), end_of(high)))
    }

    /// Whether a certified block is the committed one or extends it. One that lies beside it has f liars' votes and that of
    /// an honest replica which was shown another branch: nobody goes on from there any more.
    pub(super) fn extends_committed(&self, blocks: &BlockTree, tip: &Certificate) -> Option<bool> {
        self.extends(blocks, end_of(tip), self.chain.committed().end())
    }

    /// Says with which lock this replica goes on, and waits for what the leader makes of it.
    pub(super) fn join_view(&mut self, cx: &mut Cx<'_, Self>) {
        let (view, me) = (self.view, cx.me());
        let first = leader(cx.committee(), view);
        let wait = if view == super::FIRST_VIEW { self.heartbeat_ns } else { 0 };
        let until = cx.now().plus(self.delta.times(4)).plus(wait);
        cx.timers().set(Timer::Progress, until);
        if view == super::FIRST_VIEW {
            return;
        }
        if first == me {
            self.statuses.insert(me, self.lock.clone());
            let at = cx.now().plus(self.delta.times(2));
            cx.timers().set(Timer::Collect, at);
        } else {
            cx.send(To::One(first), SyncMessage::Status { view, lock: self.lock.clone() });
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
            // §7: whoever is locked there has it.
            self.mention_until(cx, tip, seal.by, now);
        }
        self.statuses.entry(seal.by).or_insert_with(|| lock.clone());
        Ok(())
    }

    /// Its certificates count, wherever they stand.
    pub(super) fn take_lock(&mut self, cx: &mut Cx<'_, Self>, lock: &Lock) -> Result<(), Reject> {
        if let Some(responsive) = &lock.responsive {
            if V::responsive_quorum(cx.committee().n()).is_none() {
                return Err(Reject::Invalid("nobody decides by q_R votes here"));
            }
            self.take_responsive(cx, responsive);
        }
        self.take_certificate(cx, &lock.tip);
        Ok(())
    }

    /// S14. §6: the leader goes on from the highest lock that anybody has reported within 2 Δ.
    pub(super) fn on_collect_timer(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_quit() || self.returning.is_silent() || self.said_new_view.is_some() {
            return;
        }
        let view = self.view;
        let blocks: &BlockTree = cx.blocks();
        let (known, committed) = (Relations::default(), self.chain.committed().end());
        let extends = |tip: End, low: End| self.extends_knowing(blocks, tip, low, &known);
        let fits = |tip: &Certificate| extends(end_of(tip), committed);
        let lock = highest_of(&self.statuses, fits, |tip, high| extends(end_of(tip), end_of(high)));
        self.said_new_view = Some(lock.clone());
        self.record_said(cx);
        cx.send(To::All, SyncMessage::NewView { view, lock });
    }

    /// A NEW-VIEW, from the leader or handed on.
    pub(super) fn on_new_view(
        &mut self,
        cx: &mut Cx<'_, Self>,
        word: Signed<NewViewWord>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        self.take_lock(cx, &word.body.lock)?;
        let view = word.body.view;
        if word.by != leader(cx.committee(), view) {
            return Err(Reject::WrongSender);
        }
        if view != self.view || self.is_quit() || view == super::FIRST_VIEW {
            return Err(Reject::Stale);
        }
        let said = NewViewWord::signed_word(&word);
        if let Some(evidence) = self.heard.conflict(&said) {
            self.quit_view(cx, evidence);
            return Err(self.contradicted(link));
        }
        let (now, tip, first) = (cx.now(), end_of(&word.body.lock.tip), word.by);
        // §6, §7: at once, and of everybody who hands it on: one who does not answer must not hold up the others.
        if tip.0 > self.chain.committed().height {
            [first, link].into_iter().for_each(|peer| self.mention_until(cx, tip, peer, now));
        }
        if !self.heard.add_new_view(&said) {
            return Err(Reject::Duplicate);
        }
        // §6: handed on even where this replica goes on from no such block: others have to see two of them.
        if word.by != cx.me() {
            cx.send_unheld(To::All, SyncMessage::Forward { word: word.clone() });
        }
        self.shown = Some(word);
        self.try_first_vote(cx);
        self.try_vote(cx);
        // Who comes back as leader of a view whose base is certified hears its own word last.
        self.try_propose(cx, IfIdle::Wait);
        Ok(())
    }

    /// S15. §6: a replica goes on from a block that ranks no lower than its lock, once in a view. No commit timer: others
    /// with a higher lock may refuse.
    pub(super) fn try_first_vote(&mut self, cx: &mut Cx<'_, Self>) {
        let Some(shown) = &self.shown else { return };
        if self.first_voted.is_some() || self.is_quit() || self.is_recalling || self.returning.is_silent() {
            return;
        }
        let shown = shown.body.lock.clone();
        let (_, height) = rank(&shown.tip);
        let base = shown.tip.block();
        if self.ready(cx, base) != Some(Ready::Valid) {
            return; // `on_ready` comes back here.
        }
        let now = cx.now();
        let blocks: &BlockTree = cx.blocks();
        let above = |tip: &Certificate, low: &Certificate| self.extends(blocks, end_of(tip), end_of(low));
        if self.extends_committed(blocks, &shown.tip) != Some(true)
            || !accepts(&self.lock, &shown, above)
            || !self.agrees(blocks, end_of(&shown.tip), now)
        {
            return self.note(cx, noted::REFUSED, height);
        }
        self.first_voted = Some((height, base));
        self.record_entered(cx);
        self.expect_progress(cx);
        self.arm_commit(cx);
        self.note(cx, noted::FIRST_VOTED, height);
        cx.send(To::All, SyncMessage::FirstVote { view: self.view, height, base });
    }
}
