//! State from the log with which a protocol is opened.

use crate::parts::certificate::CheckpointProof;
use crate::record::Record;
use quorate_types::{Block, BlockId, DecodeError, Floors, Height, Incarnation};

/// State from the log with which a protocol is opened. The host passes encoded records, `Past<Vec<u8>>`, and the erased
/// protocol decodes them.
#[derive(Clone, Debug)]
pub struct Past<R> {
    /// The newest record of every live key, in the order of their keys.
    pub records: Vec<R>,
    /// The newest stable checkpoint; genesis at the first start.
    pub checkpoint: CheckpointProof,
    /// Undecided and recently decided blocks above the checkpoint; the block tree contains them already.
    pub blocks: Vec<Block>,
    /// The last executed height.
    pub executed: Height,
    /// Decided blocks above the checkpoint, as far as this replica knows them.
    pub decided: Vec<(Height, BlockId)>,
    /// Number of this opening, from 1.
    pub incarnation: Incarnation,
    /// L: heights above the stable checkpoint that may be in use. From genesis.
    pub window: u64,
    /// K: heights between two checkpoints. From genesis.
    pub checkpoint_every: u64,
    /// Floors of promises that this replica may have forgotten, because it has lost an earlier disk. The host lets no
    /// statement below them leave. No statement at all leaves where they have the largest height: the replica is not back.
    pub forgotten: Floors,
}

impl Past<Vec<u8>> {
    /// Decodes the records.
    pub(crate) fn decode<R: Record>(self) -> Result<Past<R>, DecodeError> {
        Ok(Past {
            records: self.records.iter().map(|bytes| R::from_bytes(bytes)).collect::<Result<_, _>>()?,
            checkpoint: self.checkpoint,
            blocks: self.blocks,
            executed: self.executed,
            decided: self.decided,
            incarnation: self.incarnation,
            window: self.window,
            checkpoint_every: self.checkpoint_every,
            forgotten: self.forgotten,
        })
    }
}

/// Reason for which a protocol does not start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// A parameter is out of range.
    #[error("parameter {name}: {expected}")]
    Params {
        /// Name of the parameter.
        name: String,
        /// The expected values.
        expected: String,
    },
    /// n and f do not suit the protocol.
    #[error("{0}")]
    Committee(String),
    /// The log holds records that this protocol does not write.
    #[error("the log does not fit the protocol: {0}")]
    Past(String),
}
