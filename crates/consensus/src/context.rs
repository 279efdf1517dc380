//! All that a handler can see and do. Nothing here waits.

use crate::effect::{Basis, Commit, Effect, Evidence, Hold, Note, To};
use crate::parts::block_tree::BlockTree;
use crate::parts::certificate::CheckpointProof;
use crate::protocol::{Protocol, Record};
use crate::reject::Alarm;
use crate::timers::Timers;
use quorate_types::{BlockId, Committee, Kind, PayloadId, ReplicaId, Time, View};
use std::sync::Arc;

/// What the host knows of a block that is all here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ready {
    /// Its bodies are valid: the same answer at every honest replica.
    Valid,
    /// Its bodies are not valid: the same answer at every honest replica.
    Invalid,
    /// All is here and the only fault is a MAC that fails for this replica (`local_validity` only).
    Unvouched,
}

/// What waits in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pending {
    /// Bundles that wait.
    pub bundles: usize,
    /// Those of them that stand in no chain that was decided: the others wait for their execution alone, and need
    /// nothing more of any protocol.
    pub undecided: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Since when the oldest waits.
    pub oldest: Option<Time>,
    /// Whether this replica is behind with its own work (execution lags or the pool is full): then the age of
    /// a bundle says nothing about the leader.
    pub overloaded: bool,
    /// Whether so much is decided and not executed that no payload is given: who proposes then adds to it.
    pub lagging: bool,
    /// How long all of it will take at the rate at which it was executed of late; 0 where that is not known.
    pub backlog_ns: u64,
}

/// A payload that the host has put together; the bytes stay with the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PayloadRef {
    /// Its digest.
    pub id: PayloadId,
    /// Requests in it.
    pub requests: u32,
    /// Bytes of its bundles.
    pub bytes: u32,
    /// Wall-clock nanoseconds for the block that carries it.
    pub time_ns: u64,
}

/// What a handler may ask its host and gets an answer to at once.
pub trait HostView {
    /// How a block stands whose ancestors to the root and bodies are all present and checked.
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready>;
    /// What waits in the pool.
    fn pending(&self) -> Pending;
    /// The next payload for a block that extends `parent`.
    fn payload_after(&mut self, now: Time, blocks: &BlockTree, parent: BlockId) -> Option<PayloadRef>;
    /// A chain is decided up to this block: what it carries waits for its execution alone.
    fn chain_decided(&mut self, blocks: &BlockTree, block: BlockId);
    /// See [`Cx::already_proposed`].
    fn already_proposed(&mut self, blocks: &BlockTree, block: BlockId);
    /// Whether the synchrony bound held; see [`Cx::sound`].
    fn sound(&mut self, now: Time, since: Time, fresh: Time) -> bool;
}

/// A host of which somebody asks something else about freshness.
#[cfg(feature = "harness")]
struct LentHost<'a> {
    host: &'a mut dyn HostView,
    fresh: fn(Time) -> Time,
}

#[cfg(feature = "harness")]
impl HostView for LentHost<'_> {
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready> {
        self.host.ready(blocks, block)
    }
    fn pending(&self) -> Pending {
        self.host.pending()
    }
    fn payload_after(&mut self, now: Time, blocks: &BlockTree, parent: BlockId) -> Option<PayloadRef> {
        self.host.payload_after(now, blocks, parent)
    }
    fn chain_decided(&mut self, blocks: &BlockTree, block: BlockId) {
        self.host.chain_decided(blocks, block);
    }
    fn already_proposed(&mut self, blocks: &BlockTree, block: BlockId) {
        self.host.already_proposed(blocks, block);
    }
    fn sound(&mut self, now: Time, since: Time, fresh: Time) -> bool {
        self.host.sound(now, since, (self.fresh)(fresh))
    }
}

/// What the host hands to every handler.
pub struct Env<'a> {
    /// The time of the event.
    pub now: Time,
    /// Who this replica is.
    pub me: ReplicaId,
    /// The committee.
    pub committee: &'a Arc<Committee>,
    /// The blocks that are known.
    pub blocks: &'a mut BlockTree,
    /// The host's answers.
    pub host: &'a mut dyn HostView,
    /// What handlers want done.
    pub effects: &'a mut Vec<Effect>,
}

/// All that a handler of `P` can see and do.
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

    /// The same for another protocol with the same timers, at that time, and with another idea of what is fresh.
    #[cfg(feature = "harness")]
    pub(crate) fn lend<Q: Protocol<Timer = P::Timer>, R>(
        &mut self,
        now: Time,
        fresh: fn(Time) -> Time,
        with: impl FnOnce(&mut Cx<'_, Q>) -> R,
    ) -> R {
        let Self { me, committee, blocks, host, effects, timers, .. } = self;
        let mut host = LentHost { host: *host, fresh };
        with(&mut Cx { now, me: *me, committee, blocks, host: &mut host, effects, timers })
    }

    /// What this event has led to so far.
    #[cfg(feature = "harness")]
    pub(crate) fn effects(&mut self) -> &mut Vec<Effect> {
        self.effects
    }

    /// The time of this event.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }
    /// Who this replica is.
    #[must_use]
    pub fn me(&self) -> ReplicaId {
        self.me
    }
    /// The committee. Borrowed for as long as the event, so handlers may keep it across other calls.
    #[must_use]
    pub fn committee(&self) -> &'a Committee {
        self.committee
    }
    /// The blocks that are known.
    pub fn blocks(&mut self) -> &mut BlockTree {
        self.blocks
    }
    /// Set, cancel, retain.
    pub fn timers(&mut self) -> &mut Timers<P::Timer> {
        self.timers
    }

    /// How a block stands when it, its ancestors to the root and all their bodies are present and checked;
    /// `None` while something is missing.
    #[must_use]
    pub fn ready(&self, block: BlockId) -> Option<Ready> {
        self.host.ready(self.blocks, block)
    }
    /// Fetch what is missing of a block from a replica. Answered by `on_ready`; idempotent per block and peer.
    pub fn want(&mut self, block: BlockId, from: ReplicaId) {
        self.effects.push(Effect::Want(block, from));
    }
    /// What waits in the pool.
    #[must_use]
    pub fn pending(&self) -> Pending {
        self.host.pending()
    }
    /// The next payload for a block that extends `parent`: oldest first, fair over clients, without what an
    /// uncommitted ancestor or an undecided block of ours carries. `None` also when execution lags.
    pub fn payload_after(&mut self, parent: BlockId) -> Option<PayloadRef> {
        self.host.payload_after(self.now, self.blocks, parent)
    }
    /// What this block carries is to be decided with it, so that [`Cx::payload_after`] leaves it out as long as the
    /// view lasts: for a leader that takes over what others have proposed. Without effect while the block is not ready.
    pub fn already_proposed(&mut self, block: BlockId) {
        self.host.already_proposed(self.blocks, block);
    }
    /// Whether at most f peers were late at any moment from `since` on, that one included, and n - f - 1 have answered in
    /// time a probe that was sent at or after `fresh`. Always true for protocols that assume no bound.
    ///
    /// Where only the answers are missing the host probes all peers at once, unless it has since `fresh`, and calls
    /// [`Protocol::on_sound`] when they are here; whoever still waits asks again then. Doubt about `since` never ends: it
    /// takes a later `since`, and at the very moment at which doubt ends there still is doubt.
    #[must_use]
    pub fn sound(&mut self, since: Time, fresh: Time) -> bool {
        self.host.sound(self.now, since, fresh)
    }

    /// Makes a fact survive a crash: durable before anything held that is sent from here on.
    pub fn record(&mut self, record: &P::Record) {
        let mut bytes = Vec::with_capacity(96);
        record.encode(&mut bytes);
        self.effects.push(Effect::Record { key: record.key(), bytes });
    }
    /// Sends when everything recorded so far is durable. The message comes back once as the own copy.
    pub fn send(&mut self, to: To, message: P::Message) {
        self.effects.push(Effect::Send { to, hold: Hold::UntilDurable, message: Box::new(message) });
    }
    /// What of this kind waits for the disk and was said in this view is not said after all: something has come meanwhile that
    /// would have kept this replica from it. What has left has left, and nothing else may ever be said in its place.
    pub fn withdraw(&mut self, kind: Kind, view: View) {
        self.effects.push(Effect::Withdraw(kind, view));
    }
    /// Says ahead that this replica may say something of this kind in this view: after a restart it says nothing of the
    /// kind there, nor in earlier views. Durable with the next promise; what is then sent by [`Cx::send_reserved`]
    /// needs no sync of its own. A restart meanwhile costs this replica its word in that view, and no more.
    pub fn reserve(&mut self, kind: Kind, view: View) {
        self.effects.push(Effect::Reserve(kind, view));
    }
    /// Sends when the reservation of the message's slot is durable, which it may have been for long. Without one the
    /// same as [`Cx::send`]. Nothing that is recorded in the same step is durable before it leaves.
    pub fn send_reserved(&mut self, to: To, message: P::Message) {
        self.effects.push(Effect::Send { to, hold: Hold::Reserved, message: Box::new(message) });
    }
    /// Sends at once: relays, evidence, forwards, suspicions. Refused by the host for what may be said `once`.
    pub fn send_unheld(&mut self, to: To, message: P::Message) {
        self.effects.push(Effect::Send { to, hold: Hold::No, message: Box::new(message) });
    }
    /// Something is decided.
    pub fn commit(&mut self, what: Commit, basis: Basis) {
        if let Commit::Chain(block) = what {
            self.host.chain_decided(self.blocks, block);
        }
        self.effects.push(Effect::Commit(what, basis));
    }
    /// A newer stable checkpoint was shown to us.
    pub fn catch_up(&mut self, proof: &CheckpointProof) {
        self.effects.push(Effect::CatchUp(Box::new(proof.clone())));
    }
    /// Whose messages to read first just now.
    pub fn urgent(&mut self, peer: Option<ReplicaId>) {
        self.effects.push(Effect::Urgent(peer));
    }
    /// Someone signed two statements for one slot.
    pub fn accuse(&mut self, evidence: Evidence) {
        self.effects.push(Effect::Accuse(Box::new(evidence)));
    }
    /// What must not go unnoticed. Whether the replica stops is up to [`Alarm::stops`].
    pub fn alarm(&mut self, what: Alarm) {
        self.effects.push(Effect::Alarm(what));
    }
    /// A line for the trace.
    pub fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }
}
