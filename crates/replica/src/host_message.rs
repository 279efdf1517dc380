//! Messages between hosts, the same for every protocol: checkpoints, decisions, missing blocks, states, and probes.

use crate::transfer_message::TransferMessage;
use quorate_consensus::{Auth, Checkpoint, CheckpointProof, Claims};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list, put_tagged};
use quorate_types::limits::DECIDED_PER_ANSWER_MAX;
use quorate_types::wire::Lane;
use quorate_types::{Block, BlockId, Height, Incarnation, Kind, Time, View};

/// The kind of a bundle in counters of refused messages.
pub(crate) const BUNDLE_KIND: Kind = Kind::new("host.bundle");

/// The heights of a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heights {
    /// The last executed height whose decision the sender reports. Without durable votes, the sender's own disk has
    /// the decision.
    pub executed: Height,
    /// The first decided height whose block the sender keeps; above `executed` when it keeps none.
    pub kept: Height,
    /// The height of its stable checkpoint.
    pub stable: Height,
}

quorate_types::wire_struct!(Heights { executed, kept, stable });

/// A message between hosts.
#[derive(Clone, PartialEq, Debug)]
pub enum HostMessage {
    /// The sender's state after a height. Signed.
    Checkpoint(Checkpoint),
    /// A stable checkpoint, for the peer that asked.
    Proof(Box<CheckpointProof>),
    /// Asks for the newest stable checkpoint.
    AskProof,
    /// The sender's heights.
    Heights(Heights),
    /// Asks for the decided ids from this height on.
    AskDecided(Height),
    /// The ids that the sender has executed from a height on, in order and without gaps.
    Decided(Height, Vec<BlockId>),
    /// Asks for a block (header, payload and bundles), and for its ancestors if they are few.
    AskBlock {
        /// The id of the block.
        id: BlockId,
        /// The height at which it was decided, for a look-up on disk; zero when the asker does not know it.
        height: Height,
        /// The asker has the ancestors up to this height.
        above: Height,
    },
    /// A header, for the peer that asked; payload and bundles follow as frames of their own.
    Block(Block),
    /// The sender does not have the block, or keeps it no more.
    NoBlock(BlockId),
    /// Asks for an answer at once, to measure whether it arrives within the bound on delays.
    Probe {
        /// The asker's incarnation.
        incarnation: Incarnation,
        /// The number of the asker's round. No peer can know it before.
        number: u64,
    },
    /// Answers a probe.
    ProbeAnswer {
        /// The incarnation in the probe.
        incarnation: Incarnation,
        /// The number in the probe.
        number: u64,
        /// The age of the oldest message that the sender holds until its disk has synced.
        oldest_ns: u64,
        /// The sender's clock.
        at: Time,
    },
    /// A replica that has lost its disk asks the others to show all that they know.
    AskShow {
        /// The asker's incarnation.
        incarnation: Incarnation,
        /// The number of the question.
        round: u64,
        /// The height of the stable checkpoint that the asker waits for; zero for none.
        stable: Height,
        /// The view that the asker waits for; zero for none.
        view: View,
    },
    /// The sender's stable checkpoint, before its [`HostMessage::Shown`] on the same lane.
    ShownProof(Box<CheckpointProof>),
    /// The sender has shown all that it knows. Its view is on its disk.
    Shown {
        /// The incarnation in the question.
        incarnation: Incarnation,
        /// The number of the question.
        round: u64,
        /// The sender's view.
        view: View,
        /// The height of its stable checkpoint.
        stable: Height,
    },
    /// A message of a transfer of state. The host handles it without the replica.
    Transfer(TransferMessage),
}

impl HostMessage {
    /// Returns the kind, for metrics and traces.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Checkpoint(_) => Kind::new("host.checkpoint"),
            Self::Proof(_) => Kind::new("host.proof"),
            Self::AskProof => Kind::new("host.ask-proof"),
            Self::Heights(_) => Kind::new("host.heights"),
            Self::AskDecided(_) => Kind::new("host.ask-decide"),
            Self::Decided(..) => Kind::new("host.decided"),
            Self::AskBlock { .. } => Kind::new("host.ask-block"),
            Self::Block(_) => Kind::new("host.block"),
            Self::NoBlock(_) => Kind::new("host.no-block"),
            Self::Probe { .. } => Kind::new("host.probe"),
            Self::ProbeAnswer { .. } => Kind::new("host.probed"),
            Self::Transfer(message) => message.kind(),
            Self::AskShow { .. } => Kind::new("host.ask-show"),
            Self::ShownProof(_) => Kind::new("host.show-proof"),
            Self::Shown { .. } => Kind::new("host.shown"),
        }
    }

    /// Returns the statement of the sender in the message.
    #[must_use]
    pub fn auth(&self) -> Auth {
        match self {
            Self::Checkpoint(checkpoint) => Auth::Signed(checkpoint.statement()),
            _ => Auth::Linked(None),
        }
    }

    /// Returns the lane.
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self {
            // A probe waits in the same queue as the messages that it measures.
            Self::Checkpoint(_) | Self::Probe { .. } | Self::ProbeAnswer { .. } => Lane::Consensus,
            // They follow the messages of the protocol that show the view.
            Self::AskShow { .. } | Self::ShownProof(_) | Self::Shown { .. } => Lane::Consensus,
            _ => Lane::CatchUp,
        }
    }

    /// Collects the claims that must be checked before the replica sees the message.
    pub fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Proof(proof) | Self::ShownProof(proof) => claims.checkpoint(proof),
            Self::Transfer(TransferMessage::State(offer)) => claims.checkpoint(&offer.proof),
            _ => {}
        }
    }
}

impl Wire for HostMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Checkpoint(checkpoint) => put_tagged(out, 0, &[checkpoint]),
            Self::Proof(proof) => put_tagged(out, 1, &[proof]),
            Self::AskProof => out.push(2),
            Self::Heights(heights) => put_tagged(out, 3, &[heights]),
            Self::AskDecided(from) => put_tagged(out, 4, &[from]),
            Self::Decided(from, ids) => {
                put_tagged(out, 5, &[from]);
                put_list(out, ids);
            }
            Self::AskBlock { id, height, above } => put_tagged(out, 6, &[id, height, above]),
            Self::Block(block) => put_tagged(out, 7, &[block]),
            Self::NoBlock(id) => put_tagged(out, 8, &[id]),
            Self::Probe { incarnation, number } => put_tagged(out, 9, &[incarnation, number]),
            Self::ProbeAnswer { incarnation, number, oldest_ns, at } => {
                put_tagged(out, 10, &[incarnation, number, oldest_ns, at]);
            }
            Self::Transfer(message) => put_tagged(out, 11, &[message]),
            Self::AskShow { incarnation, round, stable, view } => {
                put_tagged(out, 12, &[incarnation, round, stable, view]);
            }
            Self::ShownProof(proof) => put_tagged(out, 13, &[proof]),
            Self::Shown { incarnation, round, view, stable } => {
                put_tagged(out, 14, &[incarnation, round, view, stable]);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::Checkpoint(Checkpoint::decode(reader)?),
            1 => Self::Proof(Box::new(CheckpointProof::decode(reader)?)),
            2 => Self::AskProof,
            3 => Self::Heights(Heights::decode(reader)?),
            4 => Self::AskDecided(Height::decode(reader)?),
            5 => Self::Decided(
                Height::decode(reader)?,
                reader.list("decided", DECIDED_PER_ANSWER_MAX, 32, BlockId::decode)?,
            ),
            6 => Self::AskBlock {
                id: BlockId::decode(reader)?,
                height: Height::decode(reader)?,
                above: Height::decode(reader)?,
            },
            7 => Self::Block(Block::decode(reader)?),
            8 => Self::NoBlock(BlockId::decode(reader)?),
            9 => Self::Probe { incarnation: Incarnation::decode(reader)?, number: reader.u64()? },
            10 => Self::ProbeAnswer {
                incarnation: Incarnation::decode(reader)?,
                number: reader.u64()?,
                oldest_ns: reader.u64()?,
                at: Time::decode(reader)?,
            },
            11 => Self::Transfer(TransferMessage::decode(reader)?),
            12 => Self::AskShow {
                incarnation: Incarnation::decode(reader)?,
                round: reader.u64()?,
                stable: Height::decode(reader)?,
                view: View::decode(reader)?,
            },
            13 => Self::ShownProof(Box::new(CheckpointProof::decode(reader)?)),
            14 => Self::Shown {
                incarnation: Incarnation::decode(reader)?,
                round: reader.u64()?,
                view: View::decode(reader)?,
                stable: Height::decode(reader)?,
            },
            _ => return Err(DecodeError::Tag("host message")),
        })
    }
}
