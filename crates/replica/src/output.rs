//! Outputs of a replica: a closed set of plain data with an encoding, so that two runs can be compared.

use crate::encoding::{self, put_bundle, put_entry, put_full_block};
use crate::host_message::HostMessage;
use quorate_consensus::{Alarm, Note, Reject, To};
use quorate_types::codec::{DecodeError, Reader, Wire, put_bytes, put_tagged};
use quorate_types::limits::{FRAME_CONSENSUS_BYTES_MAX, REASON_BYTES_MAX};
use quorate_types::wire::{Lane, NoOrder, Refusal};
use quorate_types::{
    BlockId, BodyLimits, Bundle, BundleDigest, ClientId, FullBlock, Height, Kind, LogEntry, Mark, OrderProof,
    Payload, ReplicaId, ReplicaSet, ReplyBundle, Statement, View,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A client's connection, as the host numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ConnId(pub u64);

/// The number of a message whose own copy the host returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct OwnCopyTicket(pub u64);

/// A frame that the host seals (signs, encrypts) and queues.
#[derive(Clone, PartialEq, Debug)]
pub enum Unsealed {
    /// A protocol message, encoded.
    Protocol {
        /// The encoded message, without signature.
        body: Vec<u8>,
        /// The statement that the host signs and appends; `None` where the link vouches.
        sign: Option<Statement>,
        /// The own copy to return once the frame is queued.
        own: Option<OwnCopyTicket>,
    },
    /// A message between hosts.
    Host {
        /// The message.
        message: HostMessage,
        /// The statement that the host signs and appends.
        sign: Option<Statement>,
        /// The own copy to return.
        own: Option<OwnCopyTicket>,
    },
    /// A bundle.
    Bundle(Bundle),
    /// A payload.
    Payload(Arc<Payload>),
}

/// One task of the host. The host carries out outputs in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Append an entry to the log, without a sync.
    Persist {
        /// The mark of the entry.
        mark: Mark,
        /// The entry.
        entry: LogEntry,
    },
    /// A held message waits for this mark: sync, then hand in `Input::Durable`.
    Sync(Mark),
    /// Queue a frame.
    Send {
        /// The receivers.
        to: To,
        /// The lane.
        lane: Lane,
        /// The frame.
        frame: Unsealed,
    },
    /// Execute the next height; answered by `Input::Executed`.
    Execute(FullBlock),
    /// Give a reply to the connections that speak for this client.
    Reply {
        /// The client.
        client: ClientId,
        /// The reply.
        reply: ReplyBundle,
    },
    /// Refuse a bundle of a client.
    Refuse {
        /// The connection on which it came.
        conn: ConnId,
        /// The client.
        client: ClientId,
        /// The digest of the bundle.
        bundle: BundleDigest,
        /// The reason.
        why: Refusal,
    },
    /// Read a decided block from the log; answered by `Input::Stored`.
    Load {
        /// The peer that asks.
        to: ReplicaId,
        /// The height of the block.
        height: Height,
        /// The id that is expected at this height.
        id: BlockId,
    },
    /// Read the ids of decided heights from the log; answered by `Input::StoredIds`.
    LoadIds {
        /// The peer that asks.
        to: ReplicaId,
        /// The first height.
        from: Height,
    },
    /// Count a peer's message on which the protocol did not act, or not fully.
    Rejected {
        /// The peer that sent it.
        from: ReplicaId,
        /// The kind of the message.
        kind: Kind,
        /// The reason.
        why: Reject,
    },
    /// Check the messages of this peer first from now on.
    Urgent(Option<ReplicaId>),
    /// Stop: the replica sends no more messages.
    Stop(Alarm),
    /// Write a line to the trace.
    Trace(Note),
    /// Answer a question for the order of a bundle.
    Order {
        /// The connection that has asked.
        conn: ConnId,
        /// The client that has asked.
        client: ClientId,
        /// The bundle.
        bundle: BundleDigest,
        /// The proof, or the reason why there is none.
        answer: Result<Box<OrderProof>, NoOrder>,
    },
}

impl Output {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Persist { mark, entry } => {
                put_tagged(out, 0, &[&mark.0]);
                put_entry(entry, out);
            }
            Self::Sync(mark) => put_tagged(out, 1, &[&mark.0]),
            Self::Send { to, lane, frame } => {
                put_tagged(out, 2, &[&lane.tag()]);
                encode_to(*to, out);
                encode_frame(frame, out);
            }
            Self::Execute(block) => {
                out.push(3);
                put_full_block(block, out);
            }
            Self::Reply { client, reply } => put_tagged(out, 4, &[client, reply]),
            Self::Refuse { conn, client, bundle, why } => put_tagged(out, 5, &[&conn.0, client, bundle, why]),
            Self::Load { to, height, id } => put_tagged(out, 6, &[to, height, id]),
            Self::LoadIds { to, from } => put_tagged(out, 7, &[to, from]),
            Self::Urgent(peer) => put_tagged(out, 8, &[peer]),
            Self::Stop(alarm) => {
                out.push(9);
                encode_alarm(*alarm, out);
            }
            Self::Trace(note) => {
                put_tagged(out, 10, &[&note.view, &note.height]);
                put_bytes(out, note.what.as_bytes());
            }
            Self::Rejected { from, kind, why } => {
                put_tagged(out, 11, &[from, kind]);
                encode_reject(*why, out);
            }
            Self::Order { conn, client, bundle, answer } => {
                put_tagged(out, 12, &[&conn.0, client, bundle, &answer.is_ok()]);
                match answer {
                    Ok(proof) => proof.encode(out),
                    Err(why) => why.encode(out),
                }
            }
        }
    }

    /// Reads an output that fills `bytes`, in the encoding of a replica with these limits.
    ///
    /// # Errors When the bytes are not an output, or `names` is full.
    pub fn decode(limits: &BodyLimits, names: &mut NameInterner, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let output = match r.u8()? {
            0 => Self::Persist { mark: Mark(r.u64()?), entry: encoding::entry(limits, r)? },
            1 => Self::Sync(Mark(r.u64()?)),
            2 => {
                let lane = Lane::from_tag(r.u8()?).ok_or(DecodeError::Tag("lane"))?;
                Self::Send { lane, to: decode_to(r)?, frame: decode_frame(limits, r)? }
            }
            3 => Self::Execute(encoding::full_block(limits, r)?),
            4 => Self::Reply { client: ClientId::decode(r)?, reply: ReplyBundle::decode(r)? },
            5 => Self::Refuse {
                conn: ConnId(r.u64()?),
                client: ClientId::decode(r)?,
                bundle: BundleDigest::decode(r)?,
                why: Refusal::decode(r)?,
            },
            6 => {
                Self::Load { to: ReplicaId::decode(r)?, height: Height::decode(r)?, id: BlockId::decode(r)? }
            }
            7 => Self::LoadIds { to: ReplicaId::decode(r)?, from: Height::decode(r)? },
            8 => Self::Urgent(Option::decode(r)?),
            9 => Self::Stop(decode_alarm(names, r)?),
            10 => {
                let (view, height) = (View::decode(r)?, Height::decode(r)?);
                Self::Trace(Note { what: names.read(r)?, view, height })
            }
            11 => Self::Rejected {
                from: ReplicaId::decode(r)?,
                kind: Kind::decode(r)?,
                why: decode_reject(names, r)?,
            },
            12 => Self::Order {
                conn: ConnId(r.u64()?),
                client: ClientId::decode(r)?,
                bundle: BundleDigest::decode(r)?,
                answer: if r.bool()? { Ok(Box::decode(r)?) } else { Err(NoOrder::decode(r)?) },
            },
            _ => return Err(DecodeError::Tag("output")),
        };
        reader.finish()?;
        Ok(output)
    }
}

/// The maximum of names in one [`NameInterner`].
const NAMES_MAX: usize = 1_024;

/// Short names inside decoded outputs. In a replica these names are literals of the program, so decoded names must
/// live as long. Each distinct name is kept for the life of the process, up to a maximum. One interner serves a
/// process.
#[derive(Debug, Default)]
pub struct NameInterner(BTreeSet<&'static str>);

impl NameInterner {
    fn read(&mut self, r: &mut Reader<'_>) -> Result<&'static str, DecodeError> {
        let text = r.text("name", REASON_BYTES_MAX)?;
        if let Some(known) = self.0.get(text) {
            return Ok(known);
        }
        if self.0.len() >= NAMES_MAX {
            return Err(DecodeError::Value("name"));
        }
        let name: &'static str = Box::leak(text.into());
        self.0.insert(name);
        Ok(name)
    }
}

fn encode_to(to: To, out: &mut Vec<u8>) {
    match to {
        To::All => out.push(0),
        To::One(id) => put_tagged(out, 1, &[&id]),
        To::Some(set) => put_tagged(out, 2, &[&set]),
    }
}

fn decode_to(r: &mut Reader<'_>) -> Result<To, DecodeError> {
    Ok(match r.u8()? {
        0 => To::All,
        1 => To::One(ReplicaId::decode(r)?),
        2 => To::Some(ReplicaSet::decode(r)?),
        _ => return Err(DecodeError::Tag("receivers")),
    })
}

fn encode_frame(frame: &Unsealed, out: &mut Vec<u8>) {
    let encode_rest = |sign: &Option<Statement>, own: &Option<OwnCopyTicket>, out: &mut Vec<u8>| {
        sign.encode(out);
        own.map(|ticket| ticket.0).encode(out);
    };
    match frame {
        Unsealed::Protocol { body, sign, own } => {
            out.push(0);
            put_bytes(out, body);
            encode_rest(sign, own, out);
        }
        Unsealed::Host { message, sign, own } => {
            put_tagged(out, 1, &[message]);
            encode_rest(sign, own, out);
        }
        Unsealed::Bundle(bundle) => {
            out.push(2);
            put_bundle(bundle, out);
        }
        Unsealed::Payload(payload) => put_tagged(out, 3, &[payload]),
    }
}

fn decode_frame(limits: &BodyLimits, r: &mut Reader<'_>) -> Result<Unsealed, DecodeError> {
    let own = |r: &mut Reader<'_>| Option::<u64>::decode(r).map(|number| number.map(OwnCopyTicket));
    Ok(match r.u8()? {
        0 => Unsealed::Protocol {
            body: r.bytes("message", FRAME_CONSENSUS_BYTES_MAX)?.to_vec(),
            sign: Option::decode(r)?,
            own: own(r)?,
        },
        1 => Unsealed::Host { message: HostMessage::decode(r)?, sign: Option::decode(r)?, own: own(r)? },
        2 => Unsealed::Bundle(encoding::bundle(limits, r)?),
        3 => Unsealed::Payload(Arc::decode(r)?),
        _ => return Err(DecodeError::Tag("frame")),
    })
}

fn encode_alarm(alarm: Alarm, out: &mut Vec<u8>) {
    match alarm {
        Alarm::SafetyBroken { height, first, second } => put_tagged(out, 0, &[&height, &first, &second]),
        Alarm::StateDiverged { height } => put_tagged(out, 1, &[&height]),
        Alarm::SynchronyDoubt { view, peer, why } => {
            put_tagged(out, 2, &[&view, &peer]);
            put_bytes(out, why.as_bytes());
        }
        Alarm::NearMiss { view, leader } => put_tagged(out, 3, &[&view, &leader]),
        Alarm::RolledBack { view, height } => put_tagged(out, 4, &[&view, &height]),
    }
}

fn decode_alarm(names: &mut NameInterner, r: &mut Reader<'_>) -> Result<Alarm, DecodeError> {
    Ok(match r.u8()? {
        0 => Alarm::SafetyBroken {
            height: Height::decode(r)?,
            first: BlockId::decode(r)?,
            second: BlockId::decode(r)?,
        },
        1 => Alarm::StateDiverged { height: Height::decode(r)? },
        2 => Alarm::SynchronyDoubt { view: View::decode(r)?, peer: Option::decode(r)?, why: names.read(r)? },
        3 => Alarm::NearMiss { view: View::decode(r)?, leader: ReplicaId::decode(r)? },
        4 => Alarm::RolledBack { view: View::decode(r)?, height: Height::decode(r)? },
        _ => return Err(DecodeError::Tag("alarm")),
    })
}

fn encode_reject(why: Reject, out: &mut Vec<u8>) {
    match why {
        Reject::WrongSender => out.push(0),
        Reject::Stale => out.push(1),
        Reject::Early => out.push(2),
        Reject::Duplicate => out.push(3),
        Reject::Equivocation => out.push(4),
        Reject::NotNow(name) => {
            out.push(5);
            put_bytes(out, name.as_bytes());
        }
        Reject::Invalid(name) => {
            out.push(6);
            put_bytes(out, name.as_bytes());
        }
    }
}

fn decode_reject(names: &mut NameInterner, r: &mut Reader<'_>) -> Result<Reject, DecodeError> {
    Ok(match r.u8()? {
        0 => Reject::WrongSender,
        1 => Reject::Stale,
        2 => Reject::Early,
        3 => Reject::Duplicate,
        4 => Reject::Equivocation,
        5 => Reject::NotNow(names.read(r)?),
        6 => Reject::Invalid(names.read(r)?),
        _ => return Err(DecodeError::Tag("reject")),
    })
}
