//! Input of a controlled replica.

use crate::frame::Content;
use bytes::Bytes;
use quorate_consensus::LinkEvent;
use quorate_types::ReplicaId;

/// What reaches a controlled replica.
#[derive(Clone, Debug)]
pub enum ControlledInput {
    /// A frame of a replica.
    Frame {
        /// Whose.
        from: ReplicaId,
        /// Its type, as `types::wire::frame` lists them.
        frame_type: u8,
        /// Its body.
        body: Bytes,
        /// What it is.
        content: Content,
    },
    /// What the link to a replica says of itself.
    Link(ReplicaId, LinkEvent),
    /// A message of the client at this place.
    Client(usize, Bytes),
}
