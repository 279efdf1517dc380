//! The state of a replica as the host, the intake and observers read it.

use crate::divergence::Divergence;
use crate::peer_decisions::NextBlock;
use crate::replica::Replica;
use crate::status::{ReplicaState, ReplicaStatus};
use crate::synchrony::{GuardStatus, SynchronyGuard};
use quorate_consensus::{Alarm, CheckpointProof, Spec};
use quorate_types::{Bundle, BundleDigest, Height, Incarnation, ReplicaId, View};

impl Replica {
    /// Whether the pool has a body: no block needs it once more.
    #[must_use]
    pub fn holds(&self, bundle: &BundleDigest) -> bool {
        self.services.pool.contains(bundle)
    }

    /// Whether the pool would keep a bundle that does not count as pending, for blocks that may name it. The intake need
    /// not check a bundle that the pool would drop.
    #[must_use]
    pub fn has_room(&self, from: ReplicaId, bundle: &Bundle) -> bool {
        self.services.bodies.awaits(&bundle.digest()) || self.services.pool.has_idle_room(bundle, Some(from))
    }

    /// Whether the client of a new bundle would receive `Busy`, after bundles of cost `more` were let in. The intake need
    /// not check such a bundle.
    #[must_use]
    pub fn is_busy(&self, bundle: &Bundle, more: usize) -> bool {
        self.services.pool.is_busy(self.now, bundle, more)
    }

    /// Whether the pool has a bundle that counts as pending: the intake need not check it again.
    #[must_use]
    pub fn awaits(&self, bundle: &BundleDigest) -> bool {
        self.services.pool.waits(bundle)
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> ReplicaStatus {
        let next = self.sequencer.contiguous().next();
        let state = if self.alarms.stopped.is_some() {
            ReplicaState::Stopped
        } else if self.awaits_state {
            ReplicaState::AwaitsState
        } else if self.is_out() {
            ReplicaState::Out
        } else if self.is_amnesiac() {
            ReplicaState::Amnesiac
        } else if self.peers.decisions.vouched() > next {
            ReplicaState::CatchingUp
        } else {
            ReplicaState::Current
        };
        let protocol = &self.running.status;
        ReplicaStatus {
            id: self.setup.me,
            incarnation: self.incarnation,
            state,
            view: protocol.view,
            leader: protocol.leader,
            normal: protocol.normal,
            last_view_change: protocol.last_view_change,
            view_changes: protocol.view_changes,
            decided: self.sequencer.contiguous(),
            executed: self.sequencer.executed(),
            stable: self.checkpoints.height(),
            kept: self.logged.kept,
            pool: self.services.pool.size(),
            outbox: self.outbox.size(),
            blocks: self.blocks.len(),
            timers: self.running.protocol.timers(),
            alarms: self.alarms.clone(),
            amnesia: self.amnesia(),
            guard: self.guard(),
        }
    }

    /// Returns the number of bundles that wait for their execution.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.services.pool.waiting()
    }

    /// Returns the height up to which every height is decided, and the last executed height.
    #[must_use]
    pub fn decided_and_executed(&self) -> (Height, Height) {
        (self.sequencer.contiguous(), self.sequencer.executed())
    }

    /// Returns whether peers still keep the next block that this replica needs.
    #[must_use]
    pub fn next_block(&self) -> NextBlock {
        self.next_block_after(self.sequencer.issued())
    }

    /// Returns whether peers still keep the block after a height.
    #[must_use]
    pub fn next_block_after(&self, height: Height) -> NextBlock {
        self.peers.decisions.next_block(height.next(), self.checkpoints.height())
    }

    /// Returns the number of heights that f + 1 peers have executed and this replica has not received.
    #[must_use]
    pub fn behind(&self) -> u64 {
        self.peers.decisions.vouched().since(self.sequencer.issued())
    }

    /// Whether no peer keeps the next height any more: [`ReplicaState::Out`].
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.next_block() == NextBlock::Gone
    }

    /// Whether nothing is executed before a state has come from peers: [`ReplicaState::AwaitsState`].
    #[must_use]
    pub fn awaits_state(&self) -> bool {
        self.awaits_state
    }

    /// Whether this replica cannot go on without a state of its peers, as far as it knows. It had executed `before` at the
    /// last stable checkpoint.
    pub(crate) fn needs_state(&self, before: Height) -> bool {
        match self.next_block() {
            _ if self.awaits_state => true,
            NextBlock::Kept => false,
            NextBlock::Doubtful => self.sequencer.executed() == before,
            NextBlock::Gone => true,
        }
    }

    /// Returns the number of reports of peers so far. Only a new report changes [`Replica::next_block`] while this replica
    /// makes no progress.
    #[must_use]
    pub fn reports(&self) -> u64 {
        self.peers.decisions.reports()
    }

    /// Returns the proof of the newest stable checkpoint in the log, durable or not.
    #[must_use]
    pub fn newest_proof(&self) -> &CheckpointProof {
        self.checkpoints.newest_proof()
    }

    /// Returns all other replicas.
    #[must_use]
    pub fn others(&self) -> &[ReplicaId] {
        &self.peers.others
    }

    /// Returns the last height that this replica has executed or is about to execute.
    #[must_use]
    pub fn issued(&self) -> Height {
        self.sequencer.issued()
    }

    /// Returns whether more than f peers are late, and how often that has begun; `None` where the protocol assumes no
    /// bound.
    #[must_use]
    pub fn doubt(&self) -> Option<(bool, u64)> {
        self.services.synchrony.as_ref().map(SynchronyGuard::doubt)
    }

    /// Returns the measurements of the synchrony guard. This sorts all round trips, so it is not for every turn.
    #[must_use]
    pub fn guard(&self) -> Option<GuardStatus> {
        self.services.synchrony.as_ref().map(SynchronyGuard::status)
    }

    /// Returns the last alarm that did not stop the replica, and the number of such alarms.
    #[must_use]
    pub fn doubted(&self) -> (Option<Alarm>, u64) {
        (self.alarms.last_doubt, self.alarms.doubts)
    }

    /// Returns the heights whose checkpoints differ, as far as this replica has received them; empty when all is well. A
    /// difference stays until the differing replica agrees at a later checkpoint.
    #[must_use]
    pub fn differing(&self) -> Vec<Divergence> {
        self.checkpoints.differing(self.setup.me, self.setup.committee.ids().collect())
    }

    /// Returns the number of checkpoint messages so far: only a new one changes [`Replica::differing`].
    #[must_use]
    pub fn checkpoints_received(&self) -> u64 {
        self.checkpoints.received()
    }

    /// Returns its view and the leader of that view.
    #[must_use]
    pub fn leader(&self) -> (View, ReplicaId) {
        (self.running.status.view, self.running.status.leader)
    }

    /// Returns the bound on delays on which the protocol's safety rests, in nanoseconds; `None` where it rests on none.
    #[must_use]
    pub fn delta_ns(&self) -> Option<u64> {
        self.services.synchrony.as_ref().map(SynchronyGuard::delta_ns)
    }

    /// Returns the protocol's properties.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.entry.spec
    }

    /// Returns the number of this opening.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the newest stable checkpoint.
    #[must_use]
    pub fn stable(&self) -> &CheckpointProof {
        self.checkpoints.stable()
    }
}
