//! The contract: a protocol and the calls that its handlers may make.
//!
//! [`Protocol`] and [`Cx`] name each other: a handler takes the `Cx` of its own protocol, and a `Cx` offers the message,
//! timer and record types of that protocol. They stand in one file for that reason.

use crate::amnesia::Abstention;
use crate::effect::{Commit, Effect, Evidence, Hold, Note, To};
#[cfg(feature = "harness")]
use crate::host_view::FreshnessOverride;
use crate::host_view::{Env, HostView, PayloadRef, Pending, Ready};
use crate::message::{Message, Verified};
use crate::parts::block_tree::BlockTree;
use crate::parts::certificate::CheckpointProof;
use crate::past::{OpenError, Past};
use crate::record::Record;
use crate::reject::{Alarm, Reject};
use crate::spec::{Spec, Synchrony};
use crate::status::{Status, Window};
use crate::timers::Timers;
use quorate_types::{BlockId, Committee, Floors, Height, Kind, OrderChain, ReplicaId, Time, View, Wire};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;

/// A protocol: one state machine of handlers.
///
/// A handler never waits, never reads a clock and never sees an unchecked signature. It acts through [`Cx`] alone.
pub trait Protocol: Sized + Send + 'static {
    /// Properties that the host and the documentation need.
    const SPEC: Spec;
    /// Whether [`Protocol::order_chain`] returns evidence.
    const PROVES_ORDER: bool = false;
    /// Messages between replicas.
    type Message: Message;
    /// Timers of the protocol.
    type Timer: Copy + Ord + Debug + Send;
    /// Durable state whose loss would allow equivocation: locks, entered views.
    type Record: Record;
    /// Parameters. Genesis holds those named in `Spec::shared_params`, and `node.toml` the others. No file holds those
    /// named in `Examined::EXAM_ONLY`.
    type Params: Default + Serialize + DeserializeOwned;

    /// Starts the protocol, at the first start or with state from the log.
    ///
    /// # Errors
    /// When a parameter is out of range, the committee does not suit, or the state from the log is inconsistent.
    fn open(cx: &mut Cx<'_, Self>, params: Self::Params, past: Past<Self::Record>)
    -> Result<Self, OpenError>;

    /// Handles a verified message, or the own copy of a sent message.
    ///
    /// # Errors
    /// The reason for which the handler did nothing, or nothing more. Effects made before the error stand.
    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<Self::Message>) -> Result<(), Reject>;

    /// Handles a timer that is due.
    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Self::Timer);

    /// Handles a block that has become ready: it, its ancestors up to the root and all their bodies are available and
    /// checked.
    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready);

    /// Handles a change of the pool: clients wait, or the oldest waiting bundle is another one.
    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// Handles the execution of a height; `fresh` requests were applied for the first time.
    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, height: Height, fresh: u32) {
        let _ = (cx, height, fresh);
    }

    /// Handles a decision that f + 1 peers report and that the protocol itself has not made.
    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        let _ = (cx, height, block);
    }

    /// Handles a newer stable checkpoint, whose proof is durable: advance watermarks, prune.
    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, stable: &CheckpointProof) {
        let _ = (cx, stable);
    }

    /// Handles an event of the link to a peer.
    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, event: LinkEvent) {
        let _ = (cx, peer, event);
    }

    /// Handles a possible change of the answer of [`Cx::sound`], in synchronous protocols: doubt has begun or ended, or
    /// answers to probes have arrived that an earlier call lacked.
    fn on_sound(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// Shows a peer that has lost its disk all that proves this replica's view and its highest certificate. The host sends
    /// its own answer after these messages.
    fn show(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId) {
        let _ = (cx, peer);
    }

    /// Returns the view that [`Protocol::show`] proves: the highest one in which this replica may have made a statement.
    fn proven_view(&self) -> View {
        self.status().view
    }

    /// Returns the kinds of statements whose numbers [`Protocol::show`] has shown, each with the lowest number in which this
    /// replica makes a statement after a restart. Kinds may count in different numbers, such as rounds and views.
    fn shown_floors(&self) -> Vec<(Kind, View)> {
        let view = self.proven_view();
        self.floors().views.into_iter().map(|(kind, _)| (kind, view)).collect()
    }

    /// Asks the others to leave the present view, because a replica that has lost its disk waits for a later one. For
    /// protocols whose views do not move by themselves.
    fn leave_view(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// Returns the bounds of the promises that this replica may have forgotten: section "After amnesia" of its
    /// specification. n - f others have shown all they know ([`Protocol::show`]), and this replica has handled it.
    fn abstain(&self, cx: &mut Cx<'_, Self>) -> Abstention {
        let _ = cx;
        Abstention::FOR_EVER
    }

    /// Adopts what n - f others have shown as what this replica must not contradict, such as a lock. Its statements count
    /// again from here on. Returns false as long as something is missing; the host asks again.
    fn remember(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let _ = cx;
        true
    }

    /// Returns the needs of the host's synchrony guard; `None` for protocols that assume no bound on delays.
    fn synchrony(params: &Self::Params) -> Option<Synchrony> {
        let _ = params;
        None
    }

    /// Returns the views and heights whose messages are worth verifying now.
    fn window(&self) -> Window;

    /// Returns the views and heights below which a slot is dead.
    fn floors(&self) -> Floors;

    /// Returns the present state, for people, oracles and clients.
    fn status(&self) -> Status;

    /// Returns evidence for clients that a decided block is committed. The first header of the evidence is that of the block.
    ///
    /// The evidence is complete when the block is committed: the host asks from then on, and may ask as long as the block is
    /// above the stable checkpoint. `None` without proofs of order, and where the evidence is unknown or no longer kept.
    fn order_chain(&self, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        let _ = (committee, block);
        None
    }
}

/// An event of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// Frames between this replica and the peer were lost for good. Where safety rests on a bound on delays, only a loss of
    /// the peer's own messages counts.
    Gap,
    /// The link is up again, or its loss does no harm: the host requests the frames anew, or the peer hears of the loss.
    Back,
}

/// All that a handler of `P` can see and do. No call waits.
pub struct Cx<'a, P: Protocol> {
    now: Time,
    me: ReplicaId,
    committee: &'a Arc<Committee>,
    blocks: &'a mut BlockTree,
    host: &'a mut dyn HostView,
    effects: &'a mut Vec<Effect>,
    timers: &'a mut Timers<P::Timer>,
}

impl<'a, P: Protocol> Cx<'a, P> {
    pub(crate) fn new(env: &'a mut Env<'_>, timers: &'a mut Timers<P::Timer>) -> Self {
        Self {
            now: env.now,
            me: env.me,
            committee: env.committee,
            blocks: env.blocks,
            host: env.host,
            effects: env.effects,
            timers,
        }
    }

    /// Lends the context to another protocol with the same timers, at time `now`. `fresh` replaces the second argument
    /// of [`Cx::sound`].
    #[cfg(feature = "harness")]
    pub(crate) fn lend<Q: Protocol<Timer = P::Timer>, R>(
        &mut self,
        now: Time,
        fresh: fn(Time) -> Time,
        with: impl FnOnce(&mut Cx<'_, Q>) -> R,
    ) -> R {
        let Self { me, committee, blocks, host, effects, timers, .. } = self;
        let mut host = FreshnessOverride { host: *host, fresh };
        with(&mut Cx { now, me: *me, committee, blocks, host: &mut host, effects, timers })
    }

    /// Returns the effects of this event so far.
    #[cfg(feature = "harness")]
    pub(crate) fn effects(&mut self) -> &mut Vec<Effect> {
        self.effects
    }

    /// Returns the time of this event.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }
    /// Returns the id of this replica.
    #[must_use]
    pub fn me(&self) -> ReplicaId {
        self.me
    }
    /// Returns the committee, borrowed for as long as the event: handlers may keep it across other calls.
    #[must_use]
    pub fn committee(&self) -> &'a Committee {
        self.committee
    }
    /// Returns the known blocks.
    pub fn blocks(&mut self) -> &mut BlockTree {
        self.blocks
    }
    /// Returns the timers, to be set, cancelled and retained.
    pub fn timers(&mut self) -> &mut Timers<P::Timer> {
        self.timers
    }

    /// Returns the state of a block once it, its ancestors up to the root and all their bodies are available and
    /// checked; `None` while something is missing.
    #[must_use]
    pub fn ready(&self, block: BlockId) -> Option<Ready> {
        self.host.ready(self.blocks, block)
    }
    /// Returns the bytes of the bodies of a ready block, and 0 once it is executed.
    #[must_use]
    pub fn body_bytes(&self, block: BlockId) -> usize {
        self.host.body_bytes(block)
    }
    /// Fetches the missing parts of a block from a replica. [`Protocol::on_ready`] answers. Idempotent per block and peer.
    pub fn want(&mut self, block: BlockId, from: ReplicaId) {
        self.effects.push(Effect::Want(block, from));
    }
    /// Returns the state of the pool.
    #[must_use]
    pub fn pending(&self) -> Pending {
        self.host.pending()
    }
    /// Returns the next payload for a block that extends `parent`: oldest first, fair over clients. The payload omits the
    /// bundles of uncommitted ancestors and of own undecided blocks. `None` also when execution lags.
    pub fn payload_after(&mut self, parent: BlockId) -> Option<PayloadRef> {
        self.host.payload_after(self.now, self.blocks, parent)
    }
    /// Marks the content of this block as proposed: [`Cx::payload_after`] omits it as long as the view lasts. A leader
    /// calls it for blocks of earlier leaders that it takes over. Without effect while the block is not ready.
    pub fn already_proposed(&mut self, block: BlockId) {
        self.host.already_proposed(self.blocks, block);
    }
    /// Returns whether the bound on delays held. Two conditions: at most f peers were late at each moment from `since`
    /// on, that moment included; and n - f - 1 peers answered in time a probe sent at or after `fresh`. Always true for
    /// protocols that assume no bound.
    ///
    /// When only the answers are missing, the host probes all peers at once, unless it has probed since `fresh`. It calls
    /// [`Protocol::on_sound`] when they have arrived, and the protocol asks again. Doubt about one `since` never ends: a
    /// protocol needs a later `since`. At the very moment at which doubt ends there still is doubt.
    #[must_use]
    pub fn sound(&mut self, since: Time, fresh: Time) -> bool {
        self.host.sound(self.now, since, fresh)
    }

    /// Makes a fact survive a crash: it is durable before any held message sent from here on leaves.
    pub fn record(&mut self, record: &P::Record) {
        let mut bytes = Vec::with_capacity(96);
        record.encode(&mut bytes);
        self.effects.push(Effect::Record { key: record.key(), bytes });
    }
    /// Sends a message once everything recorded so far is durable. The message returns once as the own copy.
    pub fn send(&mut self, to: To, message: P::Message) {
        self.effects.push(Effect::Send { to, hold: Hold::UntilDurable, message: Box::new(message) });
    }
    /// Drops held messages of this kind and view; their slot stays used. A protocol calls it when a message has arrived
    /// that would have forbidden them. Messages that have left are not affected.
    pub fn withdraw(&mut self, kind: Kind, view: View) {
        self.effects.push(Effect::Withdraw(kind, view));
    }
    /// Announces on disk that this replica may send a message of this kind in this view. After a restart the replica
    /// sends no message of the kind in this view or an earlier one: it loses its vote there and nothing more.
    ///
    /// The reservation is durable with the next promise. [`Cx::send_reserved`] then needs no sync of its own.
    pub fn reserve(&mut self, kind: Kind, view: View) {
        self.effects.push(Effect::Reserve(kind, view));
    }
    /// Sends a message once the reservation of its slot is durable, which may long be the case. The same as [`Cx::send`]
    /// without a reservation. Facts recorded in the same step may become durable after the message has left.
    pub fn send_reserved(&mut self, to: To, message: P::Message) {
        self.effects.push(Effect::Send { to, hold: Hold::Reserved, message: Box::new(message) });
    }
    /// Sends a message at once: relays, evidence, forwards, suspicions. The host refuses messages that may fill their
    /// slot only `once`.
    pub fn send_unheld(&mut self, to: To, message: P::Message) {
        self.effects.push(Effect::Send { to, hold: Hold::No, message: Box::new(message) });
    }
    /// Decides blocks.
    pub fn commit(&mut self, what: Commit) {
        if let Commit::Chain(block) = what {
            self.host.chain_decided(self.blocks, block);
        }
        self.effects.push(Effect::Commit(what));
    }
    /// Hands over the proof of a newer stable checkpoint that a peer has sent.
    pub fn catch_up(&mut self, proof: &CheckpointProof) {
        self.effects.push(Effect::CatchUp(Box::new(proof.clone())));
    }
    /// Makes the intake read the messages of this peer first, until the next call.
    pub fn urgent(&mut self, peer: Option<ReplicaId>) {
        self.effects.push(Effect::Urgent(peer));
    }
    /// Reports a replica that has signed two statements for one slot.
    pub fn accuse(&mut self, evidence: Evidence) {
        self.effects.push(Effect::Accuse(Box::new(evidence)));
    }
    /// Raises an alarm. [`Alarm::stops`] decides whether the replica stops.
    pub fn alarm(&mut self, what: Alarm) {
        self.effects.push(Effect::Alarm(what));
    }
    /// Writes a line of the trace.
    pub fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }
}
