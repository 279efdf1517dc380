//! What the host must do: a closed set of plain data.

use crate::host_message::HostMessage;
use quorate_consensus::{Alarm, Note, Reject, To};
use quorate_types::codec::{Wire, put_bytes};
use quorate_types::wire::{Lane, Refusal};
use quorate_types::{
    BlockId, Bundle, BundleDigest, ClientId, FullBlock, Height, Kind, LogEntry, Mark, Payload, ReplicaId,
    ReplyBundle, Statement,
};
use std::sync::Arc;

/// A client's connection, as the host numbers them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ConnId(pub u64);

/// Names a message whose own copy the host gives back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Ticket(pub u64);

/// A frame that the host seals (signs, encrypts) and queues.
#[derive(Clone, PartialEq, Debug)]
pub enum Unsealed {
    /// A protocol message, encoded.
    Protocol {
        /// The encoded message, without signature.
        body: Vec<u8>,
        /// What the host signs and appends; `None` where the link vouches.
        sign: Option<Statement>,
        /// The own copy to give back once the frame is queued.
        own: Option<Ticket>,
    },
    /// A message between hosts.
    Host {
        /// The message.
        message: HostMessage,
        /// What the host signs and appends.
        sign: Option<Statement>,
        /// The own copy to give back.
        own: Option<Ticket>,
    },
    /// A bundle.
    Bundle(Bundle),
    /// A payload.
    Payload(Arc<Payload>),
}

/// One thing that the host must do. Outputs are to be done in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Append to the log; no sync yet.
    Persist {
        /// The mark that the entry belongs to.
        mark: Mark,
        /// The entry.
        entry: LogEntry,
    },
    /// Something held waits for this mark: sync, then give `Input::Durable`.
    Sync(Mark),
    /// Queue a frame.
    Send {
        /// To whom.
        to: To,
        /// On which lane.
        lane: Lane,
        /// What.
        frame: Unsealed,
    },
    /// Execute the next height; answered by `Input::Executed`.
    Execute(FullBlock),
    /// Give a reply to whoever speaks for this client.
    Reply {
        /// The client.
        client: ClientId,
        /// The reply.
        reply: ReplyBundle,
    },
    /// Tell a client that its bundle was not taken.
    Refuse {
        /// The connection it came on.
        conn: ConnId,
        /// The client.
        client: ClientId,
        /// Which content.
        bundle: BundleDigest,
        /// Why.
        why: Refusal,
    },
    /// Read a decided block from the log; answered by `Input::Stored`.
    Load {
        /// For whom.
        to: ReplicaId,
        /// Which height.
        height: Height,
        /// What is expected there.
        id: BlockId,
    },
    /// Read the ids of decided heights from the log; answered by `Input::StoredIds`.
    LoadIds {
        /// For whom.
        to: ReplicaId,
        /// From which height on.
        from: Height,
    },
    /// The protocol did not act (fully) on a peer's message: to be counted.
    Rejected {
        /// Who handed it over.
        from: ReplicaId,
        /// What it was.
        kind: Kind,
        /// Why.
        why: Reject,
    },
    /// Whose messages to check first just now.
    Urgent(Option<ReplicaId>),
    /// Stop: the replica will say nothing more.
    Stop(Alarm),
    /// A line for the trace.
    Trace(Note),
}

impl Output {
    /// Feeds a fingerprint of this output: replays must produce the same sequence of them.
    pub fn fingerprint(&self, out: &mut Vec<u8>) {
        match self {
            Self::Persist { mark, entry } => {
                tagged(0, out, &mark.0);
                fingerprint_entry(entry, out);
            }
            Self::Sync(mark) => tagged(1, out, &mark.0),
            Self::Send { to, lane, frame } => {
                tagged(2, out, &lane.tag());
                fingerprint_to(*to, out);
                fingerprint_frame(frame, out);
            }
            Self::Execute(block) => {
                tagged(3, out, &block.height);
                block.id.encode(out);
            }
            Self::Reply { client, reply } => {
                tagged(4, out, client);
                reply.encode(out);
            }
            Self::Refuse { conn, client, bundle, why } => {
                tagged(5, out, &conn.0);
                client.encode(out);
                bundle.encode(out);
                why.encode(out);
            }
            Self::Load { to, height, id } => {
                tagged(6, out, to);
                height.encode(out);
                id.encode(out);
            }
            Self::LoadIds { to, from } => {
                tagged(7, out, to);
                from.encode(out);
            }
            Self::Urgent(peer) => tagged(8, out, peer),
            Self::Stop(alarm) => {
                out.push(9);
                put_bytes(out, alarm.to_string().as_bytes());
            }
            Self::Trace(note) => {
                tagged(10, out, &note.view);
                note.height.encode(out);
                put_bytes(out, note.what.as_bytes());
            }
            Self::Rejected { from, kind, why } => {
                tagged(11, out, from);
                kind.encode(out);
                put_bytes(out, why.name().as_bytes());
            }
        }
    }
}

fn tagged(tag: u8, out: &mut Vec<u8>, first: &impl Wire) {
    out.push(tag);
    first.encode(out);
}

fn fingerprint_to(to: To, out: &mut Vec<u8>) {
    match to {
        To::All => out.push(0),
        To::One(id) => tagged(1, out, &id),
        To::Some(set) => tagged(2, out, &set),
    }
}

fn fingerprint_frame(frame: &Unsealed, out: &mut Vec<u8>) {
    match frame {
        Unsealed::Protocol { body, sign, .. } => {
            out.push(0);
            put_bytes(out, body);
            sign.encode(out);
        }
        Unsealed::Host { message, sign, .. } => {
            out.push(1);
            message.encode(out);
            sign.encode(out);
        }
        Unsealed::Bundle(bundle) => {
            out.push(2);
            bundle.digest().encode(out);
        }
        Unsealed::Payload(payload) => {
            out.push(3);
            payload.encode(out);
        }
    }
}

fn fingerprint_entry(entry: &LogEntry, out: &mut Vec<u8>) {
    match entry {
        LogEntry::Incarnation(incarnation) => incarnation.encode(out),
        LogEntry::Record(bytes) => put_bytes(out, bytes),
        LogEntry::Certificate(bytes) | LogEntry::Proof(bytes) => put_bytes(out, bytes),
        LogEntry::Guard(statement) => statement.encode(out),
        LogEntry::Floors(floors) => floors.encode(out),
        LogEntry::Block(block, payload) => {
            block.encode(out);
            payload.encode(out);
        }
        LogEntry::Body(bundle) => bundle.digest().encode(out),
        LogEntry::Decided { height, id } => {
            height.encode(out);
            id.encode(out);
        }
        LogEntry::BaseBegin => out.push(1),
        LogEntry::BaseEnd => out.push(2),
    }
}
