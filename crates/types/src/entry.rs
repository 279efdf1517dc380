//! Entries of a replica's log.
//!
//! The replica chooses the entries and their marks. `quorate-storage` chooses their place. Records of protocols,
//! certificates and proofs are opaque bytes in the log, because a log outlives protocols.

use crate::block::{Block, Payload};
use crate::bundle::Bundle;
use crate::codec::{DecodeError, Reader, Wire, put_list};
use crate::ids::{BlockId, Height, Incarnation, Kind, View};
use crate::statement::{Slot, Statement};
use std::sync::Arc;

/// A position in the persist stream. `Durable(mark)` reports that everything up to the mark is on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Mark(pub u64);

/// Floors below which a slot is dead. A dead slot is refused for ever, so its guard entry may be dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Floors {
    /// Slots with a height below this are dead.
    pub height: Height,
    /// Slots of a kind with a view below this are dead.
    pub views: Vec<(Kind, View)>,
}

impl Floors {
    /// Whether a slot lies below the floors.
    #[must_use]
    pub fn is_dead(&self, slot: &Slot) -> bool {
        let below = slot.height > Height::ZERO && slot.height < self.height;
        below || self.views.iter().any(|(kind, view)| *kind == slot.kind && slot.view < *view)
    }
}

/// The largest number of kinds of statements with a floor.
const FLOOR_KINDS_MAX: usize = 64;

impl Wire for Floors {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        put_list(out, &self.views);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            height: Height::decode(reader)?,
            views: reader.list("floors", FLOOR_KINDS_MAX, 24, Wire::decode)?,
        })
    }
}

/// One entry of the log.
#[derive(Clone, PartialEq, Debug)]
pub enum LogEntry {
    /// An opening of the replica.
    Incarnation(Incarnation),
    /// A protocol's record. A later record with the same key replaces it; the replica knows the keys.
    Record(Arc<[u8]>),
    /// A statement that has filled a slot of the guard.
    Guard(Statement),
    /// Floors of the guard.
    Floors(Floors),
    /// A block's header with the list of its bundles.
    Block(Arc<Block>, Arc<Payload>),
    /// A bundle.
    Body(Bundle),
    /// A decided block. Its header and bodies precede this entry; the null block has none. Heights follow each other
    /// without gaps.
    Decided {
        /// The height.
        height: Height,
        /// The id of the decided block.
        id: BlockId,
    },
    /// A certificate of a decided block.
    Certificate(Vec<u8>),
    /// A stable checkpoint with its proof.
    Proof(Vec<u8>),
    /// The begin of a base. Up to the matching `BaseEnd` the log repeats everything that still binds the replica.
    /// Segments before the base are therefore needed for decided blocks only.
    BaseBegin,
    /// The end of a base.
    BaseEnd,
}
