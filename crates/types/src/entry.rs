//! What a replica keeps in its log.
//!
//! The replica decides what is appended and under which mark; `quorate-storage` decides where it lies. Records
//! of protocols, certificates and proofs are opaque bytes here: a log outlives protocols.

use crate::block::{Block, Payload};
use crate::bundle::Bundle;
use crate::codec::{DecodeError, Reader, Wire};
use crate::ids::{BlockId, Height, Incarnation, Kind, View};
use crate::statement::{Slot, Statement};
use std::sync::Arc;

/// Position in the stream of what is persisted. `Durable(mark)` says that everything up to it is on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Mark(pub u64);

/// Below these a slot is dead: refused for ever, so its guard entry may go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Floors {
    /// Slots with a height below this are dead.
    pub height: Height,
    /// Slots of a kind with a view below this are dead.
    pub views: Vec<(Kind, View)>,
}

impl Floors {
    /// Whether a slot lies below.
    #[must_use]
    pub fn is_dead(&self, slot: &Slot) -> bool {
        let below = slot.height > Height::ZERO && slot.height < self.height;
        below || self.views.iter().any(|(kind, view)| *kind == slot.kind && slot.view < *view)
    }
}

/// Kinds of statements that can have a floor at most.
const FLOOR_KINDS_MAX: usize = 64;

impl Wire for Floors {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        crate::codec::put_length(out, self.views.len());
        for (kind, view) in &self.views {
            kind.encode(out);
            view.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let height = Height::decode(reader)?;
        let views =
            reader.list("floors", FLOOR_KINDS_MAX, 24, |r| Ok((Kind::decode(r)?, View::decode(r)?)))?;
        Ok(Self { height, views })
    }
}

/// One entry of the log.
#[derive(Clone, PartialEq, Debug)]
pub enum LogEntry {
    /// The replica was opened.
    Incarnation(Incarnation),
    /// A protocol's record; a later one with the same key replaces it (the replica knows the keys).
    Record(Arc<[u8]>),
    /// A slot of the guard was filled.
    Guard(Statement),
    /// Slots below these floors are dead.
    Floors(Floors),
    /// A block's header with the list of its bundles.
    Block(Arc<Block>, Arc<Payload>),
    /// A bundle.
    Body(Bundle),
    /// This block was decided at this height. Its block and bodies were appended before (none for the null
    /// block). Heights come in order without gaps.
    Decided {
        /// The height.
        height: Height,
        /// What was decided there.
        id: BlockId,
    },
    /// A certificate under which something was decided.
    Certificate(Vec<u8>),
    /// A stable checkpoint with its proof.
    Proof(Vec<u8>),
    /// From here to the matching `BaseEnd` everything that still binds the replica stands once more, so that
    /// segments before it are needed for decided blocks only.
    BaseBegin,
    /// End of a base.
    BaseEnd,
}
