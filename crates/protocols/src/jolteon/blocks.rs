//! Proposals, votes and what certificates do (§5).
//!
//! A certificate counts before everything else in the message that carries it, and whatever is wrong with the rest.
//! It does not wait for bodies: entering a view and commit follow from headers. Only votes wait.

use super::{Jolteon, JolteonMessage, JolteonRecord, PROPOSE, VOTE, Waiting, noted};
use quorate_consensus::parts::chain::{Below, Hangs, Tip, bind_certificate, empty_payload, fits_on};
use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::{Added, BlockVote, contradiction};
use quorate_consensus::{Alarm, Certificate, Commit, Cx, Note, Ready, Reject, Seal, Signed, To};
use quorate_types::{Block, BlockId, ReplicaId, View};

impl Jolteon {
    /// J1. §5 `process_qc`: for every valid certificate, from any message, before anything else in that message.
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

    /// Certificates that waited for headers: what they commit is committed first.
    pub(super) fn finish_certificates(&mut self, cx: &mut Cx<'_, Self>) {
        for qc in self.chain.take_waiting() {
            if self.follow(cx, &qc, true).is_err() {
                self.chain.wait(&qc);
            }
        }
    }

    /// The commit that follows from a certificate for `child`; with `deep` also from those below it, whose rule may never
    /// have been looked at. Errs with a header that is missing.
    fn follow(&mut self, cx: &mut Cx<'_, Self>, qc: &Certificate, deep: bool) -> Result<(), BlockId> {
        let Some(mut child) = self.chain.tip(cx.blocks(), qc.block()) else {
            return Err(qc.block());
        };
        // Honest replicas vote in a block's own view alone.
        if child.view != qc.view() {
            return Ok(());
        }
        loop {
            let block = match self.chain.below(cx.blocks(), child) {
                Below::Block(block) => block,
                Below::Settled(_) => return Ok(()),
                Below::Missing(id) => return Err(id),
            };
            // J3. §1: a certified block with a certified child of the next view is committed. The parent links alone say
            // nothing: a block's parent is always the block of its certificate.
            if child.view == block.view.next() && block.view > self.chain.committed().view {
                return self.commit(cx, block);
            }
            if !deep {
                return Ok(());
            }
            child = block;
        }
    }

    /// J3. §5 `commit`: the path goes down to what is committed, hash by hash, or something is terribly wrong.
    fn commit(&mut self, cx: &mut Cx<'_, Self>, block: Tip) -> Result<(), BlockId> {
        let committed = self.chain.committed();
        match self.chain.hangs(cx.blocks(), block) {
            Hangs::On => {
                cx.commit(Commit::Chain(block.id));
                self.note_standings(cx, block);
                self.chain.commit(block);
                self.pacemaker.note_commit();
                self.note(cx, noted::COMMITTED, block.height);
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

    /// What is decided needs no rule of this replica's any more.
    pub(super) fn settle_at(&mut self, tip: Tip) {
        self.chain.commit(tip);
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
        // J4. §2: a restarted leader must not propose another. Where it knew ahead that it would lead, that is written
        // down with its last vote.
        self.proposed = view;
        let message = JolteonMessage::Propose { block, proof: self.proof() };
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
        // J1.
        self.take_certificate(cx, &proof.qc, by);
        // J2. §5: a block of the leader of its view, which fits to the certificate that it carries …
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
        // J6 is judged by what this proposal shows, not by what this replica knows.
        let timeouts = proof.timeouts.as_ref();
        let shown = timeouts.map(|timeouts| (self.leaders.after(timeouts.view), timeouts.high()));
        self.waiting = Some(Waiting { block: id, shown });
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
        let Some(waiting) = self.waiting.filter(|waiting| waiting.block == id) else {
            return;
        };
        let Some(block) = cx.blocks().get(id).cloned().filter(|block| block.view == view) else {
            return;
        };
        self.waiting = None;
        if how == Ready::Invalid {
            // The same answer everywhere, so the leader is faulty.
            self.note(cx, noted::INVALID, block.height);
            return self.time_out(cx);
        }
        let Some(parent) = self.chain.tip(cx.blocks(), block.parent) else { return };
        // J5. §4, §5: one vote in a view, and none in a view that was timed out, nor in one that was skipped by that.
        let has_voted = self.voted.is_some_and(|vote| vote.view >= view);
        if has_voted || view <= self.barred || !fits_on(&block, parent) {
            return;
        }
        // J6. §2, §5: its certificate is of the view before, or the timeouts that it shows list none that is higher.
        let follows = parent.view.next() == view;
        let is_highest = waiting.shown.is_some_and(|(after, high)| after == view && parent.view >= high);
        if !follows && !is_highest {
            self.note(cx, noted::UNSAFE, block.height);
            return;
        }
        let vote = BlockVote { view, block: id };
        self.voted = Some(vote);
        // J7. §4: the vote and the highest certificate are durable before the VOTE leaves.
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
        cx.send(to, JolteonMessage::Vote(vote));
        let height = cx.blocks().get(vote.block).map(|block| block.height).unwrap_or_default();
        cx.note(Note { what: noted::VOTED, view: vote.view, height });
    }

    pub(super) fn on_vote(&mut self, cx: &mut Cx<'_, Self>, vote: Signed<BlockVote>) -> Result<(), Reject> {
        let Signed { body: BlockVote { view, block }, by, signature } = vote;
        if by == cx.me() && self.voted == Some(vote.body) {
            // J8. Own votes count, and are shown to others, from the own copy.
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
        // J9. §1: a certificate is q equal votes of distinct replicas.
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
            let record = JolteonRecord::Standing(standing.clone());
            cx.record(&record);
        }
    }
}
