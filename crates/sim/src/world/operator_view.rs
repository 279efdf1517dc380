//! Reports of replicas to an operator.

use super::World;
use crate::instrumented_store::{InstrumentedStore, Journal, StoreFlaw};
use crate::replica_slot::WALL_NS;
use quorate_host::{Stamp, StateAt, read_state};
use quorate_replica::Divergence;
use quorate_types::{Height, ReplicaId};

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

    /// Returns the height of the stable checkpoint whose state a replica's disk gives, as a backup of the stopped node reads it.
    ///
    /// # Errors
    /// Fails with the reason why the disk gives none.
    pub fn backed_up(&self, id: ReplicaId) -> Result<Height, String> {
        let image = self.image(id).ok_or("there is no such replica")?;
        let store = Box::new(InstrumentedStore::new(Journal::default(), StoreFlaw::None, 0));
        let read = read_state(&self.cluster.genesis, store, Box::new(image), StateAt::Stable);
        read.map(|(execution, _)| execution.height()).map_err(|why| why.to_string())
    }

    /// Returns the time of a correct wall clock.
    #[must_use]
    pub fn wall_ns(&self) -> u64 {
        WALL_NS.saturating_add(self.now.0)
    }
}
