//! Proofs of order: the answer of one replica to a client that asks for the place of its bundle.
//!
//! A proof shows that a block with the bundle is committed, and nothing else. The results of the bundle are not part of it.
//! `quorate-client` checks proofs; its module `order` has the rules of each protocol.

use crate::block::{BLOCK_BYTES, Block, Payload};
use crate::codec::{DecodeError, Reader, Wire, put_bytes, put_list};
use crate::digest::{Digest, context};
use crate::ids::{BlockId, ReplicaId, Signature, View};
use crate::limits::ORDER_LINKS_MAX;

/// Begins the bytes of which the id of a vote is the digest.
pub const VOTE_PREFIX: &[u8] = b"artemis: vote";

/// Bytes of an encoded [`SignedBlock`].
const SIGNED_BLOCK_BYTES: usize = BLOCK_BYTES + 64;

/// A header with the signature of its proposer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedBlock {
    /// The header.
    pub block: Block,
    /// The signature of the proposer.
    pub signature: Signature,
}

crate::wire_struct!(SignedBlock { block, signature });

/// Bytes of the content of a vote at most.
const VOTE_CONTENT_BYTES_MAX: usize = 4_096;
/// Bytes of the shortest encoded [`SignedVote`].
const SIGNED_VOTE_BYTES: usize = 8 + 2 + 8 + 32 + 32 + 8 + 32 + 4 + 64;

/// A vote of the unique chain of Artemis with the signature of its voter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SignedVote {
    /// The round of the vote.
    pub round: View,
    /// The voter, who leads the round.
    pub voter: ReplicaId,
    /// The round of the vote that this one extends.
    pub parent_round: View,
    /// The id of that vote.
    pub parent: Digest,
    /// The digest of the skip certificates of the rounds between.
    pub skips: Digest,
    /// The view of the coordinator.
    pub view: View,
    /// The newest block that the vote is for.
    pub block: BlockId,
    /// The encoded content of the vote.
    pub content: Vec<u8>,
    /// The signature of the voter.
    pub signature: Signature,
}

impl SignedVote {
    /// Returns the id of the vote, which binds all its fields.
    #[must_use]
    pub fn id(&self) -> Digest {
        let mut bytes = VOTE_PREFIX.to_vec();
        self.round.encode(&mut bytes);
        self.voter.encode(&mut bytes);
        self.parent_round.encode(&mut bytes);
        self.parent.encode(&mut bytes);
        self.skips.encode(&mut bytes);
        self.view.encode(&mut bytes);
        self.block.encode(&mut bytes);
        bytes.extend_from_slice(&self.content);
        Digest::of(&context::PROTOCOL, &bytes)
    }
}

impl Wire for SignedVote {
    fn encode(&self, out: &mut Vec<u8>) {
        self.round.encode(out);
        self.voter.encode(out);
        self.parent_round.encode(out);
        self.parent.encode(out);
        self.skips.encode(out);
        self.view.encode(out);
        self.block.encode(out);
        put_bytes(out, &self.content);
        self.signature.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            round: View::decode(reader)?,
            voter: ReplicaId::decode(reader)?,
            parent_round: View::decode(reader)?,
            parent: Digest::decode(reader)?,
            skips: Digest::decode(reader)?,
            view: View::decode(reader)?,
            block: BlockId::decode(reader)?,
            content: reader.bytes("vote", VOTE_CONTENT_BYTES_MAX)?.to_vec(),
            signature: Signature::decode(reader)?,
        })
    }
}

/// The evidence that a block is committed. Each shape belongs to one way in which protocols commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrderChain {
    /// Signed headers that follow each other: the block itself comes first. A committed block has headers of f + 1 distinct
    /// proposers on its chain.
    Blocks(Vec<SignedBlock>),
    /// Headers that follow each other, from the block itself up to the one that the first vote is for, and signed votes that
    /// follow each other. A committed block has votes of f + 1 distinct voters above it.
    Votes {
        /// The headers.
        blocks: Vec<Block>,
        /// The votes.
        votes: Vec<SignedVote>,
    },
}

impl OrderChain {
    /// Returns the block whose commitment the chain shows.
    #[must_use]
    pub fn block(&self) -> Option<&Block> {
        match self {
            Self::Blocks(links) => links.first().map(|link| &link.block),
            Self::Votes { blocks, .. } => blocks.first(),
        }
    }
}

impl Wire for OrderChain {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Blocks(links) => {
                out.push(0);
                put_list(out, links);
            }
            Self::Votes { blocks, votes } => {
                out.push(1);
                put_list(out, blocks);
                put_list(out, votes);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => reader
                .list("links", ORDER_LINKS_MAX, SIGNED_BLOCK_BYTES, SignedBlock::decode)
                .map(Self::Blocks),
            1 => Ok(Self::Votes {
                blocks: reader.list("blocks", ORDER_LINKS_MAX, BLOCK_BYTES, Block::decode)?,
                votes: reader.list("votes", ORDER_LINKS_MAX, SIGNED_VOTE_BYTES, SignedVote::decode)?,
            }),
            _ => Err(DecodeError::Tag("order chain")),
        }
    }
}

/// A proof of the place of a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderProof {
    /// The bundles of the block, in the order of their execution.
    pub payload: Payload,
    /// The evidence that the block is committed.
    pub chain: OrderChain,
}

crate::wire_struct!(OrderProof { payload, chain });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::put_length;
    use crate::ids::{BundleDigest, Height, PayloadId};

    fn link(view: u64) -> SignedBlock {
        let block = Block {
            parent: BlockId::ZERO,
            height: Height(view),
            view: View(view),
            proposer: ReplicaId(1),
            time_ns: 7,
            payload: PayloadId::ZERO,
            extra: Digest::ZERO,
        };
        SignedBlock { block, signature: Signature([3; 64]) }
    }

    #[test]
    fn proofs_round_trip() {
        let payload = Payload { bundles: vec![BundleDigest(Digest([1; 32])), BundleDigest(Digest([2; 32]))] };
        let chain = OrderChain::Blocks(vec![link(4), link(5)]);
        let proof = OrderProof { payload, chain };
        assert_eq!(proof.chain.block().map(|block| block.view), Some(View(4)));
        assert_eq!(OrderProof::from_bytes(&proof.to_bytes()), Ok(proof));
        assert_eq!(link(1).to_bytes().len(), SIGNED_BLOCK_BYTES);
        let vote = SignedVote {
            round: View(3),
            voter: ReplicaId(2),
            parent_round: View(2),
            parent: Digest([4; 32]),
            skips: Digest([5; 32]),
            view: View(1),
            block: BlockId(Digest([6; 32])),
            content: Vec::new(),
            signature: Signature([7; 64]),
        };
        assert_eq!(vote.to_bytes().len(), SIGNED_VOTE_BYTES);
        let votes = vec![SignedVote { content: vec![2], ..vote.clone() }, vote];
        let chain = OrderChain::Votes { blocks: vec![link(4).block], votes };
        assert_eq!(chain.block().map(|block| block.view), Some(View(4)));
        assert_eq!(OrderChain::from_bytes(&chain.to_bytes()), Ok(chain));
    }

    #[test]
    fn chain_has_a_bounded_number_of_links() {
        let mut bytes = vec![0];
        put_length(&mut bytes, ORDER_LINKS_MAX + 1);
        let refused = OrderChain::from_bytes(&bytes);
        assert!(matches!(refused, Err(DecodeError::TooLong { what: "links", .. })), "{refused:?}");
        assert_eq!(OrderChain::from_bytes(&[2]), Err(DecodeError::Tag("order chain")));
    }
}
