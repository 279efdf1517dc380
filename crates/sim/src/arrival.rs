//! Input of a replica between two turns.

use bytes::Bytes;
use quorate_consensus::LinkEvent;
use quorate_types::ReplicaId;

/// One of the two replicas of a twin in one replica slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TwinHalf {
    First,
    Second,
}

/// Input that waits for the next turn of a replica.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A frame that travelled as a datagram.
    Frame { from: ReplicaId, frame_type: u8, body: Bytes },
    /// A frame for one half of a twin.
    Apart { from: ReplicaId, frame_type: u8, body: Bytes, half: TwinHalf },
    /// Bytes on a connection.
    Bytes { from: ReplicaId, conn: u64, bytes: Bytes },
    /// A connection that this replica dialled is up.
    Dialled { peer: ReplicaId, conn: u64 },
    /// A connection that the peer dialled is up.
    Accepted { peer: ReplicaId, conn: u64 },
    /// A connection is closed.
    Closed { peer: ReplicaId, conn: u64 },
    /// An event of a link, from a transport without connections.
    Link(ReplicaId, LinkEvent),
    /// A message of a client.
    Client { index: usize, message: Bytes },
}
