//! The block of a round, as an entry of the unique chain (§2).

use super::super::entry::{Entry, EntryRef};
use super::super::message::OwnMessage;
use super::super::statements::PROPOSE;
use quorate_consensus::{Auth, Message, Place, Record, RecordKey};
use quorate_types::block::BLOCK_BYTES;
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::digest::context;
use quorate_types::{Block, Digest, Height, Kind, PayloadId, ReplicaId, View};

/// A block with the round of its parent. Its `extra` binds that round and the skip certificates of the rounds between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// The block. Its view is the round.
    pub block: Block,
    /// The round of its parent; 0 for genesis.
    pub parent_round: View,
}

quorate_types::wire_struct!(Proposal { block, parent_round });

impl Proposal {
    /// Returns the `extra` of a block.
    #[must_use]
    pub fn bind(parent_round: View, skips: Digest) -> Digest {
        let mut bytes = b"apollo: round of the parent, skipped rounds".to_vec();
        parent_round.encode(&mut bytes);
        skips.encode(&mut bytes);
        Digest::of(&context::PROTOCOL, &bytes)
    }
}

impl Entry for Proposal {
    const KIND: Kind = PROPOSE;
    const BYTES_MIN: usize = BLOCK_BYTES + 8;

    fn round(&self) -> View {
        self.block.view
    }

    fn author(&self) -> ReplicaId {
        self.block.proposer
    }

    fn parent(&self) -> EntryRef {
        EntryRef { round: self.parent_round, id: self.block.parent.0 }
    }

    fn id(&self) -> Digest {
        self.block.id().0
    }

    fn height(&self) -> Height {
        self.block.height
    }

    fn binds(&self, skips: Digest) -> bool {
        self.block.extra == Self::bind(self.parent_round, skips)
    }
}

/// Apollo has no message beside those of the unique chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoMessage {}

impl Wire for NoMessage {
    fn encode(&self, _: &mut Vec<u8>) {
        match *self {}
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::Tag("apollo message"))
    }
}

impl Message for NoMessage {
    fn kind(&self) -> Kind {
        match *self {}
    }
    fn place(&self) -> Place {
        match *self {}
    }
    fn auth(&self) -> Auth {
        match *self {}
    }
}

impl OwnMessage<Proposal> for NoMessage {
    fn entry_bodies(entry: &Proposal, out: &mut Vec<PayloadId>) {
        out.push(entry.block.payload);
    }
}

/// Apollo records nothing beside the facts of the unique chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoFact {}

impl Wire for NoFact {
    fn encode(&self, _: &mut Vec<u8>) {
        match *self {}
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::Tag("apollo record"))
    }
}

impl Record for NoFact {
    fn key(&self) -> RecordKey {
        match *self {}
    }
}
