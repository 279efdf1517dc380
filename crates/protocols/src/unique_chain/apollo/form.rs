//! Apollo as a form of the unique chain: blocks are entries, and each leader proposes once (§4, §5).

use super::super::entry::{Entry, EntryRef, rounds_ahead, skips_digest};
use super::super::figures;
use super::super::message::UniqueMessage;
use super::super::record::UniqueRecord;
use super::super::replica::{
    Context, Form, IfIdle, OwnEntry, PastOf, Shown, Timer, UniqueChain, Verdict, noted,
};
use super::super::statements::{PROPOSE, SPEC};
use super::proposal::{NoFact, NoMessage, Proposal};
use quorate_consensus::parts::chain::{Below, Tip};
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{AttackEntry, Figures, Healed, Ready, Reject, Seal, Spec, To};
use quorate_types::limits::ORDER_LINKS_MAX;
use quorate_types::{
    Block, BlockId, Committee, Height, Kind, OrderChain, ReplicaId, SignedBlock, Time, View,
};

/// Marker type of Apollo.
#[derive(Debug)]
pub enum Apollo {}

impl Form for Apollo {
    const SPEC: Spec = SPEC;
    const FIGURES: Figures = figures::APOLLO;
    const ATTACKS: &'static [AttackEntry] = super::attacks::ATTACKS;
    const PROVES_ORDER: bool = true;
    type Entry = Proposal;
    type Message = NoMessage;
    type Fact = NoFact;
    type State = ();

    fn open(_: &SynchronyParams, _: &PastOf<Self>) {}

    fn restore(_: &mut UniqueChain<Self>, _: &mut Context<'_, Self>, fact: NoFact) {
        match fact {}
    }

    /// §6: relay Δ, fetch of its tip's chain 2 Δ, τ, proposal Δ.
    fn round_ns(replica: &UniqueChain<Self>) -> u64 {
        replica.delta.times(4).saturating_add(replica.heartbeat_ns)
    }

    /// §21: f + 2 rounds of 18 Δ + 2 τ, and n good ones of 6 Δ + τ.
    fn recovery(params: &SynchronyParams, committee: &Committee, healed: &Healed) -> Time {
        let bad = params.recovery(committee, healed, 18, committee.f.saturating_add(2));
        let good = params.delta().times(6).saturating_add(params.heartbeat_ns());
        let n = u64::try_from(committee.n()).unwrap_or(u64::MAX);
        bad.plus(good.saturating_mul(n))
    }

    fn base(_: &PastOf<Self>, stable: Tip) -> EntryRef {
        EntryRef { round: stable.view, id: stable.id.0 }
    }

    fn carries_requests(replica: &UniqueChain<Self>, _: &mut Context<'_, Self>, entry: &Proposal) -> bool {
        entry.block.payload != replica.genesis.empty
    }

    fn on_committed(_: &mut UniqueChain<Self>, _: &mut Context<'_, Self>, _: EntryRef) {}

    fn fetch(
        replica: &mut UniqueChain<Self>,
        cx: &mut Context<'_, Self>,
        entries: &[Proposal],
        link: ReplicaId,
    ) {
        // A3. A block that was not learned is not asked for.
        for id in entries.iter().map(|entry| entry.block.id()) {
            if cx.blocks().contains(id) && replica.ready(cx, id).is_none() {
                cx.want(id, link);
            }
        }
    }

    fn floors(_: &UniqueChain<Self>, round: View) -> Vec<(Kind, View)> {
        vec![(PROPOSE, round)]
    }

    fn forgotten(replica: &UniqueChain<Self>, committee: &Committee) -> Vec<(Kind, View)> {
        vec![(PROPOSE, replica.round.number.plus(rounds_ahead(committee)))]
    }

    fn block(entry: &Proposal) -> BlockId {
        entry.block.id()
    }

    /// A3. Each round adds one height at most. A higher block extends nothing, and would stay among the known blocks for good.
    fn learn(replica: &UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Proposal) {
        let rounds = entry.block.view.since(replica.entries.base().round);
        if entry.block.height <= replica.chain.committed().height.plus(rounds) {
            cx.blocks().insert(entry.block.clone());
        }
    }

    /// §4, accept: a block extends its parent by one height, and its bodies and those of its ancestors are here and valid.
    fn judge(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Proposal) -> Verdict {
        let below = replica.height_of(entry.parent());
        if below.map(Height::next) != Some(entry.block.height) {
            return Verdict::Invalid;
        }
        match replica.ready(cx, entry.block.id()) {
            Some(Ready::Valid) => Verdict::Valid,
            Some(Ready::Invalid | Ready::Unvouched) => Verdict::Invalid,
            None => Verdict::Missing,
        }
    }

    fn on_accepted(_: &mut UniqueChain<Self>, _: &mut Context<'_, Self>, _: &Proposal) {}

    fn height(_: &UniqueChain<Self>, entry: &Proposal) -> Height {
        entry.block.height
    }

    fn on_round(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>) {
        Self::speak(replica, cx, IfIdle::Wait);
    }

    /// §5, propose: as soon as a payload is ready, at once if the chain has requests that are not committed, and after τ in any
    /// case.
    fn speak(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, if_idle: IfIdle) {
        if !replica.is_due_to_speak(cx.me()) {
            return;
        }
        let Some((proof, tip)) = replica.proof().zip(replica.tip_block()) else { return };
        // With a full window the leader still proposes empty blocks: earlier ones are committed by them.
        let payload = if replica.is_full(tip.height) { None } else { cx.payload_after(tip.id) };
        if payload.is_none() && if_idle == IfIdle::Wait && !replica.has_uncommitted_requests(cx, tip) {
            if cx.timers().get(Timer::Speak).is_none() {
                let at = cx.now().plus(replica.heartbeat_ns);
                cx.timers().set(Timer::Speak, at);
            }
            return;
        }
        cx.timers().cancel(Timer::Speak);
        let (round, skips) = (proof.round, proof.skips);
        let block = Block {
            parent: tip.id,
            height: tip.height.next(),
            view: round,
            proposer: cx.me(),
            time_ns: payload.map_or(0, |payload| payload.time_ns),
            payload: payload.map_or(replica.genesis.empty, |payload| payload.id),
            extra: Proposal::bind(tip.view, skips_digest(&skips)),
        };
        replica.note(cx, noted::PROPOSED, round, block.height);
        cx.blocks().insert(block.clone());
        let entry = Proposal { block, parent_round: tip.view };
        replica.own = Some(OwnEntry { entry: entry.clone(), skips: skips.clone(), is_fresh: true });
        // One entry in a round: durable before it leaves (§3).
        cx.record(&UniqueRecord::Own { entry: entry.clone(), skips: skips.clone() });
        cx.send(To::All, UniqueMessage::Entry { entry, skips });
    }

    fn shown(replica: &UniqueChain<Self>) -> Shown {
        Shown {
            view: replica.round.number,
            leader: replica.leader,
            changes: replica.signs.skipped,
            reason: noted::SKIPPED,
        }
    }

    fn on_message(
        _: &mut UniqueChain<Self>,
        _: &mut Context<'_, Self>,
        message: NoMessage,
        _: Seal,
        _: ReplicaId,
    ) -> Result<(), Reject> {
        match message {}
    }

    fn on_ready(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, block: BlockId) {
        replica.accept_from(cx, block.0);
    }

    fn on_emit_timer(_: &mut UniqueChain<Self>, _: &mut Context<'_, Self>) {}

    fn resume(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>) {
        Self::speak(replica, cx, IfIdle::Wait);
    }

    /// A block that f + 1 peers have decided is accepted: an honest one has checked it and all below it. Its entry may be
    /// unknown; then nothing is proved before a later entry is accepted.
    fn adopt(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, tip: Tip) {
        if tip.height <= replica.chain.committed().height {
            return;
        }
        replica.chain.commit(tip);
        replica.committed_by = None;
        replica.adopt_base(cx, EntryRef { round: tip.view, id: tip.id.0 });
    }

    /// §10: signed headers from the block upwards, until f + 1 distinct leaders have signed.
    fn order_chain(replica: &UniqueChain<Self>, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        let path = replica.entries.path_up(block.0, committee.weak())?;
        let links = path
            .iter()
            .map(|frame| SignedBlock { block: frame.entry.block.clone(), signature: frame.signature });
        (path.len() <= ORDER_LINKS_MAX).then(|| OrderChain::Blocks(links.collect()))
    }
}

impl UniqueChain<Apollo> {
    /// Returns the height of an accepted block.
    fn height_of(&self, entry: EntryRef) -> Option<Height> {
        if entry == EntryRef::GENESIS {
            return Some(Height::ZERO);
        }
        let kept = self.entries.get(entry.id).map(|frame| frame.entry.block.height);
        kept.or_else(|| (entry == self.entries.base()).then(|| self.chain.committed().height))
    }

    /// Returns the accepted block of the highest round.
    fn tip_block(&self) -> Option<Tip> {
        let place = self.entries.tip();
        Some(Tip { view: place.round, height: self.height_of(place)?, id: BlockId(place.id) })
    }

    /// Whether a chain has requests above the committed block.
    fn has_uncommitted_requests(&self, cx: &mut Context<'_, Apollo>, tip: Tip) -> bool {
        let mut at = tip;
        while at.height > self.chain.committed().height {
            if cx.blocks().get(at.id).is_some_and(|block| block.payload != self.genesis.empty) {
                return true;
            }
            let Below::Block(parent) = self.chain.below(cx.blocks(), at) else { return false };
            at = parent;
        }
        false
    }
}
