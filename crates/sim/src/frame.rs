//! Frames that leave a replica, as the world and the oracles see them.

use bytes::Bytes;
use quorate_consensus::{Auth, Entry, Message};
use quorate_replica::HostMessage;
use quorate_types::codec::Wire as _;
use quorate_types::wire::{Lane, frame};
use quorate_types::{Digest, Height, Kind, Reader, ReplicaId, Statement, View};
use std::fmt;

/// A frame from one replica to another.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The sender.
    pub from: ReplicaId,
    /// The receiver.
    pub to: ReplicaId,
    /// The lane.
    pub lane: Lane,
    /// The type, as `types::wire::frame` lists them.
    pub frame_type: u8,
    /// The body.
    pub body: Bytes,
    /// The decoded content.
    pub content: Content,
}

/// The decoded content of a frame.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Content {
    /// The kind of the message; `bundle` and `payload` for bodies.
    pub kind: Kind,
    /// The view, where the message has one.
    pub view: View,
    /// The height, where the message has one.
    pub height: Height,
    /// The sender's statement, where the message has one.
    pub statement: Option<Statement>,
    /// Whether the statement's slot may be signed only once.
    pub is_once: bool,
}

/// The kind of a frame that carries a bundle.
pub const BUNDLE: Kind = Kind::new("bundle");
/// The kind of a frame that carries a payload.
pub const PAYLOAD: Kind = Kind::new("payload");
/// The kind of a frame that does not decode.
pub const UNKNOWN: Kind = Kind::new("unknown");

impl Content {
    fn plain(kind: Kind) -> Self {
        Self { kind, view: View::ZERO, height: Height::ZERO, statement: None, is_once: false }
    }

    /// Decodes a frame as its receiver does.
    pub(crate) fn of(entry: &Entry, frame_type: u8, body: &[u8]) -> Self {
        match frame_type {
            frame::PROTOCOL => protocol(entry, body),
            frame::HOST => host(body),
            frame::BUNDLE => Self::plain(BUNDLE),
            frame::PAYLOAD => Self::plain(PAYLOAD),
            _ => Self::plain(UNKNOWN),
        }
    }

    /// Returns the subject of the statement, or zero.
    #[must_use]
    pub fn subject(&self) -> Digest {
        self.statement.map(|statement| statement.subject).unwrap_or_default()
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<14} v{} h{}", self.kind.as_str(), self.view, self.height)?;
        match self.statement {
            Some(statement) => write!(f, " {:?}", statement.subject),
            None => Ok(()),
        }
    }
}

fn protocol(entry: &Entry, body: &[u8]) -> Content {
    let Ok((message, _)) = entry.decode_frame(body) else {
        return Content::plain(UNKNOWN);
    };
    let message: &dyn Message = message.as_ref();
    let (place, statement) = (message.place(), message.auth().statement());
    Content {
        kind: message.kind(),
        view: if place.view == View::MAX { View::ZERO } else { place.view },
        height: place.height,
        statement,
        is_once: statement.is_some() && message.once(),
    }
}

fn host(body: &[u8]) -> Content {
    let Ok(message) = HostMessage::decode(&mut Reader::new(body)) else {
        return Content::plain(UNKNOWN);
    };
    let plain = Content::plain(message.kind());
    match message.auth() {
        Auth::Signed(statement) => {
            Content { height: statement.height, statement: Some(statement), is_once: true, ..plain }
        }
        _ => plain,
    }
}

/// The decision of a hook about a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The frame leaves.
    Pass,
    /// The frame is dropped.
    Drop,
    /// The frame leaves later by this many nanoseconds.
    Delay(u64),
    /// The frame waits for `World::release`.
    Hold,
    /// Another body leaves instead.
    Replace(Bytes),
}
