//! Proofs of order: the answer of one replica to a client that asks for the place of its bundle.
//!
//! A proof shows that a block with the bundle is committed, and nothing else. The results of the bundle are not part of it.
//! `quorate-client` checks proofs; its module `order` has the rules of each protocol.

use crate::block::{BLOCK_BYTES, Block, Payload};
use crate::codec::{DecodeError, Reader, Wire, put_list};
use crate::ids::Signature;
use crate::limits::ORDER_LINKS_MAX;

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

/// The evidence that a block is committed. Each shape belongs to one way in which protocols commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrderChain {
    /// Signed headers that follow each other: the block itself comes first. A committed block has headers of f + 1 distinct
    /// proposers on its chain.
    Blocks(Vec<SignedBlock>),
}

impl OrderChain {
    /// Returns the block whose commitment the chain shows.
    #[must_use]
    pub fn block(&self) -> Option<&Block> {
        match self {
            Self::Blocks(links) => links.first().map(|link| &link.block),
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
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => reader
                .list("links", ORDER_LINKS_MAX, SIGNED_BLOCK_BYTES, SignedBlock::decode)
                .map(Self::Blocks),
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
    use crate::digest::Digest;
    use crate::ids::{BlockId, BundleDigest, Height, PayloadId, ReplicaId, View};

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
    }

    #[test]
    fn chain_has_a_bounded_number_of_links() {
        let mut bytes = vec![0];
        put_length(&mut bytes, ORDER_LINKS_MAX + 1);
        let refused = OrderChain::from_bytes(&bytes);
        assert!(matches!(refused, Err(DecodeError::TooLong { what: "links", .. })), "{refused:?}");
        assert_eq!(OrderChain::from_bytes(&[1]), Err(DecodeError::Tag("order chain")));
    }
}
