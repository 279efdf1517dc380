//! The encoding of parts that inputs and outputs share: bundles, blocks with their bodies, entries of the log.

use quorate_types::codec::{DecodeError, Reader, Wire, put_bytes, put_length, put_tagged};
use quorate_types::limits::FRAME_BYTES_MAX;
use quorate_types::{
    Block, BlockId, BodyLimits, Bundle, Floors, FullBlock, Height, Incarnation, LogEntry, Payload, Statement,
};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Bytes of an encoded bundle at least: its length.
const BUNDLE_BYTES_MIN: usize = 4;

pub(crate) fn put_bundle(bundle: &Bundle, out: &mut Vec<u8>) {
    put_bytes(out, bundle.sealed());
}

pub(crate) fn bundle(limits: &BodyLimits, r: &mut Reader<'_>) -> Result<Bundle, DecodeError> {
    Bundle::parse_sealed(r.bytes("bundle", FRAME_BYTES_MAX)?, limits)
}

pub(crate) fn put_full_block(block: &FullBlock, out: &mut Vec<u8>) {
    block.height.encode(out);
    block.id.encode(out);
    block.block.encode(out);
    put_length(out, block.bundles.len());
    for bundle in &block.bundles {
        put_bundle(bundle, out);
    }
}

pub(crate) fn full_block(limits: &BodyLimits, r: &mut Reader<'_>) -> Result<FullBlock, DecodeError> {
    let most = usize::try_from(limits.block_bundles_max).unwrap_or(usize::MAX);
    Ok(FullBlock {
        height: Height::decode(r)?,
        id: BlockId::decode(r)?,
        block: Option::<Block>::decode(r)?,
        bundles: r.list("bundles", most, BUNDLE_BYTES_MIN, |r| bundle(limits, r))?,
    })
}

pub(crate) fn put_entry(entry: &LogEntry, out: &mut Vec<u8>) {
    match entry {
        LogEntry::Incarnation(incarnation) => put_tagged(out, 0, &[incarnation]),
        LogEntry::Record(bytes) => {
            out.push(1);
            put_bytes(out, bytes);
        }
        LogEntry::Guard(statement) => put_tagged(out, 2, &[statement]),
        LogEntry::Floors(floors) => put_tagged(out, 3, &[floors]),
        LogEntry::Block(block, payload) => put_tagged(out, 4, &[block, payload]),
        LogEntry::Body(bundle) => {
            out.push(5);
            put_bundle(bundle, out);
        }
        LogEntry::Decided { height, id } => put_tagged(out, 6, &[height, id]),
        LogEntry::Certificate(bytes) => {
            out.push(7);
            put_bytes(out, bytes);
        }
        LogEntry::Proof(bytes) => {
            out.push(8);
            put_bytes(out, bytes);
        }
        LogEntry::BaseBegin => out.push(9),
        LogEntry::BaseEnd => out.push(10),
    }
}

pub(crate) fn entry(limits: &BodyLimits, r: &mut Reader<'_>) -> Result<LogEntry, DecodeError> {
    Ok(match r.u8()? {
        0 => LogEntry::Incarnation(Incarnation::decode(r)?),
        1 => LogEntry::Record(Arc::from(r.bytes("record", usize::MAX)?)),
        2 => LogEntry::Guard(Statement::decode(r)?),
        3 => LogEntry::Floors(Floors::decode(r)?),
        4 => LogEntry::Block(Arc::<Block>::decode(r)?, Arc::<Payload>::decode(r)?),
        5 => LogEntry::Body(bundle(limits, r)?),
        6 => LogEntry::Decided { height: Height::decode(r)?, id: BlockId::decode(r)? },
        7 => LogEntry::Certificate(r.bytes("certificate", usize::MAX)?.to_vec()),
        8 => LogEntry::Proof(r.bytes("proof", usize::MAX)?.to_vec()),
        9 => LogEntry::BaseBegin,
        10 => LogEntry::BaseEnd,
        _ => return Err(DecodeError::Tag("log entry")),
    })
}
