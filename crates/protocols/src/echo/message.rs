//! What replicas say to each other, and what of it binds them.

use quorate_consensus::{Auth, Message, Place};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Block, BlockId, Height, Kind, PayloadId, Statement, View};

pub(super) const PROPOSE: Kind = Kind::new("propose");
pub(super) const VOTE: Kind = Kind::new("vote");
pub(super) const ASK: Kind = Kind::new("ask");

/// A message of this protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EchoMessage {
    /// The leader: decide this block at its height.
    Propose(Block),
    /// I stand by this block at this height, and by no other, for ever.
    Vote {
        /// Where.
        height: Height,
        /// What.
        block: BlockId,
    },
    /// I have not decided this height: say again what you said about it.
    Ask {
        /// Which.
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
            // Whoever is behind may ask about heights that are settled here.
            Self::Ask { .. } => Place::ANYWHERE,
        }
    }

    // A statement is what binds: the host fills each (kind, view, height) once in a replica's life. The link
    // vouches for the sender, so nothing is signed; a question states nothing at all.
    fn auth(&self) -> Auth {
        let say = |kind, height, block: BlockId| {
            Auth::Linked(Some(Statement::new(kind, View::ZERO, height, block.0)))
        };
        match self {
            Self::Propose(block) => say(PROPOSE, block.height, block.id()),
            Self::Vote { height, block } => say(VOTE, *height, *block),
            Self::Ask { .. } => Auth::Linked(None),
        }
    }

    // The bodies are on their way beside the proposal: the receiver need not ask for them at once.
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
