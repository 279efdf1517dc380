//! What replicas can tell an operator of what is wrong.

use super::World;
use crate::replica_slot::WALL_NS;
use quorate_host::Stamp;
use quorate_replica::Divergence;
use quorate_types::ReplicaId;

impl World {
    /// Where the states of replicas differ, as far as this one has heard.
    #[must_use]
    pub fn differing(&self, id: ReplicaId) -> Vec<Divergence> {
        let running = self.slot(id).and_then(|slot| slot.running.as_ref());
        running.map_or_else(Vec::new, |running| running.host.replica().differing())
    }

    /// The times of the last block with requests of each proposer, as far as this replica has executed them in this life.
    #[must_use]
    pub fn stamps(&self, id: ReplicaId) -> Vec<Stamp> {
        let running = self.slot(id).and_then(|slot| slot.running.as_ref());
        running.map_or_else(Vec::new, |running| running.host.executor().stamps().to_vec())
    }

    /// What the wall clock of a machine says whose clock is right.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        WALL_NS.saturating_add(self.now.0)
    }
}
