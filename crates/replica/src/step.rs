//! One step: calls the protocol, then carries out its effects until none is left.

use crate::bodies::Haste;
use crate::host_message::{BUNDLE_KIND, HostMessage};
use crate::outbox::{OwnCopy, Unsent};
use crate::output::{ConnId, Output, OwnCopyTicket, Unsealed};
use crate::pool::PoolVerdict;
use crate::replica::Replica;
use crate::synchrony::SynchronyGuard;
use quorate_consensus::{
    Alarm, AnyProtocol, Checkpoint, CheckpointProof, Effect, Env, Message, Model, Note, Reject, Seal, To,
};
use quorate_types::codec::Wire;
use quorate_types::wire::{Lane, Refusal};
use quorate_types::{
    BlockId, Bundle, Digest, Height, Kind, LogEntry, Mark, ReplicaId, Signature, Statement, View,
};
use std::sync::Arc;

impl Replica {
    /// Calls the protocol; [`Replica::settle`] carries out the effects.
    pub(crate) fn call<R>(&mut self, f: impl FnOnce(&mut dyn AnyProtocol, &mut Env<'_>) -> R) -> R {
        self.services.lag = self.sequencer.lag();
        self.services.decided_to = self.sequencer.contiguous();
        let mut env = Env {
            now: self.now,
            me: self.setup.me,
            committee: &self.setup.committee,
            blocks: &mut self.blocks,
            host: &mut self.services,
            effects: &mut self.running.effects,
        };
        f(self.running.protocol.as_mut(), &mut env)
    }

    /// Carries out all effects in order, until none is left.
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
                self.services.bodies.watch(&self.services.pool, &self.blocks, id);
                // Header, payload and bodies are in the log before any promise about the block that follows.
                self.log_block(id);
            }
            let mut effects = std::mem::take(&mut self.running.effects);
            for effect in effects.drain(..) {
                self.apply(effect);
            }
            self.running.effects = effects;
            self.execute_decided();
            if let Some((id, how)) = self.services.bodies.next_ready() {
                self.outbox.begin_step();
                self.log_block(id);
                self.call(|protocol, env| protocol.on_ready(env, id, how));
            } else if self.services.synchrony.as_mut().is_some_and(SynchronyGuard::take_change) {
                self.call(|protocol, env| protocol.on_sound(env));
            } else {
                break;
            }
        }
        self.notice_changes();
    }

    fn spread_proposed(&mut self) {
        for (payload, bundles) in std::mem::take(&mut self.services.proposed) {
            for bundle in bundles {
                self.spread(&bundle);
            }
            self.send_frame(To::All, Lane::Bodies, Unsealed::Payload(payload));
        }
    }

    /// Sends a bundle's bytes to all, once.
    fn spread(&mut self, bundle: &Bundle) {
        if self.services.pool.mark_spread(&bundle.digest()) {
            self.send_frame(To::All, Lane::Bodies, Unsealed::Bundle(bundle.clone()));
        }
    }

    pub(crate) fn send_frame(&mut self, to: To, lane: Lane, frame: Unsealed) {
        self.out.push_back(Output::Send { to, lane, frame });
    }

    fn log_block(&mut self, id: BlockId) {
        if self.logged.ids.contains(&id)
            || self.services.bodies.ready(&self.services.pool, &self.blocks, id).is_none()
        {
            return;
        }
        self.persist_block(id);
    }

    /// Appends a block with its bodies to the log. The log may have dropped bodies that came long before, and keeps
    /// those that a block names. The block comes first, so that the log drops none while it appends the next. An entry
    /// that the log has already costs a look-up.
    pub(crate) fn persist_block(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get(id).cloned() else {
            return;
        };
        let Some(payload) = self.services.bodies.payload(block.payload).cloned() else {
            return;
        };
        self.logged.ids.insert(id);
        // A block that arrives too late to be decided needs no bodies.
        let is_dead = block.height <= self.sequencer.executed();
        self.outbox.persist(LogEntry::Block(block, payload), &mut self.out);
        for bundle in self.services.bodies.held(id).iter().filter(|_| !is_dead) {
            self.outbox.persist(LogEntry::Body(bundle.clone()), &mut self.out);
        }
    }

    fn apply(&mut self, effect: Effect) {
        match effect {
            // The stable checkpoint has settled it already: an opening would drop it.
            Effect::Record { key, .. }
                if key.height > Height::ZERO && key.height <= self.checkpoints.height() => {}
            Effect::Record { key, bytes } => self.outbox.record(key, bytes, &mut self.out),
            Effect::Reserve(kind, view) => self.outbox.reserve(kind, view, &mut self.out),
            Effect::Withdraw(kind, view) => self.outbox.withdraw(kind, view),
            Effect::Send { to, hold, message } => {
                self.running.sent_role = self.running.sent_role.max(self.entry.spec.role(message.kind()));
                // Another statement is a promise that the guard must know. Only a bug of the protocol breaks the rule.
                assert!(
                    message.once()
                        || message.auth().statement().is_none_or(|said| self.is_repeatable(said.kind)),
                    "{:?} may be sent again, but the protocol does not list its statement",
                    message.kind()
                );
                if let Err(Unsent::Contradiction(slot, _)) =
                    self.outbox.send(self.now, to, hold, message, &mut self.out)
                {
                    self.alarms.contradictions = self.alarms.contradictions.saturating_add(1);
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
                // If safety rests on Δ, blocks that the protocol wants are requested at once.
                let relies_on_time = self.entry.spec.model == Model::Synchrony;
                let haste = if relies_on_time { Haste::AtOnce } else { Haste::InTurn };
                self.services.bodies.want(self.now, &self.blocks, id, height, (from, haste));
                self.send_asks();
            }
            Effect::CatchUp(proof) => self.learn_proof(*proof),
            Effect::Urgent(peer) => self.out.push_back(Output::Urgent(peer)),
            Effect::Accuse(evidence) => {
                self.reject(evidence.by, evidence.first.0.kind, Reject::Equivocation);
            }
            Effect::Alarm(alarm) => self.raise(alarm),
            Effect::Note(note) => self.out.push_back(Output::Trace(note)),
        }
    }

    /// Raises an alarm of the protocol.
    fn raise(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::SafetyBroken { .. } | Alarm::StateDiverged { .. } | Alarm::RolledBack { .. } => {
                self.stop(alarm);
            }
            Alarm::SynchronyDoubt { view, why, .. } => {
                self.alarms.last_doubt = Some(alarm);
                self.alarms.doubts = self.alarms.doubts.saturating_add(1);
                self.out.push_back(Output::Trace(Note { what: why, view, height: Height::ZERO }));
            }
            Alarm::NearMiss { view, leader } => {
                let count = self.alarms.near_misses.entry(leader).or_default();
                *count = count.saturating_add(1);
                let what = "a blamed leader's message arrived";
                self.out.push_back(Output::Trace(Note { what, view, height: Height::ZERO }));
            }
        }
    }

    pub(crate) fn stop(&mut self, alarm: Alarm) {
        if self.alarms.stopped.is_none() {
            self.alarms.stopped = Some(alarm);
            self.out.push_back(Output::Stop(alarm));
        }
    }

    /// Updates everything that depends on the view and the leader: the window, the floors, and the forwarding of
    /// bundles.
    fn notice_changes(&mut self) {
        let status = self.running.protocol.status();
        self.running.window.set(&self.running.protocol.window());
        let (old, me) = (std::mem::replace(&mut self.running.status, status), self.setup.me);
        self.services.pool.rate.leads = status.leader == me;
        if status.view != old.view {
            self.services.untake();
            self.outbox.raise_floors(self.running.protocol.floors(), &mut self.out);
            self.running.pending_changed = true;
        }
        // Bundles are forwarded once in each view, after it has begun: before that its leader may never lead.
        if status.normal && status.view != self.running.forwarded && !self.entry.spec.rotates_leaders {
            self.running.forwarded = status.view;
            let bundles = if status.leader == me { Vec::new() } else { self.services.pool.to_forward() };
            for bundle in bundles {
                self.send_frame(To::One(status.leader), Lane::Bodies, Unsealed::Bundle(bundle));
            }
        }
    }

    /// Takes in a bundle that a client handed over directly; its authenticator holds.
    pub(crate) fn on_client(&mut self, conn: ConnId, bundle: Bundle) {
        let (client, digest) = (bundle.client(), bundle.digest());
        let why = match self.services.pool.add_from_client(self.now, &bundle) {
            added @ (PoolVerdict::New | PoolVerdict::Promoted) => {
                self.add_body(&bundle, added);
                if self.entry.spec.rotates_leaders {
                    self.spread(&bundle);
                } else if self.running.status.leader != self.setup.me {
                    self.send_frame(
                        To::One(self.running.status.leader),
                        Lane::Bodies,
                        Unsealed::Bundle(bundle),
                    );
                }
                return;
            }
            PoolVerdict::Known => return,
            PoolVerdict::Busy => Refusal::Busy,
            PoolVerdict::NumberReused => Refusal::NumberReused,
        };
        self.out.push_back(Output::Refuse { conn, client, bundle: digest, why });
    }

    /// Takes in a bundle that a peer handed over; its authenticator holds.
    pub(crate) fn on_bundle(&mut self, from: ReplicaId, bundle: Bundle, pending: bool) {
        // An idle bundle that no block lacks is at the charge of its sender.
        let is_awaited = self.services.bodies.awaits(&bundle.digest());
        if is_awaited {
            self.services.bodies.hear(self.now, from);
        }
        let charged = (!is_awaited).then_some(from);
        match self.services.pool.add_from_peer(self.now, &bundle, pending, charged) {
            added @ (PoolVerdict::New | PoolVerdict::Promoted) => {
                self.add_body(&bundle, added);
                if self.entry.spec.rotates_leaders {
                    // If leaders rotate, the replica of a client sends its bundle to all, so this one need not.
                    self.services.pool.mark_spread(&bundle.digest());
                    return;
                }
                // The bundle counts against the leader from now on, and the leader may not have it.
                let leader = self.running.status.leader;
                let waits = self.services.pool.waits(&bundle.digest());
                if waits && leader != from && leader != self.setup.me {
                    self.send_frame(To::One(leader), Lane::Bodies, Unsealed::Bundle(bundle));
                }
            }
            PoolVerdict::Busy => {
                self.reject(from, BUNDLE_KIND, Reject::NotNow("no room for bundle"));
            }
            PoolVerdict::Known | PoolVerdict::NumberReused => {}
        }
    }

    fn add_body(&mut self, bundle: &Bundle, added: PoolVerdict) {
        self.outbox.begin_step();
        if added == PoolVerdict::New {
            // Bodies go to the log on arrival, without a sync: the next promise's sync covers them.
            self.outbox.persist(LogEntry::Body(bundle.clone()), &mut self.out);
        }
        if self.running.status.leader == self.setup.me && !self.entry.spec.rotates_leaders {
            self.spread(bundle);
        }
        self.services.bodies.add_bundle(&self.blocks, bundle);
        self.running.pending_changed = true;
    }

    /// Takes in the signature of an own message that was queued: the protocol receives the message once, as the own
    /// copy.
    pub(crate) fn on_own(&mut self, ticket: OwnCopyTicket, signature: Option<Signature>) {
        let me = self.setup.me;
        match self.outbox.own_copy(ticket) {
            Some(OwnCopy::Protocol(message)) => {
                let seal = Seal { by: me, signature };
                // A refusal of an own copy only means that it came too late to matter.
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
        if let Some(guard) = &mut self.services.synchrony {
            guard.on_protocol_message(self.now);
        }
        let delivered = self.call(|protocol, env| protocol.on_message(env, link, seal, message));
        if link != self.setup.me {
            self.running.effects.iter_mut().for_each(|effect| name_link(effect, link));
        }
        delivered
    }

    /// Notes that the log is durable up to a mark.
    pub(crate) fn on_durable(&mut self, mark: Mark) {
        self.outbox.durable(mark, &mut self.out);
        self.execute_durable();
        if self.checkpoints.take_durable_proof(&self.outbox) {
            self.install_checkpoint();
        }
    }

    /// Compares a statement that this replica has signed with its log (DESIGN 9, roll-back). One signature is enough: nobody
    /// else can make it. A replica that has lost its disk has forgotten its statements, and makes none.
    pub(crate) fn on_own_statement(&mut self, statement: &Statement) {
        let is_promise = !self.is_repeatable(statement.kind);
        if self.amnesia.is_none() && is_promise && self.outbox.lacks(statement) {
            self.stop(Alarm::RolledBack { view: statement.view, height: statement.height });
        }
    }

    fn is_repeatable(&self, kind: Kind) -> bool {
        self.entry.spec.repeatable.contains(&kind)
    }

    pub(crate) fn sign_checkpoint(&mut self, height: Height, block: BlockId, state: Digest) {
        let proved = self.checkpoints.proved(height);
        // The view of the block itself. The view of its decision may differ between replicas. A block may have left the tree
        // when its checkpoint became stable, before its result arrives.
        let view = match (self.blocks.get(block), proved) {
            (Some(block), _) => block.view,
            (None, Some(proved)) => proved.view,
            (None, None) if height <= self.checkpoints.height() => return,
            (None, None) => View::ZERO,
        };
        let checkpoint = Checkpoint { height, block, view, state };
        self.checkpoints.note_own(checkpoint);
        // This holds also before the proof is durable: later nothing compares them any more.
        if proved.is_some_and(|proved| proved != checkpoint) {
            self.checkpoints.compare(self.setup.me, checkpoint);
            return self.stop(Alarm::StateDiverged { height });
        }
        self.send_host(To::All, HostMessage::Checkpoint(checkpoint));
    }

    /// Takes in a checkpoint that a replica has signed.
    pub(crate) fn on_checkpoint(&mut self, by: ReplicaId, checkpoint: Checkpoint, signature: Signature) {
        if let Some(proof) = self.checkpoints.add(by, checkpoint, signature) {
            self.learn_proof(proof);
        } else if self.checkpoints.far_ahead().len() >= self.setup.committee.weak()
            && self.checkpoints.may_ask(self.now)
        {
            self.send_host(To::Some(self.checkpoints.far_ahead()), HostMessage::AskProof);
        }
    }

    /// Takes in the proof of a stable checkpoint. It counts when it is durable.
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
            self.checkpoints.proof_mark = Some(mark);
            self.outbox.wait_lazily(mark, self.now);
        }
    }

    fn install_checkpoint(&mut self) {
        let Some(proof) = self.checkpoints.install().cloned() else {
            return;
        };
        let stable = proof.checkpoint;
        // Blocks that are not executed stay, also below the checkpoint, and are executed from here. A replica that needs a
        // state cannot execute them, and would keep more and more of them.
        let executed = self.sequencer.executed();
        let before = std::mem::replace(&mut self.peers.executed_at_checkpoint, executed);
        let executable = if self.needs_state(before) { stable.height } else { executed };
        let settled = stable.height.min(executable);
        self.outbox.forget_records(stable.height);
        // The remaining blocks extend the last block that goes.
        if let Some(id) = self.sequencer.decided(settled) {
            self.blocks.set_root(id);
        } else if settled == stable.height {
            self.blocks.set_root(stable.block);
        }
        self.sequencer.prune(settled);
        self.orders.prune(settled.minus(self.setup.genesis.checkpoint_every));
        let old = self.blocks.iter().filter(|(_, block)| block.height <= settled);
        let gone: Vec<BlockId> = old.map(|(id, _)| *id).collect();
        self.blocks.prune(settled);
        if settled > executed {
            self.blocks.forget_root();
        }
        for id in &gone {
            self.logged.ids.remove(id);
        }
        let (blocks, root) = (&self.blocks, self.blocks.root());
        self.services.forget(|id| blocks.contains(*id) || *id == root);
        self.services.bodies.prune(&self.blocks, &gone, settled);
        self.call(|protocol, env| protocol.on_checkpoint(env, &proof));
        self.outbox.begin_step();
        self.outbox.raise_floors(self.running.protocol.floors(), &mut self.out);
    }

    /// Writes everything that still binds into the new segment of the log. Older segments are then needed for decided
    /// blocks only.
    pub(crate) fn write_base(&mut self) {
        self.outbox.begin_step();
        self.outbox.persist(LogEntry::BaseBegin, &mut self.out);
        self.outbox.persist(LogEntry::Incarnation(self.incarnation), &mut self.out);
        let stable = self.checkpoints.stable();
        if !stable.is_genesis() {
            self.outbox.persist(LogEntry::Proof(stable.to_bytes()), &mut self.out);
        }
        self.outbox.write_base(&mut self.out);
        for id in &self.logged.ids {
            if let Some(block) = self.blocks.get(*id)
                && let Some(payload) = self.services.bodies.payload(block.payload)
                && !self.services.is_executed(id)
            {
                let entry = LogEntry::Block(Arc::clone(block), Arc::clone(payload));
                self.outbox.persist(entry, &mut self.out);
            }
        }
        self.outbox.persist(LogEntry::BaseEnd, &mut self.out);
        self.outbox.wait_lazily(self.outbox.appended(), self.now);
    }
}

/// Names the link of the message in an alarm about it: the operator must inspect that link.
fn name_link(effect: &mut Effect, link: ReplicaId) {
    if let Effect::Alarm(Alarm::SynchronyDoubt { peer: peer @ None, .. }) = effect {
        *peer = Some(link);
    }
}
