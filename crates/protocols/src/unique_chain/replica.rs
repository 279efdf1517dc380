//! One replica of either form: the state that both have, the handlers of the host's events, and the trait of their differences.

use super::conflicts::Suspects;
use super::entry::{Entry, EntryRef, Framed, rounds_ahead};
use super::fetching::LateFetches;
use super::message::{OwnMessage, UniqueMessage};
use super::record::UniqueRecord;
use super::rounds::WaitingProof;
use super::store::{EntryStore, First};
use quorate_consensus::parts::answer_quota::AnswerQuota;
use quorate_consensus::parts::blames::{BLAME, Blames};
use quorate_consensus::parts::chain::{Chain, Tip, empty_payload};
use quorate_consensus::parts::guarded_wait::GuardedWait;
use quorate_consensus::parts::recovery::Recovery;
use quorate_consensus::parts::recovery_steps::Recovers;
use quorate_consensus::parts::synchrony::{Delta, SynchronyParams};
use quorate_consensus::{
    Abstention, AttackEntry, Certificate, CheckpointProof, Cx, Examined, Figures, Healed, LinkEvent, Note,
    OpenError, Past, Protocol, Ready, Record, Reject, Seal, Spec, Status, Synchrony, To, Verified, Window,
};
use quorate_types::{
    BlockId, Committee, Digest, Floors, Height, Incarnation, Kind, OrderChain, PayloadId, ReplicaId, Time,
    View, quorum,
};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Context of the handlers of a form.
pub(super) type Context<'a, F> = Cx<'a, UniqueChain<F>>;
/// Entry with signature of a form.
pub(super) type FramedOf<F> = Framed<<F as Form>::Entry>;
/// State from the log of a form.
pub(super) type PastOf<F> = Past<UniqueRecord<<F as Form>::Entry, <F as Form>::Fact>>;
/// Message of a form.
pub(super) type MessageOf<F> = UniqueMessage<<F as Form>::Entry, <F as Form>::Message>;

/// Rounds by which the guard's floors move: each step is an entry of the log.
const FLOOR_STEP: u64 = 64;

/// Windows above the stable checkpoint in which blocks carry requests.
const WINDOWS: u64 = 2;
/// Proofs that a peer receives in a Δ because it is behind.
const PROOFS_MAX: u32 = 4;
/// Entries that a peer receives in a Δ. An honest peer may lack one in each round of a Byzantine author.
const ENTRIES_SERVED_MAX: u32 = 16_384;

/// Notes in the trace.
pub(super) mod noted {
    pub(in super::super) const PROPOSED: &str = "proposed";
    /// A coordinator has signed a block.
    pub(in super::super) const EMITTED: &str = "emitted";
    pub(in super::super) const ACCEPTED: &str = "accepted";
    pub(in super::super) const COMMITTED: &str = "committed";
    pub(in super::super) const BLAMED: &str = "blamed";
    pub(in super::super) const SKIPPED: &str = "skipped a round";
    pub(in super::super) const INVALID: &str = "invalid entry";
    pub(in super::super) const VOTING: &str = "may vote again";
    pub(in super::super) const RUNNING: &str = "runs again";
    pub(in super::super) const SILENT: &str = "fell silent";
}

/// Whether the author of a round signs an entry although it has nothing to say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfIdle {
    /// Not yet: a request may arrive within a heartbeat.
    Wait,
    /// Yes: the others would blame its silence.
    Speak,
}

/// Timers of both forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Timer {
    /// The author of the round has sent no entry in time: blame it.
    Round,
    /// An idle author signs its entry.
    Speak,
    /// An idle coordinator emits an empty block (Artemis).
    Emit,
    /// Missing bodies are due to be asked for.
    Fetch,
    /// A recovering replica asks again, or has waited long enough.
    Recover,
}

/// The verdict on an entry whose parent is accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All rules hold, and all its blocks are complete.
    Valid,
    /// A rule is broken. All honest replicas give the same verdict.
    Invalid,
    /// Blocks or bodies are missing.
    Missing,
}

/// View and leader as others see them, and the changes that were no part of the good case.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The view.
    pub view: View,
    /// The leader, who proposes blocks.
    pub leader: ReplicaId,
    /// Number of unwanted changes since the replica was opened.
    pub changes: u64,
    /// The reason of the last one.
    pub reason: &'static str,
}

/// Rules and state in which the forms differ.
pub trait Form: Debug + Sized + Send + 'static {
    /// Name and properties.
    const SPEC: Spec;
    /// Costs of the good case.
    const FIGURES: Figures;
    /// Entries of the unique chain.
    type Entry: Entry;
    /// Messages of this form alone.
    type Message: OwnMessage<Self::Entry>;
    /// Durable facts of this form alone.
    type Fact: Record + Debug + Clone + PartialEq;
    /// State of this form alone.
    type State: Debug + Send;

    /// Whether [`Form::order_chain`] returns evidence.
    const PROVES_ORDER: bool = false;
    /// Returns the attacks on this form.
    const ATTACKS: &'static [AttackEntry];

    /// Returns the state of a replica that knows nothing yet.
    fn open(params: &SynchronyParams, past: &PastOf<Self>) -> Self::State;
    /// Restores one durable fact of this form.
    fn restore(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, fact: Self::Fact);
    /// Returns the time within which an honest author's entry arrives, from the first entry into its round on.
    fn round_ns(replica: &UniqueChain<Self>) -> u64;
    /// Returns the longest time to the first commit after the network has healed.
    fn recovery(params: &SynchronyParams, committee: &Committee, healed: &Healed) -> Time;
    /// Returns the committed entry as the log has it; `stable` is the last stable block.
    fn base(past: &PastOf<Self>, stable: Tip) -> EntryRef;
    /// Whether an accepted entry adds blocks with requests to its chain.
    fn carries_requests(replica: &UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Self::Entry)
    -> bool;
    /// Handles the commit of an entry.
    fn on_committed(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, base: EntryRef);
    /// Asks a peer for the missing blocks and bodies of entries of one chain, lowest rounds first.
    fn fetch(
        replica: &mut UniqueChain<Self>,
        cx: &mut Context<'_, Self>,
        entries: &[Self::Entry],
        link: ReplicaId,
    );
    /// Returns the kinds of statements with one slot in each view, and their lowest views that are not over.
    fn floors(replica: &UniqueChain<Self>, round: View) -> Vec<(Kind, View)>;
    /// Returns the kinds of statements that a replica without memory does not make, each with the last view (§22).
    fn forgotten(replica: &UniqueChain<Self>, committee: &Committee) -> Vec<(Kind, View)>;
    /// Returns the block that is committed with an entry.
    fn block(entry: &Self::Entry) -> BlockId;
    /// Notes the blocks that an entry names in the block tree.
    fn learn(replica: &UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Self::Entry);
    /// Returns the verdict on an entry whose parent is accepted.
    fn judge(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Self::Entry) -> Verdict;
    /// Handles the acceptance of an entry.
    fn on_accepted(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, entry: &Self::Entry);
    /// Returns the height of the block of an entry.
    fn height(replica: &UniqueChain<Self>, entry: &Self::Entry) -> Height;
    /// Handles a round that begins.
    fn on_round(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>);
    /// Signs the entry of the round, if this replica is its author and may.
    fn speak(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, if_idle: IfIdle);
    /// Returns view and leader as others see them.
    fn shown(replica: &UniqueChain<Self>) -> Shown;
    /// Handles a message of this form alone.
    ///
    /// # Errors
    /// The reason for which the message had no (further) effect.
    fn on_message(
        replica: &mut UniqueChain<Self>,
        cx: &mut Context<'_, Self>,
        message: Self::Message,
        seal: Seal,
        link: ReplicaId,
    ) -> Result<(), Reject>;
    /// Handles a block that is complete.
    fn on_ready(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, block: BlockId);
    /// Handles a timer of this form alone.
    fn on_emit_timer(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>);
    /// Begins the own work anew: silence is over.
    fn resume(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>);
    /// Handles a peer's question for entries above a round that are no longer served.
    fn on_unserved(
        replica: &mut UniqueChain<Self>,
        cx: &mut Context<'_, Self>,
        link: ReplicaId,
        above: View,
    ) {
        let _ = (replica, cx, link, above);
    }
    /// Takes over a block that was decided without this replica's own rules.
    fn adopt(replica: &mut UniqueChain<Self>, cx: &mut Context<'_, Self>, tip: Tip);

    /// Returns evidence that a decided block is committed; see [`Protocol::order_chain`].
    fn order_chain(replica: &UniqueChain<Self>, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        let _ = (replica, committee, block);
        None
    }
}

/// State of the current round. A change of the round replaces it.
#[derive(Debug, Default)]
pub(super) struct InRound {
    /// The round.
    pub(super) number: View,
    /// The wait after which its author is blamed; `None` for a silent replica.
    pub(super) wait: Option<GuardedWait>,
    /// Whether the wait was prolonged for a fetch from the author: once.
    pub(super) graced: bool,
    /// The begin of the first wait; `None` for a silent replica.
    pub(super) entered: Option<Time>,
}

/// The last own entry.
#[derive(Debug)]
pub(super) struct OwnEntry<E> {
    pub(super) entry: E,
    pub(super) skips: Vec<Certificate>,
    /// Whether it was signed since this replica was opened, so in time, and no skip certificate of its round is known.
    pub(super) is_fresh: bool,
}

/// A replica of one form.
#[derive(Debug)]
pub struct UniqueChain<F: Form> {
    pub(super) delta: Delta,
    pub(super) heartbeat_ns: u64,
    /// Values of genesis.
    pub(super) genesis: FromGenesis,
    /// Height of the last stable checkpoint.
    pub(super) stable: Height,
    pub(super) chain: Chain,
    pub(super) round: InRound,
    /// Author of the round.
    pub(super) leader: ReplicaId,
    pub(super) entries: EntryStore<F::Entry>,
    /// Skip certificates of rounds above the tip.
    pub(super) skips: BTreeMap<View, Certificate>,
    pub(super) blames: Blames,
    pub(super) inbox: Inbox<F::Entry>,
    pub(super) own: Option<OwnEntry<F::Entry>>,
    pub(super) recovery: Recovery,
    /// Proofs and entries sent to each peer lately.
    pub(super) served: Served,
    pub(super) late_fetches: LateFetches,
    pub(super) signs: Signs,
    /// Round of the entry that has committed the committed one; `None` where others have decided it, or before a restart.
    pub(super) committed_by: Option<View>,
    /// State of the form.
    pub(super) state: F::State,
    /// Relays until this round are flagged: this replica has recovered lately.
    pub(super) resync_until: View,
}

/// Values of genesis that a replica needs.
#[derive(Debug)]
pub(super) struct FromGenesis {
    /// L.
    pub(super) window: u64,
    /// K.
    pub(super) checkpoint_every: u64,
    /// Payload of blocks without requests.
    pub(super) empty: PayloadId,
}

/// Signs that authors are late, or that the bound on delays does not hold.
#[derive(Debug, Default)]
pub(super) struct Signs {
    pub(super) suspects: Suspects,
    /// The last own blame, and its time.
    pub(super) blamed: Option<(View, Time)>,
    /// Rounds that were skipped since this replica was opened.
    pub(super) skipped: u64,
}

/// Messages of each peer that wait: one of each sort.
#[derive(Debug)]
pub(super) struct Inbox<E> {
    /// Proofs of later rounds whose tips are not accepted.
    pub(super) proofs: BTreeMap<ReplicaId, WaitingProof>,
    /// Entries of rounds far ahead.
    pub(super) far: BTreeMap<ReplicaId, Framed<E>>,
    /// Entries that each peer was asked for last, and when.
    pub(super) asked: BTreeMap<ReplicaId, (Digest, Time)>,
}

/// Limits on answers to each peer in a Δ.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) proofs: AnswerQuota,
    pub(super) entries: AnswerQuota,
}

impl<F: Form> Protocol for UniqueChain<F> {
    const SPEC: Spec = F::SPEC;
    const PROVES_ORDER: bool = F::PROVES_ORDER;
    type Message = MessageOf<F>;
    type Timer = Timer;
    type Record = UniqueRecord<F::Entry, F::Fact>;
    type Params = SynchronyParams;

    fn open(
        cx: &mut Cx<'_, Self>,
        params: SynchronyParams,
        past: Past<Self::Record>,
    ) -> Result<Self, OpenError> {
        let (n, f) = (cx.committee().n(), cx.committee().f);
        if f > quorum::synchronous_faults(n) {
            let name = F::SPEC.name;
            return Err(OpenError::Committee(format!("{name} needs n >= 2f + 1, not n = {n} and f = {f}")));
        }
        params.check()?;
        let mut replica = Self::new(&params, &past, cx.now());
        for (height, id) in past.decided {
            replica.chain.note_decided(height, id);
        }
        replica.adopt_decided(cx);
        for record in past.records {
            replica.restore(cx, record);
        }
        let first = replica.entries.base().round.next();
        replica.begin_round(cx, first);
        replica.accept_pending(cx);
        replica.continue_recovery(cx);
        Ok(replica)
    }

    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<Self::Message>) -> Result<(), Reject> {
        let link = message.link();
        let (message, seal) = message.into_parts();
        match message {
            UniqueMessage::Entry { entry, skips } => {
                let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
                // U3. §4: only the author of its round signs an entry.
                if seal.by != entry.author() {
                    return Err(Reject::WrongSender);
                }
                self.on_entry(cx, Framed { entry, skips, signature }, link)
            }
            UniqueMessage::Proof(proof) => self.on_proof(cx, *proof, link),
            UniqueMessage::Blame(proof) => self.on_blame(cx, seal, *proof, link),
            UniqueMessage::Want { id, above } => self.on_want(cx, link, id, above),
            UniqueMessage::Entries { entries } => self.on_entries(cx, entries, link),
            UniqueMessage::Ask { incarnation, proof } => {
                let _: Result<(), Reject> = self.take_proof(cx, *proof, link);
                self.on_ask(cx, link, incarnation, Height::ZERO)?;
                self.repeat_own(cx, link);
                Ok(())
            }
            UniqueMessage::Answer(answer) => self.on_answer(cx, link, *answer),
            UniqueMessage::Own(message) => F::on_message(self, cx, message, seal, link),
        }
    }

    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Timer) {
        match timer {
            Timer::Round => self.step_wait(cx),
            Timer::Speak => F::speak(self, cx, IfIdle::Speak),
            Timer::Emit => F::on_emit_timer(self, cx),
            Timer::Fetch => self.on_fetch_timer(cx),
            Timer::Recover => self.continue_recovery(cx),
        }
    }

    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, _how: Ready) {
        self.adopt_decided(cx);
        F::on_ready(self, cx, block);
    }

    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        F::speak(self, cx, IfIdle::Wait);
    }

    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, _height: Height, _fresh: u32) {
        F::speak(self, cx, IfIdle::Wait);
    }

    fn show(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let report = self.report(cx.me(), Incarnation::ZERO, Height::ZERO);
        cx.send_unheld(To::One(peer), report);
    }

    /// The round, not the coordinator's view.
    fn proven_view(&self) -> View {
        self.round.number
    }

    /// Coordinators' blocks have the numbers of views.
    fn shown_floors(&self) -> Vec<(Kind, View)> {
        F::floors(self, self.round.number)
    }

    /// `apollo` §22, `artemis` §20: no entry in rounds up to R + n. Rounds that this replica has entered before it is back have
    /// no full wait, so it blames nobody in them.
    fn abstain(&self, cx: &mut Cx<'_, Self>) -> Abstention {
        let mut bounds = Abstention::up_to(&[BLAME], self.round.number, Height::ZERO);
        let forgotten = F::forgotten(self, cx.committee());
        bounds.floors.views.extend(forgotten.into_iter().map(|(kind, last)| (kind, last.next())));
        bounds
    }

    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        self.chain.note_decided(height, block);
        self.adopt_decided(cx);
    }

    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, proof: &CheckpointProof) {
        let stable = &proof.checkpoint;
        if stable.height <= self.stable {
            return;
        }
        self.stable = stable.height;
        if stable.height > self.chain.committed().height {
            F::adopt(self, cx, Tip { view: stable.view, height: stable.height, id: stable.block });
        }
        F::speak(self, cx, IfIdle::Wait);
    }

    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, event: LinkEvent) {
        match event {
            LinkEvent::Gap => self.on_gap(cx, peer),
            LinkEvent::Back => self.on_connected(cx, peer),
        }
    }

    fn on_sound(&mut self, cx: &mut Cx<'_, Self>) {
        self.step_wait(cx);
    }

    fn synchrony(params: &SynchronyParams) -> Option<Synchrony> {
        Some(params.synchrony())
    }

    /// Blames and proofs of rounds that are over must reach a handler, or nobody would help their senders.
    fn window(&self) -> Window {
        let views = View::ZERO..View::MAX;
        Window { views, heights: self.stable.min(self.chain.committed().height)..Height::MAX }
    }

    fn floors(&self) -> Floors {
        // Rounds below the committed entry's minus n are over: nobody signs in them again.
        let floor = self.entries.base().round.minus(FLOOR_STEP);
        let floor = View(floor.0.saturating_sub(floor.0 % FLOOR_STEP));
        Floors { height: self.stable, views: F::floors(self, floor) }
    }

    fn status(&self) -> Status {
        let shown = F::shown(self);
        Status {
            view: shown.view,
            leader: shown.leader,
            normal: !self.recovery.is_silent(),
            locked: Height::ZERO,
            committed: self.chain.committed().height,
            last_view_change: if shown.changes > 0 { shown.reason } else { "" },
            view_changes: shown.changes,
            patience_ns: 0,
        }
    }

    fn order_chain(&self, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        F::order_chain(self, committee, block)
    }
}

impl<F: Form> Examined for UniqueChain<F> {
    const FIGURES: Option<Figures> = Some(F::FIGURES);
    const ATTACKS: &'static [AttackEntry] = F::ATTACKS;

    fn recovery(params: &SynchronyParams, committee: &Committee, healed: &Healed) -> Time {
        F::recovery(params, committee, healed)
    }

    fn exam_params(delta_ns: u64, guarded: bool) -> SynchronyParams {
        SynchronyParams::exam(delta_ns, guarded)
    }
}

impl<F: Form> UniqueChain<F> {
    fn new(params: &SynchronyParams, past: &PastOf<F>, now: Time) -> Self {
        let stable = past.checkpoint.checkpoint;
        let tip = Tip { view: stable.view, height: stable.height, id: stable.block };
        Self {
            delta: params.delta(),
            heartbeat_ns: params.heartbeat_ns(),
            genesis: FromGenesis {
                window: past.window,
                checkpoint_every: past.checkpoint_every,
                empty: empty_payload(),
            },
            stable: stable.height,
            chain: Chain::new(tip),
            round: InRound::default(),
            leader: ReplicaId(0),
            entries: EntryStore::new(F::base(past, tip)),
            skips: BTreeMap::new(),
            blames: Blames::default(),
            inbox: Inbox { proofs: BTreeMap::new(), far: BTreeMap::new(), asked: BTreeMap::new() },
            own: None,
            recovery: Recovery::open(params, past.incarnation, now),
            served: Served {
                proofs: AnswerQuota::new(PROOFS_MAX),
                entries: AnswerQuota::new(ENTRIES_SERVED_MAX),
            },
            late_fetches: LateFetches::default(),
            signs: Signs::default(),
            committed_by: None,
            state: F::open(params, past),
            resync_until: View::ZERO,
        }
    }

    fn restore(&mut self, cx: &mut Cx<'_, Self>, record: UniqueRecord<F::Entry, F::Fact>) {
        match record {
            UniqueRecord::Own { entry, skips } => {
                self.own = Some(OwnEntry { entry, skips, is_fresh: false });
            }
            UniqueRecord::Accepted { frame, .. } => {
                let (place, author) = (frame.entry.place(), frame.entry.author());
                if place.round > self.entries.base().round {
                    F::learn(self, cx, &frame.entry);
                    let first = First { id: place.id, signature: frame.signature };
                    self.entries.note_first(place.round, first);
                    self.entries.keep(frame, author);
                } else {
                    // Peers may have lost entries that this replica has committed.
                    self.entries.keep(frame, author);
                    self.entries.accept(place.id);
                }
            }
            UniqueRecord::Form(fact) => F::restore(self, cx, fact),
        }
    }

    /// Moves the committed end on to blocks that were decided without this replica's own rules.
    pub(super) fn adopt_decided(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(tip) = self.chain.decided(cx.blocks()) {
            F::adopt(self, cx, tip);
        }
    }

    /// Returns the state of a block; genesis and the committed block need nothing.
    pub(super) fn ready(&self, cx: &Cx<'_, Self>, id: BlockId) -> Option<Ready> {
        if id == BlockId::ZERO || id == self.chain.committed().id { Some(Ready::Valid) } else { cx.ready(id) }
    }

    /// Whether a block on top of this height carries no requests, because too many blocks are above the stable checkpoint.
    /// Empty blocks follow each other whatever the height: more than one window, or they alone could keep requests out.
    pub(super) fn is_full(&self, height: Height) -> bool {
        height.since(self.stable) >= self.genesis.window.saturating_mul(WINDOWS)
    }

    /// Returns the last round in which this replica has signed an entry.
    pub(super) fn own_round(&self) -> View {
        self.own.as_ref().map_or(View::ZERO, |own| own.entry.round())
    }

    /// Whether this replica signs the entry of the current round now: it is the author, and has not signed yet.
    pub(super) fn is_due_to_speak(&self, me: ReplicaId) -> bool {
        self.leader == me && !self.recovery.is_silent() && self.own_round() < self.round.number
    }

    /// Whether a round is far ahead: an entry of it is kept only as the newest of its peer.
    pub(super) fn is_far(&self, cx: &Cx<'_, Self>, round: View) -> bool {
        round > self.round.number.plus(rounds_ahead(cx.committee()))
    }

    pub(super) fn note(&self, cx: &mut Cx<'_, Self>, what: &'static str, view: View, height: Height) {
        cx.note(Note { what, view, height });
    }
}
