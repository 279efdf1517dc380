//! The exchange between hosts: heights, decided ids, missing blocks, and probes.

use crate::bodies::Haste;
use crate::host_message::{Heights, HostMessage};
use crate::input::{Checked, CheckedMessage};
use crate::outbox::Unsent;
use crate::output::{Output, Unsealed};
use crate::peer_exchange::{ANNOUNCE_IDLE_NS, ANNOUNCE_NS};
use crate::replica::Replica;
use quorate_consensus::parts::block_tree::Inserted;
use quorate_consensus::{LinkEvent, Reject, To};
use quorate_types::limits::{
    DECIDED_PER_ANSWER_MAX, DECIDED_PER_TURN_MAX, FETCH_FRAMES_MAX, FETCH_PATH_BLOCKS_MAX,
    FETCH_PATH_BYTES_MAX, FETCH_PER_PEER_MAX,
};
use quorate_types::wire::Lane;
use quorate_types::{Block, BlockId, FullBlock, Height, Kind, Payload, ReplicaId, Time};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The refusal of a question beyond the share of its peer in this turn.
const BEYOND_SHARE: Reject = Reject::NotNow("asked for too much at once");

impl Replica {
    /// Takes in a checked message of a peer.
    pub(crate) fn on_peer(&mut self, checked: Checked) {
        let Checked { link, seal, message } = checked;
        match message {
            CheckedMessage::Protocol(message) => {
                let mut announced = Vec::new();
                message.bodies(&mut announced);
                // This precedes the protocol, which may ask for them.
                announced.retain(|payload| self.services.bodies.announce(self.now, *payload));
                let kind = message.kind();
                if let Err(why) = self.deliver(link, seal, message) {
                    announced.iter().for_each(|payload| self.services.bodies.unannounce(payload));
                    self.reject(link, kind, why);
                }
            }
            CheckedMessage::Host(message) => self.on_host_message(link, seal, message),
        }
    }

    fn on_host_message(&mut self, from: ReplicaId, seal: quorate_consensus::Seal, message: HostMessage) {
        let kind = message.kind();
        match message {
            HostMessage::Checkpoint(checkpoint) => {
                if let Some(signature) = seal.signature {
                    self.on_checkpoint(seal.by, checkpoint, signature);
                }
            }
            HostMessage::Proof(proof) | HostMessage::ShownProof(proof) => self.learn_proof(*proof),
            HostMessage::AskShow { incarnation, round, stable, view } => {
                self.on_ask_show(from, (incarnation, round), (stable, view));
            }
            HostMessage::Shown { incarnation, round, view, stable } => {
                self.on_shown(from, incarnation, (round, view, stable));
            }
            HostMessage::AskProof => {
                if !self.checkpoints.stable().is_genesis() && self.checkpoints.may_help(from, self.now) {
                    let stable = self.checkpoints.stable().clone();
                    self.send_host(To::One(from), HostMessage::Proof(Box::new(stable)));
                }
            }
            HostMessage::Heights(heights) => self.on_heights(from, heights),
            HostMessage::AskDecided(_)
                if self.peers.answered.to(self.now, from).ids >= DECIDED_PER_TURN_MAX =>
            {
                self.reject(from, kind, BEYOND_SHARE);
            }
            HostMessage::AskDecided(height) => self.answer_decided(from, height),
            HostMessage::Decided(height, ids) => self.on_decided(from, height, &ids),
            HostMessage::AskBlock { id, .. }
                if self.peers.answered.to(self.now, from).frames >= FETCH_FRAMES_MAX =>
            {
                self.reject(from, kind, BEYOND_SHARE);
                // The refusal lets the peer ask another replica at once.
                self.send_host(To::One(from), HostMessage::NoBlock(id));
            }
            HostMessage::AskBlock { id, height, above } => self.answer_block(from, id, height, above),
            HostMessage::Block(block) => self.on_block(from, kind, block),
            HostMessage::NoBlock(id) => {
                self.services.bodies.on_refusal(self.now, id, from);
                self.send_asks();
            }
            HostMessage::Probe { incarnation, number } => {
                let Some(guard) = &mut self.services.synchrony else {
                    return self.reject(from, kind, Reject::Invalid("probe where no bound is assumed"));
                };
                guard.on_probe(self.now);
                // The answer leaves at once, whatever the disk does: the delay of the disk is in the answer.
                let (at, oldest_ns) = (self.now, self.outbox.oldest_held_ns(self.now));
                self.send_host(
                    To::One(from),
                    HostMessage::ProbeAnswer { incarnation, number, oldest_ns, at },
                );
            }
            HostMessage::Transfer(_) => self.reject(from, kind, Reject::NotNow("message for the host")),
            HostMessage::ProbeAnswer { incarnation, number, oldest_ns, at } => {
                let answered = match &mut self.services.synchrony {
                    Some(guard) => guard.on_answer(self.now, from, incarnation, number, (oldest_ns, at)),
                    None => Err(Reject::Invalid("answer to no probe")),
                };
                if let Err(why) = answered {
                    self.reject(from, kind, why);
                }
            }
        }
    }

    /// Takes in a block that was requested from a peer.
    fn on_block(&mut self, from: ReplicaId, kind: Kind, block: Block) {
        let id = block.id();
        // A bare header that was heard after its child is taken again, with its bodies.
        let is_here = self.blocks.contains(id) && !self.blocks.is_bare(id);
        if !self.services.bodies.is_wanted(id) || is_here {
            return;
        }
        if !self.services.bodies.accepts_height(id, block.height) {
            // No honest replica made the child that names this block. But the sender of the block may be honest.
            return self.reject(from, kind, Reject::NotNow("block above the one that names it"));
        }
        self.services.bodies.hear(self.now, from);
        if matches!(self.blocks.insert(block), Inserted::Orphan(_)) {
            // The ancestors follow the block, if they are few.
            let from = (from, Haste::InTurn);
            self.services.bodies.want_below(self.now, &self.blocks, id, from);
        }
    }

    /// Takes in the heights that a peer reports.
    fn on_heights(&mut self, from: ReplicaId, heights: Heights) {
        self.peers.decisions.on_heights(self.now, from, heights, self.sequencer.contiguous());
        self.help_with_checkpoint(from, heights.stable);
        // A replica that is behind asks when f + 1 peers have reported greater heights.
        if heights.executed < self.sequencer.executed() && self.peers.decisions.may_answer(self.now, from) {
            self.send_host(To::One(from), HostMessage::Heights(self.heights()));
        }
    }

    /// Counts a peer's message that is refused.
    pub(crate) fn reject(&mut self, from: ReplicaId, kind: Kind, why: Reject) {
        self.out.push_back(Output::Rejected { from, kind, why });
    }

    /// Probes the peers, if it is time.
    pub(crate) fn send_probe(&mut self) {
        let now = self.now;
        let probe = self.services.synchrony.as_mut().and_then(|guard| guard.take_probe(now));
        if let Some((to, message)) = probe.filter(|_| self.alarms.stopped.is_none()) {
            self.send_host(to, message);
        }
    }

    /// Updates the synchrony guard after everything that had arrived by `due` was handled. The guard notes missing
    /// answers before the protocol's timers ask whether all is sound.
    pub(crate) fn tick_guard(&mut self, due: Time) {
        let now = self.now;
        if let Some(guard) = &mut self.services.synchrony {
            guard.tick(now, due);
            if guard.has_changed {
                self.settle();
            }
        }
    }

    /// Sends signatures, or the proof, to a peer whose stable checkpoint is older.
    fn help_with_checkpoint(&mut self, peer: ReplicaId, stable: Height) {
        if !self.checkpoints.may_help(peer, self.now) {
            return;
        }
        if stable < self.checkpoints.height() {
            let proof = self.checkpoints.stable().clone();
            return self.send_host(To::One(peer), HostMessage::Proof(Box::new(proof)));
        }
        for (checkpoint, _) in self.checkpoints.own_signed(self.setup.me) {
            // An identical statement may always be repeated.
            self.send_host(To::One(peer), HostMessage::Checkpoint(checkpoint));
        }
    }

    pub(crate) fn send_host(&mut self, to: To, message: HostMessage) {
        // The guard refuses only a checkpoint whose height has another signature, from before a restart.
        let _: Result<(), Unsent> = self.outbox.send_host(self.now, to, message, &mut self.out);
    }

    /// Returns the heights that peers may hear: executed heights, not all decided ones. Peers decide by f + 1 reports,
    /// f of which may be lies. So an honest report must hold after a power cut that made the voters forget the
    /// decision (`hand_over`).
    fn heights(&self) -> Heights {
        Heights {
            executed: self.sequencer.executed(),
            kept: self.logged.kept,
            stable: self.checkpoints.height(),
        }
    }

    /// Announces this replica's heights soon, together with those that follow until then.
    pub(crate) fn announce_soon(&mut self) {
        self.peers.announce_at = self.peers.announce_at.min(self.now.plus(ANNOUNCE_NS));
    }

    /// Takes in an event of the link to a peer.
    pub(crate) fn on_link(&mut self, peer: ReplicaId, event: LinkEvent) {
        self.send_host(To::One(peer), HostMessage::Heights(self.heights()));
        if let (LinkEvent::Gap, Some(guard)) = (event, &mut self.services.synchrony) {
            guard.on_gap(self.now, peer);
        }
        self.call(|protocol, env| protocol.on_link(env, peer, event));
    }

    /// Does what is due of the host's own work.
    pub(crate) fn tick_host(&mut self) {
        if self.peers.announce_at <= self.now {
            // While an own checkpoint waits for the others, announcements follow sooner.
            let pause = if self.checkpoints.waits() { ANNOUNCE_NS } else { ANNOUNCE_IDLE_NS };
            self.peers.announce_at = self.now.plus(pause);
            self.send_host(To::All, HostMessage::Heights(self.heights()));
        }
        // If leaders rotate, no bundle is forwarded. A liar may have handed a bundle to this replica alone, and no
        // other replica would wait for it.
        let rotates = self.entry.spec.rotates_leaders;
        for bundle in self.services.pool.overdue(self.now, rotates) {
            // A stable leader has spread its bodies already and proposes them itself.
            if rotates || self.running.status.leader != self.setup.me {
                self.send_frame(To::All, Lane::Bodies, Unsealed::Bundle(bundle));
            }
        }
        self.tick_amnesia();
        self.outbox.tick(self.now, &mut self.out);
        if self.peers.decisions.take_reports() {
            // The holders of a decided block may become known after the decision.
            self.fetch_decided();
            self.peers.decisions.advance(self.now, self.sequencer.contiguous());
        }
        self.ask_decided();
        self.send_asks();
    }

    fn ask_decided(&mut self) {
        if let Some((from, peers)) = self.peers.decisions.ask(self.now, self.sequencer.contiguous()) {
            self.send_host(To::Some(peers.into_iter().collect()), HostMessage::AskDecided(from));
        }
    }

    /// Sends the requests for blocks that are due.
    pub(crate) fn send_asks(&mut self) {
        for ask in self.services.bodies.take_due_asks(self.now, &self.peers.others) {
            let decided = self.sequencer.waiting_at(ask.block);
            let above = decided.map_or(self.sequencer.contiguous(), |height| height.minus(1));
            let message = HostMessage::AskBlock { id: ask.block, height: ask.height, above };
            self.send_host(To::One(ask.peer), message);
        }
    }

    /// Answers a peer that asks for decided ids from a height on.
    fn answer_decided(&mut self, to: ReplicaId, from: Height) {
        if from > self.sequencer.executed() {
            return;
        }
        if from < self.logged.kept {
            return self.send_host(To::One(to), HostMessage::Heights(self.heights()));
        }
        let mut ids = Vec::new();
        let mut height = from;
        while ids.len() < DECIDED_PER_ANSWER_MAX && height <= self.sequencer.executed() {
            let Some(id) = self.sequencer.decided(height) else {
                break;
            };
            ids.push(id);
            height = height.next();
        }
        if ids.is_empty() {
            self.out.push_back(Output::LoadIds { to, from });
        } else {
            self.send_decided(to, from, ids);
        }
    }

    fn send_decided(&mut self, to: ReplicaId, from: Height, ids: Vec<BlockId>) {
        let handed = &mut self.peers.answered.to(self.now, to).ids;
        *handed = handed.saturating_add(ids.len());
        self.send_host(To::One(to), HostMessage::Decided(from, ids));
    }

    /// Answers a peer with the decided ids that the log has.
    pub(crate) fn on_stored_ids(&mut self, to: ReplicaId, from: Height, mut ids: Vec<BlockId>) {
        // The log may have heights that are not executed, and thus may not be durable.
        let most = usize::try_from(self.sequencer.executed().next().since(from)).unwrap_or(0);
        ids.truncate(most.min(DECIDED_PER_ANSWER_MAX));
        if ids.is_empty() {
            self.send_host(To::One(to), HostMessage::Heights(self.heights()));
        } else {
            self.send_decided(to, from, ids);
        }
    }

    /// Takes in a peer's decided ids. An id counts when f + 1 peers report the same.
    fn on_decided(&mut self, from: ReplicaId, start: Height, ids: &[BlockId]) {
        let contiguous = self.sequencer.contiguous();
        let mut is_new = false;
        for (height, id) in self.peers.decisions.on_answer(from, start, ids, contiguous) {
            if self.decide(height, id) {
                is_new = true;
                self.call(|protocol, env| protocol.on_decided(env, height, id));
            }
        }
        if is_new {
            self.decide_parents();
        }
    }

    /// Fetches the next decided blocks that are missing, from peers that have executed them.
    pub(crate) fn fetch_decided(&mut self) {
        let missing: Vec<(Height, BlockId)> = self
            .sequencer
            .waiting()
            .take(FETCH_PER_PEER_MAX)
            .filter(|(height, id)| *id != BlockId::null(*height))
            .filter(|(_, id)| self.services.bodies.ready(&self.services.pool, &self.blocks, *id).is_none())
            .collect();
        for (height, id) in missing {
            self.blocks.admit(id);
            let holders = self.peers.decisions.holders(height);
            // Different heights start with different peers, so that one slow peer does not slow down all.
            let start = usize::try_from(height.0 % 64).unwrap_or(0).checked_rem(holders.len()).unwrap_or(0);
            for peer in holders.iter().cycle().skip(start).take(holders.len()) {
                let from = (*peer, Haste::InTurn);
                self.services.bodies.want(self.now, &self.blocks, id, height, from);
            }
        }
        self.send_asks();
    }

    /// Answers a peer that lacks a block and maybe its ancestors above a height. Newest first: so the peer knows each
    /// as an ancestor.
    fn answer_block(&mut self, to: ReplicaId, id: BlockId, height: Height, above: Height) {
        let known = self.blocks.get(id).cloned();
        if let Some(full) = known.as_ref().and_then(|block| self.services.bodies.assemble(block, id)) {
            self.send_block(to, &full);
            return self.send_ancestors(to, &full, above);
        }
        let height = known.map_or(height, |block| block.height);
        let is_kept =
            height > Height::ZERO && height <= self.sequencer.executed() && height >= self.logged.kept;
        // A read is expensive, and a peer may ask for any id. The decided id is often in memory.
        if is_kept && self.sequencer.decided(height).is_none_or(|decided| decided == id) {
            self.out.push_back(Output::Load { to, height, id });
        } else {
            self.refuse_block(to, id);
        }
    }

    /// Refuses a block that is not available with all its ancestors. Its header goes first where this replica had its
    /// bodies. It names the parent, which may be all that the peer needs: of a block that conflicts with a decided one
    /// no replica keeps more.
    fn refuse_block(&mut self, to: ReplicaId, id: BlockId) {
        let executed = self.sequencer.executed();
        let had = |block: &&Block| block.height <= executed || self.services.bodies.lacks_ancestors_alone(id);
        if let Some(block) = self.blocks.get(id).map(|block| &**block).filter(had).cloned() {
            self.send_host(To::One(to), HostMessage::Block(block));
        }
        self.send_host(To::One(to), HostMessage::NoBlock(id));
    }

    fn send_ancestors(&mut self, to: ReplicaId, of: &FullBlock, above: Height) {
        let (mut bytes, mut at) = (of.bytes(), of.block.as_ref().map(|block| block.parent));
        for _ in 1..FETCH_PATH_BLOCKS_MAX {
            let block = at.and_then(|id| self.blocks.get(id)).filter(|block| block.height > above);
            let full = block.zip(at).and_then(|(block, id)| self.services.bodies.assemble(block, id));
            let Some(full) = full else { return };
            bytes = bytes.saturating_add(full.bytes());
            if bytes > FETCH_PATH_BYTES_MAX {
                return;
            }
            self.send_block(to, &full);
            at = full.block.as_ref().map(|block| block.parent);
        }
    }

    /// Answers a peer with the block that the log has.
    pub(crate) fn on_stored(&mut self, to: ReplicaId, id: BlockId, block: Option<Box<FullBlock>>) {
        match block {
            Some(full) if full.id == id => self.send_block(to, &full),
            _ => self.refuse_block(to, id),
        }
    }

    fn send_block(&mut self, to: ReplicaId, full: &FullBlock) {
        let Some(block) = &full.block else { return };
        let frames = &mut self.peers.answered.to(self.now, to).frames;
        *frames = frames.saturating_add(full.bundles.len()).saturating_add(2);
        let to = To::One(to);
        self.send_host(to, HostMessage::Block(block.clone()));
        let payload = Payload { bundles: full.bundles.iter().map(|bundle| bundle.digest()).collect() };
        self.send_frame(to, Lane::CatchUp, Unsealed::Payload(Arc::new(payload)));
        for bundle in &full.bundles {
            self.send_frame(to, Lane::CatchUp, Unsealed::Bundle(bundle.clone()));
        }
    }
}
