//! The normal case (§6): PRE-PREPARE, PREPARE, COMMIT.
//!
//! Checks come first, cheap before expensive. Records precede the messages that rest on them in the same step: the host
//! writes both under one mark and lets the message leave when that is durable.

use super::variant::Variant;
use super::{COMMIT, PREPARE, Pbft, PbftMessage, VIEWS_AHEAD, Vote, noted};
use quorate_consensus::parts::votes::Added;
use quorate_consensus::{Alarm, Commit, Cx, PayloadRef, Ready, Reject, Seal, To};
use quorate_types::{Block, BlockId, Digest, Height, Kind, View};

/// Largest number of proposals kept for one view that has not begun.
const EARLY_MAX: usize = 64;

impl<V: Variant> Pbft<V> {
    /// Proposes blocks, as the leader, while the pipeline has room and requests wait.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>) {
        if self.current.leader != cx.me() || !self.current.normal {
            return;
        }
        loop {
            self.progress.next = self.progress.next.max(self.progress.decided.next());
            while self.is_taken(self.progress.next) {
                self.progress.next = self.progress.next.next();
            }
            // P11, P3: at most W blocks above the decided ones, and none outside the window.
            let in_flight = self.progress.next.since(self.progress.decided);
            if in_flight > self.params.blocks_in_flight || self.check_window(self.progress.next).is_err() {
                return;
            }
            // No timer: the requests that wait now go into one block, and later requests into the next.
            let Some(payload) = cx.payload_after(BlockId::ZERO) else {
                return;
            };
            self.propose(cx, self.progress.next, payload);
        }
    }

    /// Returns whether a height is decided, or this replica has proposed a block at it.
    fn is_taken(&self, height: Height) -> bool {
        self.instances.get(&height).is_some_and(|known| {
            known.decided.is_some() || known.pre_prepared_in(self.current.view).is_some()
        })
    }

    fn propose(&mut self, cx: &mut Cx<'_, Self>, height: Height, payload: PayloadRef) {
        let view = self.current.view;
        let block = Block {
            parent: BlockId::ZERO,
            height,
            view,
            proposer: cx.me(),
            time_ns: payload.time_ns,
            payload: payload.id,
            extra: Digest::ZERO,
        };
        let id = block.id();
        cx.blocks().insert(block.clone());
        // Q1. §4: Q is durable before the PRE-PREPARE leaves, or a restarted leader could propose another.
        let record = self.instance(height).pre_prepare(height, id, view);
        cx.record(&record);
        // P9: the proposal counts from its own copy, in `on_pre_prepare`.
        cx.send(To::All, PbftMessage::PrePrepare { view, block }.into());
        self.note(cx, noted::PROPOSED, height);
        self.note_height(cx, height);
    }

    pub(super) fn on_pre_prepare(
        &mut self,
        cx: &mut Cx<'_, Self>,
        seal: Seal,
        view: View,
        block: Block,
    ) -> Result<(), Reject> {
        let (height, by) = (block.height, seal.by);
        self.check_window(height)?;
        self.keep_early(cx, seal, view, &block)?;
        self.check_current(view)?;
        // §8: the NEW-VIEW proposes the blocks that the view took over.
        if height <= self.last_taken_over() {
            return Err(Reject::Stale);
        }
        // P2. The time is never checked; all other fields are those that the leader of this view must write.
        if by != self.leader_of(cx, view) {
            return Err(Reject::WrongSender);
        }
        let is_new = block.parent == BlockId::ZERO && block.extra.is_zero();
        if block.view != view || block.proposer != by || !is_new {
            return Err(Reject::Invalid("block"));
        }
        let id = block.id();
        let is_own = by == cx.me();
        // Variant S, also for known blocks: a restarted replica has its blocks and lacks the signatures.
        self.note_pledge(cx, seal, Vote { view, height, block: id });
        let instance = self.instance(height);
        // P1. §4.2: the first one of a view and height is the only one. After a restart `proposal` names the block again
        // that this replica has pre-prepared in the view.
        if let Some((_, first)) = instance.proposal.filter(|(known, _)| *known == view) {
            if first != id {
                return Err(Reject::Equivocation);
            }
            self.check_prepared(cx, height);
            // An own proposal that was sent again for a peer.
            return if is_own { Ok(()) } else { Err(Reject::Duplicate) };
        }
        instance.proposal = Some((view, id));
        if is_own {
            self.check_prepared(cx, height);
            return Ok(());
        }
        instance.asked = Some(by);
        cx.blocks().insert(block);
        self.note_height(cx, height);
        match cx.ready(id) {
            Some(how) => self.consider(cx, height, id, how),
            None => cx.want(id, by), // Nothing is parked: `on_ready` answers.
        }
        Ok(())
    }

    /// V14. §8: between the views the replica does not vote. A proposal of the leader of the view to come may overtake its
    /// NEW-VIEW; a few such proposals wait for it.
    fn keep_early(&mut self, cx: &Cx<'_, Self>, seal: Seal, view: View, block: &Block) -> Result<(), Reject> {
        let is_next = view == self.current.view.next() || (view == self.current.view && !self.current.normal);
        if !is_next {
            return Ok(());
        }
        let kept = self.early.iter().filter(|(early, ..)| *early == view).count();
        if seal.by == self.leader_of(cx, view) && kept < EARLY_MAX {
            self.early.push((view, block.clone(), seal.signature));
        }
        Err(Reject::Early)
    }

    /// Handles the early proposals of a view that begins.
    pub(super) fn take_early(&mut self, cx: &mut Cx<'_, Self>) {
        let (view, leader) = (self.current.view, self.current.leader);
        for (early, block, signature) in std::mem::take(&mut self.early) {
            if early == view {
                // A wrong one is refused like any other.
                let seal = Seal { by: leader, signature };
                let _: Result<(), Reject> = self.on_pre_prepare(cx, seal, view, block);
            } else if early > view {
                self.early.push((early, block, signature));
            }
        }
    }

    /// Refuses proposals of other views than the current one.
    fn check_current(&self, view: View) -> Result<(), Reject> {
        match view.cmp(&self.current.view) {
            std::cmp::Ordering::Less => Err(Reject::Stale),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(Reject::Early),
        }
    }

    /// Sends PREPARE for a block that is available and checked, if it is the one proposed at its height.
    pub(super) fn consider(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId, how: Ready) {
        let view = self.current.view;
        let (leader, weak) = (self.current.leader, cx.committee().weak());
        // V1. §11: a replica that has sent a VIEW-CHANGE never votes in an older view, nor in one that has not begun.
        if !self.current.normal {
            return;
        }
        let is_taken_over = height <= self.last_taken_over();
        let Some(instance) = self.instances.get_mut(&height) else {
            return;
        };
        // Q of the leader names its own proposal already, so it sends no PREPARE for it (P7).
        if instance.proposal != Some((view, block)) || instance.is_pre_prepared(block, view) {
            return;
        }
        let accepted = match how {
            Ready::Valid => true,
            // P4: the same answer everywhere, so the leader is faulty.
            Ready::Invalid => {
                self.note(cx, noted::INVALID, height);
                self.suspect_at_once(cx);
                return;
            }
            // P5. §18: f + 1 replicas, the leader among them, have accepted the block, so one honest replica found its own
            // MACs valid. A block that the view took over has A2: an honest replica accepted it.
            Ready::Unvouched if is_taken_over => true,
            Ready::Unvouched => {
                let mut vouchers = instance.prepares.voters(block);
                vouchers.insert(leader);
                vouchers.len() >= weak
            }
        };
        if !accepted {
            return;
        }
        // Q1. §4: Q is durable before the PREPARE leaves.
        let record = instance.pre_prepare(height, block, view);
        cx.record(&record);
        cx.send(To::All, PbftMessage::Prepare(Vote { view, height, block }).into());
        self.note(cx, noted::PRE_PREPARED, height);
        self.check_prepared(cx, height);
    }

    pub(super) fn on_prepare(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, vote: Vote) -> Result<(), Reject> {
        let (Vote { view, height, block }, by) = (vote, seal.by);
        self.check_window(height)?;
        if view < self.current.view {
            return Err(Reject::Stale);
        }
        self.check_not_ahead(view)?;
        // P7. §4.2: the PRE-PREPARE is the leader's vote; a PREPARE of its own would count it twice.
        if by == self.leader_of(cx, view) {
            return Err(Reject::WrongSender);
        }
        // P9: the own PREPARE arrives here as its own copy and is counted like any other.
        let added = self.instance(height).prepares.add(by, view, block, seal.signature);
        self.judge_vote(cx, PREPARE, seal, vote, added)?;
        self.note_height(cx, height);
        // §18: another replica accepts the block, which may be all that it lacked.
        let is_waiting = self.instances.get(&height).is_some_and(|instance| {
            instance.proposal == Some((self.current.view, block))
                && !instance.is_pre_prepared(block, self.current.view)
        });
        if is_waiting && let Some(how) = cx.ready(block) {
            self.consider(cx, height, block, how);
        }
        self.check_prepared(cx, height);
        Ok(())
    }

    fn check_not_ahead(&self, view: View) -> Result<(), Reject> {
        if view.since(self.current.view) > VIEWS_AHEAD { Err(Reject::Early) } else { Ok(()) }
    }

    /// Sends COMMIT, once, when the block of a height has prepared in this view.
    pub(super) fn check_prepared(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        let view = self.current.view;
        // V1.
        if !self.current.normal {
            return;
        }
        let is_taken_over = height <= self.last_taken_over();
        let needed = cx.committee().quorum_of_backups();
        let Some(instance) = self.instances.get(&height) else {
            return;
        };
        // P6. §4.2: the PRE-PREPARE of a block that this replica has accepted (Q names it) …
        let Some((_, block)) = instance.proposal.filter(|(proposed_in, _)| *proposed_in == view) else {
            return;
        };
        if !instance.is_pre_prepared(block, view)
            || instance.prepared.is_some_and(|(_, latest)| latest == view)
        {
            return;
        }
        // … and Q - 1 matching PREPAREs, which `on_prepare` accepts from backups only.
        if instance.prepares.count(view, block) < needed {
            return;
        }
        // V7: a new leader may have taken over a block before its bodies arrived.
        if is_taken_over && Self::readiness(cx, height, block).is_none() {
            return;
        }
        // §9: a block without a complete certificate is not prepared.
        let Ok(certified) = self.certify(height, block, needed) else {
            return;
        };
        // Q2. §4: P is durable before the COMMIT leaves, or a later view could lose a decision of this one.
        let record = self.instance(height).prepare(height, block, view, certified);
        cx.record(&record);
        cx.send(To::All, PbftMessage::Commit(Vote { view, height, block }).into());
        self.note(cx, noted::PREPARED, height);
    }

    pub(super) fn on_commit(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, vote: Vote) -> Result<(), Reject> {
        let Vote { view, height, block } = vote;
        self.check_window(height)?;
        // P8: older views count as well, as far back as P and Q reach.
        if view < self.low_view.min(self.begun) {
            return Err(Reject::Stale);
        }
        self.check_not_ahead(view)?;
        // P9: the own COMMIT arrives here as its own copy.
        let added = self.instance(height).commits.add(seal.by, view, block, seal.signature);
        self.judge_vote(cx, COMMIT, seal, vote, added)?;
        self.note_height(cx, height);
        self.check_committed(cx, vote);
        Ok(())
    }

    /// Decides a block with a quorum of COMMITs. The PRE-PREPARE, the block and its bodies may be missing: f + 1 honest
    /// replicas have prepared it.
    fn check_committed(&mut self, cx: &mut Cx<'_, Self>, vote: Vote) {
        let Vote { view, height, block } = vote;
        let quorum = cx.committee().quorum();
        let Some(instance) = self.instances.get_mut(&height) else {
            return;
        };
        // P8. §6: Q COMMITs of one view.
        if instance.commits.count(view, block) < quorum {
            return;
        }
        match instance.decided {
            Some(first) if first == block => {}
            // I2.
            Some(first) => cx.alarm(Alarm::SafetyBroken { height, first, second: block }),
            None => {
                instance.decided = Some(block);
                self.progress.committed = self.progress.committed.max(height);
                self.note_decision(cx.now());
                cx.commit(Commit::At(height, block));
                self.note(cx, noted::COMMITTED, height);
                self.want_next(cx, height);
                self.advance();
                self.try_propose(cx);
            }
        }
    }
}

impl<V: Variant> Pbft<V> {
    /// Returns whether a vote counts. Reports two signed votes for one slot as evidence.
    fn judge_vote(
        &self,
        cx: &mut Cx<'_, Self>,
        kind: Kind,
        seal: Seal,
        vote: Vote,
        added: Added,
    ) -> Result<(), Reject> {
        match added {
            Added::Counted => Ok(()),
            // The own copy of a vote that was sent again for a peer.
            Added::Again if seal.by == cx.me() => Ok(()),
            Added::Again => Err(Reject::Duplicate),
            Added::Conflict(block, first) => {
                if let (Some(first), Some(second)) = (first, seal.signature) {
                    let earlier = Vote { block, ..vote };
                    self.accuse(cx, seal.by, kind, (earlier, first), (vote, second));
                }
                Err(Reject::Equivocation)
            }
            Added::Old => Err(Reject::Stale),
        }
    }
}
