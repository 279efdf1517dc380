//! Votes: the entries of the unique chain of Artemis (§2, §3).

use super::super::entry::{Entry, EntryRef};
use super::super::statements::VOTE;
use super::message::CBlock;
use crate::encoding::variants;
use quorate_consensus::{Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::digest::context;
use quorate_types::order_proof::VOTE_PREFIX;
use quorate_types::{BlockId, Digest, Height, Kind, ReplicaId, Signature, SignedVote, View};

/// Two blocks of a coordinator at one place: equal view, anchor and height.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// The first block.
    pub first: Signed<CBlock>,
    /// The second block.
    pub second: Signed<CBlock>,
}

impl Wire for Evidence {
    fn encode(&self, out: &mut Vec<u8>) {
        self.first.encode(out);
        self.second.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { first: Signed::decode(reader)?, second: Signed::decode(reader)? })
    }
}

impl Evidence {
    /// Claims that the coordinator has signed two blocks for one slot.
    fn claim(&self, claims: &mut Claims<'_>) {
        let (first, second) = (self.first.body.statement(), self.second.body.statement());
        if first.slot() != second.slot() || first.subject == second.subject {
            return claims.refuse("blocks that do not conflict");
        }
        CBlock::claim(&self.first, claims);
        CBlock::claim(&self.second, claims);
    }
}

/// The content of a vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VoteKind {
    /// The block is newer than that of the parent.
    Data,
    /// The block is that of the parent: the vote commits earlier ones.
    Endorse,
    /// The coordinator has been silent for too long.
    NoProgress,
    /// The coordinator has signed two blocks for one slot.
    Equivocation(Box<Evidence>),
}

variants!(VoteKind, "kind of vote":
    0 = Data {},
    1 = Endorse {},
    2 = NoProgress {},
    3 = Equivocation(evidence),
);

/// A vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vote {
    /// Its round.
    pub round: View,
    /// Its author, who votes in this round.
    pub voter: ReplicaId,
    /// The vote that it extends.
    pub parent: EntryRef,
    /// Digest of the skip certificates of the rounds between.
    pub skips: Digest,
    /// The coordinator's view on the chain of its parent.
    pub view: View,
    /// The newest block that it votes for; zero for genesis.
    pub block: BlockId,
    /// Its content.
    pub kind: VoteKind,
}

quorate_types::wire_struct!(Vote { round, voter, parent, skips, view, block, kind });

impl Vote {
    /// Returns the vote as clients check it.
    #[must_use]
    pub fn signed(&self, signature: Signature) -> SignedVote {
        SignedVote {
            round: self.round,
            voter: self.voter,
            parent_round: self.parent.round,
            parent: self.parent.id,
            skips: self.skips,
            view: self.view,
            block: self.block,
            content: self.kind.to_bytes(),
            signature,
        }
    }
}

impl Entry for Vote {
    const KIND: Kind = VOTE;
    const BYTES_MIN: usize = 8 + 2 + 40 + 32 + 8 + 32 + 1;

    fn round(&self) -> View {
        self.round
    }

    fn author(&self) -> ReplicaId {
        self.voter
    }

    fn parent(&self) -> EntryRef {
        self.parent
    }

    fn id(&self) -> Digest {
        let mut bytes = VOTE_PREFIX.to_vec();
        self.encode(&mut bytes);
        Digest::of(&context::PROTOCOL, &bytes)
    }

    fn height(&self) -> Height {
        Height::ZERO
    }

    fn binds(&self, skips: Digest) -> bool {
        self.skips == skips
    }

    fn claim(&self, claims: &mut Claims<'_>) {
        if let VoteKind::Equivocation(evidence) = &self.kind {
            evidence.claim(claims);
        }
    }
}
