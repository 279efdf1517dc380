//! Artemis as a form of the unique chain: votes are entries.

use super::super::entry::{Entry, EntryRef, rounds_ahead};
use super::super::figures;
use super::super::record::UniqueRecord;
use super::super::replica::{Context, Form, IfIdle, PastOf, Shown, Timer, UniqueChain, Verdict};
use super::super::statements::{RELAY, SPEC, VOTE};
use super::attacks;
use super::base_points::BasePoints;
use super::blocks::CBlocks;
use super::chain_state::ChainState;
use super::message::{ArtemisMessage, CBLOCK};
use super::record::ArtemisFact;
use super::vote::Vote;
use quorate_consensus::parts::blames::BLAME;
use quorate_consensus::parts::chain::Tip;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{AttackEntry, Figures, Healed, MessageRole, Reject, Seal, Signed, Spec};
use quorate_types::{
    BlockId, Committee, Digest, Height, Kind, OrderChain, ProtocolId, ReplicaId, Time, View,
};
use std::collections::BTreeMap;

/// Marker type of Artemis.
#[derive(Debug)]
pub enum Artemis {}

/// State of Artemis alone.
#[derive(Debug)]
pub struct State {
    pub(super) blocks: CBlocks,
    pub(super) points: BasePoints,
    /// States after accepted votes.
    pub(super) states: BTreeMap<Digest, ChainState>,
    /// The same votes by round.
    by_round: BTreeMap<View, Vec<Digest>>,
    /// The coordinator of the view after the tip.
    pub(super) coordinator: ReplicaId,
    /// The view at the opening.
    opened_view: View,
    /// The own blocks of each instance that were emitted before this opening: the last one of each.
    pub(super) emitted_before: BTreeMap<Digest, (Height, BlockId)>,
}

impl State {
    /// Notes the state after an accepted vote.
    pub(super) fn note(&mut self, vote: EntryRef, state: ChainState) {
        if self.states.insert(vote.id, state).is_none() {
            self.by_round.entry(vote.round).or_default().push(vote.id);
        }
    }

    /// Returns the lowest height of the states that are kept.
    pub(super) fn lowest_height(&self) -> Height {
        let lowest = self.by_round.values().next().into_iter().flatten();
        lowest.filter_map(|id| self.states.get(id)).map(|state| state.height).min().unwrap_or_default()
    }

    /// Forgets the states after votes below a round.
    fn forget_below(&mut self, round: View) {
        while let Some(entry) = self.by_round.first_entry()
            && *entry.key() < round
        {
            for id in entry.remove() {
                self.states.remove(&id);
            }
        }
    }
}

/// Returns the committed vote of the log, and the state after it.
fn committed(past: &PastOf<Artemis>) -> Option<(EntryRef, ChainState)> {
    past.records.iter().find_map(|record| match record {
        UniqueRecord::Form(ArtemisFact::Committed { vote, state }) => Some((*vote, *state)),
        _ => None,
    })
}

impl Form for Artemis {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("artemis"),
        summary: "Artemis: n = 2f + 1, a stable coordinator and a voter for each round, commit f + 1 votes deep, as long as messages keep the bound delta",
        rotates_leaders: false,
        roles: &[
            (CBLOCK, MessageRole::Proposal),
            (VOTE, MessageRole::Vote),
            (BLAME, MessageRole::ViewChange),
            (RELAY, MessageRole::Vote),
        ],
        ..SPEC
    };
    const FIGURES: Figures = figures::ARTEMIS;
    const ATTACKS: &'static [AttackEntry] = attacks::ATTACKS;
    const PROVES_ORDER: bool = true;
    type Entry = Vote;
    type Message = ArtemisMessage;
    type Fact = ArtemisFact;
    type State = State;

    fn open(_: &SynchronyParams, past: &PastOf<Self>) -> State {
        let (vote, state) = committed(past).unwrap_or((EntryRef::GENESIS, ChainState::GENESIS));
        let points = past.records.iter().filter_map(|record| match record {
            UniqueRecord::Form(ArtemisFact::Point(point)) => Some(*point),
            _ => None,
        });
        let mut replica = State {
            blocks: CBlocks::default(),
            points: BasePoints::restored(points, vote.round),
            states: BTreeMap::new(),
            by_round: BTreeMap::new(),
            coordinator: ReplicaId(0),
            opened_view: state.view,
            emitted_before: BTreeMap::new(),
        };
        replica.note(vote, state);
        replica.blocks.open(&state, Time::ZERO);
        replica
    }

    fn restore(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, fact: ArtemisFact) {
        match fact {
            ArtemisFact::Emitted { block, .. } => {
                let (height, id) = (block.block.height, block.block.id());
                let last = replica.state.emitted_before.entry(block.anchor).or_insert((height, id));
                if height > last.0 {
                    *last = (height, id);
                }
                cx.blocks().insert(block.block);
            }
            ArtemisFact::Voted { block, .. } => {
                if block.body.block.height > replica.chain.committed().height {
                    cx.blocks().insert(block.body.block.clone());
                }
                replica.state.blocks.keep(block, false);
            }
            ArtemisFact::Committed { .. } | ArtemisFact::Point(_) => {} // `open` has restored them.
        }
    }

    /// §7: an honest voter has a block, evidence or a suspicion after S.
    fn round_ns(replica: &UniqueChain<Self>) -> u64 {
        replica.delta.times(4).saturating_add(replica.silence_ns())
    }

    /// §19: the coordinator at the heal and f more may be bad; each is suspected after S and flagged within n rounds.
    fn recovery(params: &SynchronyParams, committee: &Committee, healed: &Healed) -> Time {
        let delta = params.delta();
        let silence = delta.times(4).max(params.heartbeat_ns().saturating_add(delta.times(1)));
        let (n, f) = (u64::try_from(committee.n()).unwrap_or(u64::MAX), committee.f);
        let faults = u64::try_from(f).unwrap_or(u64::MAX);
        let bad = delta.times(18).saturating_add(silence.saturating_mul(2));
        let good = delta.times(6).saturating_add(silence);
        let rounds = faults.saturating_mul(bad).saturating_add(n.saturating_sub(faults).saturating_mul(good));
        let coordinators = faults.saturating_add(1).saturating_mul(silence.saturating_add(rounds));
        let rest = bad.saturating_add(coordinators).saturating_add(delta.times(4)).saturating_add(rounds);
        // Guard, restart, and the blocks committed while a replica was away.
        params.recovery(committee, healed, 0, 0).plus(rest)
    }

    fn base(past: &PastOf<Self>, _: Tip) -> EntryRef {
        committed(past).map_or(EntryRef::GENESIS, |(vote, _)| vote)
    }

    fn carries_requests(replica: &UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Vote) -> bool {
        let below = replica.state_after(entry.parent()).map_or(Height::ZERO, |state| state.height);
        replica.has_requests(cx, entry.block, below)
    }

    fn on_committed(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, base: EntryRef) {
        let Some(state) = replica.state_after(base) else { return };
        cx.record(&UniqueRecord::Form(ArtemisFact::Committed { vote: base, state }));
        replica.note_points(cx, base);
        replica.state.forget_below(base.round.minus(STATES_KEPT));
        let served = replica.lowest_served().min(state.height);
        replica.state.blocks.settle(base.round, &state, served);
    }

    fn fetch(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, votes: &[Vote], link: ReplicaId) {
        replica.fetch_blocks(cx, votes, link);
    }

    fn floors(replica: &UniqueChain<Self>, round: View) -> Vec<(Kind, View)> {
        let view = replica.state_after(replica.entries.base()).map_or(View::ZERO, |state| state.view);
        vec![(VOTE, round), (CBLOCK, view)]
    }

    /// §20: a view that no honest peer knows was opened by a lying voter, at most f times in a row.
    fn forgotten(replica: &UniqueChain<Self>, committee: &Committee) -> Vec<(Kind, View)> {
        let tip = replica.entries.tip();
        let view = replica.state_after(tip).map_or(View::ZERO, |state| state.view);
        let views = u64::try_from(committee.weak()).unwrap_or(u64::MAX);
        vec![(VOTE, replica.round.number.plus(rounds_ahead(committee))), (CBLOCK, view.plus(views))]
    }

    fn block(entry: &Vote) -> BlockId {
        entry.block
    }

    /// The blocks of a vote arrive with their coordinator's signature.
    fn learn(_: &UniqueChain<Self>, _: &mut Context<'_, Self>, _: &Vote) {}

    fn judge(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Vote) -> Verdict {
        replica.judge_vote(cx, entry)
    }

    fn on_accepted(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Vote) {
        replica.follow_vote(cx, entry);
    }

    fn height(replica: &UniqueChain<Self>, entry: &Vote) -> Height {
        let state = replica.state_after(entry.place()).or_else(|| replica.state_after(entry.parent()));
        let kept = replica.state.blocks.get(entry.block).map(|signed| signed.body.block.height);
        kept.or(state.map(|state| state.height)).unwrap_or_default()
    }

    fn on_round(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>) {
        replica.note_coordinator(cx);
        replica.try_vote(cx);
    }

    fn speak(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, _: IfIdle) {
        replica.try_emit(cx);
        replica.try_vote(cx);
    }

    /// The coordinator leads: it proposes all blocks, and clients' requests go to it.
    fn shown(replica: &UniqueChain<Self>) -> Shown {
        let opened = replica.state.opened_view;
        let view = replica.state_after(replica.entries.tip()).map_or(opened, |state| state.view);
        Shown {
            view,
            leader: replica.state.coordinator,
            changes: view.since(opened),
            reason: "f + 1 voters have flagged its coordinator, or it has equivocated",
        }
    }

    fn on_message(
        replica: &mut UniqueChain<Self>,
        cx: &mut Context<'_, Self>,
        message: ArtemisMessage,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject> {
        match message {
            ArtemisMessage::CBlock(body) => {
                let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
                // A8. §5: only the coordinator of its view signs a block.
                if seal.by != body.block.proposer {
                    return Err(Reject::WrongSender);
                }
                replica.on_cblock(cx, Signed { body, by: seal.by, signature }, link)
            }
            ArtemisMessage::WantBlocks { id, above } => replica.on_want_blocks(cx, link, id, above),
            ArtemisMessage::Blocks { blocks } => replica.on_blocks(cx, blocks, link),
            ArtemisMessage::BasePoints { points } => replica.on_base_points(cx, points, link),
        }
    }

    fn on_ready(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, block: BlockId) {
        replica.advance_best(cx, block);
        replica.accept_pending(cx);
        replica.try_vote(cx);
    }

    fn on_emit_timer(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>) {
        replica.try_emit(cx);
    }

    fn resume(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>) {
        replica.note_coordinator(cx);
        replica.resume_coordination(cx);
        cx.timers().cancel(Timer::Speak);
        replica.try_vote(cx);
    }

    /// §10: headers from the block up to the one that a vote is for, and signed votes of f + 1 distinct voters from it upwards.
    fn order_chain(replica: &UniqueChain<Self>, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        let vote = replica.first_vote_for(block)?;
        let votes = replica.entries.path_up(vote.id, committee.weak())?;
        let named = votes.first()?.entry.block;
        let blocks = replica.state.blocks.headers(block, named)?;
        let votes = votes.iter().map(|frame| frame.entry.signed(frame.signature)).collect();
        Some(OrderChain::Votes { blocks, votes })
    }

    /// The block is committed. The votes that have committed it arrive as at any replica, or above a base point.
    fn adopt(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, tip: Tip) {
        if tip.height > replica.chain.committed().height {
            replica.chain.commit(tip);
            replica.adopt_point(cx);
        }
    }

    fn on_unserved(
        replica: &mut UniqueChain<Self>,
        cx: &mut Context<'_, Self>,
        link: ReplicaId,
        above: View,
    ) {
        replica.show_points(cx, link, above);
    }
}

/// Rounds below the committed vote whose states are kept, for votes that extend these.
const STATES_KEPT: u64 = 1_024;
