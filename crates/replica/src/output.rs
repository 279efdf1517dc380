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
    Bundle(Arc<Bundle>),
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
                out.push(0);
                mark.0.encode(out);
                fingerprint_entry(entry, out);
            }
            Self::Sync(mark) => {
                out.push(1);
                mark.0.encode(out);
            }
            Self::Send { to, lane, frame } => {
                out.push(2);
                match to {
                    To::All => out.push(0),
                    To::One(id) => {
                        out.push(1);
                        id.encode(out);
                    }
                    To::Some(set) => {
                        out.push(2);
                        set.encode(out);
                    }
                }
                out.push(lane.tag());
                fingerprint_frame(frame, out);
            }
            Self::Execute(block) => {
                out.push(3);
                block.height.encode(out);
                block.id.encode(out);
            }
            Self::Reply { client, reply } => {
                out.push(4);
                client.encode(out);
                reply.encode(out);
            }
            Self::Refuse {
                conn,
                client,
                bundle,
                why,
            } => {
                out.push(5);
                conn.0.encode(out);
                client.encode(out);
                bundle.encode(out);
                why.encode(out);
            }
            Self::Load { to, height, id } => {
                out.push(6);
                to.encode(out);
                height.encode(out);
                id.encode(out);
            }
            Self::LoadIds { to, from } => {
                out.push(7);
                to.encode(out);
                from.encode(out);
            }
            Self::Urgent(peer) => {
                out.push(8);
                peer.encode(out);
            }
            Self::Stop(alarm) => {
                out.push(9);
                put_bytes(out, alarm.to_string().as_bytes());
            }
            Self::Rejected { from, kind, why } => {
                out.push(11);
                from.encode(out);
                kind.encode(out);
                put_bytes(out, why.name().as_bytes());
            }
            Self::Trace(note) => {
                out.push(10);
                put_bytes(out, note.what.as_bytes());
                note.view.encode(out);
                note.height.encode(out);
            }
        }
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
        LogEntry::Record(bytes) | LogEntry::Certificate(bytes) | LogEntry::Proof(bytes) => {
            put_bytes(out, bytes)
        }
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
