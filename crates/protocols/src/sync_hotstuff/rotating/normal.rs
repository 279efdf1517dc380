//! Headers, votes, certificates, proposals (§11, and §4 for all else).
//!
//! A header is first checked for a conflict with an earlier one of its leader. Bodies are asked for, and the vote is cast when
//! they have arrived. No message is parked: statements of a view that has not begun are noted for it.

use super::super::replica::{IfIdle, SyncHotStuff, WINDOWS_AHEAD, WINDOWS_VOTED, noted};
use super::super::statements::{VOTE, leader};
use super::evidence::ViewEvidence;
use super::header::{Header, vote};
use super::message::RotatingMessage;
use super::record::RotatingRecord;
use super::state::Rotating;
use super::view_facts::{OwnVote, ViewFacts};
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::parts::chain::{Ancestry, Below, Tip, bind_certificate};
use quorate_consensus::parts::votes::{Added, equivocation};
use quorate_consensus::{Certificate, Cx, Evidence, Ready, Reject, Seal, Signed, To};
use quorate_types::{BlockId, Height, ReplicaId, Signature, View};

/// Windows of heights in which a replica votes if all earlier votes were in vain. No timer commits votes that were cast in
/// doubt, and a commit needs a new vote (§19). The windows are used one at a time, so there is room for very many attempts.
const WINDOWS_IN_NEED: u64 = WINDOWS_AHEAD - 1;

impl SyncHotStuff<Rotating> {
    /// Returns the facts of a view that is kept, or may be kept: up to `ahead` views above the current one.
    pub(super) fn facts_of(&mut self, view: View, ahead: u64) -> Option<&mut ViewFacts> {
        if view >= self.view.minus(self.state.near) && view <= self.view.plus(ahead) {
            return Some(self.state.views.entry(view).or_default());
        }
        self.state.views.get_mut(&view)
    }

    /// Returns the first header of a view.
    pub(super) fn first_header(&self, view: View) -> Option<&(BlockId, Signed<Header>)> {
        self.state.views.get(&view)?.first.as_ref()
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
        // The check for a conflict comes before the count: the header of a vote may prove that silence proves nothing.
        let heard = self.on_header(cx, header, seal.by);
        let (view, id) = (header.body.block.view, header.body.block.id());
        if seal.by == cx.me() {
            self.state.own_copy = Some((id, signature));
            self.wait_for_silence(cx, view, id);
        }
        self.count(cx, (view, id), seal.by, signature)?;
        heard
    }

    /// Handles a header, whichever replica hands it on.
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
        let highest = self.highest_handled();
        let Some(facts) = self.facts_of(view, self.state.near) else { return Err(early) };
        match &facts.first {
            // R11. §5, §11: before bodies, certificates and the disk.
            Some((first, known)) if *first != id => {
                let evidence = ViewEvidence::Conflict(Box::new((known.clone(), header.clone())));
                self.break_silence(cx, &evidence);
                // A replica that only hands headers on has done nothing wrong.
                let is_leader = link == header.by;
                let handed_on = Reject::NotNow("its leader has equivocated");
                return Err(if is_leader { Reject::Equivocation } else { handed_on });
            }
            Some(_) => {}
            None if block.height <= committed => return Err(Reject::Stale),
            None => facts.first = Some((id, header.clone())),
        }
        if block.height > highest {
            // It is kept all the same: no other header of its view is voted for.
            return Err(Reject::Early);
        }
        if block.height > committed {
            cx.blocks().hear(block.clone());
            self.fetch_soon(cx, (block.height, id), header.by);
            if link != header.by {
                self.fetch_soon(cx, (block.height, id), link);
            }
            self.admit_if_certified(cx, view);
        }
        if view == self.view {
            self.try_vote(cx);
        }
        Ok(())
    }

    /// R6. Fetches the bodies of a header if its parent is certified: every voter shows that certificate first. A header that a
    /// liar puts above nothing costs the host nothing, nor do its alleged ancestors.
    fn admit_if_certified(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        let Some((id, header)) = self.first_header(view) else { return };
        let (id, header) = (*id, &header.body);
        let is_certified = |view, id| self.state.certificates.get(view, id).is_some();
        let is_worth_it = is_certified(view, id) || is_certified(header.parent_view, header.block.parent);
        if is_worth_it && cx.blocks().is_bare(id) {
            cx.blocks().admit(id);
            self.ask_late(cx, id);
        }
    }

    /// Votes in the current view, once.
    pub(super) fn try_vote(&mut self, cx: &mut Cx<'_, Self>) {
        let Some((header, parent)) = self.next_to_vote(cx) else { return };
        let (view, height) = (header.body.block.view, header.body.block.height);
        self.note(cx, noted::VOTED, height);
        // R7. Receivers of this vote have the certificate of its parent by then: nobody has to ask for it.
        self.show(cx, &parent);
        if let Some(facts) = self.state.views.get_mut(&view) {
            (facts.vote, facts.is_out) = (OwnVote::Cast, true);
        }
        self.state.voted = Some(header.clone());
        // R7. §3: the vote is written down before it leaves, and hands the header on.
        self.record_said(cx);
        cx.send(To::All, RotatingMessage::Vote(header));
    }

    /// Whether a height may be voted for. R6. §8, Lemma 1 b: it is no higher than all honest replicas handle. It may be a
    /// little higher if all earlier waits are in vain and a new one would not be (§19).
    pub(super) fn may_vote(&self, cx: &mut Cx<'_, Self>, height: Height) -> bool {
        let above = height.since(self.chain.committed().height);
        let windows = above.div_ceil(self.window.max(1));
        let may_need = windows <= WINDOWS_IN_NEED && self.is_running();
        windows <= WINDOWS_VOTED || (may_need && self.state.waits.are_in_vain(cx))
    }

    fn next_to_vote(&self, cx: &mut Cx<'_, Self>) -> Option<(Signed<Header>, Certificate)> {
        // R6. §11, 3: once in a view, and not past it.
        let has_voted = self.state.voted.as_ref().is_some_and(|voted| voted.body.block.view >= self.view);
        if has_voted || self.is_quit() || self.recovery.is_silent() {
            return None;
        }
        // R6. §11, 3: for the first header of its leader, and not after an equivocation. A vote that was sent before it ends
        // the waits of others, but knowledge of two headers ends none.
        let facts = self.state.views.get(&self.view).filter(|facts| !facts.is_broken)?;
        let (id, header) = facts.first.as_ref()?;
        let block = &header.body.block;
        // R6. §11, 3: its parent's certificate is no lower than the lock.
        if header.body.parent_view < self.state.lock.view() {
            return None;
        }
        if !self.may_vote(cx, block.height) {
            return None;
        }
        let parent = self.state.certificates.get(header.body.parent_view, block.parent)?;
        if self.ready(cx, *id) != Some(Ready::Valid) {
            return None;
        }
        // Last, because this walks down to the committed block.
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
        if view > self.view.plus(self.state.near) {
            return Err(Reject::Early);
        }
        match self.state.votes.add(by, view, id, Some(signature)) {
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
        let votes = self.state.votes.signed(view, id);
        if votes.len() >= cx.committee().weak() && self.state.certificates.get(view, id).is_none() {
            let certificate = Certificate::of(vote(view, id), &votes);
            self.take_certificate(cx, &certificate);
        }
        Ok(())
    }

    /// Takes a certificate, whatever message brought it.
    pub(super) fn take_certificate(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        let (view, id) = (certificate.view(), certificate.block());
        self.check_silence(cx, view, Some(id));
        let low = self.state.lock.view().min(self.view.minus(self.state.near));
        let matters = view >= low || self.state.views.contains_key(&view);
        if !matters || !self.state.certificates.add(certificate) {
            return;
        }
        self.check_certified(cx, view);
        // R3. §8: also the certificate of a skipped view. Silence commits a block of that view only if all have the
        // certificate.
        self.show(cx, certificate);
        self.show_certified(cx);
        if view > self.chain.committed().view {
            self.take_up_certified(cx, certificate);
        }
        self.admit_if_certified(cx, view);
        let above = self.state.views.range(view.next()..);
        let extending = above.filter(|(_, facts)| {
            facts.first.as_ref().is_some_and(|(_, it)| it.body.extends_certified(certificate))
        });
        for view in extending.map(|(view, _)| *view).collect::<Vec<View>>() {
            self.admit_if_certified(cx, view);
        }
        if view >= self.view {
            // R3. §11, 1: the view is over, whichever replica shows it and whatever this replica waits for.
            return self.enter_view(cx, view.next());
        }
        if self.state.certificates.highest() == certificate {
            cx.record(&RotatingRecord::Highest(certificate.clone()));
        }
        self.try_vote(cx);
        self.try_propose(cx, IfIdle::Wait);
    }

    /// R3. §11, 1: shows a certificate to all, once and at once. All have it Δ after this replica has extended its block.
    pub(super) fn show(&mut self, cx: &mut Cx<'_, Self>, certificate: &Certificate) {
        if self.state.certificates.must_show(certificate) {
            cx.send_unheld(To::All, RotatingMessage::Certified(certificate.clone()));
            let (view, id) = (certificate.view(), certificate.block());
            let first = self.first_header(view);
            if first.is_some_and(|(first, _)| *first == id) {
                self.state.waits.note_with_all(cx.now(), |of| of == view);
            }
        }
    }

    /// R11. §11, 5: checks a view for two certificates, or for one that conflicts with the first header: its leader
    /// equivocates.
    fn check_certified(&mut self, cx: &mut Cx<'_, Self>, view: View) {
        let mut certified = self.state.certificates.of_view(view);
        let (Some(one), other) = (certified.next(), certified.next()) else { return };
        if let Some(other) = other {
            let evidence = ViewEvidence::Certificates(Box::new((one.clone(), other.clone())));
            drop(certified);
            return self.break_silence(cx, &evidence);
        }
        let first = self.first_header(view);
        let conflicts = first.is_some_and(|(id, _)| *id != one.block());
        drop(certified);
        if conflicts {
            self.stop_waiting(cx, view);
        }
    }

    /// Sends evidence that silence in this view proves nothing to all: once, at once and whatever the disk does.
    pub(super) fn break_silence(&mut self, cx: &mut Cx<'_, Self>, evidence: &ViewEvidence) {
        let view = evidence.view();
        self.check_silence(cx, view, None);
        // A peer that is as far ahead as possible notes headers of twice as many views, and shows only once that two conflict.
        let Some(facts) = self.facts_of(view, self.state.near.saturating_mul(2)) else { return };
        if !std::mem::replace(&mut facts.is_shown, true) {
            cx.send_unheld(To::All, RotatingMessage::Evidence(evidence.clone()));
            if let ViewEvidence::Conflict(both) = evidence {
                let signed = |header: &Signed<Header>| (header.body.statement(), header.signature);
                let (first, second) = (signed(&both.0), signed(&both.1));
                cx.accuse(Evidence { by: both.0.by, first, second });
            }
        }
        self.stop_waiting(cx, view);
    }

    /// R5. §11, 2: as leader, proposes at once on a certificate of the view before, else after 2 Δ on the highest one of all.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>, if_idle: IfIdle) {
        let may = self.leader == cx.me() && !self.is_quit() && !self.recovery.is_silent();
        let has_proposed =
            self.state.proposed.as_ref().is_some_and(|(header, _)| header.block.view >= self.view);
        let follows = self.is_certified_before();
        if !may || has_proposed || !(follows || self.in_view.collected) {
            return;
        }
        let Some(parent) = self.parent(cx) else { return };
        let Some(tip) = self.chain.tip(cx.blocks(), parent.block()) else { return };
        // With a full window the leader still proposes empty blocks now and then: blocks that a timer commits wait for them.
        let is_full = tip.height.since(self.stable) >= self.window;
        let payload = if is_full { None } else { cx.payload_after(tip.id) };
        let hurries = follows && self.waits_for_descendant(cx.blocks(), tip);
        if !self.proposes_now(cx, payload, if_idle == IfIdle::Propose || hurries) {
            return;
        }
        let extra = bind_certificate(parent.view(), tip.id);
        let header =
            Header { block: self.new_block(cx, tip.end(), payload, extra), parent_view: parent.view() };
        self.state.proposed = Some((header.clone(), parent.clone()));
        self.record_said(cx);
        cx.send(To::All, RotatingMessage::Propose { header, parent });
    }

    /// Whether a block of the view before is certified.
    pub(super) fn is_certified_before(&self) -> bool {
        self.state.certificates.of_view(self.view.minus(1)).next().is_some()
    }

    /// Returns the certificate on which this replica proposes: one of the highest view. If that view has two, its block is
    /// ready. Certificates that conflict with the committed block exist only if the bound was broken; they do not count.
    fn parent(&self, cx: &mut Cx<'_, Self>) -> Option<Certificate> {
        let blocks: &BlockTree = cx.blocks();
        let conflicts = |certificate: &&Certificate| {
            let tip = self.chain.tip(blocks, certificate.block());
            tip.is_some_and(|tip| matches!(self.chain.ancestry(blocks, tip), Ancestry::Conflicts(_)))
        };
        // Lazily: each check walks down to the committed block.
        let mut fitting = self.state.certificates.down().filter(|it| !conflicts(it));
        let highest = fitting.next()?;
        let others = fitting.take_while(|it| it.view() == highest.view());
        let mut of_view = std::iter::once(highest).chain(others).cloned().collect::<Vec<_>>().into_iter();
        of_view.find(|it| self.ready(cx, it.block()) == Some(Ready::Valid))
    }

    /// Whether requests are in blocks that no timer commits, because their views followed no certified one (R9). The next block
    /// commits them, and no client should wait a heartbeat for it.
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

    /// Whether a block has no requests.
    pub(super) fn is_empty(&self, blocks: &BlockTree, id: BlockId) -> bool {
        blocks.get(id).is_some_and(|block| block.payload == self.state.empty)
    }
}
