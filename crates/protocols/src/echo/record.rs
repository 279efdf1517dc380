//! Facts that survive a crash.

use quorate_consensus::{Record, RecordKey};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{BlockId, Height};

/// The block that this replica has voted for at a height, recorded before the proposal or vote leaves. A replica that
/// forgot it would wait for a slot that its host refuses to fill a second time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoodBy {
    /// The height.
    pub height: Height,
    /// The block.
    pub block: BlockId,
}

impl Record for StoodBy {
    // One record per height; the host drops it when a checkpoint settles the height.
    fn key(&self) -> RecordKey {
        RecordKey { kind: 1, height: self.height, scope: BlockId::ZERO.0 }
    }
}

impl Wire for StoodBy {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        self.block.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { height: Height::decode(reader)?, block: BlockId::decode(reader)? })
    }
}
