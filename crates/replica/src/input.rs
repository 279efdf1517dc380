//! Inputs of a replica: a closed set of plain data with an encoding, so that a recording of inputs replays a run.

use crate::encoding::{self, put_bundle, put_full_block};
use crate::host_message::HostMessage;
use crate::output::{ConnId, OwnCopyTicket};
use quorate_consensus::{Entry, LinkEvent, Message, Seal};
use quorate_types::codec::{DecodeError, Reader, Wire, put_bytes, put_length, put_list, put_tagged};
use quorate_types::limits::{DECIDED_PER_ANSWER_MAX, FRAME_CONSENSUS_BYTES_MAX};
use quorate_types::{
    BlockId, BodyLimits, Bundle, BundleDigest, BundleNo, ClientId, Digest, Executed, ExecutedBundle,
    FullBlock, Height, Mark, Payload, PublicKey, ReplicaId, ReplicaSet, SessionId, Signature, Statement,
};
use std::sync::Arc;

/// A message of a peer whose form, window and signatures were checked.
#[derive(Debug)]
pub struct Checked {
    /// The peer that sent it.
    pub link: ReplicaId,
    /// The signer, with the signature.
    pub seal: Seal,
    /// The message.
    pub message: CheckedMessage,
}

/// The content of a checked message.
#[derive(Debug)]
pub enum CheckedMessage {
    /// A message for the protocol.
    Protocol(Box<dyn Message>),
    /// A message for the host.
    Host(HostMessage),
}

/// One event.
#[derive(Debug)]
pub enum Input {
    /// A message of a peer.
    Peer(Checked),
    /// A bundle that its client handed over directly; its authenticator holds.
    Client(ConnId, Bundle),
    /// A bundle that a peer handed over; its authenticator holds.
    Bundle {
        /// The peer that sent it.
        from: ReplicaId,
        /// The bundle.
        bundle: Bundle,
        /// Whether it waits for execution, as far as the executor knows. Otherwise it is kept for a while, because a
        /// block may name it.
        pending: bool,
    },
    /// A payload that a peer handed over.
    Payload(ReplicaId, Arc<Payload>),
    /// An own message was sealed and queued.
    Own(OwnCopyTicket, Option<Signature>),
    /// The log is durable up to this mark.
    Durable(Mark),
    /// A block was executed.
    Executed(Executed),
    /// An event of a link.
    Link(ReplicaId, LinkEvent),
    /// The answer of the log to a peer that asked for a decided block; `None` when the log does not keep it.
    Stored(ReplicaId, BlockId, Option<Box<FullBlock>>),
    /// The answer of the log to a peer that asked for decided ids, with the first height that the log keeps.
    StoredIds(ReplicaId, Height, Vec<BlockId>),
    /// The first decided height that the log keeps has changed.
    Kept(Height),
    /// The log has begun a new segment, which needs everything that still binds once more.
    Rolled,
    /// Exactly these replicas have bodies that wait for their check.
    Unchecked(ReplicaSet),
    /// A connection asks for the order of a bundle.
    AskOrder {
        /// The connection.
        conn: ConnId,
        /// The client that asks; the answer names it.
        client: ClientId,
        /// The bundle.
        bundle: BundleDigest,
    },
    /// A connection that has asked for the order of a bundle is gone.
    Disconnected(ConnId),
    /// A peer waits for a checkpoint: heights up to this one are wanted, although no client waits.
    WantHeights(Height),
    /// A peer has shown this statement with a signature of this replica. The signature holds.
    OwnStatement(Statement),
}

impl Input {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Peer(checked) => encode_checked(checked, out),
            Self::Client(conn, bundle) => {
                put_tagged(out, 2, &[&conn.0]);
                put_bundle(bundle, out);
            }
            Self::Bundle { from, bundle, pending } => {
                put_tagged(out, 3, &[from, pending]);
                put_bundle(bundle, out);
            }
            Self::Payload(from, payload) => put_tagged(out, 4, &[from, payload]),
            Self::Own(ticket, signature) => put_tagged(out, 5, &[&ticket.0, signature]),
            Self::Durable(mark) => put_tagged(out, 6, &[&mark.0]),
            Self::Executed(executed) => {
                out.push(7);
                encode_executed(executed, out);
            }
            Self::Link(peer, event) => put_tagged(out, 8, &[peer, &(*event == LinkEvent::Back)]),
            Self::Stored(to, id, block) => {
                put_tagged(out, 9, &[to, id, &block.is_some()]);
                if let Some(block) = block {
                    put_full_block(block, out);
                }
            }
            Self::StoredIds(to, from, ids) => {
                put_tagged(out, 10, &[to, from]);
                put_list(out, ids);
            }
            Self::Kept(height) => put_tagged(out, 11, &[height]),
            Self::Rolled => out.push(12),
            Self::Unchecked(peers) => put_tagged(out, 13, &[peers]),
            Self::AskOrder { conn, client, bundle } => put_tagged(out, 14, &[&conn.0, client, bundle]),
            Self::Disconnected(conn) => put_tagged(out, 15, &[&conn.0]),
            Self::WantHeights(until) => put_tagged(out, 16, &[until]),
            Self::OwnStatement(statement) => put_tagged(out, 17, &[statement]),
        }
    }

    /// Reads an input that fills `bytes`, in the encoding of a replica of this protocol and these limits.
    ///
    /// # Errors When the bytes are not an input.
    pub fn decode(entry: &Entry, limits: &BodyLimits, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let input = match r.u8()? {
            tag @ (0 | 1) => Self::Peer(decode_checked(tag, entry, r)?),
            2 => Self::Client(ConnId(r.u64()?), encoding::bundle(limits, r)?),
            3 => Self::Bundle {
                from: ReplicaId::decode(r)?,
                pending: r.bool()?,
                bundle: encoding::bundle(limits, r)?,
            },
            4 => Self::Payload(ReplicaId::decode(r)?, Arc::decode(r)?),
            5 => Self::Own(OwnCopyTicket(r.u64()?), Option::decode(r)?),
            6 => Self::Durable(Mark(r.u64()?)),
            7 => Self::Executed(decode_executed(r)?),
            8 => {
                let peer = ReplicaId::decode(r)?;
                let event = if r.bool()? { LinkEvent::Back } else { LinkEvent::Gap };
                Self::Link(peer, event)
            }
            9 => {
                let (to, id) = (ReplicaId::decode(r)?, BlockId::decode(r)?);
                let block = if r.bool()? { Some(Box::new(encoding::full_block(limits, r)?)) } else { None };
                Self::Stored(to, id, block)
            }
            10 => Self::StoredIds(
                ReplicaId::decode(r)?,
                Height::decode(r)?,
                r.list("ids", DECIDED_PER_ANSWER_MAX, 32, BlockId::decode)?,
            ),
            11 => Self::Kept(Height::decode(r)?),
            12 => Self::Rolled,
            13 => Self::Unchecked(ReplicaSet::decode(r)?),
            14 => Self::AskOrder {
                conn: ConnId(r.u64()?),
                client: PublicKey::decode(r)?,
                bundle: BundleDigest::decode(r)?,
            },
            15 => Self::Disconnected(ConnId(r.u64()?)),
            16 => Self::WantHeights(Height::decode(r)?),
            17 => Self::OwnStatement(Statement::decode(r)?),
            _ => return Err(DecodeError::Tag("input")),
        };
        reader.finish()?;
        Ok(input)
    }
}

fn encode_checked(checked: &Checked, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    match &checked.message {
        CheckedMessage::Protocol(message) => {
            out.push(0);
            message.encode(&mut body);
        }
        CheckedMessage::Host(message) => {
            out.push(1);
            message.encode(&mut body);
        }
    }
    checked.link.encode(out);
    checked.seal.by.encode(out);
    checked.seal.signature.encode(out);
    put_bytes(out, &body);
}

fn decode_checked(tag: u8, entry: &Entry, r: &mut Reader<'_>) -> Result<Checked, DecodeError> {
    let link = ReplicaId::decode(r)?;
    let seal = Seal { by: ReplicaId::decode(r)?, signature: Option::decode(r)? };
    let body = r.bytes("message", FRAME_CONSENSUS_BYTES_MAX)?;
    let message = match tag {
        0 => CheckedMessage::Protocol(entry.decode_message(body)?),
        _ => CheckedMessage::Host(HostMessage::from_bytes(body)?),
    };
    Ok(Checked { link, seal, message })
}

/// Bytes of an executed bundle at least, without its outcome.
const EXECUTED_BYTES_MIN: usize = 32 + 12 + 8 + 32 + 32 + 4 + 4;

fn encode_executed(executed: &Executed, out: &mut Vec<u8>) {
    executed.height.encode(out);
    put_length(out, executed.bundles.len());
    for bundle in &executed.bundles {
        bundle.client.encode(out);
        bundle.session.encode(out);
        bundle.number.encode(out);
        bundle.bundle.encode(out);
        bundle.result.encode(out);
        put_bytes(out, &bundle.outcome);
        bundle.applied.encode(out);
    }
    put_list(out, &executed.evicted);
    executed.state.encode(out);
}

fn decode_executed(r: &mut Reader<'_>) -> Result<Executed, DecodeError> {
    let height = Height::decode(r)?;
    let bundles = r.list("executed", usize::MAX, EXECUTED_BYTES_MIN, |r| {
        Ok(ExecutedBundle {
            client: PublicKey::decode(r)?,
            session: SessionId::decode(r)?,
            number: BundleNo::decode(r)?,
            bundle: BundleDigest::decode(r)?,
            result: Digest::decode(r)?,
            outcome: Arc::from(r.bytes("outcome", usize::MAX)?),
            applied: r.u32()?,
        })
    })?;
    let evicted = r.list("evicted", usize::MAX, 12, SessionId::decode)?;
    Ok(Executed { height, bundles, evicted, state: Option::decode(r)? })
}
