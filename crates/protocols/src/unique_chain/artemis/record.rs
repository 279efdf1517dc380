//! Durable facts of Artemis alone (§4).

use super::super::entry::EntryRef;
use super::base_points::{BasePoint, POINTS_KEPT};
use super::chain_state::ChainState;
use super::message::CBlock;
use crate::encoding::variants;
use quorate_consensus::{Record, RecordKey, Signed};
use quorate_types::{Digest, Height};

/// A durable fact of Artemis alone.
#[derive(Clone, PartialEq, Debug)]
pub enum ArtemisFact {
    /// An own block. Written before it leaves. The height is that of the checkpoint that makes it obsolete.
    Emitted {
        /// K above the block.
        until: Height,
        /// The block.
        block: CBlock,
    },
    /// A block that an accepted vote names, durable with the next own vote.
    Voted {
        /// K above the block.
        until: Height,
        /// The block with the coordinator's signature.
        block: Signed<CBlock>,
    },
    /// The committed vote, and the state after it.
    Committed {
        /// The vote.
        vote: EntryRef,
        /// The state.
        state: ChainState,
    },
    /// A base point. A later one replaces it.
    Point(BasePoint),
}

const EMITTED: u8 = 4;
const VOTED: u8 = 5;
const COMMITTED: u8 = 6;
const POINT: u8 = 7;

variants!(ArtemisFact, "artemis fact":
    EMITTED = Emitted { until, block },
    VOTED = Voted { until, block },
    COMMITTED = Committed { vote, state },
    POINT = Point(point),
);

impl Record for ArtemisFact {
    fn key(&self) -> RecordKey {
        match self {
            Self::Emitted { until, block } => {
                RecordKey { kind: EMITTED, height: *until, scope: block.anchor }
            }
            Self::Voted { until, block } => {
                RecordKey { kind: VOTED, height: *until, scope: block.body.block.id().0 }
            }
            Self::Committed { .. } => {
                RecordKey { kind: COMMITTED, height: Height::ZERO, scope: Digest::ZERO }
            }
            Self::Point(point) => {
                let place = u8::try_from(point.number() % POINTS_KEPT).unwrap_or_default();
                RecordKey { kind: POINT, height: Height::ZERO, scope: Digest([place; 32]) }
            }
        }
    }
}
