//! Proposals, votes and what certificates do (§5).
//!
//! A certificate counts before everything else in the message that carries it, and whatever is wrong with the rest.
//! It does not wait for bodies: entering a view, lock and commit follow from headers. Only votes wait.

use super::{HotStuff, HotStuffMessage, HotStuffRecord, PROPOSE, VOTE, noted};
use quorate_consensus::parts::chain::{Below, Hangs, Tip, bind_certificate, empty_payload, fits_on};
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::{Added, BlockVote, contradiction};
use quorate_consensus::{Alarm, Certificate, Commit, Cx, Note, Ready, Reject, Seal, Signed, To};
use quorate_types::{Block, BlockId, ReplicaId, View};

impl HotStuff {
    /// H1. §5 `process_qc`: for every valid certificate, from any message, before anything else in that message.
    pub(super) fn take_certificate(&mut self, cx: &mut Cx<'_, Self>, qc: &Certificate, from: ReplicaId) {
        if qc.view() > self.high_qc.view() {
            self.high_qc = qc.clone();
            // Who leads may depend on what a proposal would carry.
            self.leader = None;
        }
        if qc.view() > self.chain.committed().view {
            if self.follow(cx, qc, false).is_err() {
                self.chain.wait(qc);
            }
            if cx.ready(qc.block()).is_none() {
                let me = cx.me();
                let peers = std::iter::once(from).chain(qc.signers.iter()).filter(|peer| *peer != me);
                peers.for_each(|peer| cx.want(qc.block(), peer));
            }
        }
        if qc.view() >= self.pacemaker.view() {
            self.enter(cx, qc.view().next(), None);
        }
    }

    /// Certificates that waited for headers: their lock and commit must stand before the next vote.
    pub(super) fn finish_certificates(&mut self, cx: &mut Cx<'_, Self>) {
        for qc in self.chain.take_waiting() {
            if self.follow(cx, &qc, true).is_err() {
                self.chain.wait(&qc);
            }
        }
    }

    /// The lock and the commit that follow from a certificate for `b2`; with `deep` also from those below it, whose
    /// rules may never have been looked at. Errs with a header that is missing.
    fn follow(&mut self, cx: &mut Cx<'_, Self>, qc: &Certificate, deep: bool) -> Result<(), BlockId> {
        let Some(mut b2) = self.chain.tip(cx.blocks(), qc.block()) else {
            return Err(qc.block());
        };
        // Honest replicas vote in a block's own view alone.
        if b2.view != qc.view() {
            return Ok(());
        }
        loop {
            let b1 = match self.chain.below(cx.blocks(), b2) {
                Below::Block(b1) => b1,
                Below::Settled(_) => return Ok(()),
                Below::Missing(id) => return Err(id),
            };
            // H3. §4: the lock is the head of a two-chain, of whatever views.
            self.locked = self.locked.max(b1);
            let b0 = match self.chain.below(cx.blocks(), b1) {
                Below::Block(b0) => b0,
                Below::Settled(_) => return Ok(()),
                Below::Missing(id) => return Err(id),
            };
            // H4. §4: a three-chain commits its first block if no view was left out. The parent links alone say nothing:
            // a block's parent is always the block of its certificate.
            let in_a_row = b2.view == b1.view.next() && b1.view == b0.view.next();
            if in_a_row && b0.view > self.chain.committed().view {
                return self.commit(cx, b0);
            }
            if !deep {
                return Ok(());
            }
            b2 = b1;
        }
    }

    /// H5. §5 `commit`: the path goes down to what is committed, hash by hash, or something is terribly wrong.
    fn commit(&mut self, cx: &mut Cx<'_, Self>, b0: Tip) -> Result<(), BlockId> {
        let committed = self.chain.committed();
        match self.chain.hangs(cx.blocks(), b0) {
            Hangs::On => {
                cx.commit(Commit::Chain(b0.id));
                self.note_standings(cx, b0);
                self.chain.commit(b0);
                self.pacemaker.note_commit();
                self.note(cx, noted::COMMITTED, b0.height);
                Ok(())
            }
            Hangs::Beside(second) => {
                cx.alarm(Alarm::SafetyBroken { height: committed.height, first: committed.id, second });
                Ok(())
            }
            Hangs::Missing(id) => Err(id),
        }
    }

    /// Something was decided without this replica's own rules.
    pub(super) fn adopt(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(tip) = self.chain.heard(cx.blocks()) {
            self.note_standings(cx, tip);
            self.settle_at(tip);
        }
    }

    /// What is decided is locked as well: nobody votes beside it.
    pub(super) fn settle_at(&mut self, tip: Tip) {
        self.chain.commit(tip);
        self.locked = self.locked.max(tip);
        self.pacemaker.note_commit();
    }

    /// §5 `propose`: once in a view, by its leader, on top of the highest certificate.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>) {
        let (view, me) = (self.pacemaker.view(), cx.me());
        if self.is_full() {
            return;
        }
        let parent = self.high_qc.block();
        let Some(below) = self.chain.tip(cx.blocks(), parent) else {
            return; // It is wanted already; `on_ready` comes back here.
        };
        let pending = cx.pending();
        if pending.lagging {
            return; // `on_executed` comes back here.
        }
        let payload = cx.payload_after(parent);
        let block = Block {
            parent,
            height: below.height.next(),
            view,
            proposer: me,
            time_ns: payload.map_or(0, |payload| payload.time_ns),
            payload: payload.map_or_else(empty_payload, |payload| payload.id),
            extra: bind_certificate(self.high_qc.view(), parent),
        };
        let height = block.height;
        cx.blocks().insert(block.clone());
        // H6. §2: a restarted leader must not propose another. Where it knew ahead that it would lead, that is written
        // down with its last vote.
        self.proposed = view;
        let message = HotStuffMessage::Propose { block, proof: self.proof() };
        if self.reserved == view {
            cx.send_reserved(To::All, message);
        } else {
            self.record(cx);
            cx.send(To::All, message);
        }
        self.note(cx, noted::PROPOSED, height);
    }

    pub(super) fn on_propose(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        block: Block,
        proof: &ViewProof,
    ) -> Result<(), Reject> {
        let (id, by) = (block.id(), seal.by);
        // H1.
        self.take_certificate(cx, &proof.qc, by);
        // H2. §5: a block of the leader of its view, which fits to the certificate that it carries …
        if block.proposer != by {
            return Err(Reject::WrongSender);
        }
        if block.view <= self.chain.committed().view {
            return Err(Reject::Stale); // Nothing of it is of use, and its height says nothing.
        }
        if !self.chain.fits(cx.blocks(), &block, &proof.qc) {
            return Err(Reject::Invalid("block"));
        }
        // … with what lets into that view.
        if self.lets_into(proof) != block.view {
            return Err(Reject::Invalid("not the view that it proves"));
        }
        let committee = cx.committee();
        let leader = self.leaders.leader(committee, cx.blocks(), block.view, block.parent);
        if leader.is_some_and(|leader| leader != by) {
            return Err(Reject::WrongSender);
        }
        self.take_timeouts(cx, proof);
        let view = block.view;
        self.keep_first(cx, view, id, seal)?;
        cx.blocks().insert(block);
        if view < self.pacemaker.view() {
            return Err(Reject::Stale);
        }
        self.waiting = Some(id);
        match cx.ready(id) {
            Some(how) => self.consider(cx, id, how),
            None => cx.want(id, by), // Nothing is parked: answered by `on_ready`.
        }
        Ok(())
    }

    /// The first proposal of a view is the only one.
    fn keep_first(
        &mut self,
        cx: &mut Cx<'_, Self>,
        view: View,
        id: BlockId,
        seal: Seal,
    ) -> Result<(), Reject> {
        let Seal { by, signature } = seal;
        match self.proposals.add(by, view, id, signature) {
            Added::Counted => Ok(()),
            Added::Again if by == cx.me() => Ok(()),
            Added::Again => Err(Reject::Duplicate),
            Added::Old => Err(Reject::Stale),
            Added::Conflict(first, said) => {
                if let (Some(first_said), Some(second_said)) = (said, signature) {
                    cx.accuse(contradiction(PROPOSE, by, view, (first, first_said), (id, second_said)));
                }
                Err(Reject::Equivocation)
            }
        }
    }

    /// §5 `on_ready`: a block, its ancestors and all their bodies are here.
    pub(super) fn consider(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, how: Ready) {
        self.finish_certificates(cx);
        let view = self.pacemaker.view();
        if self.waiting != Some(id) {
            return;
        }
        let Some(block) = cx.blocks().get(id).cloned().filter(|block| block.view == view) else {
            return;
        };
        self.waiting = None;
        if how == Ready::Invalid {
            // The same answer everywhere, so the leader is faulty.
            self.note(cx, noted::INVALID, block.height);
            return self.complain(cx);
        }
        let Some(parent) = self.chain.tip(cx.blocks(), block.parent) else { return };
        let tip = Tip::of(&block, id);
        // H7. §5, safety: the lock from this block's own certificate stands before the vote, also where that certificate
        // was dropped because too many waited for headers.
        if let Below::Block(b1) = self.chain.below(cx.blocks(), parent) {
            self.locked = self.locked.max(b1);
        }
        // H8. §5: one vote in a view, and none after having given it up.
        let has_voted = self.voted.is_some_and(|vote| vote.view >= view);
        if has_voted || self.pacemaker.has_given_up() || !fits_on(&block, parent) {
            return;
        }
        // H9. §3, §5 `safe`: it extends the lock, or it carries a certificate that is newer than the lock.
        let extends = self.chain.extends(cx.blocks(), tip, self.locked.end()) == Some(true);
        if !extends && parent.view <= self.locked.view {
            self.note(cx, noted::UNSAFE, block.height);
            return;
        }
        let vote = BlockVote { view, block: id };
        self.voted = Some(vote);
        // H10. §2: vote, lock, view and what let into it are durable before the VOTE leaves.
        if self.collector(cx, vote) == Some(cx.me()) {
            self.reserved = view.next();
            cx.reserve(PROPOSE, self.reserved);
        }
        self.record(cx);
        self.send_vote(cx, vote);
    }

    /// Who makes the certificate: the leader of the next view, as far as this replica can tell.
    pub(super) fn collector(&mut self, cx: &mut Cx<'_, Self>, vote: BlockVote) -> Option<ReplicaId> {
        let committee = cx.committee();
        self.leaders.leader(committee, cx.blocks(), vote.view.next(), vote.block)
    }

    /// To the collector; to all where this replica cannot tell.
    pub(super) fn send_vote(&mut self, cx: &mut Cx<'_, Self>, vote: BlockVote) {
        let to = self.collector(cx, vote).map_or(To::All, To::One);
        cx.send(to, HotStuffMessage::Vote(vote));
        let height = cx.blocks().get(vote.block).map(|block| block.height).unwrap_or_default();
        cx.note(Note { what: noted::VOTED, view: vote.view, height });
    }

    pub(super) fn on_vote(&mut self, cx: &mut Cx<'_, Self>, vote: Signed<BlockVote>) -> Result<(), Reject> {
        let Signed { body: BlockVote { view, block }, by, signature } = vote;
        if by == cx.me() && self.voted == Some(vote.body) {
            // H11. Own votes count, and are shown to others, from the own copy.
            self.own_vote = Some(vote);
        }
        if view.next() < self.pacemaker.view() {
            return Err(Reject::Stale);
        }
        match self.votes.add(by, view, block, Some(signature)) {
            Added::Counted => {}
            Added::Again if by == cx.me() => {}
            Added::Again => return Err(Reject::Duplicate),
            Added::Old => return Err(Reject::Stale),
            Added::Conflict(first, said) => {
                if let Some(said) = said {
                    cx.accuse(contradiction(VOTE, by, view, (first, said), (block, signature)));
                }
                return Err(Reject::Equivocation);
            }
        }
        // H12. §1: a certificate is q equal votes of distinct replicas.
        if view > self.high_qc.view() && self.votes.count(view, block) >= cx.committee().quorum() {
            let qc = Certificate::of(vote.body.statement(VOTE), &self.votes.signed(view, block));
            self.take_certificate(cx, &qc, by);
        }
        Ok(())
    }

    /// What the chain says about leaders is written down wherever a checkpoint will be, before its state is signed.
    fn note_standings(&mut self, cx: &mut Cx<'_, Self>, newest: Tip) {
        let committee = cx.committee();
        let at = self.chain.newest_at_multiple(cx.blocks(), newest, self.checkpoint_every);
        if let Some(standing) = at.and_then(|at| self.leaders.history(committee, cx.blocks(), at.id)) {
            let record = HotStuffRecord::Standing(standing.clone());
            cx.record(&record);
        }
    }
}
