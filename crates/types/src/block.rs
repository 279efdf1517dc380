//! Blocks and payloads.

use crate::bundle::Bundle;
use crate::codec::{DecodeError, Reader, Wire, put_list};
use crate::digest::{Digest, DigestWriter, context};
use crate::ids::{BlockId, BundleDigest, Height, PayloadId, ReplicaId, View};
use crate::limits::BLOCK_BUNDLES_CEILING;

/// Bytes of a header: three digests, height, view, proposer and time.
const HEADER_BYTES: usize = 3 * 32 + 8 + 8 + 2 + 8;

/// A header that binds parent, height, view and payload. Its digest is what replicas vote for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// The block it extends; zero for one without ancestors, which is never an orphan.
    pub parent: BlockId,
    /// Its place in the sequence.
    pub height: Height,
    /// The view of its *first* proposal; a later view may propose the same id again and never rewrites it.
    pub view: View,
    /// Who proposed it first.
    pub proposer: ReplicaId,
    /// Wall-clock nanoseconds of the proposer. No protocol judges it; execution shows the application a
    /// monotone clamp of it.
    pub time_ns: u64,
    /// What it carries.
    pub payload: PayloadId,
    /// Binds header fields of the protocol's own.
    pub extra: Digest,
}

/// Bytes of an encoded block.
pub const BLOCK_BYTES: usize = 32 + 8 + 8 + 2 + 8 + 32 + 32;

impl Block {
    /// The digest of the header.
    #[must_use]
    pub fn id(&self) -> BlockId {
        // The digest of the encoding. Ids are asked for often: no allocation, and the hash function in one go.
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
    /// The fixed block of a height at which nothing was decided; it executes as nothing.
    #[must_use]
    pub fn null(height: Height) -> Self {
        Self(Digest::of(&context::NULL_BLOCK, &height.0.to_le_bytes()))
    }
}

impl Wire for Block {
    fn encode(&self, out: &mut Vec<u8>) {
        self.parent.encode(out);
        self.height.encode(out);
        self.view.encode(out);
        self.proposer.encode(out);
        self.time_ns.encode(out);
        self.payload.encode(out);
        self.extra.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            parent: BlockId::decode(reader)?,
            height: Height::decode(reader)?,
            view: View::decode(reader)?,
            proposer: ReplicaId::decode(reader)?,
            time_ns: reader.u64()?,
            payload: PayloadId::decode(reader)?,
            extra: Digest::decode(reader)?,
        })
    }
}

/// What a block carries: bundle digests in execution order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Payload {
    /// The digests, in order.
    pub bundles: Vec<BundleDigest>,
}

impl Payload {
    /// The digest of the list.
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

/// A decided block with all that executing it needs.
#[derive(Clone, PartialEq, Debug)]
pub struct FullBlock {
    /// Its height.
    pub height: Height,
    /// Its id; [`BlockId::null`] when nothing was decided here.
    pub id: BlockId,
    /// The header; `None` for the null block.
    pub block: Option<Block>,
    /// The bundles in the order of the payload.
    pub bundles: Vec<Bundle>,
}

impl FullBlock {
    /// The null block of a height.
    #[must_use]
    pub fn null(height: Height) -> Self {
        Self { height, id: BlockId::null(height), block: None, bundles: Vec::new() }
    }

    /// Bytes of its bundles.
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
    fn every_field_is_bound_by_the_id() {
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
