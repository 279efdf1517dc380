//! Blocks and payloads.

use crate::bundle::Bundle;
use crate::codec::{DecodeError, Reader, Wire, put_list};
use crate::digest::{Digest, DigestWriter, context};
use crate::ids::{BlockId, BundleDigest, Height, PayloadId, ReplicaId, View};
use crate::limits::BLOCK_BUNDLES_CEILING;

/// Bytes of a header: three digests, height, view, proposer and time.
const HEADER_BYTES: usize = 3 * 32 + 8 + 8 + 2 + 8;

/// A header that binds parent, height, view and payload. Replicas vote for its digest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The block that this one extends. Zero stands for no ancestors; such a block is never an orphan.
    pub parent: BlockId,
    /// The block's place in the sequence.
    pub height: Height,
    /// The view of the block's *first* proposal. A later view may propose the same id again and keeps this field.
    pub view: View,
    /// The replica that proposed the block first.
    pub proposer: ReplicaId,
    /// Wall-clock nanoseconds of the proposer. No protocol checks them. Execution clamps them so that the application
    /// sees monotone time.
    pub time_ns: u64,
    /// The digest of the block's payload.
    pub payload: PayloadId,
    /// A digest that binds the protocol's own header fields.
    pub extra: Digest,
}

/// Bytes of an encoded block.
pub const BLOCK_BYTES: usize = 32 + 8 + 8 + 2 + 8 + 32 + 32;

impl Block {
    /// Returns the digest of the header.
    #[must_use]
    pub fn id(&self) -> BlockId {
        // The digest of the encoding. Ids are computed often, so this makes no allocation and one call of the hash
        // function.
        let (height, view) = (self.height.0.to_le_bytes(), self.view.0.to_le_bytes());
        let (proposer, time_ns) = (self.proposer.0.to_le_bytes(), self.time_ns.to_le_bytes());
        let fields: [&[u8]; 7] =
            [&self.parent.0.0, &height, &view, &proposer, &time_ns, &self.payload.0.0, &self.extra.0];
        let mut header = [0; HEADER_BYTES];
        let mut rest = header.as_mut_slice();
        for field in fields {
            let Some((place, after)) = rest.split_at_mut_checked(field.len()) else { break };
            place.copy_from_slice(field);
            rest = after;
        }
        BlockId(Digest::of(&context::BLOCK, &header))
    }
}

impl BlockId {
    /// Returns the id of the null block: the fixed block of a height without a decided block. Its execution does
    /// nothing.
    #[must_use]
    pub fn null(height: Height) -> Self {
        Self(Digest::of(&context::NULL_BLOCK, &height.0.to_le_bytes()))
    }
}

crate::wire_struct!(Block { parent, height, view, proposer, time_ns, payload, extra });

/// The content of a block: bundle digests in execution order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Payload {
    /// The digests, in order.
    pub bundles: Vec<BundleDigest>,
}

impl Payload {
    /// Returns the digest of the list.
    #[must_use]
    pub fn id(&self) -> PayloadId {
        let mut writer = DigestWriter::new(&context::PAYLOAD);
        for bundle in &self.bundles {
            writer.update(&bundle.0.0);
        }
        PayloadId(writer.finish())
    }
}

impl Wire for Payload {
    fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.bundles.len().saturating_mul(32).saturating_add(4));
        put_list(out, &self.bundles);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let limit = usize::try_from(BLOCK_BUNDLES_CEILING).unwrap_or(usize::MAX);
        Ok(Self { bundles: reader.list("payload", limit, 32, BundleDigest::decode)? })
    }
}

/// A decided block with all data that its execution needs.
#[derive(Clone, PartialEq, Debug)]
pub struct FullBlock {
    /// The block's height.
    pub height: Height,
    /// The block's id; [`BlockId::null`] for the null block.
    pub id: BlockId,
    /// The header; `None` for the null block.
    pub block: Option<Block>,
    /// The bundles in the order of the payload.
    pub bundles: Vec<Bundle>,
}

impl FullBlock {
    /// Returns the null block of a height.
    #[must_use]
    pub fn null(height: Height) -> Self {
        Self { height, id: BlockId::null(height), block: None, bundles: Vec::new() }
    }

    /// Returns the bytes of all bundles.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bundles.iter().map(Bundle::size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        Block {
            parent: BlockId::ZERO,
            height: Height(4),
            view: View(2),
            proposer: ReplicaId(1),
            time_ns: 99,
            payload: Payload::default().id(),
            extra: Digest::ZERO,
        }
    }

    #[test]
    fn block_id_binds_every_field() {
        let base = block();
        let changed = [
            Block { parent: BlockId::null(Height(1)), ..base.clone() },
            Block { height: Height(5), ..base.clone() },
            Block { view: View(3), ..base.clone() },
            Block { proposer: ReplicaId(2), ..base.clone() },
            Block { time_ns: 100, ..base.clone() },
            Block { payload: PayloadId::ZERO, ..base.clone() },
            Block { extra: Digest([1; 32]), ..base.clone() },
        ];
        for other in changed {
            assert_ne!(base.id(), other.id());
        }
        assert_eq!(base.to_bytes().len(), BLOCK_BYTES);
        assert_eq!(base.id().0, Digest::of(&context::BLOCK, &base.to_bytes()));
        assert_eq!(Block::from_bytes(&base.to_bytes()), Ok(base));
    }
}
