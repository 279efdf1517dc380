//! Input of a replica between two turns.

use bytes::Bytes;
use quorate_consensus::LinkEvent;
use quorate_types::ReplicaId;

/// Which of the replicas at one seat speaks: there are two at that of a twin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TwinHalf {
    First,
    Second,
}

/// What arrived and waits for the next turn.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A frame that travelled by itself.
    Frame { from: ReplicaId, frame_type: u8, body: Bytes },
    /// A frame for one of the two of a twin.
    Apart { from: ReplicaId, frame_type: u8, body: Bytes, half: TwinHalf },
    /// Bytes on a connection.
    Bytes { from: ReplicaId, conn: u64, bytes: Bytes },
    /// A connection that this replica dialled is there.
    Dialled { peer: ReplicaId, conn: u64 },
    /// A connection that the peer dialled is there.
    Accepted { peer: ReplicaId, conn: u64 },
    /// A connection is gone.
    Closed { peer: ReplicaId, conn: u64 },
    /// What transports that need no connections say of links.
    Link(ReplicaId, LinkEvent),
    /// A message of a client.
    Client { index: usize, message: Bytes },
}
