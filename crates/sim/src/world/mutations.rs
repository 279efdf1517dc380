//! Deliberate flaws of a world, which an oracle has to notice.

use super::World;
use crate::disk::DiskFlaw;
use crate::instrumented_store::StoreFlaw;
use crate::replica_slot::Damage;
use quorate_history::OpId;
use quorate_storage::MemDisk;
use quorate_types::ReplicaId;

impl World {
    /// Makes a replica's disk report syncs without doing them, from its next start on.
    pub fn break_syncs(&mut self, id: ReplicaId) {
        self.break_disk(id, DiskFlaw::Sync);
    }

    /// Gives a replica's disk a flaw, from its next start on.
    pub(crate) fn break_disk(&mut self, id: ReplicaId, disk_flaw: DiskFlaw) {
        if let Some(slot) = self.slot_mut(id) {
            slot.machine.disk_flaw = disk_flaw;
        }
    }

    /// Gives a replica's service a flaw, from its next start on.
    pub(crate) fn break_service(&mut self, id: ReplicaId, store_flaw: StoreFlaw) {
        if let Some(slot) = self.slot_mut(id) {
            slot.service.flaw = store_flaw;
        }
    }

    /// Makes the oracles allow only the memory for a window of eight heights, whatever the window is.
    pub(crate) fn tighten_bounds(&mut self) {
        self.mutations.bounds_are_tight = true;
    }

    /// Makes clients count each reply twice.
    pub(crate) fn make_clients_credulous(&mut self) {
        self.mutations.clients_are_credulous = true;
    }

    /// Lets a replica's disk take this number of segments and writes to snapshot files until it is full. `None` gives it room.
    pub fn limit_disk(&mut self, id: ReplicaId, room: Option<u64>) {
        if let Some(slot) = self.slot_mut(id) {
            slot.machine.disk.watch(|watch| watch.room = room);
            slot.machine.damage = if room.is_some() { Damage::DiskTrouble } else { Damage::None };
        }
    }

    /// Keeps running replicas from comparing shown statements of theirs with their logs, for a schedule that signs for them.
    pub fn ignore_own_statements(&mut self) {
        for id in self.replicas() {
            let running = self.slot_mut(id).and_then(|slot| slot.running.as_mut());
            running.into_iter().for_each(|running| running.host.ignore_own_statements());
        }
    }

    /// Replaces a stopped replica's disk by an older image.
    pub fn roll_back_disk(&mut self, id: ReplicaId, image: MemDisk) {
        if let Some(slot) = self.slot(id).filter(|slot| slot.running.is_none()) {
            slot.machine.disk.replace(image);
        }
    }

    /// Makes a replica apply an operation twice, from its next start on.
    pub fn apply_twice(&mut self, id: ReplicaId, op: OpId) {
        self.break_service(id, StoreFlaw::Twice(op));
    }

    /// Makes a replica report an operation as applied without applying it, from its next start on.
    pub fn skip_operation(&mut self, id: ReplicaId, op: OpId) {
        self.break_service(id, StoreFlaw::Skip(op));
    }

    /// Makes a replica answer an operation with a wrong result, from its next start on.
    pub fn falsify_answer(&mut self, id: ReplicaId, op: OpId) {
        self.break_service(id, StoreFlaw::Answer(op));
    }

    /// Makes the oracles judge a Byzantine replica as an honest one.
    pub fn trust_liar(&mut self, id: ReplicaId) {
        self.roles.trusted.insert(id);
    }
}
