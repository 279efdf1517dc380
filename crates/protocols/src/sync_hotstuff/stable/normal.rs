//! The steady state (§4): headers, votes, certificates, proposals.
//!
//! A header is first checked for a conflict with earlier statements of the leader. Bodies and certificates are asked for, and
//! the vote is cast when they have arrived. No message is parked.

use super::super::replica::{End, IfIdle, SyncHotStuff, Timer, noted};
use super::super::statements::FIRST_VIEW;
use super::certificates::VoteCount;
use super::message::SyncMessage;
use super::missed_heights::{MISSED, Span};
use super::paths::Paths;
use super::record::SyncRecord;
use super::state::VIEWS_AHEAD;
use super::statements::{Header, LeaderStatement, bind_base, end_of, rank, vote};
use super::variant::Variant;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Certificate, Cx, Evidence, Ready, Reject, Seal, Signed, To};
use quorate_types::{BlockId, Height, ReplicaId, Signature, View};

impl<V: Variant> SyncHotStuff<V> {
    pub(super) fn on_propose(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        header: Header,
        parent: &Certificate,
    ) -> Result<(), Reject> {
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        let by = seal.by;
        let header = Signed { body: header, by, signature };
        let block = &header.body.block;
        // S4. The check for a conflict comes first. The certificate counts in any case.
        let id = block.id();
        let heard = self.on_header(cx, &header, by);
        self.take_certificate(cx, parent);
        self.end_fetch(cx, id);
        heard
    }

    pub(super) fn on_vote(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        header: &Signed<Header>,
    ) -> Result<(), Reject> {
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        self.forget_asked(header.body.block.id(), seal.by);
        // The check for a conflict comes before the count: the header of a vote may prove that the view is over.
        let heard = self.on_header(cx, header, seal.by);
        let block = &header.body.block;
        let (view, height, id) = (block.view, block.height, block.id());
        let is_own = seal.by == cx.me() && view == self.view;
        if is_own {
            self.in_view.own_copy = Some((id, signature));
        }
        let counted = self.count(cx, (view, height), id, seal.by, signature);
        // Each replica votes for one block at a place, also after q_R others have decided it.
        let is_known = matches!(counted, Ok(()) | Err(Reject::Duplicate));
        if heard.is_err() && is_known && height > self.chain.committed().height {
            // Also of a view that was left: a leader picks from locks and must know which blocks conflict (`optsync` §6).
            cx.blocks().hear(block.clone());
        }
        counted?;
        if is_own {
            self.wait_for_silence(cx, height);
        }
        heard
    }

    /// Handles a header of the current view's leader, whichever replica hands it on.
    pub(super) fn on_header(
        &mut self,
        cx: &mut Cx<'_, Self>,
        header: &Signed<Header>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let block = &header.body.block;
        if block.view != self.view || self.is_quit() {
            return Err(Reject::Stale);
        }
        // S4. §2: only statements of its leader end a view, whatever message contained them.
        if !Header::is_of_leader(header, cx.committee()) {
            return Err(Reject::WrongSender);
        }
        if block.view == FIRST_VIEW && header.body.base != BlockId::ZERO {
            return Err(Reject::Invalid("base of the first view"));
        }
        // S4. §4, §5: before bodies, certificates and the disk.
        if let Some(evidence) = self.in_view.statements.conflict(&LeaderStatement::of(header)) {
            self.quit_view(cx, evidence);
            return Err(self.equivocated(link));
        }
        let committed = self.chain.committed().height;
        if block.height <= committed {
            return Err(Reject::Stale);
        }
        if block.height > self.highest_handled() {
            // The header names the base of its view all the same.
            self.in_view.statements.add_base(&LeaderStatement::of(header));
            self.note_missed(cx, Span::of(block.height));
            return Err(Reject::Early);
        }
        let id = block.id();
        if self.in_view.statements.add_header(id, header) {
            cx.blocks().hear(block.clone());
            self.check_split(cx, block.height);
            if self.is_quit() {
                return Err(self.equivocated(link));
            }
        }
        self.admit_if_certified(cx, id);
        self.fetch_soon(cx, (block.height, id), link);
        self.try_vote(cx);
        self.commit_sound_waits(cx);
        Ok(())
    }

    /// Notes heights without kept headers. S2. §8, Lemma 1 b: a conflict with such a header would stay unnoticed.
    pub(super) fn note_missed(&mut self, cx: &Cx<'_, Self>, span: Span) {
        self.in_view.missed.note(cx.now(), self.delta.times(MISSED), span);
    }

    /// Fetches the bodies of a header if its parent is certified. A header that a liar puts above nothing costs the host
    /// nothing.
    fn admit_if_certified(&self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.uncertified_parent(cx.blocks(), id).is_none() {
            cx.blocks().admit(id);
        }
    }

    /// Returns the verdict on a message that shows an equivocation. A replica that only hands it on has done nothing wrong.
    pub(super) fn equivocated(&self, link: ReplicaId) -> Reject {
        if link == self.leader { Reject::Equivocation } else { Reject::NotNow("its leader has equivocated") }
    }

    /// Fetches a certified block from its voters: at once if its header is missing, else a quarter of Δ later, because its
    /// bodies are on their way.
    pub(super) fn want_certified(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let block = end_of(certificate);
        cx.blocks().admit(block.1);
        if block.0 > self.chain.committed().height && self.ready(cx, block.1).is_none() {
            let is_known = cx.blocks().get(block.1).is_some();
            let due = cx.now().plus(if is_known { self.delta.quarter() } else { 0 });
            certificate.signers.iter().for_each(|by| self.fetch(cx, block, by, due));
        }
    }

    /// S2. §4 `try_vote`: votes in the order of heights, each time on a certificate of this view.
    pub(super) fn try_vote(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(header) = self.next_to_vote(cx) {
            let block = &header.body.block;
            self.note(cx, noted::VOTED, block.height);
            self.expect_progress(cx);
            self.show_unshown(cx);
            self.show_skipped(cx, (block.height.minus(1), block.parent));
            self.in_view.voted = Some(header.clone());
            // S3. §3: the vote is written down before it leaves, and hands the header on.
            self.record_said(cx);
            cx.send(To::All, SyncMessage::Vote(header));
        }
    }

    fn next_to_vote(&mut self, cx: &mut Cx<'_, Self>) -> Option<Signed<Header>> {
        if self.is_quit() || self.state.is_recalling || self.recovery.is_silent() {
            return None;
        }
        let now = cx.now();
        let blocks: &BlockTree = cx.blocks();
        let end = self.voted_end(blocks);
        let (id, header) = self.next_above(blocks, end)?;
        let height = header.body.block.height;
        if !self.agrees(blocks, (height, id), now) {
            return None;
        }
        // S2. §8, Lemma 1 b: not at a height where this replica may have missed an earlier header.
        if let Some(until) = self.in_view.missed.until(now, self.delta.times(MISSED), height) {
            cx.timers().set(Timer::Missed, until);
            return None;
        }
        // S2. §8, Lemma 1 b: no higher than all honest replicas handle.
        if height > self.highest_voted_for() {
            self.arm_commit(cx);
            return None;
        }
        (self.ready(cx, id) == Some(Ready::Valid)).then_some(header)
    }

    /// Returns the lowest header that extends the end of a chain and a certified block of this view. Headers below it may be
    /// missing: their blocks and certificates are enough. No header above the highest certificate is checked.
    fn next_above(&self, blocks: &BlockTree, end: End) -> Option<(BlockId, Signed<Header>)> {
        let mut headers = self.in_view.statements.above(end.0).peekable();
        headers.peek()?;
        let (mut certified, mut down) = (Paths::default(), Paths::default());
        for certificate in self.state.certificates.of_view(self.view) {
            certified.visit(&self.chain, blocks, end_of(certificate), end.0);
        }
        let highest = self.state.certificates.of_view(self.view).next().map(|highest| end_of(highest).0);
        let last = highest.unwrap_or_default().next();
        let is_next = |(_, header): &&(BlockId, Signed<Header>)| {
            let block = &header.body.block;
            let parent = (block.height.minus(1), block.parent);
            let is_genesis = self.view == FIRST_VIEW && parent.1 == BlockId::ZERO;
            (is_genesis || certified.has_visited(parent.1)) && down.lead(&self.chain, blocks, parent, end)
        };
        headers.take_while(|(_, header)| header.body.block.height <= last).find(is_next).cloned()
    }

    /// Returns the highest height at which this replica votes.
    pub(super) fn highest_voted_for(&self) -> Height {
        self.chain.committed().height.plus(self.ahead_max())
    }

    /// Returns how far above the committed block this replica votes.
    fn ahead_max(&self) -> u64 {
        self.window.saturating_mul(self.state.windows_voted).min(self.state.voted_ahead_max)
    }

    /// Counts a vote for a block at a place.
    pub(super) fn count(
        &mut self,
        cx: &mut Cx<'_, Self>,
        (view, height): (View, Height),
        id: BlockId,
        by: ReplicaId,
        signature: Signature,
    ) -> Result<(), Reject> {
        // Votes of the last view in which this replica has voted count until it enters another one.
        if view < self.state.entered.minus(1) || height < self.chain.committed().height {
            if view == self.view && height <= self.in_view.expired {
                self.doubt(cx, "a vote came more than 2 delta after this replica's own");
            }
            return Err(Reject::Stale);
        }
        let highest = self.highest_handled();
        if view > self.view.plus(VIEWS_AHEAD) || height > highest {
            return Err(Reject::Early);
        }
        let at = (view, height);
        match self.state.certificates.add_vote(at, id, by, signature) {
            VoteCount::Counted(_) if self.state.certificates.is_responsive(view, height) => {
                return Err(Reject::Duplicate);
            }
            VoteCount::Counted(votes) => self.gather(cx, at, id, votes),
            VoteCount::Again if by == cx.me() => {}
            VoteCount::Again => return Err(Reject::Duplicate),
            VoteCount::Conflict(first, said) => {
                let (first, second) = (vote(view, height, first), vote(view, height, id));
                cx.accuse(Evidence { by, first: (first, said), second: (second, signature) });
                return Err(Reject::Equivocation);
            }
        }
        Ok(())
    }

    /// S1. §2: f + 1 votes of distinct replicas form a certificate; `optsync` §4: q_R of them decide at once.
    fn gather(&mut self, cx: &mut Cx<'_, Self>, at: (View, Height), id: BlockId, votes: usize) {
        let committee = cx.committee();
        if V::responsive_quorum(committee.n()).is_some_and(|quorum| votes >= quorum) {
            let certificate = self.state.certificates.gather(at, id);
            self.take_responsive(cx, &certificate);
        } else if votes >= committee.weak() && self.state.certificates.at(at.0, at.1).is_none() {
            let certificate = self.state.certificates.gather(at, id);
            self.take_certificate(cx, &certificate);
        } else if votes == committee.n() && at.0 == self.view {
            self.note_with_all(cx, (at.1, id));
        }
    }

    /// Keeps and records a certificate, whatever message brought it.
    pub(super) fn take_certificate(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let (view, height) = rank(certificate);
        let committed = self.chain.committed();
        if certificate.is_genesis() || (view < self.view && height < committed.height) {
            return;
        }
        let is_new = self.state.certificates.add(certificate, cx.now());
        // Also if another block is certified at its place: a leader picks from locks and must know which blocks conflict
        // (`optsync` §6).
        self.want_certified(cx, certificate);
        if !is_new {
            return;
        }
        self.record_certificate(cx, certificate);
        if view < self.view && height == committed.height && certificate.block() != committed.id {
            self.doubt(cx, "a late certificate conflicts with the committed block");
        }
        if view > self.view {
            // §7: a replica that sees a certificate of a higher view was cut off.
            let _ = self.ask_again(cx);
        }
        if view == self.view {
            self.admit_above(cx, end_of(certificate));
            self.show_unshown(cx);
            self.arm_commit(cx);
            self.try_vote(cx);
            self.try_propose(cx, IfIdle::Wait);
        }
    }

    /// Fetches the bodies of the header above a certified block: it may have arrived before the certificate.
    fn admit_above(&mut self, cx: &mut Cx<'_, Self>, certified: End) {
        let above = self.in_view.statements.at(certified.0.next());
        if let Some(id) = above.filter(|(_, it)| it.body.block.parent == certified.1).map(|(id, _)| *id) {
            cx.blocks().admit(id);
            self.ask_late(cx, id);
        }
    }

    pub(super) fn record_certificate(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        cx.record(&SyncRecord::Certified(certificate.clone()));
        let is_highest =
            self.state.certificates.highest().is_some_and(|high| rank(high) <= rank(certificate));
        if is_highest && self.may_settle(certificate.statement.height) {
            cx.record(&SyncRecord::Settled(certificate.clone()));
        }
    }

    /// Whether a checkpoint may be at this height. It drops the records of the height.
    pub(super) fn may_settle(&self, height: Height) -> bool {
        height.0.is_multiple_of(self.state.checkpoint_every.max(1))
    }

    /// S5. §4: as leader, proposes the next block as soon as the last one is certified in this view.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>, if_idle: IfIdle) {
        let may = self.leader == cx.me() && !self.is_quit() && !self.recovery.is_silent();
        // A view after the first one begins with its NEW-VIEW.
        if !may || (self.view > FIRST_VIEW && self.in_view.statements.new_view().is_none()) {
            return;
        }
        let proposed = self.in_view.proposed.as_ref().map(|header| (header.block.height, header.block.id()));
        let Some(end) = proposed.or_else(|| self.base(cx.blocks())) else { return };
        if !self.is_certified(cx.blocks(), end) {
            return;
        }
        let Some(parent) = self.certificate_of(end) else { return };
        // With a full window the leader still proposes empty blocks now and then: blocks that a timer commits wait for them.
        // It stops proposing payloads long before nobody votes: a leader of a view without timer commits would be blamed.
        let ahead = end.0.since(self.chain.committed().height);
        let is_full = end.0.since(self.stable) >= self.window || ahead >= self.ahead_max() / 2;
        let payload = if is_full { None } else { cx.payload_after(end.1) };
        if !self.proposes_now(cx, payload, if_idle == IfIdle::Propose) {
            return;
        }
        let base = self.base(cx.blocks()).map(|(_, id)| id).unwrap_or_default();
        let header = Header { block: self.new_block(cx, end, payload, bind_base(base)), base };
        self.in_view.proposed = Some(header.clone());
        self.record_said(cx);
        cx.send(To::All, SyncMessage::Propose { header, parent });
    }

    /// Forgets all that the committed block has settled.
    pub(super) fn settle_committed(&mut self, cx: &mut Cx<'_, Self>) {
        let height = self.chain.committed().height;
        self.in_view.statements.prune(height);
        self.state.certificates.prune(self.state.entered, height);
        self.in_view.waits.retain(|of| of > height);
        self.in_view.unshown = self.in_view.unshown.split_off(&height.next());
        // Bodies that nobody was asked for yet are still fetched: blocks that q_R votes have decided must be executed.
        self.in_view.fetches.0.retain(|_, fetch| fetch.height > height || !fetch.is_asked);
        self.in_view.certificates_sent = self.in_view.certificates_sent.split_off(&height);
        self.arm_commit(cx);
    }
}
