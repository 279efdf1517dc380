//! Votes: validity, choice, and the changes of state that they make (§3, §6).

use super::super::entry::{Entry, EntryRef, RoundProof, skips_digest};
use super::super::message::UniqueMessage;
use super::super::record::UniqueRecord;
use super::super::replica::{Context, Form, OwnEntry, Timer, UniqueChain, Verdict, noted};
use super::chain_state::ChainState;
use super::form::Artemis;
use super::record::ArtemisFact;
use super::vote::{Vote, VoteKind};
use quorate_consensus::{Ready, To};
use quorate_types::{BlockId, Height, ReplicaSet, Time};

/// K_max: blocks that one vote adds at most. Δ covers a fetch of all that f + 1 votes may add (§3).
pub(super) const BLOCKS_PER_VOTE_MAX: usize = 16;
/// K_bytes: bytes of bodies that one vote adds at most, unless it adds one block.
pub(super) const BYTES_PER_VOTE_MAX: usize = 1 << 20;

impl UniqueChain<Artemis> {
    /// Returns the state after an accepted vote.
    pub(super) fn state_after(&self, vote: EntryRef) -> Option<ChainState> {
        if vote == EntryRef::GENESIS {
            return Some(ChainState::GENESIS);
        }
        self.state.states.get(&vote.id).copied()
    }

    /// A1 to A4. §3: whether a vote on an accepted one is valid, and its blocks are complete.
    pub(super) fn judge_vote(&mut self, cx: &mut Context<'_, Artemis>, vote: &Vote) -> Verdict {
        let Some(before) = self.state_after(vote.parent) else { return Verdict::Missing };
        if vote.view != before.view {
            return Verdict::Invalid;
        }
        let is_head = vote.block == before.head;
        let verdict = match &vote.kind {
            // A1. A strict descendant of the head of the parent, through blocks of this instance alone: that makes the votes a
            // unique chain.
            VoteKind::Data => self.judge_path(cx, &before, vote.block),
            VoteKind::Endorse | VoteKind::NoProgress if is_head => Verdict::Valid,
            VoteKind::Endorse | VoteKind::NoProgress => Verdict::Invalid,
            // A4. Two blocks of this instance for one slot.
            VoteKind::Equivocation(evidence) => {
                let shown = &evidence.first.body;
                let is_of_instance =
                    shown.anchor == before.anchor.id && shown.block.view == before.view && is_head;
                if is_of_instance { Verdict::Valid } else { Verdict::Invalid }
            }
        };
        if verdict != Verdict::Valid {
            return verdict;
        }
        let is_settled = is_head && before.height <= self.chain.committed().height;
        match if is_settled { Some(Ready::Valid) } else { self.ready_block(cx, vote.block) } {
            Some(Ready::Valid) => verdict,
            Some(Ready::Invalid | Ready::Unvouched) => Verdict::Invalid,
            None => Verdict::Missing,
        }
    }

    /// A1, A2. §3: checks the path from the head of the parent to the block of a vote.
    fn judge_path(&self, cx: &mut Context<'_, Artemis>, before: &ChainState, block: BlockId) -> Verdict {
        let (mut at, mut count, mut bytes) = (block, 0_usize, 0_usize);
        let mut above = None;
        while at != before.head {
            let Some(signed) = self.state.blocks.get(at) else { return Verdict::Missing };
            let body = &signed.body;
            let is_of_instance = body.anchor == before.anchor.id && body.block.view == before.view;
            count = count.saturating_add(1);
            bytes = bytes.saturating_add(cx.body_bytes(at));
            let is_too_much = count > BLOCKS_PER_VOTE_MAX || (count > 1 && bytes > BYTES_PER_VOTE_MAX);
            let height = body.block.height;
            let is_next = above.is_none_or(|above| above == height.next());
            if !is_of_instance || is_too_much || !is_next || height <= before.height {
                return Verdict::Invalid;
            }
            (at, above) = (body.block.parent, Some(height));
        }
        if above == Some(before.height.next()) { Verdict::Valid } else { Verdict::Invalid }
    }

    /// Handles the acceptance of a vote: the state after it, and the instance that it may open.
    pub(super) fn follow_vote(&mut self, cx: &mut Context<'_, Artemis>, vote: &Vote) {
        let Some(before) = self.state_after(vote.parent) else { return };
        let height = <Artemis as Form>::height(self, vote);
        let state = before.after(vote, height, cx.committee().weak());
        self.state.note(vote.place(), state);
        self.record_blocks(cx, vote.block, before.height);
        if state.anchor == vote.place() {
            self.open_instance(cx, &state);
            self.show_anchor(cx, vote, &state);
        }
        self.try_emit(cx);
        self.try_vote(cx);
    }

    /// §4: the blocks that an accepted vote adds are durable with the next own vote.
    fn record_blocks(&self, cx: &mut Context<'_, Artemis>, block: BlockId, above: Height) {
        for signed in self.state.blocks.path(block, above, BLOCKS_PER_VOTE_MAX) {
            let until = signed.body.block.height.plus(self.genesis.checkpoint_every);
            cx.record(&UniqueRecord::Form(ArtemisFact::Voted { until, block: signed }));
        }
    }

    /// §3, accept: the new coordinator receives the vote that has opened its view, even if that vote is not this replica's tip.
    fn show_anchor(&self, cx: &mut Context<'_, Artemis>, vote: &Vote, state: &ChainState) {
        let coordinator = Self::coordinator(cx, state.view);
        if coordinator == cx.me() {
            return;
        }
        let Some(tip) = self.entries.get(vote.id()).cloned() else { return };
        let proof = RoundProof { round: vote.round.next(), tip: Some(tip), skips: Vec::new(), resync: false };
        cx.send_unheld(To::One(coordinator), UniqueMessage::Proof(Box::new(proof)));
    }

    /// §6, try_vote: votes once in the current round, if this replica is its voter.
    pub(super) fn try_vote(&mut self, cx: &mut Context<'_, Artemis>) {
        if !self.is_due_to_speak(cx.me()) {
            return;
        }
        let Some(proof) = self.proof() else { return };
        let place = self.entries.tip();
        let Some(state) = self.state_after(place) else { return };
        let Some((block, kind)) = self.choose_vote(cx, place, &state) else {
            // A new block or the end of the coordinator's silence leads here again.
            let deadline = self.state.blocks.instances.get(&state.anchor.id).map(|it| it.deadline);
            if let Some(at) = deadline.into_iter().chain(self.latest_vote()).min() {
                cx.timers().set(Timer::Speak, at);
            }
            return;
        };
        cx.timers().cancel(Timer::Speak);
        let skips = proof.skips;
        let entry = Vote {
            round: proof.round,
            voter: cx.me(),
            parent: place,
            skips: skips_digest(&skips),
            view: state.view,
            block,
            kind,
        };
        self.note(cx, noted::PROPOSED, entry.round, Height::ZERO);
        self.own = Some(OwnEntry { entry: entry.clone(), skips: skips.clone(), is_fresh: true });
        // One vote in a round: durable before it leaves (§4).
        cx.record(&UniqueRecord::Own { entry: entry.clone(), skips: skips.clone() });
        cx.send(To::All, UniqueMessage::Entry { entry, skips });
    }

    /// §6: chooses the block and the kind of the own vote. `None` while there is nothing to vote for.
    fn choose_vote(
        &self,
        cx: &mut Context<'_, Artemis>,
        tip: EntryRef,
        state: &ChainState,
    ) -> Option<(BlockId, VoteKind)> {
        if let Some(block) = self.newest_block(cx, state) {
            return Some((block, VoteKind::Data));
        }
        let instance = self.state.blocks.instances.get(&state.anchor.id)?;
        if let Some(evidence) = &instance.evidence {
            return Some((state.head, VoteKind::Equivocation(Box::new(evidence.clone()))));
        }
        if cx.now() >= instance.deadline {
            // A6. §17: in doubt a voter endorses. It must not wait: others would blame it.
            let since = instance.deadline.minus(self.silence_ns());
            let is_sound = cx.sound(since, Time::ZERO);
            return Some((state.head, if is_sound { VoteKind::NoProgress } else { VoteKind::Endorse }));
        }
        // §7: others blame a voter that waits longer than S. A Byzantine coordinator can end its silence without a block to vote
        // for: by its own copies of blocks that votes have named.
        let is_due = self.latest_vote().is_some_and(|at| cx.now() >= at);
        (is_due || self.is_open(cx, tip, state)).then_some((state.head, VoteKind::Endorse))
    }

    /// Returns the time at which this replica votes at the latest, if it is the voter of the round.
    fn latest_vote(&self) -> Option<Time> {
        self.round.entered.map(|at| at.plus(self.silence_ns()))
    }

    /// Returns the state of a block. One that is not above the committed height needs nothing.
    fn ready_block(&self, cx: &Context<'_, Artemis>, block: BlockId) -> Option<Ready> {
        let kept = self.state.blocks.get(block).map(|signed| signed.body.block.height);
        let is_settled = kept.is_some_and(|height| height <= self.chain.committed().height);
        if is_settled { Some(Ready::Valid) } else { self.ready(cx, block) }
    }

    /// Whether a block is here with its ancestors and bodies, and valid.
    pub(super) fn is_complete(&self, cx: &Context<'_, Artemis>, block: BlockId) -> bool {
        self.ready_block(cx, block) == Some(Ready::Valid)
    }

    /// Returns the highest complete block of the instance that follows the head, as far as one vote may go.
    fn newest_block(&self, cx: &mut Context<'_, Artemis>, state: &ChainState) -> Option<BlockId> {
        let (mut newest, mut at, mut bytes) = (None, state.head, 0_usize);
        let mut height = state.height;
        for count in 1..=BLOCKS_PER_VOTE_MAX {
            let mut children = self.state.blocks.next((height, at), state.anchor.id);
            let next = children.find(|id| self.is_complete(cx, *id));
            let Some(next) = next else { break };
            bytes = bytes.saturating_add(cx.body_bytes(next));
            if count > 1 && bytes > BYTES_PER_VOTE_MAX {
                break;
            }
            (newest, at, height) = (Some(next), next, height.next());
        }
        newest
    }

    /// Returns the first vote on the chain of the tip whose block is this one or extends it.
    pub(super) fn first_vote_for(&self, block: BlockId) -> Option<EntryRef> {
        let height = self.state.blocks.get(block)?.body.block.height;
        let (mut at, mut first) = (self.entries.tip(), None);
        while self.state_after(at).is_some_and(|state| state.height >= height) {
            first = Some(at);
            at = self.entries.get(at.id)?.entry.parent;
        }
        first
    }

    /// A7. §6: whether a block with requests up to the head is not final on the chain of the tip. Without further votes the last
    /// blocks before a pause would never be committed.
    fn is_open(&self, cx: &mut Context<'_, Artemis>, tip: EntryRef, state: &ChainState) -> bool {
        // A larger number than f + 1 gives the same answer: each accepted vote has committed what f + 1 voters endorsed. The base
        // then covers the requests that they settle.
        let (weak, base) = (cx.committee().weak(), self.entries.base());
        let (mut voters, mut at) = (ReplicaSet::EMPTY, tip);
        while at.round > base.round {
            let Some(frame) = self.entries.get(at.id) else { break };
            voters.insert(frame.entry.voter);
            if voters.len() >= weak {
                break;
            }
            at = frame.entry.parent;
        }
        let settled = if voters.len() >= weak { self.state_after(at) } else { self.state_after(base) };
        let settled = settled.map_or(Height::ZERO, |state| state.height);
        self.has_requests(cx, state.head, settled)
    }

    /// Whether a block or one of its ancestors above a height has requests.
    pub(super) fn has_requests(&self, cx: &mut Context<'_, Artemis>, block: BlockId, above: Height) -> bool {
        let mut at = block;
        while let Some(block) = cx.blocks().get(at)
            && block.height > above
        {
            if block.payload != self.genesis.empty {
                return true;
            }
            at = block.parent;
        }
        false
    }
}
