//! The coordinator's blocks: emission, arrival, silence (§5).

use super::super::entries::Origin;
use super::super::record::UniqueRecord;
use super::super::replica::{Context, Timer, UniqueChain, noted};
use super::super::statements::author;
use super::blocks::HEIGHTS_AHEAD;
use super::chain_state::ChainState;
use super::form::Artemis;
use super::message::{ArtemisMessage, BLOCKS_MAX, CBlock, SignedBlocks};
use super::record::ArtemisFact;
use super::vote::{Evidence, Vote};
use super::voter::BLOCKS_PER_VOTE_MAX;
use crate::unique_chain::UniqueMessage;
use quorate_consensus::{Reject, Signed, To};
use quorate_types::{Block, BlockId, Digest, Height, ReplicaId, View};

/// Blocks with requests that a coordinator emits before a vote names the first of them. Their number adapts the size of blocks
/// to the speed of the rounds.
const UNVOTED_MAX: u64 = 4;

impl UniqueChain<Artemis> {
    /// Returns the coordinator of a view: `(view - 1) mod n`.
    pub(super) fn coordinator(cx: &Context<'_, Artemis>, view: View) -> ReplicaId {
        author(cx.committee(), view)
    }

    /// Returns the height of the block of the committed vote.
    fn voted_height(&self) -> Height {
        self.state_after(self.entries.base()).map_or(Height::ZERO, |state| state.height)
    }

    /// A16. Returns the lowest height whose block may be asked for. After a restart the states of the committed votes are unknown,
    /// but these votes are served, and so are the blocks that they have added.
    pub(super) fn lowest_served(&self) -> Height {
        let of_states = self.state.lowest_height();
        let lowest = self.entries.lowest().and_then(|vote| self.state.blocks.get(vote.block));
        let added = u64::try_from(BLOCKS_PER_VOTE_MAX).unwrap_or(u64::MAX);
        lowest.map_or(of_states, |signed| of_states.min(signed.body.block.height.minus(added)))
    }

    /// Notes the coordinator of the view after the tip.
    pub(super) fn note_coordinator(&mut self, cx: &Context<'_, Artemis>) {
        if let Some(state) = self.state_after(self.entries.tip()) {
            self.state.coordinator = Self::coordinator(cx, state.view);
        }
    }

    /// S = max(4 Δ, τ + Δ) (§5).
    pub(super) fn silence_ns(&self) -> u64 {
        self.delta.times(4).max(self.heartbeat_ns.saturating_add(self.delta.times(1)))
    }

    /// §5, open_instance: the coordinator has 4 Δ for its first block.
    pub(super) fn open_instance(&mut self, cx: &mut Context<'_, Artemis>, state: &ChainState) {
        let deadline = cx.now().plus(self.delta.times(4));
        for (peer, signed, is_direct) in self.state.blocks.open(state, deadline) {
            let link = if is_direct { signed.by } else { peer };
            let _: Result<(), Reject> = self.on_cblock(cx, signed, link);
        }
    }

    /// Begins the own work anew after a recovery: coordinators have S for their next block. The own blocks that no vote has
    /// named are sent again (§16).
    pub(super) fn resume_coordination(&mut self, cx: &mut Context<'_, Artemis>) {
        let deadline = cx.now().plus(self.silence_ns());
        for instance in self.state.blocks.instances.values_mut() {
            instance.deadline = instance.deadline.max(deadline);
        }
        let again: Vec<(Digest, BlockId)> =
            self.state.emitted_before.iter().map(|(anchor, (_, id))| (*anchor, *id)).collect();
        for (anchor, id) in again {
            if !self.state.blocks.instances.contains_key(&anchor) {
                continue;
            }
            let (mut path, mut at) = (Vec::new(), id);
            while let Some(block) = cx.blocks().get(at).map(|block| Block::clone(block))
                && block.extra == CBlock::bind(anchor)
                && block.height > self.chain.committed().height
            {
                at = block.parent;
                path.push(block);
            }
            for block in path.into_iter().rev() {
                cx.send(To::All, UniqueMessage::Own(ArtemisMessage::CBlock(CBlock { block, anchor })));
            }
        }
        self.try_emit(cx);
    }

    /// §5, emit: a coordinator sends a block when requests wait, and an empty one within τ of the last. Nothing waits for votes.
    pub(super) fn try_emit(&mut self, cx: &mut Context<'_, Artemis>) {
        if self.recovery.is_silent() {
            return;
        }
        let me = cx.me();
        let own = self.state.blocks.instances.iter();
        let own = own.filter(|(_, instance)| Self::coordinator(cx, instance.view) == me);
        let anchors: Vec<Digest> = own.map(|(anchor, _)| *anchor).collect();
        for anchor in anchors {
            while self.emit(cx, anchor) {}
        }
    }

    /// Emits one block of an instance, if it is time. Returns whether another one may follow at once.
    fn emit(&mut self, cx: &mut Context<'_, Artemis>, anchor: Digest) -> bool {
        let Some(instance) = self.state.blocks.instances.get(&anchor) else { return false };
        let (view, best) = (instance.view, instance.best);
        let before = self.state.emitted_before.get(&anchor).copied();
        let last = instance.emitted.map(|(height, id, at)| ((height, id), Some(at)));
        // A block is never reused: the next one follows the last one that may have left.
        let (parent, at) = last.or(before.map(|last| (last, None))).unwrap_or((best, None));
        let due = at.map(|at| at.plus(self.heartbeat_ns));
        let is_due = due.is_none_or(|due| cx.now() >= due);
        let voted = self.state_after(self.entries.tip()).map_or(Height::ZERO, |state| state.height);
        let may_carry = !self.is_full(parent.0) && self.unvoted(cx, parent.1, voted) < UNVOTED_MAX;
        let payload = if may_carry { cx.payload_after(parent.1) } else { None };
        if payload.is_none() && !is_due {
            if let Some(due) = due
                && cx.timers().get(Timer::Emit).is_none_or(|at| at > due || at <= cx.now())
            {
                cx.timers().set(Timer::Emit, due);
            }
            return false;
        }
        let block = Block {
            parent: parent.1,
            height: parent.0.next(),
            view,
            proposer: cx.me(),
            time_ns: payload.map_or(0, |payload| payload.time_ns),
            payload: payload.map_or(self.genesis.empty, |payload| payload.id),
            extra: CBlock::bind(anchor),
        };
        self.note(cx, noted::EMITTED, view, block.height);
        cx.blocks().insert(block.clone());
        let (height, id, now) = (block.height, block.id(), cx.now());
        if let Some(instance) = self.state.blocks.instances.get_mut(&anchor) {
            instance.emitted = Some((height, id, now));
        }
        let next = now.plus(self.heartbeat_ns);
        cx.timers().set(Timer::Emit, next);
        let block = CBlock { block, anchor };
        let until = height.plus(self.genesis.checkpoint_every);
        // One block in a slot: durable before it leaves (§4).
        cx.record(&UniqueRecord::Form(ArtemisFact::Emitted { until, block: block.clone() }));
        cx.send(To::All, UniqueMessage::Own(ArtemisMessage::CBlock(block)));
        payload.is_some()
    }

    /// Returns the number of blocks with requests from one down to a height, up to [`UNVOTED_MAX`]. Empty ones do not count (§5): there
    /// may be many before each vote if rounds are slow.
    fn unvoted(&self, cx: &mut Context<'_, Artemis>, block: BlockId, voted: Height) -> u64 {
        let (mut count, mut at) = (0, block);
        while let Some(block) = cx.blocks().get(at)
            && block.height > voted
            && count < UNVOTED_MAX
        {
            count += u64::from(block.payload != self.genesis.empty);
            at = block.parent;
        }
        count
    }

    /// §5: handles a block of a coordinator.
    pub(super) fn on_cblock(
        &mut self,
        cx: &mut Context<'_, Artemis>,
        signed: Signed<CBlock>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let CBlock { block, anchor } = &signed.body;
        let (id, height, parent, anchor) = (block.id(), block.height, block.parent, *anchor);
        let is_direct = link == signed.by;
        if height <= self.voted_height() {
            // A11. Votes may have committed the block before its direct copy arrives.
            if is_direct && self.state.blocks.get(id).is_some() {
                self.state.blocks.keep(signed, is_direct);
                self.advance_best(cx, id);
            }
            return Err(Reject::Stale);
        }
        let Some(instance) = self.state.blocks.instances.get(&anchor) else {
            self.state.blocks.keep_early(link, signed, is_direct);
            return Err(Reject::Early);
        };
        if block.view != instance.view {
            return Err(Reject::Invalid("block of another view than its anchor opens"));
        }
        if height > instance.best.0.plus(HEIGHTS_AHEAD) {
            return Err(Reject::Early);
        }
        // A8. §5: two blocks for one slot are evidence, and noticed before bodies.
        let Some(instance) = self.state.blocks.instances.get_mut(&anchor) else { return Err(Reject::Early) };
        let first = *instance.first.entry(height).or_insert(id);
        if first != id {
            self.keep_evidence(anchor, first, &signed);
            if self.state.blocks.wanted(id).is_none() {
                self.try_vote(cx);
                return Err(if is_direct {
                    Reject::Equivocation
                } else {
                    Reject::NotNow("its coordinator has equivocated")
                });
            }
        }
        let is_settled = height <= self.chain.committed().height;
        if !is_settled {
            cx.blocks().insert(block.clone());
        }
        let is_known = parent == BlockId::ZERO || self.chain.committed().id == parent || is_settled;
        let is_connected =
            is_known || self.state.blocks.get(parent).is_some() || cx.blocks().contains(parent);
        self.state.blocks.keep(signed, is_direct);
        if !is_connected && link != cx.me() {
            let above = self.voted_height();
            self.state.blocks.want(parent, self.round.number, link);
            cx.send_unheld(
                To::One(link),
                UniqueMessage::Own(ArtemisMessage::WantBlocks { id: parent, above }),
            );
        }
        if !is_settled && (!is_direct || !is_connected) {
            cx.want(id, link);
        }
        self.advance_best(cx, id);
        self.accept_pending(cx);
        self.try_vote(cx);
        Ok(())
    }

    fn keep_evidence(&mut self, anchor: Digest, first: BlockId, second: &Signed<CBlock>) {
        let Some(first) = self.state.blocks.get(first).cloned() else { return };
        if let Some(instance) = self.state.blocks.instances.get_mut(&anchor)
            && instance.evidence.is_none()
        {
            instance.evidence = Some(Evidence { first, second: second.clone() });
        }
    }

    /// §5: follows the coordinator's blocks that are complete. A block that the coordinator itself has sent ends its silence,
    /// also if it was fetched before.
    pub(super) fn advance_best(&mut self, cx: &mut Context<'_, Artemis>, id: BlockId) {
        let Some(signed) = self.state.blocks.get(id) else { return };
        let anchor = signed.body.anchor;
        let next_deadline = cx.now().plus(self.heartbeat_ns).plus(self.delta.times(1));
        loop {
            let Some(instance) = self.state.blocks.instances.get(&anchor) else { return };
            let (height, best) = instance.best;
            let mut children = self.state.blocks.next((height, best), anchor);
            let next = children.find(|id| self.is_complete(cx, *id));
            drop(children);
            let Some(next) = next else { break };
            if let Some(instance) = self.state.blocks.instances.get_mut(&anchor) {
                instance.best = (height.next(), next);
            }
        }
        self.hear_coordinator(anchor, next_deadline);
    }

    fn hear_coordinator(&mut self, anchor: Digest, deadline: quorate_types::Time) {
        let Some(instance) = self.state.blocks.instances.get(&anchor) else { return };
        let (mut at, heard) = (instance.best.1, instance.heard);
        let mut highest = None;
        while let Some(kept) = self.state.blocks.kept.get(&at)
            && kept.signed.body.block.height > heard
        {
            if kept.is_direct {
                highest = Some(kept.signed.body.block.height);
                break;
            }
            at = kept.signed.body.block.parent;
        }
        if let Some(height) = highest
            && let Some(instance) = self.state.blocks.instances.get_mut(&anchor)
        {
            instance.heard = height;
            instance.deadline = instance.deadline.max(deadline);
        }
    }

    /// A16. Asks a peer for the blocks of votes of one chain: their bodies from the host, their signatures by one message. Both
    /// leave at once. All blocks of lower votes are on the path to that of the last one (§2, Fetch).
    pub(super) fn fetch_blocks(&mut self, cx: &mut Context<'_, Artemis>, votes: &[Vote], link: ReplicaId) {
        let above = self.voted_height();
        let mut last = None;
        for vote in votes {
            if self.state.blocks.missing(vote.block, above).is_some() && vote.block != BlockId::ZERO {
                self.state.blocks.want(vote.block, vote.round, link);
                last = Some(vote.block);
            }
            if self.ready(cx, vote.block).is_none() {
                cx.want(vote.block, link);
            }
        }
        if let Some(id) = last {
            cx.send_unheld(To::One(link), UniqueMessage::Own(ArtemisMessage::WantBlocks { id, above }));
        }
    }

    pub(super) fn on_want_blocks(
        &mut self,
        cx: &mut Context<'_, Artemis>,
        link: ReplicaId,
        id: BlockId,
        above: Height,
    ) -> Result<(), Reject> {
        let (now, delta_ns) = (cx.now(), self.delta.times(1));
        // The question counts as well: the walk down the path is long, whatever the answer.
        if !self.served.entries.admits(link, now, delta_ns, 1) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        let blocks = self.state.blocks.path(id, above, BLOCKS_MAX);
        if blocks.is_empty() {
            return Err(Reject::NotNow("no such blocks"));
        }
        let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        if !self.served.entries.admits(link, now, delta_ns, count) {
            return Err(Reject::NotNow("asked again too soon"));
        }
        cx.send_unheld(To::One(link), UniqueMessage::Own(ArtemisMessage::Blocks { blocks }));
        Ok(())
    }

    pub(super) fn on_blocks(
        &mut self,
        cx: &mut Context<'_, Artemis>,
        blocks: SignedBlocks,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        let follow = blocks.windows(2).all(|pair| match pair {
            [before, after] => {
                let (before, after) = (&before.body.block, &after.body.block);
                after.parent == before.id() && after.height == before.height.next()
            }
            _ => true,
        });
        if !follow {
            return Err(Reject::Invalid("blocks that do not follow each other"));
        }
        // A block that is asked for names its parent, so that one is asked for as well.
        for signed in blocks.iter().rev() {
            if let Some(round) = self.state.blocks.wanted(signed.body.block.id()) {
                self.state.blocks.want(signed.body.block.parent, round, link);
            }
        }
        let (is_full, mut is_new) = (blocks.len() == BLOCKS_MAX, false);
        for signed in blocks {
            // The sender hands them on, whichever coordinator has signed them.
            is_new |= self.take_fetched(cx, signed, link).is_ok();
        }
        // A16. A full answer may be the lower part of a path.
        if is_full
            && is_new
            && let Some(id) = self.entries.pending().pop()
        {
            self.fetch(cx, id, link, Origin::Fetched);
        }
        Ok(())
    }

    fn take_fetched(
        &mut self,
        cx: &mut Context<'_, Artemis>,
        signed: Signed<CBlock>,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        if self.state.blocks.get(signed.body.block.id()).is_some() {
            return Err(Reject::Duplicate);
        }
        self.on_cblock(cx, signed, link)
    }
}
