//! Messages between replicas, and the statements that bind their senders.

use quorate_consensus::{Auth, Message, Place};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Block, BlockId, Height, Kind, PayloadId, Statement, View};

pub(super) const PROPOSE: Kind = Kind::new("propose");
pub(super) const VOTE: Kind = Kind::new("vote");
pub(super) const ASK: Kind = Kind::new("ask");

/// A message of this protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EchoMessage {
    /// The leader proposes this block at its height.
    Propose(Block),
    /// The sender votes for this block at this height, and for no other, for ever.
    Vote {
        /// The height.
        height: Height,
        /// The block.
        block: BlockId,
    },
    /// The sender has not decided this height and requests its messages again.
    Ask {
        /// The height.
        height: Height,
    },
}

impl Message for EchoMessage {
    fn kind(&self) -> Kind {
        match self {
            Self::Propose(_) => PROPOSE,
            Self::Vote { .. } => VOTE,
            Self::Ask { .. } => ASK,
        }
    }

    // The host compares this with `Echo::window` before it spends anything on the message.
    fn place(&self) -> Place {
        let at = |height| Place { view: View::ZERO, height, certified: false };
        match self {
            Self::Propose(block) => at(block.height),
            Self::Vote { height, .. } => at(*height),
            // A replica that is behind may ask about heights that are settled here.
            Self::Ask { .. } => Place::ANYWHERE,
        }
    }

    // A statement binds its sender: the host fills each (kind, view, height) once in a replica's life. The link
    // authenticates the sender, so messages are not signed. ASK makes no statement.
    fn auth(&self) -> Auth {
        let state = |kind, height, block: BlockId| {
            Auth::Linked(Some(Statement::new(kind, View::ZERO, height, block.0)))
        };
        match self {
            Self::Propose(block) => state(PROPOSE, block.height, block.id()),
            Self::Vote { height, block } => state(VOTE, *height, *block),
            Self::Ask { .. } => Auth::Linked(None),
        }
    }

    // The bodies travel beside the proposal: the receiver need not request them at once.
    fn bodies(&self, out: &mut Vec<PayloadId>) {
        if let Self::Propose(block) = self {
            out.push(block.payload);
        }
    }
}

impl Wire for EchoMessage {
    fn encode(&self, buf: &mut Vec<u8>) {
        match self {
            Self::Propose(block) => {
                buf.push(0);
                block.encode(buf);
            }
            Self::Vote { height, block } => {
                buf.push(1);
                height.encode(buf);
                block.encode(buf);
            }
            Self::Ask { height } => {
                buf.push(2);
                height.encode(buf);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::Propose(Block::decode(reader)?),
            1 => Self::Vote { height: Height::decode(reader)?, block: BlockId::decode(reader)? },
            2 => Self::Ask { height: Height::decode(reader)? },
            _ => return Err(DecodeError::Tag("echo message")),
        })
    }
}
