//! Headers, votes, certificates, proposals (§11; §4 where it says nothing else).
//!
//! A header is looked at before everything else: whether it contradicts what the leader has said before. Bodies are asked
//! for, and the vote is cast when they are here. Nothing is parked: what belongs to a view that has not begun is noted for it.

use super::super::WINDOWS_VOTED;
use super::super::message::VOTE;
use super::super::words::leader;
use super::heard::{Heard, OwnVote};
use super::message::RotatingMessage;
use super::words::{Evidence, Header};
use super::{IfIdle, RotatingRecord, RotatingSyncHotStuff, Timer, WINDOWS_IN_NEED, noted};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{Ancestry, Below, Tip, bind_certificate, empty_payload};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::parts::votes::{Added, equivocation};
use quorate_consensus::{Certificate, Cx, Evidence as Proof, Ready, Reject, Seal, Signed, To};
use quorate_types::{Block, BlockId, Height, ReplicaId, Signature, View};

impl RotatingSyncHotStuff {
    /// What is known of a view, where it is remembered or may be: up to so many views above the current one.
    pub(super) fn heard_in(&mut self, view: View, ahead: u64) -> Option<&mut Heard> {
        if view >= self.view.minus(self.near) && view <= self.view.plus(ahead) {
            return Some(self.views.entry(view).or_default());
        }
        self.views.get_mut(&view)
    }

    pub(super) fn on_propose(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        header: Header,
        parent: &Certificate,
    ) -> Result<(), Reject> {
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        if seal.by != leader(cx.committee(), header.block.view) {
            return Err(Reject::WrongSender);
        }
        // R3. Its certificate may be what ends the view before.
        self.take_certificate(cx, parent);
        self.on_header(cx, &Signed { body: header, by: seal.by, signature }, seal.by)
    }

    pub(super) fn on_vote(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        header: &Signed<Header>,
    ) -> Result<(), Reject> {
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        // Conflicts come before the count: what a vote is for may prove that silence says nothing.
        let heard = self.on_header(cx, header, seal.by);
        let (view, id) = (header.body.block.view, header.body.block.id());
        if seal.by == cx.me() {
            self.own_vote = Some((id, signature));
            self.wait_for_silence(cx, view, id);
        }
        self.count(cx, (view, id), seal.by, signature)?;
        heard
    }

    /// A header, from whoever hands it on.
    pub(super) fn on_header(
        &mut self,
        cx: &mut Cx<'_, Self>,
        header: &Signed<Header>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let block = &header.body.block;
        let (view, id, committed) = (block.view, block.id(), self.chain.committed().height);
        self.check_silence(cx, view, Some(id));
        let early = if view > self.view { Reject::Early } else { Reject::Stale };
        let highest = self.highest();
        let Some(heard) = self.heard_in(view, self.near) else { return Err(early) };
        match &heard.first {
            // R11. §5, §11: before bodies, certificates and the disk.
            Some((first, known)) if *first != id => {
                let evidence = Evidence::Conflict(Box::new((known.clone(), header.clone())));
                self.break_silence(cx, &evidence);
                // Whoever only hands its words on has done nothing wrong.
                let is_leader = link == header.by;
                let handed_on = Reject::NotNow("its leader has contradicted itself");
                return Err(if is_leader { Reject::Equivocation } else { handed_on });
            }
            Some(_) => {}
            None if block.height <= committed => return Err(Reject::Stale),
            None => heard.first = Some((id, header.clone())),
        }
        if block.height > highest {
            // It is remembered all the same: nothing else of its view is voted for.
            return Err(Reject::Early);
        }
        if block.height > committed {
            cx.blocks().hear(block.clone());
            self.mention(cx, id, header.by);
            if link != header.by {
                self.mention(cx, id, link);
            }
            self.look_for(cx, view);
        }
        if view == self.view {
            self.try_vote(cx);
        }
        Ok(())
    }

    /// R6. A header is worth its bodies when what it rests on is certified: whoever votes for it shows that first. What a liar
    /// puts above nothing costs the host nothing, nor all that it may say lies below it.
    fn look_for(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        let Some((id, header)) = self.views.get(&view).and_then(|heard| heard.first.as_ref()) else { return };
        let (id, header) = (*id, &header.body);
        let is_certified = |view, id| self.certificates.get(view, id).is_some();
        let is_worth_it = is_certified(view, id) || is_certified(header.parent_view, header.block.parent);
        if is_worth_it && cx.blocks().is_bare(id) {
            cx.blocks().admit(id);
            self.ask_late(cx, id);
        }
    }

    /// How a block stands; genesis and the committed one need nothing.
    pub(super) fn ready(&self, cx: &Cx<'_, Self>, id: BlockId) -> Option<Ready> {
        if id == BlockId::ZERO || id == self.chain.committed().id { Some(Ready::Valid) } else { cx.ready(id) }
    }

    /// Votes in the current view, once.
    pub(super) fn try_vote(&mut self, cx: &mut Cx<'_, Self>) {
        let Some((header, parent)) = self.next_to_vote(cx) else { return };
        let (view, height) = (header.body.block.view, header.body.block.height);
        self.note(cx, noted::VOTED, height);
        // R7. Whoever gets the header with this vote has what it rests on by then: nobody has to ask for it.
        self.show(cx, &parent);
        if let Some(heard) = self.views.get_mut(&view) {
            (heard.vote, heard.is_out) = (OwnVote::Cast, true);
        }
        self.voted = Some(header.clone());
        // R7. §3: the vote is written down before it leaves, and hands the header on.
        self.record_said(cx);
        cx.send(To::All, RotatingMessage::Vote(header));
    }

    /// R6. §8, Lemma 1 b: no higher than where everybody hears it. Where nothing that was voted for may still be committed by
    /// its timer, and what is voted for now may, a little higher (§19).
    pub(super) fn may_vote(&self, cx: &mut Cx<'_, Self>, height: Height) -> bool {
        let above = height.since(self.chain.committed().height);
        let windows = above.div_ceil(self.window.max(1));
        let may_need = windows <= WINDOWS_IN_NEED && self.returning.standing() == Standing::Running;
        windows <= WINDOWS_VOTED || (may_need && self.waits.are_in_vain(cx))
    }

    fn next_to_vote(&self, cx: &mut Cx<'_, Self>) -> Option<(Signed<Header>, Certificate)> {
        // R6. §11, 3: once in a view, and not past it.
        let has_voted = self.voted.as_ref().is_some_and(|voted| voted.body.block.view >= self.view);
        if has_voted || self.is_quit() || self.returning.is_silent() {
            return None;
        }
        // R6. §11, 3: for the first header of its leader. Not where that has contradicted itself: who has heard of two headers
        // keeps nobody's wait from ending, who has shown its vote before does.
        let heard = self.views.get(&self.view).filter(|heard| !heard.is_broken)?;
        let (id, header) = heard.first.as_ref()?;
        let block = &header.body.block;
        // R6. §11, 3: it rests on nothing lower than the lock.
        if header.body.parent_view < self.lock.view() {
            return None;
        }
        if !self.may_vote(cx, block.height) {
            return None;
        }
        let parent = self.certificates.get(header.body.parent_view, block.parent)?;
        if self.ready(cx, *id) != Some(Ready::Valid) {
            return None;
        }
        // Last, because it goes down to the committed block.
        let blocks: &BlockTree = cx.blocks();
        let fits = self.chain.fits(blocks, block, parent);
        let may = fits && self.chain.ancestry(blocks, Tip::of(block, *id)) == Ancestry::Extends;
        may.then(|| (header.clone(), parent.clone()))
    }

    /// Counts a vote for a block of a view.
    pub(super) fn count(
        &mut self,
        cx: &mut Cx<'_, Self>,
        (view, id): (View, BlockId),
        by: ReplicaId,
        signature: Signature,
    ) -> Result<(), Reject> {
        if view < self.view.minus(1) {
            return Err(Reject::Stale);
        }
        if view > self.view.plus(self.near) {
            return Err(Reject::Early);
        }
        match self.votes.add(by, view, id, Some(signature)) {
            Added::Counted => {}
            Added::Again if by == cx.me() => return Ok(()),
            Added::Again => return Err(Reject::Duplicate),
            Added::Old => return Err(Reject::Stale),
            Added::Conflict(first, said) => {
                if let Some(said) = said {
                    cx.accuse(equivocation(VOTE, by, view, (first, said), (id, signature)));
                }
                return Err(Reject::Equivocation);
            }
        }
        // R1. §2: f + 1 votes of distinct replicas for one block of a view.
        let votes = self.votes.signed(view, id);
        if votes.len() >= cx.committee().weak() && self.certificates.get(view, id).is_none() {
            let certificate = Certificate::of(super::words::vote(view, id), &votes);
            self.take_certificate(cx, &certificate);
        }
        Ok(())
    }

    /// A certificate counts, whatever came with it.
    pub(super) fn take_certificate(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let (view, id) = (certificate.view(), certificate.block());
        self.check_silence(cx, view, Some(id));
        let low = self.lock.view().min(self.view.minus(self.near));
        let matters = view >= low || self.views.contains_key(&view);
        if !matters || !self.certificates.add(certificate) {
            return;
        }
        self.check_certified(cx, view);
        // R3. §8: also that of a view that was jumped over. What lies in it silence commits only where all have it.
        self.show(cx, certificate);
        self.show_certified(cx);
        if view > self.chain.committed().view {
            self.take_up_certified(cx, certificate);
        }
        self.look_for(cx, view);
        let above = self.views.range(view.next()..);
        let rests = above
            .filter(|(_, heard)| heard.first.as_ref().is_some_and(|(_, it)| it.body.rests_on(certificate)));
        for view in rests.map(|(view, _)| *view).collect::<Vec<View>>() {
            self.look_for(cx, view);
        }
        if view >= self.view {
            // R3. §11, 1: the view is over, whoever shows it and whatever this replica waits for.
            return self.enter(cx, view.next());
        }
        if self.certificates.highest() == certificate {
            cx.record(&RotatingRecord::Highest(certificate.clone()));
        }
        self.try_vote(cx);
        self.try_propose(cx, IfIdle::Wait);
    }

    /// R3. §11, 1: what this replica goes on from all others have Δ later. Once, and at once.
    pub(super) fn show(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        if self.certificates.must_show(certificate) {
            cx.send_unheld(To::All, RotatingMessage::Certified(certificate.clone()));
            let (view, id) = (certificate.view(), certificate.block());
            let first = self.views.get(&view).and_then(|heard| heard.first.as_ref());
            if first.is_some_and(|(first, _)| *first == id) {
                self.waits.note_with_all(cx.now(), |of| of == view);
            }
        }
    }

    /// R11. §11, 5: two certificates of a view, or one beside the header that was heard first, show that its leader lies.
    fn check_certified(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        let mut certified = self.certificates.of_view(view);
        let (Some(one), other) = (certified.next(), certified.next()) else { return };
        if let Some(other) = other {
            let evidence = Evidence::Certificates(Box::new((one.clone(), other.clone())));
            drop(certified);
            return self.break_silence(cx, &evidence);
        }
        let first = self.views.get(&view).and_then(|heard| heard.first.as_ref());
        let is_beside = first.is_some_and(|(id, _)| *id != one.block());
        drop(certified);
        if is_beside {
            self.stop_waiting(cx, view);
        }
    }

    /// Nobody may rely on silence in this view: all hear why, once, at once and whatever the disk does.
    pub(super) fn break_silence(&mut self, cx: &mut Cx<'_, Self>, evidence: &Evidence) {
        let view = evidence.view();
        self.check_silence(cx, view, None);
        // A peer that is as far ahead as it can be notes headers of so many views more, and shows only once that two of
        // them contradict each other.
        let Some(heard) = self.heard_in(view, self.near.saturating_mul(2)) else { return };
        if !std::mem::replace(&mut heard.is_shown, true) {
            cx.send_unheld(To::All, RotatingMessage::Evidence(evidence.clone()));
            if let Evidence::Conflict(both) = evidence {
                let signed = |header: &Signed<Header>| (header.body.statement(), header.signature);
                let (first, second) = (signed(&both.0), signed(&both.1));
                cx.accuse(Proof { by: both.0.by, first, second });
            }
        }
        self.stop_waiting(cx, view);
    }

    /// R5. §11, 2, as leader: at once on a certificate of the view before, else after 2 Δ on the highest one of all.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>, if_idle: IfIdle) {
        let may = self.leader == cx.me() && !self.is_quit() && !self.returning.is_silent();
        let has_proposed = self.proposed.as_ref().is_some_and(|(header, _)| header.block.view >= self.view);
        let follows = self.is_certified_before();
        if !may || has_proposed || !(follows || self.collected) {
            return;
        }
        let Some(parent) = self.parent(cx) else { return };
        let Some(tip) = self.chain.tip(cx.blocks(), parent.block()) else { return };
        // Where the window is full empty blocks go on, now and then: what is committed by a timer waits for them.
        let is_full = tip.height.since(self.stable) >= self.window;
        let payload = if is_full { None } else { cx.payload_after(tip.id) };
        let hurries = follows && self.waits_for_descendant(cx.blocks(), tip);
        if payload.is_none() && if_idle == IfIdle::Wait && !hurries {
            if cx.timers().get(Timer::Propose).is_none() {
                let at = cx.now().plus(self.heartbeat_ns);
                cx.timers().set(Timer::Propose, at);
            }
            return;
        }
        cx.timers().cancel(Timer::Propose);
        let block = Block {
            parent: tip.id,
            height: tip.height.next(),
            view: self.view,
            proposer: cx.me(),
            time_ns: payload.map_or(0, |payload| payload.time_ns),
            payload: payload.map_or_else(empty_payload, |payload| payload.id),
            extra: bind_certificate(parent.view(), tip.id),
        };
        self.note(cx, noted::PROPOSED, block.height);
        // Before its own copy is here a checkpoint may be installed, which forgets payloads that no block names.
        cx.blocks().insert(block.clone());
        let header = Header { block, parent_view: parent.view() };
        self.proposed = Some((header.clone(), parent.clone()));
        self.record_said(cx);
        cx.send(To::All, RotatingMessage::Propose { header, parent });
    }

    /// Whether a block of the view before is certified.
    pub(super) fn is_certified_before(&self) -> bool {
        self.certificates.of_view(self.view.minus(1)).next().is_some()
    }

    /// On what this replica proposes: a certificate of the highest view. Of two that one view has, one that is here. Those
    /// beside what is committed can only come of a broken bound.
    fn parent(&self, cx: &mut Cx<'_, Self>) -> Option<Certificate> {
        let blocks: &BlockTree = cx.blocks();
        let is_beside = |certificate: &&Certificate| {
            let tip = self.chain.tip(blocks, certificate.block());
            tip.is_some_and(|tip| matches!(self.chain.ancestry(blocks, tip), Ancestry::Conflicts(_)))
        };
        // Lazily: each look goes down to the committed block.
        let mut fitting = self.certificates.down().filter(|it| !is_beside(it));
        let highest = fitting.next()?;
        let others = fitting.take_while(|it| it.view() == highest.view());
        let mut of_view = std::iter::once(highest).chain(others).cloned().collect::<Vec<_>>().into_iter();
        of_view.find(|it| self.ready(cx, it.block()) == Some(Ready::Valid))
    }

    /// Whether something that clients want lies in blocks that no timer commits, because their views followed none (R9):
    /// the next block commits them, and nobody should wait a heartbeat for it.
    fn waits_for_descendant(&self, blocks: &BlockTree, tip: Tip) -> bool {
        let mut at = tip;
        while let Below::Block(parent) = self.chain.below(blocks, at) {
            if at.view == parent.view.next() {
                return false;
            }
            if !self.is_empty(blocks, at.id) {
                return true;
            }
            at = parent;
        }
        false
    }

    /// Whether a block carries nothing.
    pub(super) fn is_empty(&self, blocks: &BlockTree, id: BlockId) -> bool {
        blocks.get(id).is_some_and(|block| block.payload == self.empty)
    }
}
