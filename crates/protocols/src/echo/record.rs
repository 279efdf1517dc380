//! What must survive a crash.

use quorate_consensus::{Record, RecordKey};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{BlockId, Height};

/// "At this height I stand by this block": written before the proposal or vote that says so leaves. A replica
/// that forgot it would wait for a slot that its host refuses to fill a second time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoodBy {
    /// Where.
    pub height: Height,
    /// What.
    pub block: BlockId,
}

impl Record for StoodBy {
    // One per height; the host drops it when a checkpoint settles the height.
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
