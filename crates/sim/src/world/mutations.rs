//! What a test does to replicas to see that an oracle notices.

use super::World;
use crate::disk::DiskFlaw;
use crate::history::OpId;
use crate::instrumented_store::StoreFlaw;
use quorate_storage::MemDisk;
use quorate_types::ReplicaId;

impl World {
    /// Sabotage: from its next start on, this replica's disk reports syncs that it does not do.
    pub fn break_syncs(&mut self, id: ReplicaId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.machine.disk_flaw = DiskFlaw::Sync;
        }
    }

    /// Sabotage: from its next start on, this replica's disk does this wrong.
    pub(crate) fn break_disk(&mut self, id: ReplicaId, disk_flaw: DiskFlaw) {
        if let Some(slot) = self.slot_mut(id) {
            slot.machine.disk_flaw = disk_flaw;
        }
    }

    /// Sabotage: from its next start on, this replica's service does this wrong.
    pub(crate) fn break_service(&mut self, id: ReplicaId, store_flaw: StoreFlaw) {
        if let Some(slot) = self.slot_mut(id) {
            slot.service.flaw = store_flaw;
        }
    }

    /// Sabotage: from now on replicas may keep what suits a window of eight heights, whatever theirs is.
    pub(crate) fn tighten_bounds(&mut self) {
        self.mutations.bounds_are_tight = true;
    }

    /// Sabotage: from now on clients take what one replica says for the word of two.
    pub(crate) fn make_clients_credulous(&mut self) {
        self.mutations.clients_are_credulous = true;
    }

    /// Sabotage: puts an older image in the place of a stopped replica's disk.
    pub fn roll_back_disk(&mut self, id: ReplicaId, image: MemDisk) {
        if let Some(slot) = self.slot(id).filter(|slot| slot.running.is_none()) {
            slot.machine.disk.replace(image);
        }
    }

    /// Sabotage: from its next start on, this replica applies an operation twice.
    pub fn apply_twice(&mut self, id: ReplicaId, op: OpId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.service.flaw = StoreFlaw::Twice(op);
        }
    }

    /// Sabotage: from its next start on, this replica says that it applied an operation, and does not.
    pub fn skip_operation(&mut self, id: ReplicaId, op: OpId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.service.flaw = StoreFlaw::Skip(op);
        }
    }

    /// Sabotage: from its next start on, this replica answers an operation with what was not asked.
    pub fn falsify_answer(&mut self, id: ReplicaId, op: OpId) {
        if let Some(slot) = self.slot_mut(id) {
            slot.service.flaw = StoreFlaw::Answer(op);
        }
    }

    /// Sabotage: from now on the oracles hold this replica for honest, whatever it does.
    pub fn trust_liar(&mut self, id: ReplicaId) {
        self.roles.trusted.insert(id);
    }
}
