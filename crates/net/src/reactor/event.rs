//! The reports of a reactor to its caller.

use crate::frame::Refusal;
use crate::lanes::Loss;
use quorate_types::ReplicaId;
use quorate_types::wire::Lane;
use std::fmt;
use std::net::SocketAddr;

/// The id of a client's connection. It is never used again for another connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// The other side of a refused connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// A replica.
    Replica(ReplicaId),
    /// A connection through the clients' port.
    Client(SocketAddr),
    /// A connection through the peers' port that has not proved to be a replica.
    Stranger(SocketAddr),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(id) => write!(f, "replica {id}"),
            Self::Client(address) => write!(f, "client {address}"),
            Self::Stranger(address) => write!(f, "stranger {address}"),
        }
    }
}

/// A report of the reactor. Bodies lie in its buffer: copy a body that has to outlive the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A frame of a replica: in order on its lane, each once.
    Peer {
        /// The sender.
        from: ReplicaId,
        /// The lane.
        lane: Lane,
        /// The type, one of `types::wire::frame`.
        frame_type: u8,
        /// The body.
        body: &'a [u8],
    },
    /// The link to a replica is connected; both hellos agree.
    PeerUp(ReplicaId),
    /// The link to a replica is no longer connected. Queued frames wait.
    PeerDown(ReplicaId),
    /// Frames of a link are lost for good. Both sides receive this event, each with its own direction.
    Lost {
        /// The peer of the link.
        peer: ReplicaId,
        /// The lost frames.
        loss: Loss,
    },
    /// A client is connected and can be written to.
    ClientUp {
        /// The connection.
        conn: ConnId,
        /// The address of the client.
        address: SocketAddr,
    },
    /// A message of a client (`types::wire::FromClient`).
    Client {
        /// The connection.
        conn: ConnId,
        /// The message.
        body: &'a [u8],
    },
    /// The connection of a client is gone.
    ClientDown(ConnId),
    /// This side closed a connection because of an act of the other side.
    Refused {
        /// The other side.
        who: Who,
        /// The reason.
        why: Refusal,
    },
    /// A replica closed its connection and sent a reason.
    Closed {
        /// The replica.
        by: ReplicaId,
        /// The reason: at most 256 characters of the replica's own choice, all printable.
        reason: &'a str,
    },
}

/// The reason why a message was not queued for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The connection is gone.
    #[error("the connection is gone")]
    Gone,
    /// The client does not read its replies, and its connection was closed.
    #[error("the client does not read its replies")]
    Full,
    /// The message exceeds the limit of a client's frame.
    #[error("the message is too large for a frame")]
    Oversize,
}
