//! State of the exchange with the peers: what they have decided, what they were handed, and the next announcement.

use crate::amnesia::HelpedAmnesiacs;
use crate::peer_decisions::PeerDecisions;
use quorate_types::{Committee, Height, ReplicaId, Time};
use std::collections::BTreeMap;

/// The shortest pause between two announcements of this replica's heights. One follows the last height of a burst.
pub(crate) const ANNOUNCE_NS: u64 = 1_000_000_000;
/// The longest pause between two announcements. A replica that was cut off during the last heights of a burst learns
/// of them by it, although no event reports them. Its peers learn its heights too.
pub(crate) const ANNOUNCE_IDLE_NS: u64 = 5_000_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct PeerExchange {
    /// All other replicas.
    pub(crate) others: Vec<ReplicaId>,
    pub(crate) decisions: PeerDecisions,
    pub(crate) answered: AnsweredThisTurn,
    /// The time of the next announcement of this replica's heights.
    pub(crate) announce_at: Time,
    /// Peers that have lost their disk.
    pub(crate) amnesiacs: HelpedAmnesiacs,
    /// The height that was executed when the last checkpoint became stable.
    pub(crate) executed_at_checkpoint: Height,
}

impl PeerExchange {
    /// Returns the exchange of a replica that has executed the blocks up to a height.
    pub(crate) fn new(committee: &Committee, me: ReplicaId, executed: Height) -> Self {
        Self {
            others: committee.others(me).collect(),
            decisions: PeerDecisions::new(committee.weak()),
            answered: AnsweredThisTurn::default(),
            announce_at: Time(ANNOUNCE_IDLE_NS),
            amnesiacs: HelpedAmnesiacs::default(),
            executed_at_checkpoint: executed,
        }
    }
}

/// Answers to each peer in one turn. A question is short, and its answer may be thousands of frames.
#[derive(Debug, Default)]
pub(crate) struct AnsweredThisTurn {
    at: Time,
    peers: BTreeMap<ReplicaId, AnswerCounts>,
}

/// Answers to one peer. Blocks and ids are counted apart: a peer that fetches many blocks also asks for the ids after
/// them.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounts {
    /// Frames of blocks.
    pub(crate) frames: usize,
    /// Decided ids.
    pub(crate) ids: usize,
}

impl AnsweredThisTurn {
    /// Returns the answers to a peer in the turn at this time.
    pub(crate) fn to(&mut self, now: Time, peer: ReplicaId) -> &mut AnswerCounts {
        if self.at != now {
            self.at = now;
            self.peers.clear();
        }
        self.peers.entry(peer).or_default()
    }
}
