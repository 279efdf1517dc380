//! Reports of replicas to an operator.

use super::World;
use crate::replica_slot::WALL_NS;
use quorate_host::Stamp;
use quorate_replica::Divergence;
use quorate_types::ReplicaId;

impl World {
    /// Returns the differences between states of replicas that this one has learned of.
    #[must_use]
    pub fn differing(&self, id: ReplicaId) -> Vec<Divergence> {
        self.running(id).map_or_else(Vec::new, |running| running.host.replica().differing())
    }

    /// Returns the times of each proposer's last block with requests that this replica has executed since its start.
    #[must_use]
    pub fn stamps(&self, id: ReplicaId) -> Vec<Stamp> {
        self.running(id).map_or_else(Vec::new, |running| running.host.executor().stamps().to_vec())
    }

    /// Returns the time of a correct wall clock.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        WALL_NS.saturating_add(self.now.0)
    }
}
