//! Input of a controlled replica.

use crate::frame::Content;
use bytes::Bytes;
use quorate_consensus::LinkEvent;
use quorate_types::ReplicaId;

/// An input of a controlled replica.
#[derive(Clone, Debug)]
pub enum ControlledInput {
    /// A frame of a replica.
    Frame {
        /// The sender.
        from: ReplicaId,
        /// The type, as `types::wire::frame` lists them.
        frame_type: u8,
        /// The body.
        body: Bytes,
        /// The decoded content.
        content: Content,
    },
    /// An event of the link to a replica.
    Link(ReplicaId, LinkEvent),
    /// A message of the client with this index.
    Client(usize, Bytes),
}
