//! What a replica's key signs.

use crate::codec::{DecodeError, Reader, Wire};
use crate::digest::Digest;
use crate::ids::{ClusterId, Epoch, Height, Kind, ProtocolId, View};

/// Where a statement is valid. With the statement it is all that a replica's key ever signs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Domain {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Which protocol of the registry.
    pub protocol: ProtocolId,
    /// Which committee.
    pub epoch: Epoch,
}

/// A slot and what fills it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Statement {
    /// What is said.
    pub kind: Kind,
    /// The view it is said in; 0 where views mean nothing.
    pub view: View,
    /// The height it is said about; 0 for statements about a view only.
    pub height: Height,
    /// Zero except where one may speak once per branch.
    pub scope: Digest,
    /// What fills the slot: the id of a block, or the digest of the rest of the message.
    pub subject: Digest,
}

/// A statement without its subject: what may be filled only once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Slot {
    /// What is said.
    pub kind: Kind,
    /// In which view.
    pub view: View,
    /// About which height.
    pub height: Height,
    /// On which branch.
    pub scope: Digest,
}

impl Statement {
    /// A statement whose scope is zero.
    #[must_use]
    pub const fn new(kind: Kind, view: View, height: Height, subject: Digest) -> Self {
        Self { kind, view, height, scope: Digest::ZERO, subject }
    }

    /// The slot that this statement fills.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        Slot { kind: self.kind, view: self.view, height: self.height, scope: self.scope }
    }
}

impl Wire for Domain {
    fn encode(&self, out: &mut Vec<u8>) {
        self.cluster.encode(out);
        self.protocol.encode(out);
        self.epoch.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            cluster: ClusterId::decode(reader)?,
            protocol: ProtocolId::decode(reader)?,
            epoch: Epoch::decode(reader)?,
        })
    }
}

impl Wire for Slot {
    fn encode(&self, out: &mut Vec<u8>) {
        self.kind.encode(out);
        self.view.encode(out);
        self.height.encode(out);
        self.scope.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            kind: Kind::decode(reader)?,
            view: View::decode(reader)?,
            height: Height::decode(reader)?,
            scope: Digest::decode(reader)?,
        })
    }
}

impl Wire for Statement {
    fn encode(&self, out: &mut Vec<u8>) {
        self.slot().encode(out);
        self.subject.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let Slot { kind, view, height, scope } = Slot::decode(reader)?;
        Ok(Self { kind, view, height, scope, subject: Digest::decode(reader)? })
    }
}
