//! Proposals, votes, and the effects of certificates (§5).
//!
//! A certificate counts before all else in the message that carries it, even if the rest of the message is wrong.
//! It does not wait for bodies: headers suffice for entering a view, for locks and for commits. Votes alone wait.

use super::{
    Chained, ChainedRecord, Content, InView, PROPOSE, Proposal, Rules, ShownTimeouts, VOTE, Waiting, noted,
};
use quorate_consensus::parts::chain::{Ancestry, Below, Tip, bind_certificate, empty_payload, fits_on};
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::{Added, BlockVote, equivocation};
use quorate_consensus::{Alarm, Certificate, Commit, Cx, Note, Protocol, Ready, Reject, Seal, Signed, To};
use quorate_types::{Block, BlockId, Kind, ReplicaId};

impl<R: Rules> Chained<R> {
    /// C1. §5 `process_qc`: handles each valid certificate before all else in the message that carries it.
    pub(super) fn take_certificate(&mut self, cx: &mut Cx<'_, Self>, qc: &Certificate, from: ReplicaId) {
        if qc.view() > self.high_qc.view() {
            self.high_qc = qc.clone();
            // The leader may depend on the certificate that its proposal would carry.
            self.in_view.leader = None;
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

    /// Handles certificates that waited for headers: their locks and commits precede the next vote.
    pub(super) fn finish_certificates(&mut self, cx: &mut Cx<'_, Self>) {
        for qc in self.chain.take_waiting() {
            if self.follow(cx, &qc, true).is_err() {
                self.chain.wait(&qc);
            }
        }
    }

    /// Applies the rules for locks and commits to the block of a certificate. With `deep` it applies them to the blocks
    /// below as well, whose certificates may never have been handled. Errs with a missing header.
    fn follow(&mut self, cx: &mut Cx<'_, Self>, qc: &Certificate, deep: bool) -> Result<(), BlockId> {
        let Some(mut newest) = self.chain.tip(cx.blocks(), qc.block()) else {
            return Err(qc.block());
        };
        // Honest replicas vote for a block in its own view alone.
        if newest.view != qc.view() {
            return Ok(());
        }
        loop {
            let Some(head) = self.parent(cx, newest)? else { return Ok(()) };
            self.rules.note_two_chain(head);
            // §4: certified blocks of consecutive views commit the first of them. The parent links alone do not suffice:
            // the parent of a block is always the block of its certificate.
            let (mut first, mut consecutive) = (head, newest.view == head.view.next());
            for _ in 2..R::LINKS {
                let Some(below) = self.parent(cx, first)? else { return Ok(()) };
                consecutive &= first.view == below.view.next();
                first = below;
            }
            if consecutive && first.view > self.chain.committed().view {
                return self.commit(cx, first);
            }
            if !deep {
                return Ok(());
            }
            newest = head;
        }
    }

    /// Returns the parent of a block, `None` where it is settled. Errs with a missing header.
    fn parent(&self, cx: &mut Cx<'_, Self>, block: Tip) -> Result<Option<Tip>, BlockId> {
        match self.chain.below(cx.blocks(), block) {
            Below::Block(parent) => Ok(Some(parent)),
            Below::Settled(_) => Ok(None),
            Below::Missing(id) => Err(id),
        }
    }

    /// C3. §5 `commit`: commits a block that extends the committed one, hash by hash. Another block breaks safety.
    fn commit(&mut self, cx: &mut Cx<'_, Self>, block: Tip) -> Result<(), BlockId> {
        let committed = self.chain.committed();
        match self.chain.ancestry(cx.blocks(), block) {
            Ancestry::Extends => {
                cx.commit(Commit::Chain(block.id));
                self.record_history(cx, block);
                self.chain.commit(block);
                self.pacemaker.note_commit();
                self.note(cx, noted::COMMITTED, block.height);
                Ok(())
            }
            Ancestry::Conflicts(second) => {
                cx.alarm(Alarm::SafetyBroken { height: committed.height, first: committed.id, second });
                Ok(())
            }
            Ancestry::Unknown(id) => Err(id),
        }
    }

    /// Adopts a block that was decided without this replica's own rules.
    pub(super) fn adopt(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(tip) = self.chain.decided(cx.blocks()) {
            self.record_history(cx, tip);
            self.settle_at(tip);
        }
    }

    /// Moves the committed block to one that was decided without this replica's own rules.
    pub(super) fn settle_at(&mut self, tip: Tip) {
        self.chain.commit(tip);
        self.rules.note_decided(tip);
        self.pacemaker.note_commit();
    }

    /// §5 `propose`: proposes a block on top of the highest certificate, once in a view, as its leader.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>) {
        let (view, me) = (self.pacemaker.view(), cx.me());
        if self.is_full() {
            return;
        }
        let parent = self.high_qc.block();
        let Some(below) = self.chain.tip(cx.blocks(), parent) else {
            return; // The host fetches it already; `on_ready` tries again.
        };
        let pending = cx.pending();
        if pending.lagging {
            return; // `on_executed` tries again.
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
        // C4. §2: a restarted leader must not propose another block. The last vote's record says so where this replica
        // knew that it would lead.
        self.proposed = view;
        let message = Content::Propose(block, self.proof()).into();
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
        // C1.
        self.take_certificate(cx, &proof.qc, by);
        // C2. §5: the block is the leader's and fits the certificate that it carries …
        if block.proposer != by {
            return Err(Reject::WrongSender);
        }
        if block.view <= self.chain.committed().view {
            return Err(Reject::Stale); // The block is of no use, and its height cannot be checked.
        }
        if !self.chain.fits(cx.blocks(), &block, &proof.qc) {
            return Err(Reject::Invalid("block"));
        }
        // … and the proof lets into the block's view.
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
        // The first proposal of a view is kept, and all others are refused.
        let added = self.proposals.add(by, view, id, seal.signature);
        judge(cx, PROPOSE, seal, BlockVote { view, block: id }, added)?;
        cx.blocks().insert(block);
        if view < self.pacemaker.view() {
            return Err(Reject::Stale);
        }
        // The proposal's own timeouts count, not those that this replica knows.
        let shown = proof
            .timeouts
            .as_ref()
            .map(|timeouts| ShownTimeouts { into: self.leaders.after(timeouts.view), high: timeouts.high() });
        let waiting = Some(Waiting { block: id, shown });
        self.in_view = InView { waiting, has_reported: true, ..self.in_view };
        match cx.ready(id) {
            Some(how) => self.consider(cx, id, how),
            None => cx.want(id, by), // `on_ready` considers the block.
        }
        Ok(())
    }

    /// §5 `on_ready`: considers a vote for a block whose ancestors and bodies have all arrived.
    pub(super) fn consider(&mut self, cx: &mut Cx<'_, Self>, id: BlockId, how: Ready) {
        self.finish_certificates(cx);
        let view = self.pacemaker.view();
        let Some(waiting) = self.in_view.waiting.filter(|waiting| waiting.block == id) else { return };
        let Some(block) = cx.blocks().get(id).cloned().filter(|block| block.view == view) else {
            return;
        };
        self.in_view.waiting = None;
        if how == Ready::Invalid {
            // All honest replicas find the block invalid, so the leader is faulty.
            self.note(cx, noted::INVALID, block.height);
            return self.time_out(cx);
        }
        let Some(parent) = self.chain.tip(cx.blocks(), block.parent) else { return };
        // The lock of the block's own certificate precedes the vote, even if that certificate was dropped because too many
        // waited for headers.
        if let Below::Block(head) = self.chain.below(cx.blocks(), parent) {
            self.rules.note_two_chain(head);
        }
        // C5. §5: one vote in a view, and none after a timeout.
        let has_voted = self.voted.is_some_and(|vote| vote.view >= view);
        let has_timed_out = self.pacemaker.has_timed_out() || self.rules.bars(view);
        if has_voted || has_timed_out || !fits_on(&block, parent) {
            return;
        }
        let (chain, blocks, tip) = (&self.chain, &*cx.blocks(), Tip::of(&block, id));
        let proposal = Proposal { chain, blocks, block: tip, parent, shown: waiting.shown };
        if !self.rules.allows_vote(&proposal) {
            self.note(cx, R::NOTES.unsafe_proposal, block.height);
            return;
        }
        let vote = BlockVote { view, block: id };
        self.voted = Some(vote);
        self.rules.note_vote(parent);
        // C6. §2: vote, view, proof and the state of the rules are durable before the VOTE leaves.
        if self.collector(cx, vote) == Some(cx.me()) {
            self.reserved = view.next();
            cx.reserve(PROPOSE, self.reserved);
        }
        self.record(cx);
        self.send_vote(cx, vote);
    }

    /// Returns the replica that builds the certificate: the leader of the next view, as far as this replica can tell.
    pub(super) fn collector(&mut self, cx: &mut Cx<'_, Self>, vote: BlockVote) -> Option<ReplicaId> {
        let committee = cx.committee();
        self.leaders.leader(committee, cx.blocks(), vote.view.next(), vote.block)
    }

    /// Sends a vote to its collector, or to all where this replica cannot tell who that is.
    pub(super) fn send_vote(&mut self, cx: &mut Cx<'_, Self>, vote: BlockVote) {
        let to = self.collector(cx, vote).map_or(To::All, To::One);
        cx.send(to, Content::Vote(vote).into());
        let height = cx.blocks().get(vote.block).map(|block| block.height).unwrap_or_default();
        cx.note(Note { what: noted::VOTED, view: vote.view, height });
    }

    pub(super) fn on_vote(&mut self, cx: &mut Cx<'_, Self>, vote: Signed<BlockVote>) -> Result<(), Reject> {
        let Signed { body: BlockVote { view, block }, by, signature } = vote;
        if by == cx.me() && self.voted == Some(vote.body) {
            // C7. Own votes count, and travel in timeouts, from their own copies.
            self.own_vote = Some(vote);
        }
        if view.next() < self.pacemaker.view() {
            return Err(Reject::Stale);
        }
        let added = self.votes.add(by, view, block, Some(signature));
        judge(cx, VOTE, Seal { by, signature: Some(signature) }, vote.body, added)?;
        // C8. §1: a certificate has q equal votes of distinct replicas.
        if view > self.high_qc.view() && self.votes.count(view, block) >= cx.committee().quorum() {
            let qc = Certificate::of(vote.body.statement(VOTE), &self.votes.signed(view, block));
            self.take_certificate(cx, &qc, by);
        }
        Ok(())
    }

    /// Records the chain's facts about leaders at the height of each checkpoint, before its state is signed.
    fn record_history(&mut self, cx: &mut Cx<'_, Self>, newest: Tip) {
        let committee = cx.committee();
        let at = self.chain.newest_at_multiple(cx.blocks(), newest, self.checkpoint_every);
        if let Some(history) = at.and_then(|at| self.leaders.history(committee, cx.blocks(), at.id)) {
            let record = ChainedRecord::History(history.clone());
            cx.record(&record);
        }
    }
}

/// Returns whether a proposal or a vote counts. Reports two signed ones for one view as evidence.
fn judge<P: Protocol>(
    cx: &mut Cx<'_, P>,
    kind: Kind,
    seal: Seal,
    vote: BlockVote,
    added: Added,
) -> Result<(), Reject> {
    let Seal { by, signature } = seal;
    match added {
        Added::Counted => Ok(()),
        Added::Again if by == cx.me() => Ok(()),
        Added::Again => Err(Reject::Duplicate),
        Added::Old => Err(Reject::Stale),
        Added::Conflict(first, known) => {
            if let (Some(known), Some(signature)) = (known, signature) {
                cx.accuse(equivocation(kind, by, vote.view, (first, known), (vote.block, signature)));
            }
            Err(Reject::Equivocation)
        }
    }
}
