//! Encodings of a replica's entries as records of the log.

use crate::log::record::{FIRST_FREE, LOCATION_BYTES, Location};
use crate::number::to_usize;
use quorate_types::bundle::BUNDLE_HEADER_BYTES;
use quorate_types::limits::BLOCK_BUNDLES_CEILING;
use quorate_types::{
    Block, BlockId, BodyLimits, Bundle, BundleDigest, DecodeError, Digest, Floors, Height, Incarnation,
    LogEntry, Payload, Reader, Statement, Wire,
};
use std::sync::Arc;

pub(crate) const INCARNATION: u8 = FIRST_FREE;
pub(crate) const RECORD: u8 = 17;
pub(crate) const GUARD: u8 = 18;
pub(crate) const FLOORS: u8 = 19;
pub(crate) const BLOCK: u8 = 20;
pub(crate) const BODY: u8 = 21;
pub(crate) const DECIDED: u8 = 22;
pub(crate) const CERTIFICATE: u8 = 23;
pub(crate) const PROOF: u8 = 24;
pub(crate) const BASE_BEGIN: u8 = 25;
pub(crate) const BASE_END: u8 = 26;
/// A record of the store itself: a state of this height came from a peer, and the log continues after it.
pub(crate) const JUMP: u8 = 27;

/// Returns the bytes of data of the largest body, block or decided height under these limits.
pub(crate) fn bytes_max(limits: &BodyLimits) -> usize {
    let bundles = to_usize(limits.block_bundles_max);
    let body = to_usize(limits.bundle_bytes_max).max(BUNDLE_HEADER_BYTES) + 32 + 65;
    let block = quorate_types::block::BLOCK_BYTES + 4 + bundles.saturating_mul(32);
    let decided = 8 + 32 + 1 + LOCATION_BYTES + 4 + bundles.saturating_mul(LOCATION_BYTES);
    body.max(block).max(decided)
}

/// The record of a decided height, with the locations of all data that its execution needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DecidedRecord {
    pub(crate) height: Height,
    pub(crate) id: BlockId,
    /// The location of the block; `None` for the null block.
    pub(crate) block: Option<Location>,
    /// The locations of the bodies, in the order of the payload.
    pub(crate) bodies: Vec<Location>,
}

impl DecidedRecord {
    /// Returns the oldest generation that has a part of the block; `None` for the null block.
    pub(crate) fn oldest(&self) -> Option<u32> {
        let parts = self.block.iter().chain(&self.bodies);
        parts.map(|location| location.generation).min()
    }
}

impl Wire for DecidedRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        self.id.encode(out);
        self.block.encode(out);
        quorate_types::codec::put_list(out, &self.bodies);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            height: Height::decode(reader)?,
            id: BlockId::decode(reader)?,
            block: Option::decode(reader)?,
            bodies: reader.list(
                "bodies",
                to_usize(BLOCK_BUNDLES_CEILING),
                LOCATION_BYTES,
                Location::decode,
            )?,
        })
    }
}

/// Returns the digest at the beginning of a body's record.
pub(crate) fn body_digest(data: &[u8]) -> Result<BundleDigest, DecodeError> {
    Digest::decode(&mut Reader::new(data)).map(BundleDigest)
}

/// Decodes a body. Its digest was computed before the write, and the record's checksum covers it.
pub(crate) fn decode_body(data: &[u8], limits: &BodyLimits) -> Result<Bundle, DecodeError> {
    let mut reader = Reader::new(data);
    let digest = BundleDigest(Digest::decode(&mut reader)?);
    Bundle::with_digest(reader.take_rest(), limits, digest)
}

/// Decodes a block with the list of its bundles.
pub(crate) fn decode_block(data: &[u8]) -> Result<(Arc<Block>, Arc<Payload>), DecodeError> {
    let mut reader = Reader::new(data);
    let block = Arc::decode(&mut reader)?;
    let payload = Arc::decode(&mut reader)?;
    reader.finish()?;
    Ok((block, payload))
}

/// Decodes the entry of a record; `None` for a record that only the store uses.
pub(crate) fn decode(kind: u8, data: &[u8]) -> Result<Option<LogEntry>, DecodeError> {
    Ok(Some(match kind {
        INCARNATION => LogEntry::Incarnation(Incarnation::from_bytes(data)?),
        RECORD => LogEntry::Record(data.into()),
        GUARD => LogEntry::Guard(Statement::from_bytes(data)?),
        FLOORS => LogEntry::Floors(Floors::from_bytes(data)?),
        BLOCK => {
            let (block, payload) = decode_block(data)?;
            LogEntry::Block(block, payload)
        }
        DECIDED => {
            let DecidedRecord { height, id, .. } = DecidedRecord::from_bytes(data)?;
            LogEntry::Decided { height, id }
        }
        CERTIFICATE => LogEntry::Certificate(data.to_vec()),
        PROOF => LogEntry::Proof(data.to_vec()),
        BASE_BEGIN => LogEntry::BaseBegin,
        BASE_END => LogEntry::BaseEnd,
        BODY | JUMP | ..FIRST_FREE => return Ok(None),
        _ => return Err(DecodeError::Tag("entry of the log")),
    }))
}
