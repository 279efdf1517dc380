//! One step: call the protocol, then do what it wants done until nothing is left to do.

use crate::bodies::Haste;
use crate::outbox::{OwnCopy, OwnSignature, Unsent};
use crate::output::{ConnId, Output, Ticket, Unsealed};
use crate::pool::Added;
use crate::synchrony::SynchronyGuard;
use crate::{HostMessage, Replica};
use quorate_consensus::{
    Alarm, AnyProtocol, Checkpoint, CheckpointProof, Commit, Effect, Env, Message, Model, Note, Reject, Seal,
    To,
};
use quorate_types::codec::Wire;
use quorate_types::wire::{Lane, Refusal};
use quorate_types::{
    Block, BlockId, Bundle, Executed, FullBlock, Height, Kind, LogEntry, Mark, ReplicaId, ReplyBundle, View,
};
use std::sync::Arc;

/// What a refused bundle is called in counters.
pub(crate) const BUNDLE_KIND: Kind = Kind::new("host.bundle");

/// Peers hear how far this replica is at most this often, and once after the last height of a burst.
pub(crate) const ANNOUNCE_NS: u64 = 1_000_000_000;
/// … and this often when nothing is executed: whoever was cut off while the others executed the last heights of a
/// burst hears of them, and is heard, although no event ever tells of it.
pub(crate) const ANNOUNCE_IDLE_NS: u64 = 5_000_000_000;

impl Replica {
    /// Calls the protocol; what it wants done is done by [`Replica::settle`].
    pub(crate) fn call<R>(&mut self, f: impl FnOnce(&mut dyn AnyProtocol, &mut Env<'_>) -> R) -> R {
        self.host.lag = self.sequencer.lag();
        let mut env = Env {
            now: self.now,
            me: self.setup.me,
            committee: &self.setup.committee,
            blocks: &mut self.blocks,
            host: &mut self.host,
            effects: &mut self.effects,
        };
        f(self.protocol.as_mut(), &mut env)
    }

    /// Does everything that is to be done, in order, until nothing is left.
    pub(crate) fn settle(&mut self) {
        loop {
            self.outbox.begin_step();
            self.spread_proposed();
            let fresh = self.blocks.take_fresh();
            if !fresh.is_empty() {
                self.retry_chain();
                self.decide_parents();
            }
            for id in fresh {
                self.host.bodies.watch(&self.host.pool, &self.blocks, id);
                // Header, payload and bodies are in the log before any promise about the block that follows.
                self.log_block(id);
            }
            let mut effects = std::mem::take(&mut self.effects);
            for effect in effects.drain(..) {
                self.apply(effect);
            }
            self.effects = effects;
            self.execute_decided();
            if let Some((id, how)) = self.host.bodies.next_news() {
                self.outbox.begin_step();
                self.log_block(id);
                self.call(|protocol, env| protocol.on_ready(env, id, how));
            } else if self.host.synchrony.as_mut().is_some_and(SynchronyGuard::take_news) {
                self.call(|protocol, env| protocol.on_sound(env));
            } else {
                break;
            }
        }
        self.notice_changes();
    }

    fn spread_proposed(&mut self) {
        for (payload, bundles) in std::mem::take(&mut self.host.proposed) {
            for bundle in bundles {
                self.spread(&bundle);
            }
            self.send_frame(To::All, Lane::Bodies, Unsealed::Payload(payload));
        }
    }

    /// Sends a bundle's bytes to all, once.
    fn spread(&mut self, bundle: &Bundle) {
        if self.host.pool.mark_spread(&bundle.digest()) {
            self.send_frame(To::All, Lane::Bodies, Unsealed::Bundle(bundle.clone()));
        }
    }

    pub(crate) fn send_frame(&mut self, to: To, lane: Lane, frame: Unsealed) {
        self.out.push_back(Output::Send { to, lane, frame });
    }

    fn log_block(&mut self, id: BlockId) {
        if self.logged.contains(&id) || self.host.bodies.ready(&self.host.pool, &self.blocks, id).is_none() {
            return;
        }
        self.persist_block(id);
    }

    /// A block goes to the log with its bodies: the log may have let go of those that came long before it, and keeps what a
    /// block names. It comes first, so that none goes while the next one is appended. What the log has costs a look-up.
    fn persist_block(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get(id).cloned() else {
            return;
        };
        let Some(payload) = self.host.bodies.payload(block.payload).cloned() else {
            return;
        };
        self.logged.insert(id);
        // One that comes too late to be decided needs no bodies.
        let is_dead = block.height <= self.sequencer.executed();
        self.outbox.persist(LogEntry::Block(block, payload), &mut self.out);
        for bundle in self.host.bodies.held(id).iter().filter(|_| !is_dead) {
            self.outbox.persist(LogEntry::Body(bundle.clone()), &mut self.out);
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Record { key, bytes } => self.outbox.record(key, bytes, &mut self.out),
            Effect::Reserve(kind, view) => self.outbox.reserve(kind, view, &mut self.out),
            Effect::Withdraw(kind, view) => self.outbox.withdraw(kind, view),
            Effect::Send { to, hold, message } => {
                if let Err(Unsent::Contradiction(slot, _)) =
                    self.outbox.send(self.now, to, hold, message, &mut self.out)
                {
                    self.contradictions = self.contradictions.saturating_add(1);
                    let note = Note {
                        what: "guard refused a second statement",
                        view: slot.view,
                        height: slot.height,
                    };
                    self.out.push_back(Output::Trace(note));
                }
            }
            Effect::Commit(what) => self.commit(what),
            Effect::Want(id, from) => {
                self.blocks.admit(id);
                let height = self.sequencer.waiting_at(id).unwrap_or_default();
                let haste = self.haste();
                self.host.bodies.want(self.now, &self.blocks, id, height, (from, haste));
                self.send_asks();
            }
            Effect::CatchUp(proof) => self.learn_proof(*proof),
            Effect::Urgent(peer) => self.out.push_back(Output::Urgent(peer)),
            Effect::Accuse(evidence) => {
                let kind = evidence.first.0.kind;
                let why = Reject::Equivocation;
                self.out.push_back(Output::Rejected { from: evidence.by, kind, why });
            }
            Effect::Alarm(alarm) => self.raise(alarm),
            Effect::Note(note) => self.out.push_back(Output::Trace(note)),
        }
    }

    /// Where safety rests on Δ, what the protocol wants is asked for at once.
    fn haste(&self) -> Haste {
        if self.relies_on_time() { Haste::AtOnce } else { Haste::InTurn }
    }

    /// Whether the protocol's safety rests on a bound on delays.
    fn relies_on_time(&self) -> bool {
        self.entry.spec.model == Model::Synchrony
    }

    /// The bound on delays that the protocol's safety rests on, if it does; in nanoseconds.
    #[must_use]
    pub fn delta_ns(&self) -> Option<u64> {
        self.host.synchrony.as_ref().map(SynchronyGuard::delta_ns)
    }

    fn commit(&mut self, what: Commit) {
        match what {
            Commit::At(height, id) => {
                self.decide(height, id);
            }
            Commit::Chain(id) => self.decide_chain(id),
        }
    }

    /// A block is decided, and with it its ancestors, down to those that were before.
    fn decide_chain(&mut self, id: BlockId) {
        let (mut path, mut at) = (Vec::new(), id);
        while at != self.blocks.root() && at != BlockId::ZERO {
            let Some(block) = self.blocks.get(at) else {
                // Its header is on its way; then this is tried again.
                self.unrooted = Some(id);
                let from = (self.last.leader, Haste::InTurn);
                return self.host.bodies.want(self.now, &self.blocks, id, Height::ZERO, from);
            };
            if self.sequencer.decided(block.height) == Some(at) {
                break; // And all below it: see `decide_parents`.
            }
            path.push((block.height, at));
            at = block.parent;
        }
        self.unrooted = None;
        if path.is_empty() {
            return; // It was decided before, and the root may lie above it.
        }
        for (height, id) in path.into_iter().rev() {
            self.decide(height, id);
        }
        self.blocks.set_root(id);
    }

    /// Whoever decides a block decides its parent, where blocks have any: what f + 1 peers vouch for above a gap closes
    /// it, also where those who could vouch for the heights between do not, or lie.
    pub(crate) fn decide_parents(&mut self) {
        let mut is_news = false;
        while let Some((height, id)) = self.sequencer.above_gap()
            && let Some(parent) = self.blocks.get(id).map(|block| block.parent)
            && parent != BlockId::ZERO
        {
            let height = height.minus(1);
            if !self.decide(height, parent) {
                return; // The alarm was raised.
            }
            is_news = true;
            self.call(|protocol, env| protocol.on_decided(env, height, parent));
        }
        if is_news {
            self.chase();
        }
    }

    fn retry_chain(&mut self) {
        if let Some(id) = self.unrooted {
            self.decide_chain(id);
        }
    }

    /// Something is decided; two decisions for one height stop the replica. True when it is news.
    pub(crate) fn decide(&mut self, height: Height, id: BlockId) -> bool {
        match self.sequencer.decide(height, id) {
            Ok(news) => news,
            Err(alarm) => {
                self.stop(alarm);
                false
            }
        }
    }

    /// The protocol says what must not go unnoticed.
    fn raise(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::SafetyBroken { .. } | Alarm::StateDiverged { .. } => self.stop(alarm),
            Alarm::SynchronyDoubt { view, why, .. } => {
                self.doubted = (Some(alarm), self.doubted.1.saturating_add(1));
                self.out.push_back(Output::Trace(Note { what: why, view, height: Height::ZERO }));
            }
        }
    }

    pub(crate) fn stop(&mut self, alarm: Alarm) {
        if self.stopped.is_none() {
            self.stopped = Some(alarm);
            self.out.push_back(Output::Stop(alarm));
        }
    }

    /// Hands decided heights to the executor, in order, as far as their bodies are here.
    fn execute_decided(&mut self) {
        while self.stopped.is_none()
            && let Some((height, id)) = self.sequencer.next()
        {
            let full = if id == BlockId::null(height) {
                FullBlock::null(height)
            } else {
                // Its parent was executed just before.
                self.host.bodies.attach(&self.blocks, id);
                let Some(block) = self.blocks.get(id) else { break };
                if let Some(alarm) = self.is_beside(block) {
                    return self.stop(alarm);
                }
                let Some(full) = self.host.bodies.assemble(block, id) else { break };
                full
            };
            self.outbox.begin_step();
            // However often it was: the log need not remember a block that lay high, and keeps a body for one block alone.
            self.persist_block(id);
            self.outbox.persist(LogEntry::Decided { height, id }, &mut self.out);
            self.sequencer.issue(height);
            self.hand_over(full);
        }
    }

    /// Whether something else was decided below a decided block than what it follows, where blocks have parents: whoever decided
    /// that was on another branch.
    fn is_beside(&self, block: &Block) -> Option<Alarm> {
        let height = block.height.minus(1);
        let stable = &self.checkpoints.stable().checkpoint;
        let decided = self.sequencer.decided(height);
        let first = decided.or_else(|| (stable.height == height).then_some(stable.block))?;
        let second = block.parent;
        let is_beside = second != BlockId::ZERO && second != first;
        is_beside.then_some(Alarm::SafetyBroken { height, first, second })
    }

    /// A decided block is in the log, but not on disk. Where it was decided by votes that are, it is executed at once. Else
    /// this log may be all that knows of it, and a power cut of all would let something else be decided there: it has to be
    /// on disk first. Of an empty block no client hears, so nothing is asked of the disk for its sake.
    fn hand_over(&mut self, full: FullBlock) {
        if self.entry.spec.votes_are_durable {
            return self.out.push_back(Output::Execute(full));
        }
        let own = self.outbox.appended();
        let is_empty = full.bundles.is_empty();
        self.unsynced.push_back((own, full));
        if !is_empty {
            self.outbox.ask(own, &mut self.out);
        }
    }

    /// The view or the leader may have changed, and with them the window and whom clients' bundles go to.
    fn notice_changes(&mut self) {
        let status = self.protocol.status();
        self.window.set(&self.protocol.window());
        let (old, me) = (std::mem::replace(&mut self.last, status), self.setup.me);
        self.host.pool.set_leads(status.leader == me);
        if status.view != old.view {
            self.host.untake();
            self.outbox.raise_floors(self.protocol.floors(), &mut self.out);
            self.pending_changed = true;
        }
        // Once in each view, when it has begun: before that its leader may never lead.
        if status.normal && status.view != self.forwarded && !self.entry.spec.rotates_leaders {
            self.forwarded = status.view;
            let bundles = if status.leader == me { Vec::new() } else { self.host.pool.to_forward() };
            for bundle in bundles {
                self.send_frame(To::One(status.leader), Lane::Bodies, Unsealed::Bundle(bundle));
            }
        }
    }

    /// A client handed over a bundle whose authenticator holds.
    pub(crate) fn on_client(&mut self, conn: ConnId, bundle: Bundle) {
        let (client, digest) = (bundle.client(), bundle.digest());
        let why = match self.host.pool.add_from_client(self.now, &bundle) {
            added @ (Added::New | Added::Promoted) => {
                self.take_in(&bundle, added);
                if self.entry.spec.rotates_leaders {
                    self.spread(&bundle);
                } else if self.last.leader != self.setup.me {
                    self.send_frame(To::One(self.last.leader), Lane::Bodies, Unsealed::Bundle(bundle));
                }
                return;
            }
            Added::Known => return,
            Added::Busy => Refusal::Busy,
            Added::NumberReused => Refusal::NumberReused,
        };
        self.out.push_back(Output::Refuse { conn, client, bundle: digest, why });
    }

    /// A peer handed over a bundle whose authenticator holds.
    pub(crate) fn on_bundle(&mut self, from: ReplicaId, bundle: Bundle, pending: bool) {
        // What no block asks for and does not count as waiting is at the charge of whoever sent it.
        let charged = (!self.host.bodies.awaits(&bundle.digest())).then_some(from);
        match self.host.pool.add_from_peer(self.now, &bundle, pending, charged) {
            added @ (Added::New | Added::Promoted) => {
                self.take_in(&bundle, added);
                if self.entry.spec.rotates_leaders {
                    // Whoever hears a client hands its bundle to all, not to this replica alone.
                    self.host.pool.mark_spread(&bundle.digest());
                    return;
                }
                // It counts against the leader from now on, which may never have seen it.
                let leader = self.last.leader;
                let waits = self.host.pool.waits(&bundle.digest());
                if waits && leader != from && leader != self.setup.me {
                    self.send_frame(To::One(leader), Lane::Bodies, Unsealed::Bundle(bundle));
                }
            }
            Added::Busy => {
                let why = Reject::NotNow("no room for bundle");
                self.out.push_back(Output::Rejected { from, kind: BUNDLE_KIND, why });
            }
            Added::Known | Added::NumberReused => {}
        }
    }

    fn take_in(&mut self, bundle: &Bundle, added: Added) {
        self.outbox.begin_step();
        if added == Added::New {
            // Bodies go to the log when they arrive, without a sync: the next promise's sync covers them.
            self.outbox.persist(LogEntry::Body(bundle.clone()), &mut self.out);
        }
        if self.last.leader == self.setup.me && !self.entry.spec.rotates_leaders {
            self.spread(bundle);
        }
        self.host.bodies.add_bundle(&self.blocks, bundle);
        self.pending_changed = true;
    }

    /// An own message was sealed and queued: the protocol hears it once, as the own copy.
    pub(crate) fn on_own(&mut self, ticket: Ticket, signature: OwnSignature) {
        let me = self.setup.me;
        match self.outbox.own_copy(ticket) {
            Some(OwnCopy::Protocol(message)) => {
                let seal = Seal { by: me, signature };
                // A refusal of one's own copy only says that it came too late to matter.
                let _: Result<(), Reject> = self.deliver(me, seal, message);
            }
            Some(OwnCopy::Host(HostMessage::Checkpoint(checkpoint))) => {
                if let Some(signature) = signature {
                    self.on_checkpoint(me, checkpoint, signature);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn deliver(
        &mut self,
        link: ReplicaId,
        seal: Seal,
        message: Box<dyn Message>,
    ) -> Result<(), Reject> {
        if let Some(guard) = &mut self.host.synchrony {
            guard.work(self.now);
        }
        let delivered = self.call(|protocol, env| protocol.on_message(env, link, seal, message));
        if link != self.setup.me {
            self.effects.iter_mut().for_each(|effect| name_link(effect, link));
        }
        delivered
    }

    /// Everything up to a mark is on disk.
    pub(crate) fn on_durable(&mut self, mark: Mark) {
        self.outbox.durable(mark, &mut self.out);
        while self.unsynced.front().is_some_and(|(mark, _)| self.outbox.is_durable(*mark)) {
            self.out.extend(self.unsynced.pop_front().map(|(_, full)| Output::Execute(full)));
        }
        if self.proof_mark.is_some_and(|mark| self.outbox.is_durable(mark)) {
            self.proof_mark = None;
            self.install_checkpoint();
        }
    }

    /// A block was executed.
    pub(crate) fn on_executed(&mut self, executed: Executed) {
        let height = executed.height;
        if height <= self.sequencer.executed() {
            return; // Of an earlier incarnation, or replayed.
        }
        self.sequencer.executed_one(height);
        let fresh = executed.fresh();
        let (view, leader) = (self.last.view, self.last.leader);
        for bundle in executed.bundles {
            self.host.pool.executed(self.now, &bundle.bundle);
            self.host.pool.supersede(bundle.client, bundle.session, bundle.number);
            let reply = ReplyBundle {
                session: bundle.session,
                number: bundle.number,
                bundle: bundle.bundle,
                result: bundle.result,
                outcome: bundle.outcome,
                view,
                leader,
            };
            self.out.push_back(Output::Reply { client: bundle.client, reply });
        }
        self.host.bodies.executed(&self.blocks, height);
        let id = self.sequencer.decided(height).unwrap_or_else(|| BlockId::null(height));
        self.host.note_executed([id]);
        if let Some(block) = self.blocks.get(id) {
            self.host.note_payload_executed(block.payload);
        }
        if let Some(state) = executed.state {
            self.sign_checkpoint(height, id, state);
        }
        self.announce_soon();
        self.decided.advance(self.now, self.sequencer.contiguous());
        self.chase();
        self.call(|protocol, env| protocol.on_executed(env, height, fresh));
    }

    pub(crate) fn sign_checkpoint(&mut self, height: Height, block: BlockId, state: quorate_types::Digest) {
        // The block's own view, not the one it was decided in: replicas may differ in that.
        let view = self.blocks.get(block).map_or(View::ZERO, |block| block.view);
        let checkpoint = Checkpoint { height, block, view, state };
        self.checkpoints.note_own(checkpoint);
        // Also where the proof is not durable yet: nothing is compared any more when it is.
        if self.checkpoints.proved(height).is_some_and(|proved| proved != checkpoint) {
            self.checkpoints.compare(self.setup.me, checkpoint);
            return self.stop(Alarm::StateDiverged { height });
        }
        // Refused only where the guard knows a signature about this height from before a restart.
        let message = HostMessage::Checkpoint(checkpoint);
        let _: Result<(), Unsent> = self.outbox.send_host(self.now, To::All, message, &mut self.out);
    }

    /// A replica signed a checkpoint.
    pub(crate) fn on_checkpoint(
        &mut self,
        by: ReplicaId,
        checkpoint: Checkpoint,
        signature: quorate_types::Signature,
    ) {
        if let Some(proof) = self.checkpoints.add(by, checkpoint, signature) {
            self.learn_proof(proof);
        } else if self.checkpoints.far_ahead().len() >= self.setup.committee.weak()
            && self.ask_proof_at <= self.now
        {
            self.ask_proof_at = self.now.plus(ANNOUNCE_NS);
            let to = To::Some(self.checkpoints.far_ahead());
            let _: Result<(), Unsent> =
                self.outbox.send_host(self.now, to, HostMessage::AskProof, &mut self.out);
        }
    }

    /// A checkpoint is stable. It counts when its proof is durable.
    pub(crate) fn learn_proof(&mut self, proof: CheckpointProof) {
        if let Some(own) = self.checkpoints.diverged(&proof.checkpoint) {
            self.checkpoints.prepare(proof);
            self.checkpoints.compare(self.setup.me, own);
            return self.stop(Alarm::StateDiverged { height: own.height });
        }
        let bytes = proof.to_bytes();
        if self.checkpoints.prepare(proof) {
            self.outbox.begin_step();
            self.outbox.persist(LogEntry::Proof(bytes), &mut self.out);
            let mark = self.outbox.appended();
            self.proof_mark = Some(mark);
            self.outbox.wait_lazily(mark, self.now);
        }
    }

    fn install_checkpoint(&mut self) {
        let Some(proof) = self.checkpoints.install().cloned() else {
            return;
        };
        let stable = proof.checkpoint;
        // What is not executed is kept, also below the checkpoint: it is executed from here.
        let settled = stable.height.min(self.sequencer.executed());
        self.outbox.forget_records(stable.height);
        // What is kept hangs on the last block that goes.
        if let Some(id) = self.sequencer.decided(settled) {
            self.blocks.set_root(id);
        } else if settled == stable.height {
            self.blocks.set_root(stable.block);
        }
        self.sequencer.prune(stable.height);
        let old = self.blocks.iter().filter(|(_, block)| block.height <= settled);
        let gone: Vec<BlockId> = old.map(|(id, _)| *id).collect();
        self.blocks.prune(settled);
        for id in &gone {
            self.logged.remove(id);
        }
        let (blocks, root) = (&self.blocks, self.blocks.root());
        self.host.forget(|id| blocks.contains(*id) || *id == root);
        self.host.bodies.prune(&self.blocks, &gone, settled);
        self.call(|protocol, env| protocol.on_checkpoint(env, &proof));
        self.outbox.begin_step();
        self.outbox.raise_floors(self.protocol.floors(), &mut self.out);
    }

    /// The log has begun a new segment: everything that still binds stands there once more, so that older
    /// segments are needed for decided blocks only.
    pub(crate) fn write_base(&mut self) {
        self.outbox.begin_step();
        self.outbox.persist(LogEntry::BaseBegin, &mut self.out);
        self.outbox.persist(LogEntry::Incarnation(self.incarnation), &mut self.out);
        let stable = self.checkpoints.stable();
        if !stable.is_genesis() {
            self.outbox.persist(LogEntry::Proof(stable.to_bytes()), &mut self.out);
        }
        self.outbox.write_base(&mut self.out);
        for id in &self.logged {
            if let Some(block) = self.blocks.get(*id)
                && let Some(payload) = self.host.bodies.payload(block.payload)
                && !self.host.is_executed(id)
            {
                let entry = LogEntry::Block(Arc::clone(block), Arc::clone(payload));
                self.outbox.persist(entry, &mut self.out);
            }
        }
        self.outbox.persist(LogEntry::BaseEnd, &mut self.out);
        self.outbox.wait_lazily(self.outbox.appended(), self.now);
    }
}

/// What a peer's message shows to be late came over that peer's link: that is where an operator has to look.
fn name_link(effect: &mut Effect, link: ReplicaId) {
    if let Effect::Alarm(Alarm::SynchronyDoubt { peer: peer @ None, .. }) = effect {
        *peer = Some(link);
    }
}
