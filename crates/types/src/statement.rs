//! Statements: everything that a replica's key signs.

use crate::digest::Digest;
use crate::ids::{ClusterId, Epoch, Height, Kind, ProtocolId, View};

/// The domain in which a statement is valid. A replica's key signs only a domain together with a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Domain {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The name of the protocol in the registry.
    pub protocol: ProtocolId,
    /// The epoch of the committee.
    pub epoch: Epoch,
}

/// A slot and its subject.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Statement {
    /// The kind of the statement.
    pub kind: Kind,
    /// The view of the statement; 0 for statements without a view.
    pub view: View,
    /// The height of the statement; 0 for statements about a view only.
    pub height: Height,
    /// Zero, except for a kind of which a replica may sign one statement per branch.
    pub scope: Digest,
    /// The subject that fills the slot: the id of a block, or the digest of the rest of the message.
    pub subject: Digest,
}

/// A statement without its subject. A replica may fill a slot only once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Slot {
    /// The kind of the statement.
    pub kind: Kind,
    /// The view of the statement.
    pub view: View,
    /// The height of the statement.
    pub height: Height,
    /// The branch of the statement; zero for most kinds.
    pub scope: Digest,
}

impl Statement {
    /// Returns a statement whose scope is zero.
    #[must_use]
    pub const fn new(kind: Kind, view: View, height: Height, subject: Digest) -> Self {
        Self { kind, view, height, scope: Digest::ZERO, subject }
    }

    /// Returns the slot that this statement fills.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        Slot { kind: self.kind, view: self.view, height: self.height, scope: self.scope }
    }
}

crate::wire_struct!(Domain { cluster, protocol, epoch });

crate::wire_struct!(Slot { kind, view, height, scope });

crate::wire_struct!(Statement { kind, view, height, scope, subject });
