//! Exact times and observation after every event, for measurements and scripts.

use super::World;
use crate::byzantine::Role;
use crate::oracles::Failure;
use crate::places::Places;
use quorate_types::{ReplicaId, Time};

impl World {
    /// Makes costs exact from now on, instead of random around their mean.
    pub fn take_exact_times(&mut self) {
        for slot in &self.slots {
            slot.machine.disk.watch(|watch| watch.is_exact = true);
        }
    }

    /// Runs until a moment, and calls `shown` after every event.
    ///
    /// # Errors
    /// Returns the finding of an oracle.
    pub fn run_shown(&mut self, end: Time, mut shown: impl FnMut(&Self)) -> Result<(), Failure> {
        while self.oracles.failure.is_none() && self.queue.next_at().is_some_and(|at| at <= end) {
            self.step();
            shown(self);
        }
        self.so_far()?;
        self.now = self.now.max(end);
        Ok(())
    }

    /// Fixes the receivers of the protocol of each half of a twin from now on. Moods no longer change them.
    pub fn divide(&mut self, twin: ReplicaId, first: Places, second: Places) {
        if let Some(Role::Byzantine(behaviour)) = self.slot_mut(twin).map(|slot| &mut slot.role) {
            behaviour.divide_for_good(first, second);
        }
    }
}
