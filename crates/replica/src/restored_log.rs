//! The contents of a log that the next opening of its replica needs.

use crate::outbox::decode_record;
use quorate_consensus::{CheckpointProof, RecordKey};
use quorate_types::codec::Wire;
use quorate_types::{
    Block, BlockId, Bundle, BundleDigest, Digest, Floors, Height, Incarnation, LogEntry, Payload, Slot,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An entry of the log that this version does not write.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the log holds a {0} that cannot be read: it was written by another version, or is damaged; open it with that version, or restore the folder"
)]
pub struct BadLog(pub &'static str);

/// The state that the entries of the log give, in their order; later entries win.
#[derive(Clone, Debug)]
pub struct RestoredLog {
    pub(crate) incarnation: Incarnation,
    pub(crate) records: BTreeMap<RecordKey, Vec<u8>>,
    pub(crate) guard: BTreeMap<Slot, Digest>,
    pub(crate) floors: Floors,
    pub(crate) stable: CheckpointProof,
    pub(crate) blocks: BTreeMap<BlockId, (Arc<Block>, Arc<Payload>)>,
    pub(crate) decided: BTreeMap<Height, BlockId>,
    pub(crate) bodies: Vec<Bundle>,
    pub(crate) executed: Height,
    pub(crate) kept: Height,
    pub(crate) states: Vec<(Height, Digest)>,
}

impl Default for RestoredLog {
    fn default() -> Self {
        Self {
            incarnation: Incarnation::ZERO,
            records: BTreeMap::new(),
            guard: BTreeMap::new(),
            floors: Floors::default(),
            stable: CheckpointProof::genesis(),
            blocks: BTreeMap::new(),
            decided: BTreeMap::new(),
            bodies: Vec::new(),
            executed: Height::ZERO,
            kept: Height(1),
            states: Vec::new(),
        }
    }
}

impl RestoredLog {
    /// Takes in the next entry of the log.
    ///
    /// # Errors [`BadLog`] when this version does not write such an entry.
    pub fn absorb(&mut self, entry: LogEntry) -> Result<(), BadLog> {
        match entry {
            LogEntry::Incarnation(incarnation) => self.incarnation = self.incarnation.max(incarnation),
            LogEntry::Record(bytes) => {
                let (key, bytes) = decode_record(&bytes).ok_or(BadLog("record"))?;
                // A base repeats records while a newer proof, appended before it, is not durable yet.
                if key.height == Height::ZERO || key.height > self.stable.checkpoint.height {
                    self.records.insert(key, bytes);
                }
            }
            LogEntry::Guard(statement) => {
                self.guard.insert(statement.slot(), statement.subject);
            }
            LogEntry::Floors(floors) => {
                // The log may hold a gigabyte of guard entries, and those below the floors no longer bind.
                self.guard.retain(|slot, _| !floors.is_dead(slot));
                self.floors = floors;
            }
            LogEntry::Block(block, payload) => {
                self.blocks.insert(block.id(), (block, payload));
            }
            LogEntry::Decided { height, id } => {
                self.decided.insert(height, id);
            }
            LogEntry::Proof(bytes) => {
                let proof = CheckpointProof::from_bytes(&bytes).map_err(|_| BadLog("checkpoint proof"))?;
                if proof.checkpoint.height > self.stable.checkpoint.height {
                    self.stable = proof;
                    self.prune();
                }
            }
            LogEntry::Body(_) | LogEntry::Certificate(_) | LogEntry::BaseBegin | LogEntry::BaseEnd => {}
        }
        Ok(())
    }

    /// Drops entries below the stable checkpoint, which are settled. The log may hold a gigabyte of them.
    fn prune(&mut self) {
        let stable = self.stable.checkpoint.height;
        self.blocks.retain(|_, (block, _)| block.height > stable);
        self.records.retain(|key, _| key.height == Height::ZERO || key.height > stable);
        // Decided heights below the checkpoint that are not executed stay.
        let floor = self.decided.keys().next_back().copied().unwrap_or_default().min(stable);
        self.decided = self.decided.split_off(&floor.minus(1));
    }

    /// Returns the last height that the log has as decided, without gaps above the known ones.
    #[must_use]
    pub fn last_decided(&self) -> Height {
        self.decided.keys().next_back().copied().unwrap_or_default()
    }

    /// Sets the height of the executor, after its snapshot and the decided blocks of the log after it.
    pub fn set_executed(&mut self, executed: Height) {
        self.executed = executed;
    }

    /// Adds the state after a checkpoint's height, as execution of the log gave it. The replica signs it again,
    /// because its signature may never have left.
    pub fn add_state(&mut self, height: Height, state: Digest) {
        self.states.push((height, state));
    }

    /// Sets the first height whose decided block the log keeps.
    pub fn set_kept(&mut self, kept: Height) {
        self.kept = kept;
    }

    /// Returns the bodies of blocks that are not executed. The host reads those that the log has.
    #[must_use]
    pub fn wanted_bodies(&self) -> Vec<BundleDigest> {
        let open = self.blocks.values().filter(|(block, _)| block.height > self.executed);
        let mut wanted: Vec<BundleDigest> =
            open.flat_map(|(_, payload)| payload.bundles.iter().copied()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// Adds a body that the log has.
    pub fn add_body(&mut self, bundle: Bundle) {
        self.bodies.push(bundle);
    }

    /// Returns the number of the last opening; zero before the first.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the newest stable checkpoint.
    #[must_use]
    pub fn stable(&self) -> &CheckpointProof {
        &self.stable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::encode_record;
    use quorate_consensus::Checkpoint;
    use quorate_types::{Kind, Statement, View};

    fn record(height: u64) -> LogEntry {
        let key = RecordKey { kind: 1, height: Height(height), scope: Digest::ZERO };
        LogEntry::Record(encode_record(key, b"x"))
    }

    fn proof(height: u64) -> LogEntry {
        let mut proof = CheckpointProof::genesis();
        proof.checkpoint = Checkpoint { height: Height(height), ..Checkpoint::GENESIS };
        LogEntry::Proof(proof.to_bytes())
    }

    fn heights(log: &RestoredLog) -> Vec<u64> {
        log.records.keys().map(|key| key.height.0).collect()
    }

    #[test]
    fn records_below_the_stable_checkpoint_are_dropped_wherever_they_are_in_the_log() {
        let mut log = RestoredLog::default();
        // The base was written between the proof of 8 and its installation, so it repeats records that 8 settles.
        let base = [LogEntry::BaseBegin, proof(4), record(6), record(9), record(0), LogEntry::BaseEnd];
        for entry in [proof(4), record(6), record(7), proof(8)].into_iter().chain(base) {
            log.absorb(entry).unwrap();
        }
        assert_eq!((log.stable().checkpoint.height, heights(&log)), (Height(8), vec![0, 9]));
    }

    #[test]
    fn dead_slots_are_dropped() {
        let mut log = RestoredLog::default();
        let guard = |height| {
            LogEntry::Guard(Statement::new(Kind::new("vote"), View(0), Height(height), Digest::ZERO))
        };
        let floors = Floors { height: Height(2), views: Vec::new() };
        for entry in [guard(0), guard(1), guard(2), LogEntry::Floors(floors), guard(3)] {
            log.absorb(entry).unwrap();
        }
        let heights: Vec<u64> = log.guard.keys().map(|slot| slot.height.0).collect();
        assert_eq!(heights, [0, 2, 3]);
    }
}
