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
    "the log holds a {0} that cannot be read: it was written by another version, or is damaged; open it with that version, or move the folder away and start the node with --rejoin"
)]
pub struct BadLog(pub &'static str);

/// The state that the entries of the log give, in their order; later entries win.
#[derive(Clone, Debug)]
pub struct RestoredLog {
    /// The number of the last opening; zero before the first.
    pub incarnation: Incarnation,
    pub(crate) records: BTreeMap<RecordKey, Vec<u8>>,
    pub(crate) guard: BTreeMap<Slot, Digest>,
    pub(crate) floors: Floors,
    /// The newest stable checkpoint.
    pub stable: CheckpointProof,
    pub(crate) blocks: BTreeMap<BlockId, (Arc<Block>, Arc<Payload>)>,
    pub(crate) decided: BTreeMap<Height, BlockId>,
    /// Bodies that the log has: see [`RestoredLog::wanted_bodies`].
    pub bodies: Vec<Bundle>,
    /// The height of the executor, after its snapshot and the decided blocks of the log after it.
    pub executed: Height,
    /// Whether the replica has lost an earlier disk, and with it its promises.
    pub is_amnesiac: bool,
    /// Whether the own states are wrong: nothing is executed before a state has come from peers.
    pub awaits_state: bool,
    /// The first height whose decided block the log keeps.
    pub kept: Height,
    /// The states after the heights of checkpoints, as execution of the log gave them. The replica signs them again,
    /// because its signatures may never have left.
    pub states: Vec<(Height, Digest)>,
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
            is_amnesiac: false,
            awaits_state: false,
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
}
