//! What a test does to replicas to see that an oracle notices.

use super::World;
use crate::disk::Lie;
use crate::witness::Perjury;
use quorate_history::OpId;
use quorate_storage::MemDisk;
use quorate_types::ReplicaId;

/// What is done to the world itself, beside what seats and clients are made to do.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sabotage {
    /// Bounds are those of a small window, whatever the window is.
    pub(super) bounds_are_tight: bool,
    /// Clients take what one replica says for the word of two.
    pub(super) clients_are_credulous: bool,
}

impl World {
    /// Sabotage: from its next start on, this replica's disk reports syncs that it does not do.
    pub fn sabotage_syncs(&mut self, id: ReplicaId) {
        if let Some(seat) = self.seat_mut(id) {
            seat.lie = Lie::Sync;
        }
    }

    /// Sabotage: from its next start on, this replica's disk does this wrong.
    pub(crate) fn sabotage_disk(&mut self, id: ReplicaId, lie: Lie) {
        if let Some(seat) = self.seat_mut(id) {
            seat.lie = lie;
        }
    }

    /// Sabotage: from its next start on, this replica's service does this wrong.
    pub(crate) fn sabotage_service(&mut self, id: ReplicaId, perjury: Perjury) {
        if let Some(seat) = self.seat_mut(id) {
            seat.perjury = perjury;
        }
    }

    /// Sabotage: from now on replicas may keep what suits a window of eight heights, whatever theirs is.
    pub(crate) fn sabotage_bounds(&mut self) {
        self.sabotage.bounds_are_tight = true;
    }

    /// Sabotage: from now on clients take what one replica says for the word of two.
    pub(crate) fn sabotage_clients(&mut self) {
        self.sabotage.clients_are_credulous = true;
    }

    /// Sabotage: puts an older image in the place of a stopped replica's disk.
    pub fn sabotage_roll_back(&mut self, id: ReplicaId, image: MemDisk) {
        if let Some(seat) = self.seat(id).filter(|seat| seat.running.is_none()) {
            seat.shared.replace(image);
        }
    }

    /// Sabotage: from its next start on, this replica applies an operation twice.
    pub fn sabotage_twice(&mut self, id: ReplicaId, op: OpId) {
        if let Some(seat) = self.seat_mut(id) {
            seat.perjury = Perjury::Twice(op);
        }
    }

    /// Sabotage: from its next start on, this replica says that it applied an operation, and does not.
    pub fn sabotage_skip(&mut self, id: ReplicaId, op: OpId) {
        if let Some(seat) = self.seat_mut(id) {
            seat.perjury = Perjury::Skip(op);
        }
    }

    /// Sabotage: from its next start on, this replica answers an operation with what was not asked.
    pub fn sabotage_answer(&mut self, id: ReplicaId, op: OpId) {
        if let Some(seat) = self.seat_mut(id) {
            seat.perjury = Perjury::Answer(op);
        }
    }

    /// Sabotage: from now on the oracles hold this replica for honest, whatever it does.
    pub fn sabotage_trust(&mut self, id: ReplicaId) {
        self.trusted.insert(id);
    }
}
