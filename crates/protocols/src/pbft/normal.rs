//! The normal case (§6): PRE-PREPARE, PREPARE, COMMIT.
//!
//! Checks come first, cheap before expensive. Records precede the messages that rest on them in the same step:
//! the host writes both under one mark and lets the message leave when that is durable.

use super::variant::Variant;
use super::{COMMIT, PREPARE, Pbft, PbftMessage, VIEWS_AHEAD, Vote, noted};
use quorate_consensus::parts::votes::Added;
use quorate_consensus::{Alarm, Commit, Cx, PayloadRef, Ready, Reject, Seal, To};
use quorate_types::{Block, BlockId, Digest, Height, Kind, View};

/// Proposals of one view that has not begun which wait for it.
const EARLY_MAX: usize = 64;

impl<V: Variant> Pbft<V> {
    /// The leader proposes while a place in the pipeline is free and clients want something.
    pub(super) fn try_propose(&mut self, cx: &mut Cx<'_, Self>) {
        if self.leader != cx.me() || !self.normal {
            return;
        }
        loop {
            self.next = self.next.max(self.decided.next());
            while self.is_taken(self.next) {
                self.next = self.next.next();
            }
            // P11, P3: at most W blocks above the decided ones, and none outside the window.
            let in_flight = self.next.since(self.decided);
            if in_flight > self.params.blocks_in_flight || self.check_window(self.next).is_err() {
                return;
            }
            // No timer: what waits now goes into one block, and later requests into the next.
            let Some(payload) = cx.payload_after(BlockId::ZERO) else {
                return;
            };
            self.propose(cx, self.next, payload);
        }
    }

    /// Whether something is decided or proposed by this replica at a height.
    fn is_taken(&self, height: Height) -> bool {
        self.instances
            .get(&height)
            .is_some_and(|known| known.decided.is_some() || known.pre_prepared_in(self.view).is_some())
    }

    fn propose(&mut self, cx: &mut Cx<'_, Self>, height: Height, payload: PayloadRef) {
        let view = self.view;
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
        self.heard_of(cx, height);
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
        // §8: what the view took over is proposed by its NEW-VIEW.
        if height <= self.last_taken_over() {
            return Err(Reject::Stale);
        }
        // P2. The time is never judged; all other fields are what the leader of this view must write.
        if by != self.leader_of(cx, view) {
            return Err(Reject::WrongSender);
        }
        let is_new = block.parent == BlockId::ZERO && block.extra.is_zero();
        if block.view != view || block.proposer != by || !is_new {
            return Err(Reject::Invalid("block"));
        }
        let id = block.id();
        let is_own = by == cx.me();
        // Variant S. Also of what is known: a restarted replica has its blocks, and lacks the signatures.
        self.note_pledge(cx, seal, Vote { view, height, block: id });
        let instance = self.instance(height);
        // P1. §4.2: the first one of a view and height is the only one. What this replica has pre-prepared in
        // the view stands in `proposal` again after a restart.
        if let Some((_, first)) = instance.proposal.filter(|(known, _)| *known == view) {
            if first != id {
                return Err(Reject::Equivocation);
            }
            self.check_prepared(cx, height);
            // An own one was said again for somebody's sake.
            return if is_own { Ok(()) } else { Err(Reject::Duplicate) };
        }
        instance.proposal = Some((view, id));
        if is_own {
            self.check_prepared(cx, height);
            return Ok(());
        }
        instance.asked = Some(by);
        cx.blocks().insert(block);
        self.heard_of(cx, height);
        match cx.ready(id) {
            Some(how) => self.consider(cx, height, id, how),
            None => cx.want(id, by), // Nothing is parked: answered by `on_ready`.
        }
        Ok(())
    }

    /// V14. §8: between the views nothing is voted on. What the leader of the view to come proposes may overtake its
    /// NEW-VIEW; a few such proposals wait for it.
    fn keep_early(&mut self, cx: &Cx<'_, Self>, seal: Seal, view: View, block: &Block) -> Result<(), Reject> {
        let is_next = view == self.view.next() || (view == self.view && !self.normal);
        if !is_next {
            return Ok(());
        }
        let kept = self.early.iter().filter(|(early, ..)| *early == view).count();
        if seal.by == self.leader_of(cx, view) && kept < EARLY_MAX {
            self.early.push((view, block.clone(), seal.signature));
        }
        Err(Reject::Early)
    }

    /// The view begins here: what its leader has proposed in advance counts.
    pub(super) fn take_early(&mut self, cx: &mut Cx<'_, Self>) {
        let (view, leader) = (self.view, self.leader);
        for (early, block, signature) in std::mem::take(&mut self.early) {
            if early == view {
                // Refused like any other that does not fit.
                let seal = Seal { by: leader, signature };
                let _: Result<(), Reject> = self.on_pre_prepare(cx, seal, view, block);
            } else if early > view {
                self.early.push((early, block, signature));
            }
        }
    }

    /// The current view is the only one in which anything is accepted.
    fn check_current(&self, view: View) -> Result<(), Reject> {
        match view.cmp(&self.view) {
            std::cmp::Ordering::Less => Err(Reject::Stale),
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => Err(Reject::Early),
        }
    }

    /// A block is here and checked: PREPARE, if it is the one that was proposed at its height.
    pub(super) fn consider(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId, how: Ready) {
        let view = self.view;
        let (leader, weak) = (self.leader, cx.committee().weak());
        // V1. §11: a replica that has sent a VIEW-CHANGE never votes in an older view, nor in one that has not begun.
        if !self.normal {
            return;
        }
        let is_taken_over = height <= self.last_taken_over();
        let Some(instance) = self.instances.get_mut(&height) else {
            return;
        };
        // What the leader proposed stands in Q already, so it sends no PREPARE for it (P7).
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
            // P5. §18: f + 1 replicas, the leader among them, have spoken for it, so one honest replica found
            // its own entries good.
            // What the view took over has A2: an honest replica accepted it.
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
        if view < self.view {
            return Err(Reject::Stale);
        }
        self.check_not_ahead(view)?;
        // P7. §4.2: the PRE-PREPARE is the leader's vote; a PREPARE of its own would count it twice.
        if by == self.leader_of(cx, view) {
            return Err(Reject::WrongSender);
        }
        // P9: the own PREPARE comes here as its own copy and is counted like any other.
        let added = self.instance(height).prepares.add(by, view, block, seal.signature);
        self.judge_vote(cx, PREPARE, seal, vote, added)?;
        self.heard_of(cx, height);
        // §18: another replica vouches for the block, which may be all that it lacked.
        let is_waiting = self.instances.get(&height).is_some_and(|instance| {
            instance.proposal == Some((self.view, block)) && !instance.is_pre_prepared(block, self.view)
        });
        if is_waiting && let Some(how) = cx.ready(block) {
            self.consider(cx, height, block, how);
        }
        self.check_prepared(cx, height);
        Ok(())
    }

    fn check_not_ahead(&self, view: View) -> Result<(), Reject> {
        if view.since(self.view) > VIEWS_AHEAD { Err(Reject::Early) } else { Ok(()) }
    }

    /// Prepared in this view? Then COMMIT, once.
    pub(super) fn check_prepared(&mut self, cx: &mut Cx<'_, Self>, height: Height) {
        let view = self.view;
        // V1.
        if !self.normal {
            return;
        }
        let is_taken_over = height <= self.last_taken_over();
        let quorum = cx.committee().quorum();
        let Some(instance) = self.instances.get(&height) else {
            return;
        };
        // P6. §4.2: the PRE-PREPARE, the block accepted here (it stands in Q) …
        let Some((_, block)) = instance.proposal.filter(|(proposed_in, _)| *proposed_in == view) else {
            return;
        };
        if !instance.is_pre_prepared(block, view)
            || instance.prepared.is_some_and(|(_, latest)| latest == view)
        {
            return;
        }
        // … and Q - 1 matching PREPAREs, which `on_prepare` takes from backups only.
        if instance.prepares.count(view, block).saturating_add(1) < quorum {
            return;
        }
        // V7: a new leader may have taken over a block before its bodies came.
        if is_taken_over && Self::readiness(cx, height, block).is_none() {
            return;
        }
        // §9: what cannot be shown to others is not prepared.
        let Ok(certified) = self.certify(height, block, quorum) else {
            return;
        };
        // Q2. §4: P is durable before the COMMIT leaves, or a later view could lose what this one decides.
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
        // P9: the own COMMIT comes here as its own copy.
        let added = self.instance(height).commits.add(seal.by, view, block, seal.signature);
        self.judge_vote(cx, COMMIT, seal, vote, added)?;
        self.heard_of(cx, height);
        self.check_committed(cx, vote);
        Ok(())
    }

    /// Decided? The PRE-PREPARE, the block and its bodies may be missing: f + 1 honest replicas prepared it.
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
                self.committed = self.committed.max(height);
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
    /// Whether a vote is worth going on with. Two signed ones for one place are shown to whoever wants to see them.
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
            // An own vote that was said again for somebody's sake comes back again.
            Added::Again if seal.by == cx.me() => Ok(()),
            Added::Again => Err(Reject::Duplicate),
            Added::Conflict(block, first) => {
                if let (Some(first), Some(second)) = (first, seal.signature) {
                    let said = Vote { block, ..vote };
                    self.accuse(cx, seal.by, kind, (said, first), (vote, second));
                }
                Err(Reject::Equivocation)
            }
            Added::Old => Err(Reject::Stale),
        }
    }
}
