//! Commits and their times (§8; `optsync` §4, §7): after 2 Δ in which nothing conflicted with the own vote, or at once by q_R
//! votes.

use super::super::replica::{End, SyncHotStuff, Timer, noted};
use super::ancestry::UNKNOWN;
use super::message::SyncMessage;
use super::record::SyncRecord;
use super::statements::{end_of, rank};
use super::variant::Variant;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Certificate, Cx, Reject, To};
use quorate_types::{Height, ReplicaId};

impl<V: Variant> SyncHotStuff<V> {
    /// S6. §4: begins the wait for an own vote, which is durable and on its way to all. All conflicting statements arrive
    /// within 2 Δ.
    pub(super) fn wait_for_silence(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        // §18: no wait begins for a repeated vote. Conflicting statements may have been lost during the silence.
        let may = self.is_running() && !self.is_quit() && height > self.in_view.repeated;
        if may && height > self.chain.committed().height {
            let voters =
                self.in_view.own_copy.map(|(id, _)| self.state.certificates.voters((self.view, height), id));
            let is_with_all = voters == Some(cx.committee().n());
            self.in_view.waits.begin(cx.now(), self.in_view.waits_from, height, is_with_all);
            self.arm_commit(cx);
        } else if !self.is_quit() && height > self.chain.committed().height {
            self.in_view.unshown.insert(height);
            self.show_unshown(cx);
        }
    }

    /// S7. §8, Lemma 1 c; `optsync` §8: broadcasts certificates of own votes without a running wait, before this replica votes
    /// on top of them. The wait may have ended before the certificate arrived, or never have begun. Otherwise a replica that
    /// has missed the header would cast a conflicting vote when a wait for a block above is nearly over.
    pub(super) fn show_unshown(&mut self, cx: &mut Cx<'_, Self>) {
        if self.recovery.is_silent() {
            return;
        }
        self.in_view.unshown.extend(self.in_view.waits.past(cx.now()));
        for height in self.in_view.unshown.clone() {
            let Some(end) = self.voted_for(height) else { continue };
            let exact = self.certificate_of(end).filter(|certificate| !certificate.is_genesis());
            let is_exact = exact.is_some();
            let lowest = || self.certificate_from(cx.blocks(), self.view, end).cloned();
            if let Some(certificate) = exact.or_else(lowest) {
                self.in_view.unshown.remove(&height);
                if !is_exact {
                    self.begin_later(cx);
                }
                cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            }
        }
    }

    /// Broadcasts the certificate of a parent that this replica has not voted for. Others may have missed its header as well,
    /// and no other replica may show its certificate in time (`optsync` §8).
    pub(super) fn show_skipped(&mut self, cx: &mut Cx<'_, Self>, parent: End) {
        if parent.0 <= self.voted_end(cx.blocks()).0 {
            return;
        }
        if let Some(certificate) = self.certificate_from(cx.blocks(), self.view, parent).cloned() {
            cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            self.begin_later(cx);
        }
    }

    /// Lets silence count later: not every replica knows yet which blocks a certificate of a block above extends
    /// ([`Self::agrees`]). With too few honest replicas ([`Variant::may_wait_longer`]) it does not: a liar could delay the
    /// commits of one replica for nothing.
    fn begin_later(&mut self, cx: &Cx<'_, Self>) {
        if V::may_wait_longer(cx.committee().n()) {
            self.in_view.waits_from = cx.now().plus(self.delta.times(UNKNOWN));
        }
    }

    /// Sets the commit timer to the next event that it is for.
    pub(super) fn arm_commit(&mut self, cx: &mut Cx<'_, Self>) {
        // A certificate that is due now would not be shown later.
        self.show_certified(cx);
        if let Some(at) = self.in_view.waits.next_check(cx.now()) {
            cx.timers().set(Timer::Commit, at);
        } else if !self.is_stuck(cx.blocks()) {
            cx.timers().cancel(Timer::Commit);
        } else if cx.timers().get(Timer::Commit).is_none() {
            let at = cx.now().plus(self.delta.quarter());
            cx.timers().set(Timer::Commit, at);
        }
    }

    pub(super) fn on_commit_timer(&mut self, cx: &mut Cx<'_, Self>) {
        self.show_certified(cx);
        while let Some(wait) = self.in_view.waits.next_over() {
            self.in_view.expired = self.in_view.expired.max(wait.of);
            // S7. §8: if Δ holds there is a certificate by now. Without one the commit could not be proved after a cold start.
            if wait.is_with_all() {
                self.in_view.waits.hold(wait);
            } else {
                self.in_view.unshown.insert(wait.of);
                self.doubt(cx, "a commit timer ended without a certificate");
            }
        }
        self.wait_anew(cx);
        self.arm_commit(cx);
        self.commit_sound_waits(cx);
    }

    /// Notes that all replicas have voted for a block: each has its certificate as soon as the votes arrive.
    pub(super) fn note_with_all(&mut self, cx: &mut Cx<'_, Self>, block: End) {
        if self.voted_for(block.0) == Some(block) {
            self.in_view.waits.note_with_all(cx.now(), |of| of <= block.0);
        }
    }

    /// S7. §8, Lemma 1 c: broadcasts a certificate if not all replicas have voted half of Δ after this one.
    pub(super) fn show_certified(&mut self, cx: &mut Cx<'_, Self>) {
        let now = cx.now();
        if let Some(first) = self.in_view.waits.to_show(now).first()
            && let Some((height, certificate)) = self.highest_certified(cx.blocks())
            && height >= *first
        {
            cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            self.in_view.waits.note_with_all(now, |of| of <= height);
        }
    }

    /// Returns the highest certificate of the view on the chain of the own votes, and the highest own vote that it covers.
    fn highest_certified(&self, blocks: &BlockTree) -> Option<(Height, Certificate)> {
        let mut of_view = self.state.certificates.of_view(self.view);
        of_view.find_map(|certificate| Some((self.proves(blocks, certificate)?, certificate.clone())))
    }

    /// Returns the highest own vote that a certificate of the view covers.
    fn proves(&self, blocks: &BlockTree, certificate: &Certificate) -> Option<Height> {
        let end = end_of(certificate);
        let voted =
            self.in_view.voted.as_ref().map(|header| (header.body.block.height, header.body.block.id()));
        match voted {
            Some(voted) if voted.0 < end.0 => self.is_on(blocks, end, voted).then_some(voted.0),
            Some(voted) => self.is_on(blocks, voted, end).then_some(end.0),
            None => (self.voted_for(end.0) == Some(end)).then_some(end.0),
        }
    }

    /// Whether this replica has voted up to the highest permitted height, and none of it is committed.
    fn is_stuck(&self, blocks: &BlockTree) -> bool {
        !self.is_quit() && self.voted_end(blocks).0 >= self.highest_voted_for()
    }

    /// §19: begins the last wait anew. No timer commits votes that were cast in doubt, and a commit would need a new vote.
    /// If no new vote is possible, the replica broadcasts the certificate of its last vote or of the base. All replicas have
    /// the statements of the leader for it, from this replica's vote or from its forwarded NEW-VIEW. So no replica casts a
    /// conflicting vote.
    fn wait_anew(&mut self, cx: &mut Cx<'_, Self>) {
        let may = self.is_running() && self.is_stuck(cx.blocks());
        let voted = self.in_view.voted.as_ref().map(|header| &header.body.block);
        let is_out = voted.is_none_or(|block| self.in_view.own_copy.is_some_and(|(id, _)| id == block.id()));
        let last = voted.map(|block| block.height);
        if may
            && is_out
            && self.in_view.waits.are_in_vain(cx)
            && let Some((height, certificate)) = self.highest_certified(cx.blocks())
            && last.is_none_or(|last| last == height)
            && height > self.chain.committed().height
        {
            self.in_view.waits.clear();
            cx.send_unheld(To::All, SyncMessage::Certified(certificate));
            self.in_view.waits.begin(cx.now(), self.in_view.waits_from, height, true);
            // The leader can bring nothing to vote for before that wait is over.
            self.expect_progress(cx);
        }
    }

    /// Commits the highest block whose wait is over, if the guard is sound.
    pub(super) fn commit_sound_waits(&mut self, cx: &mut Cx<'_, Self>) {
        for wait in self.in_view.waits.held() {
            let now = cx.now();
            // Cheap checks come first: there may be many waits for a while after a doubt.
            if self.in_view.waits.is_sound(cx, &wait)
                && let Some(end) = self.voted_for(wait.of)
                && self.is_certified(cx.blocks(), end)
                && self.agrees(cx.blocks(), end, now)
            {
                // S8. §8: its ancestors are committed with it.
                return self.commit(cx, end, noted::COMMITTED);
            }
        }
    }

    /// Returns the block at a height of this view that this replica has voted for, or that its votes extend.
    fn voted_for(&self, height: Height) -> Option<End> {
        let voted = self.in_view.voted.as_ref().map(|header| header.body.block.height);
        let heard = self.in_view.statements.at(height).filter(|_| voted.is_some_and(|voted| height <= voted));
        heard.map(|(id, _)| (height, *id)).or(self.in_view.first_voted.filter(|base| base.0 == height))
    }

    /// O1. `optsync` §4: takes a certificate of q_R votes. It is sent to all before anything else happens; then it decides.
    pub(super) fn take_responsive(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let (view, height) = rank(certificate);
        let committed = self.chain.committed();
        if height == committed.height && certificate.block() != committed.id {
            self.doubt(cx, "q_R votes conflict with the committed block");
        }
        if height < committed.height || !self.state.certificates.add_responsive(certificate) {
            return;
        }
        cx.record(&SyncRecord::Responsive(certificate.clone()));
        if self.may_settle(height) && self.state.certificates.is_highest_responsive(certificate) {
            cx.record(&SyncRecord::SettledResponsive(certificate.clone()));
        }
        if view == self.view {
            self.decide(cx, certificate);
        } else if view < self.view && self.extends_committed(cx.blocks(), certificate) == Some(false) {
            self.doubt(cx, "q_R votes of a view that was left conflict with the committed block");
        }
        self.take_certificate(cx, certificate);
    }

    /// Decides by q_R votes of the current view.
    pub(super) fn decide(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        // O2. `optsync` §7: only in a view that was not left. Replicas that have left it may not receive NOTIFY in time.
        // `optsync` §19: nor in a view that this replica has been in before it lost its disk. It may have heard a conflict.
        if self.is_quit() || self.recovery.is_silent() || self.view <= self.forgotten {
            return;
        }
        // O3. Unheld, and before the commit: every replica that enters the next view has it by then.
        cx.send_unheld(To::All, SyncMessage::Notify(certificate.clone()));
        let end = end_of(certificate);
        if let Some(height) = self.proves(cx.blocks(), certificate) {
            self.in_view.waits.note_with_all(cx.now(), |of| of <= height);
        }
        if end.0 > self.chain.committed().height {
            // O6. The leader makes progress, although this replica may never vote for a block that is committed on arrival
            // (§5).
            self.expect_progress(cx);
        }
        // The highest one may wait for its body. It must not delay this one, nor be forgotten for it.
        self.in_view.responsive = self.in_view.responsive.max(Some(end));
        self.commit_responsive(cx);
        self.commit(cx, end, noted::COMMITTED_BY_VOTES);
    }

    /// Commits the block that q_R votes have decided in this view, as soon as its headers are available.
    pub(super) fn commit_responsive(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(end) = self.in_view.responsive
            && !self.is_quit()
        {
            self.commit(cx, end, noted::COMMITTED_BY_VOTES);
        }
    }

    pub(super) fn on_notify(
        &mut self,
        cx: &mut Cx<'_, Self>,
        certificate: &Certificate,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        if V::responsive_quorum(cx.committee().n()).is_none() {
            return Err(Reject::Invalid("this protocol has no certificates of q_R votes"));
        }
        let (view, height) = rank(certificate);
        if view == self.view && height > self.chain.committed().height {
            // The decided block may have been shown only to others.
            self.fetch_soon(cx, end_of(certificate), link);
        }
        if self.state.certificates.is_responsive(view, height) {
            return Err(Reject::Duplicate);
        }
        self.take_responsive(cx, certificate);
        Ok(())
    }
}
