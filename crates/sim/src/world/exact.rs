//! For those who count and watch: times that are not drawn, and a look after every event.

use super::World;
use crate::byzantine::Role;
use crate::oracles::Failure;
use crate::places::Places;
use quorate_types::{ReplicaId, Time};

impl World {
    /// From now on whatever costs time takes exactly what the settings say, and not that in the mean: for counting.
    pub fn take_exact_times(&mut self) {
        for slot in &self.slots {
            slot.machine.disk.watch(|watch| watch.is_exact = true);
        }
    }

    /// Runs until a moment, and shows the world after every event.
    ///
    /// # Errors
    /// What an oracle found.
    pub fn run_shown(&mut self, end: Time, mut shown: impl FnMut(&Self)) -> Result<(), Failure> {
        while self.oracles.failure.is_none() && self.queue.next_at().is_some_and(|at| at <= end) {
            self.step();
            shown(self);
        }
        self.run_until(end)
    }

    /// From now on the protocols of the two replicas of a twin speak to these and to those, and to nobody else: moods
    /// no longer change that.
    pub fn divide(&mut self, twin: ReplicaId, first: Places, second: Places) {
        if let Some(Role::Byzantine(behaviour)) = self.slot_mut(twin).map(|slot| &mut slot.role) {
            behaviour.divide_for_good(first, second);
        }
    }
}
