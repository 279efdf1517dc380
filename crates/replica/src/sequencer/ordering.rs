//! Carries out the decisions of the sequencer: log, executor, replies.

use crate::bodies::Haste;
use crate::output::Output;
use crate::replica::Replica;
use quorate_consensus::Commit;
use quorate_types::{BlockId, Executed, FullBlock, Height, LogEntry, ReplyBundle};

impl Replica {
    /// Decides what the protocol commits.
    pub(crate) fn commit(&mut self, what: Commit) {
        match what {
            Commit::At(height, id) => {
                self.decide(height, id);
            }
            Commit::Chain(id) => self.decide_chain(id),
        }
    }

    /// Decides a block and its undecided ancestors. Fetches the block where a header between is missing.
    fn decide_chain(&mut self, id: BlockId) {
        let Some(path) = self.sequencer.undecided_path(&self.blocks, id) else {
            // The header is on its way; `retry_chain` follows.
            let from = (self.running.status.leader, Haste::InTurn);
            return self.services.bodies.want(self.now, &self.blocks, id, Height::ZERO, from);
        };
        if path.is_empty() {
            return; // It was decided before, and the root may be above it.
        }
        for (height, id) in path {
            self.decide(height, id);
        }
        self.blocks.set_root(id);
    }

    /// Decides the chain again whose header was missing.
    pub(crate) fn retry_chain(&mut self) {
        if let Some(id) = self.sequencer.unrooted() {
            self.decide_chain(id);
        }
    }

    /// Decides the parents of decided blocks above a gap, as far down as headers are available.
    pub(crate) fn decide_parents(&mut self) {
        let mut is_news = false;
        while let Some((height, parent)) = self.sequencer.parent_above_gap(&self.blocks) {
            if !self.decide(height, parent) {
                return; // The alarm was raised.
            }
            is_news = true;
            self.call(|protocol, env| protocol.on_decided(env, height, parent));
        }
        if is_news {
            self.fetch_decided();
        }
    }

    /// Decides a height. A second block at one height stops the replica. Returns whether the decision is new.
    pub(crate) fn decide(&mut self, height: Height, id: BlockId) -> bool {
        match self.sequencer.decide(height, id) {
            Ok(is_new) => is_new,
            Err(alarm) => {
                self.stop(alarm);
                false
            }
        }
    }

    /// Logs decided heights and hands them to the executor, in order, as far as their bodies are available.
    pub(crate) fn execute_decided(&mut self) {
        while self.alarms.stopped.is_none()
            && !self.awaits_state
            && let Some((height, id)) = self.sequencer.next()
        {
            let full = if id == BlockId::null(height) {
                FullBlock::null(height)
            } else {
                // The block below it was issued just before, so its parent need not be available.
                self.services.bodies.attach(&self.blocks, id);
                let Some(block) = self.blocks.get(id) else { break };
                if let Some(alarm) =
                    self.sequencer.conflict_below(block, &self.checkpoints.stable().checkpoint)
                {
                    return self.stop(alarm);
                }
                let Some(full) = self.services.bodies.assemble(block, id) else { break };
                full
            };
            self.outbox.begin_step();
            // Once more: the log may have dropped a block that was far above, and keeps a body for one block alone.
            self.persist_block(id);
            self.outbox.persist(LogEntry::Decided { height, id }, &mut self.out);
            self.sequencer.issue(height);
            self.show_decided(height, id);
            self.hand_over(full);
        }
    }

    /// Hands an issued block to the executor, or holds it until the log is durable up to its decision.
    ///
    /// Durable votes let the block be executed at once. Otherwise a power cut of all replicas could erase the decision,
    /// and another block could be decided at its height. No client waits for an empty block, so it asks for no sync.
    fn hand_over(&mut self, full: FullBlock) {
        if self.entry.spec.votes_are_durable {
            return self.out.push_back(Output::Execute(full));
        }
        let own = self.outbox.appended();
        let is_empty = full.bundles.is_empty();
        self.sequencer.hold(own, full);
        if !is_empty {
            self.outbox.ask(own, &mut self.out);
        }
    }

    /// Hands held blocks to the executor, as far as their marks are durable.
    pub(crate) fn execute_durable(&mut self) {
        while let Some(full) = self.sequencer.take_durable(&self.outbox) {
            self.out.push_back(Output::Execute(full));
        }
    }

    /// Takes in the result of an executed block: replies to clients, and signs the checkpoint if one is due.
    pub(crate) fn on_executed(&mut self, executed: Executed) {
        let height = executed.height;
        if height <= self.sequencer.executed() {
            return; // A result of an earlier incarnation, or a repeated one.
        }
        self.sequencer.executed_one(height);
        let fresh = executed.fresh();
        let (view, leader) = (self.running.status.view, self.running.status.leader);
        for bundle in executed.bundles {
            self.services.pool.executed(self.now, &bundle.bundle);
            self.services.pool.supersede(bundle.client, bundle.session, bundle.number);
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
        self.services.bodies.executed(&self.blocks, height);
        // A height whose checkpoint is stable already may have left the sequencer.
        let proved = || self.checkpoints.proved(height).map(|proved| proved.block);
        let id = self.sequencer.decided(height).or_else(proved).unwrap_or_else(|| BlockId::null(height));
        self.services.note_executed([id]);
        if let Some(block) = self.blocks.get(id) {
            self.services.note_payload_executed(block.payload);
        }
        if let Some(state) = executed.state {
            self.sign_checkpoint(height, id, state);
        }
        self.announce_soon();
        self.peers.decisions.advance(self.now, self.sequencer.contiguous());
        self.fetch_decided();
        self.call(|protocol, env| protocol.on_executed(env, height, fresh));
    }
}
