//! The steady state (§4): headers, votes, certificates, proposals.
//!
//! A header is looked at before everything else: whether it contradicts what the leader has said before. Bodies and
//! certificates are asked for, and the vote is cast when they are here. Nothing is parked.

use super::certificates::Added;
use super::message::SyncMessage;
use super::missed::{MISSED, Span};
use super::paths::{Paths, Relations};
use super::words::{Header, as_word, bind_base, leader, rank, vote};
use super::{SyncHotStuff, SyncRecord, Timer, Variant, noted};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::{Certificate, Cx, Evidence as Proof, Ready, Reject, Seal, Signed, To};
use quorate_types::{Block, BlockId, Height, ReplicaId, Signature, Time, View};

/// So many Δ after its certificate a block has to be known, or nothing is voted for beside it.
pub(super) const UNKNOWN: u64 = 3;

/// Where a chain goes on: height and id of its last block.
pub(super) type End = (Height, BlockId);

/// The block of a certificate.
pub(super) fn end_of(certificate: &Certificate) -> End {
    (certificate.statement.height, certificate.block())
}

/// Whether a leader that has nothing to propose proposes an empty block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum IfIdle {
    /// Not yet: somebody may want something within a heartbeat.
    Wait,
    /// Yes: the others would take its silence for a crash.
    Propose,
}

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
        // S4. Whether it contradicts what was said before comes first; the certificate counts all the same.
        let id = block.id();
        let heard = self.on_header(cx, &header, by);
        self.take_certificate(cx, parent);
        self.note_here(cx, id);
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
        // Conflicts come before the count: what a vote is for may prove that the view is over.
        let heard = self.on_header(cx, header, seal.by);
        let block = &header.body.block;
        let (view, height, id) = (block.view, block.height, block.id());
        let is_own = seal.by == cx.me() && view == self.view;
        if is_own {
            self.own_vote = Some((id, signature));
        }
        let counted = self.count(cx, (view, height), id, seal.by, signature);
        // Each replica has one block at a place, also where q_R others have decided it.
        let is_known = matches!(counted, Ok(()) | Err(Reject::Duplicate));
        if heard.is_err() && is_known && height > self.chain.committed().height {
            // Also of a view that was left: a leader picks from locks, and has to know what lies beside what (`optsync` §6).
            cx.blocks().hear(block.clone());
        }
        counted?;
        if is_own {
            self.wait_for_silence(cx, height);
        }
        heard
    }

    /// A header of the current view's leader, from whoever hands it on.
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
        // S4. §2: whatever brought it here, it is the word of its leader alone that ends a view.
        if !Header::is_of_leader(header, cx.committee()) {
            return Err(Reject::WrongSender);
        }
        if block.view == super::FIRST_VIEW && header.body.base != BlockId::ZERO {
            return Err(Reject::Invalid("base of the first view"));
        }
        // S4. §4, §5: before bodies, certificates and the disk.
        if let Some(evidence) = self.heard.conflict(&as_word(header)) {
            self.quit_view(cx, evidence);
            return Err(self.contradicted(link));
        }
        let committed = self.chain.committed().height;
        if block.height <= committed {
            return Err(Reject::Stale);
        }
        if block.height > self.highest() {
            // What base its leader goes on from it has said all the same.
            self.heard.add_word(&as_word(header));
            self.note_missed(cx, Span::of(block.height));
            return Err(Reject::Early);
        }
        let id = block.id();
        if self.heard.add_header(id, header) {
            cx.blocks().hear(block.clone());
            self.check_split(cx, block.height);
            if self.is_quit() {
                return Err(self.contradicted(link));
            }
        }
        self.look_below(cx, id);
        self.mention(cx, (block.height, id), link);
        self.try_vote(cx);
        self.commit_waits(cx);
        Ok(())
    }

    /// S2. §8, Lemma 1 b: another header at the height of one that is not kept would contradict it, and nobody would know.
    pub(super) fn note_missed(&mut self, cx: &Cx<'_, Self>, span: Span) {
        self.missed.note(cx.now(), self.delta.times(MISSED), span);
    }

    /// A header that rests on what is certified is worth its bodies. What a liar puts above nothing costs the host nothing.
    fn look_below(&self, cx: &mut Cx<'_, Self>, id: BlockId) {
        if self.uncertified_parent(cx.blocks(), id).is_none() {
            cx.blocks().admit(id);
        }
    }

    /// A leader has contradicted itself; whoever only hands its words on has done nothing wrong.
    pub(super) fn contradicted(&self, link: ReplicaId) -> Reject {
        if link == self.leader {
            Reject::Equivocation
        } else {
            Reject::NotNow("its leader has contradicted itself")
        }
    }

    /// How a block stands; genesis and the committed one need nothing.
    pub(super) fn ready(&self, cx: &Cx<'_, Self>, id: BlockId) -> Option<Ready> {
        if id == BlockId::ZERO || id == self.chain.committed().id { Some(Ready::Valid) } else { cx.ready(id) }
    }

    /// Where the current view begins; `None` before its leader has said it, or where that block is not known.
    pub(super) fn base(&self, blocks: &BlockTree) -> Option<End> {
        if self.view == super::FIRST_VIEW {
            return Some((Height::ZERO, BlockId::ZERO));
        }
        if self.first_voted.is_some() {
            return self.first_voted;
        }
        if let Some(shown) = &self.shown {
            return Some((shown.body.lock.tip.statement.height, shown.body.lock.tip.block()));
        }
        let tip = self.chain.tip(blocks, self.heard.base()?)?;
        Some((tip.height, tip.id))
    }

    /// Whether the end of a chain has a certificate of this view, its own or that of a block above it: whoever has voted
    /// there has seen it.
    pub(super) fn is_certified(&self, blocks: &BlockTree, end: End) -> bool {
        if self.view == super::FIRST_VIEW && end.1 == BlockId::ZERO {
            return true;
        }
        self.certificate_from(blocks, self.view, end).is_some()
    }

    /// The lowest certificate of a view for the end of a chain, or for a block above it.
    pub(super) fn certificate_from(&self, blocks: &BlockTree, view: View, end: End) -> Option<&Certificate> {
        let mut down = Paths::default();
        self.certificates.from(view, end.0).find(|above| down.lead(&self.chain, blocks, end_of(above), end))
    }

    /// Whether a block is another one or extends it. What is settled lies below everything; `None` where a header is
    /// missing: that excludes nothing.
    pub(super) fn extends(&self, blocks: &BlockTree, end: End, below: End) -> Option<bool> {
        self.extends_knowing(blocks, end, below, &Relations::default())
    }

    /// The same, asked of many.
    pub(super) fn extends_knowing(
        &self,
        blocks: &BlockTree,
        (height, id): End,
        (low, below): End,
        known: &Relations,
    ) -> Option<bool> {
        if id == below || height <= low {
            return Some(id == below && height == low);
        }
        let committed = self.chain.committed();
        let tip = self.chain.tip(blocks, id)?;
        if tip.height != height {
            return Some(false);
        }
        if low < committed.height {
            // One chain is committed, and nobody keeps what lies below its end.
            let above = height >= committed.height;
            return if above { known.ask(&self.chain, blocks, tip, committed.end()) } else { None };
        }
        known.ask(&self.chain, blocks, tip, (low, below))
    }

    /// Whether it is known to.
    pub(super) fn is_on(&self, blocks: &BlockTree, end: End, below: End) -> bool {
        self.extends(blocks, end, below) == Some(true)
    }

    /// Whether a block lies on one chain with the highest one that is known and certified in this view. Whoever was away may be
    /// shown another branch that nobody else sees any more (§18: `seen` is whole again). Certificates may be shown before
    /// headers travel: those of blocks that are not known keep nobody from anything for 3 Δ, in which those who have voted for
    /// them show them; else liars with fast links could keep this replica from voting.
    pub(super) fn agrees(&self, blocks: &BlockTree, end: End, now: Time) -> bool {
        let known = Relations::default();
        let with = |certified: End| {
            let (high, low) = if certified.0 >= end.0 { (certified, end) } else { (end, certified) };
            self.extends_knowing(blocks, high, low, &known)
        };
        let wait = self.delta.times(UNKNOWN);
        let mut of_view = self.certificates.of_view(self.view).peekable();
        while let Some(certificate) = of_view.next_if(|it| end_of(it).0 >= end.0) {
            match with(end_of(certificate)) {
                Some(is_on) => return is_on,
                None if now >= self.certificates.came(certificate).plus(wait) => return false,
                None => {}
            }
        }
        of_view
            .filter(|it| self.chain.tip(blocks, it.block()).is_some())
            .find_map(|it| with(end_of(it)))
            .unwrap_or(true)
    }

    /// A certified block is asked for of those who have voted for it: at once where its header is not here, else it is on
    /// its way.
    pub(super) fn want_certified(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let block = end_of(certificate);
        cx.blocks().admit(block.1);
        if block.0 > self.chain.committed().height && self.ready(cx, block.1).is_none() {
            let is_known = cx.blocks().get(block.1).is_some();
            let due = cx.now().plus(if is_known { self.delta.quarter() } else { 0 });
            certificate.signers.iter().for_each(|by| self.mention_until(cx, block, by, due));
        }
    }

    /// S2. §4 `try_vote`: in the order of heights, each on a certificate of this view.
    pub(super) fn try_vote(&mut self, cx: &mut Cx<'_, Self>) {
        while let Some(header) = self.next_to_vote(cx) {
            let block = &header.body.block;
            self.note(cx, noted::VOTED, block.height);
            self.expect_progress(cx);
            self.show_unshown(cx);
            self.show_skipped(cx, (block.height.minus(1), block.parent));
            self.voted = Some(header.clone());
            // S3. §3: the vote is written down before it leaves, and hands the header on.
            self.record_said(cx);
            cx.send(To::All, SyncMessage::Vote(header));
        }
    }

    fn next_to_vote(&mut self, cx: &mut Cx<'_, Self>) -> Option<Signed<Header>> {
        if self.is_quit() || self.is_recalling || self.returning.is_silent() {
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
        // S2. §8, Lemma 1 b: not where this replica may have missed what its leader has said before.
        if let Some(until) = self.missed.until(now, self.delta.times(MISSED), height) {
            cx.timers().set(Timer::Missed, until);
            return None;
        }
        // S2. §8, Lemma 1 b: no higher than where everybody hears it.
        if height > self.highest_voted_for() {
            self.arm_commit(cx);
            return None;
        }
        (self.ready(cx, id) == Some(Ready::Valid)).then_some(header)
    }

    /// The lowest header on top of the end of a chain, and of what is certified in this view. Headers below it may be missing here:
    /// their blocks and certificates are enough. What is certified bounds what is looked at.
    fn next_above(&self, blocks: &BlockTree, end: End) -> Option<(BlockId, Signed<Header>)> {
        let mut headers = self.heard.above(end.0).peekable();
        headers.peek()?;
        let (mut certified, mut down) = (Paths::default(), Paths::default());
        for certificate in self.certificates.of_view(self.view) {
            certified.pass(&self.chain, blocks, end_of(certificate), end.0);
        }
        let highest = self.certificates.of_view(self.view).next().map(|highest| end_of(highest).0);
        let last = highest.unwrap_or_default().next();
        let is_next = |(_, header): &&(BlockId, Signed<Header>)| {
            let block = &header.body.block;
            let parent = (block.height.minus(1), block.parent);
            let is_genesis = self.view == super::FIRST_VIEW && parent.1 == BlockId::ZERO;
            (is_genesis || certified.has_passed(parent.1)) && down.lead(&self.chain, blocks, parent, end)
        };
        headers.take_while(|(_, header)| header.body.block.height <= last).find(is_next).cloned()
    }

    /// The highest height at which this replica votes.
    pub(super) fn highest_voted_for(&self) -> Height {
        self.chain.committed().height.plus(self.ahead_max())
    }

    /// The same, above the committed block.
    fn ahead_max(&self) -> u64 {
        self.window.saturating_mul(self.windows_voted).min(self.voted_ahead_max)
    }

    /// What this replica votes on top of: its last vote, what is committed, or where the view begins as far as it knows.
    pub(super) fn voted_end(&self, blocks: &BlockTree) -> End {
        let committed = self.chain.committed().end();
        let voted = self.voted.as_ref().map(|header| &header.body.block);
        let voted = voted.map(|block| (block.height, block.id()));
        // Of equal heights the last one counts.
        let ends = [self.base(blocks), Some(committed), voted].into_iter().flatten();
        ends.max_by_key(|(height, _)| *height).unwrap_or(committed)
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
        // Votes of the view in which this replica has voted last count until it enters another one.
        if view < self.entered.minus(1) || height < self.chain.committed().height {
            if view == self.view && height <= self.expired {
                self.doubt(cx, "a vote came more than 2 delta after this replica's own");
            }
            return Err(Reject::Stale);
        }
        let highest = self.highest();
        if view > self.view.plus(super::VIEWS_AHEAD) || height > highest {
            return Err(Reject::Early);
        }
        let at = (view, height);
        match self.certificates.add_vote(at, id, by, signature) {
            Added::Counted(_) if self.certificates.is_responsive(view, height) => {
                return Err(Reject::Duplicate);
            }
            Added::Counted(votes) => self.gather(cx, at, id, votes),
            Added::Again if by == cx.me() => {}
            Added::Again => return Err(Reject::Duplicate),
            Added::Conflict(first, said) => {
                let (first, second) = (vote(view, height, first), vote(view, height, id));
                cx.accuse(Proof { by, first: (first, said), second: (second, signature) });
                return Err(Reject::Equivocation);
            }
        }
        Ok(())
    }

    /// S1. §2: f + 1 votes of distinct replicas are a certificate; `optsync` §4: q_R of them decide at once.
    fn gather(&mut self, cx: &mut Cx<'_, Self>, at: (View, Height), id: BlockId, votes: usize) {
        let committee = cx.committee();
        if V::responsive_quorum(committee.n()).is_some_and(|quorum| votes >= quorum) {
            let certificate = self.certificates.gather(at, id);
            self.take_responsive(cx, &certificate);
        } else if votes >= committee.weak() && self.certificates.at(at.0, at.1).is_none() {
            let certificate = self.certificates.gather(at, id);
            self.take_certificate(cx, &certificate);
        } else if votes == committee.n() && at.0 == self.view {
            self.note_with_all(cx, (at.1, id));
        }
    }

    /// A certificate is kept and written down, whatever came with it.
    pub(super) fn take_certificate(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let (view, height) = rank(certificate);
        let committed = self.chain.committed();
        if certificate.is_genesis() || (view < self.view && height < committed.height) {
            return;
        }
        let is_new = self.certificates.add(certificate, cx.now());
        // Also where another block has its place: a leader picks from locks, and has to know what lies beside what (`optsync` §6).
        self.want_certified(cx, certificate);
        if !is_new {
            return;
        }
        self.record_certificate(cx, certificate);
        if view < self.view && height == committed.height && certificate.block() != committed.id {
            self.doubt(cx, "a late certificate contradicts what is committed");
        }
        if view > self.view {
            // §7: whoever sees one of a higher view was cut off.
            let _ = self.ask_again(cx);
        }
        if view == self.view {
            self.look_above(cx, end_of(certificate));
            self.show_unshown(cx);
            self.arm_commit(cx);
            self.try_vote(cx);
            self.try_propose(cx, IfIdle::Wait);
        }
    }

    /// A header may have come before what it rests on was certified.
    fn look_above(&mut self, cx: &mut Cx<'_, Self>, certified: End) {
        let above = self.heard.at(certified.0.next());
        if let Some(id) = above.filter(|(_, it)| it.body.block.parent == certified.1).map(|(id, _)| *id) {
            cx.blocks().admit(id);
            self.ask_late(cx, id);
        }
    }

    pub(super) fn record_certificate(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        cx.record(&SyncRecord::Certified(certificate.clone()));
        let is_highest = self.certificates.highest().is_some_and(|high| rank(high) <= rank(certificate));
        if is_highest && self.may_settle(certificate.statement.height) {
            cx.record(&SyncRecord::Settled(certificate.clone()));
        }
    }

    /// Whether a checkpoint may be at this height, which drops what was written down for it.
    pub(super) fn may_settle(&self, height: Height) -> bool {
        height.0.is_multiple_of(self.checkpoint_every.max(1))
    }

    /// S5. §4, as leader: the next block as soon as the last one is certified in this view.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>, if_idle: IfIdle) {
        let me = cx.me();
        let may = leader(cx.committee(), self.view) == me && !self.is_quit() && !self.returning.is_silent();
        // A view that follows another one begins with its NEW-VIEW.
        if !may || (self.view > super::FIRST_VIEW && self.heard.new_view().is_none()) {
            return;
        }
        let proposed = self.proposed.as_ref().map(|header| (header.block.height, header.block.id()));
        let Some(end) = proposed.or_else(|| self.base(cx.blocks())) else { return };
        if !self.is_certified(cx.blocks(), end) {
            return;
        }
        let Some(parent) = self.certificate_of(end) else { return };
        // Where the window is full empty blocks go on, now and then: what is committed by a timer waits for them. Long before
        // nobody votes any more, or whoever leads while no timer commits is blamed for it.
        let ahead = end.0.since(self.chain.committed().height);
        let is_full = end.0.since(self.stable) >= self.window || ahead >= self.ahead_max() / 2;
        let payload = if is_full { None } else { cx.payload_after(end.1) };
        if payload.is_none() && if_idle == IfIdle::Wait {
            if cx.timers().get(Timer::Propose).is_none() {
                let at = cx.now().plus(self.heartbeat_ns);
                cx.timers().set(Timer::Propose, at);
            }
            return;
        }
        cx.timers().cancel(Timer::Propose);
        let base = self.base(cx.blocks()).map(|(_, id)| id).unwrap_or_default();
        let block = Block {
            parent: end.1,
            height: end.0.next(),
            view: self.view,
            proposer: me,
            time_ns: payload.map_or(0, |payload| payload.time_ns),
            payload: payload.map_or_else(empty_payload, |payload| payload.id),
            extra: bind_base(base),
        };
        self.note(cx, noted::PROPOSED, block.height);
        // Before its own copy is here a checkpoint may be installed, which forgets payloads that no block names.
        cx.blocks().insert(block.clone());
        let header = Header { block, base };
        self.proposed = Some(header.clone());
        self.record_said(cx);
        cx.send(To::All, SyncMessage::Propose { header, parent });
    }

    /// The certificate of this view for the end of a chain.
    pub(super) fn certificate_of(&self, (height, id): End) -> Option<Certificate> {
        if self.view == super::FIRST_VIEW && id == BlockId::ZERO {
            return Some(Certificate::genesis(super::message::VOTE));
        }
        self.certificates.at(self.view, height).filter(|certificate| certificate.block() == id).cloned()
    }

    /// Forgets what the committed block has settled.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        let height = self.chain.committed().height;
        self.heard.prune(height);
        self.certificates.prune(self.entered, height);
        self.waits.retain(|of| of > height);
        self.unshown = self.unshown.split_off(&height.next());
        self.settle_missing(height);
        self.arm_commit(cx);
    }
}
