//! What hosts say to each other about every protocol: checkpoints, what was decided, missing blocks, and probes.

use quorate_consensus::{Auth, Checkpoint, CheckpointProof, Claims};
use quorate_types::codec::{DecodeError, Reader, Wire, put_length};
use quorate_types::limits::DECIDED_PER_ANSWER_MAX;
use quorate_types::wire::Lane;
use quorate_types::{Block, BlockId, Height, Incarnation, Kind, Time};

/// The kind of a bundle in counters of refused messages.
pub(crate) const BUNDLE_KIND: Kind = Kind::new("host.bundle");

/// How far a replica is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heights {
    /// Last height executed of which the sender says what was decided: its disk knows it, where no votes on others' do.
    pub executed: Height,
    /// First decided height whose block it still keeps; above `executed` when it keeps none.
    pub kept: Height,
    /// Its stable checkpoint.
    pub stable: Height,
}

impl Wire for Heights {
    fn encode(&self, out: &mut Vec<u8>) {
        self.executed.encode(out);
        self.kept.encode(out);
        self.stable.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            executed: Height::decode(reader)?,
            kept: Height::decode(reader)?,
            stable: Height::decode(reader)?,
        })
    }
}

/// A message between hosts.
#[derive(Clone, PartialEq, Debug)]
pub enum HostMessage {
    /// "My state after this height is this." Signed.
    Checkpoint(Checkpoint),
    /// A stable checkpoint, for who asked.
    Proof(Box<CheckpointProof>),
    /// Asks for the newest stable checkpoint.
    AskProof,
    /// How far the sender is.
    Heights(Heights),
    /// Asks what was decided from this height on.
    AskDecided(Height),
    /// What the sender has executed from a height on, in order without gaps, up to the one that it says it has.
    Decided(Height, Vec<BlockId>),
    /// Asks for a block: header, payload and bundles; and for its ancestors, as far as they are not many.
    AskBlock {
        /// Which.
        id: BlockId,
        /// Where to look on disk when it is decided; zero when the asker does not know it.
        height: Height,
        /// Ancestors up to this height are here.
        above: Height,
    },
    /// A header, for who asked; payload and bundles follow as frames of their own.
    Block(Block),
    /// The sender does not have (or keep) the block.
    NoBlock(BlockId),
    /// Asks for an answer at once: whether it comes within the bound on delays.
    Probe {
        /// Of whoever asks.
        incarnation: Incarnation,
        /// Of a round of probes; nobody but whoever asks can know it before.
        number: u64,
    },
    /// Answers a probe.
    ProbeAnswer {
        /// The probe's.
        incarnation: Incarnation,
        /// The probe's.
        number: u64,
        /// For how long the oldest message has waited that the sender may not send yet, because its disk is not so far.
        oldest_ns: u64,
        /// The sender's clock.
        at: Time,
    },
}

impl HostMessage {
    /// For metrics and traces.
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
        }
    }

    /// What of it is the sender's own statement.
    #[must_use]
    pub fn auth(&self) -> Auth {
        match self {
            Self::Checkpoint(checkpoint) => Auth::Signed(checkpoint.statement()),
            _ => Auth::Linked(None),
        }
    }

    /// The lane it travels on.
    #[must_use]
    pub fn lane(&self) -> Lane {
        match self {
            // A probe waits behind what it is to be like.
            Self::Checkpoint(_) | Self::Probe { .. } | Self::ProbeAnswer { .. } => Lane::Consensus,
            _ => Lane::CatchUp,
        }
    }

    /// What must be checked before the replica sees it.
    pub fn claims(&self, claims: &mut Claims<'_>) {
        if let Self::Proof(proof) = self {
            claims.checkpoint(proof);
        }
    }
}

impl Wire for HostMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Checkpoint(checkpoint) => {
                out.push(0);
                checkpoint.encode(out);
            }
            Self::Proof(proof) => {
                out.push(1);
                proof.encode(out);
            }
            Self::AskProof => out.push(2),
            Self::Heights(heights) => {
                out.push(3);
                heights.encode(out);
            }
            Self::AskDecided(from) => {
                out.push(4);
                from.encode(out);
            }
            Self::Decided(from, ids) => {
                out.push(5);
                from.encode(out);
                put_length(out, ids.len());
                for id in ids {
                    id.encode(out);
                }
            }
            Self::AskBlock { id, height, above } => {
                out.push(6);
                id.encode(out);
                height.encode(out);
                above.encode(out);
            }
            Self::Block(block) => {
                out.push(7);
                block.encode(out);
            }
            Self::NoBlock(id) => {
                out.push(8);
                id.encode(out);
            }
            Self::Probe { incarnation, number } => {
                out.push(9);
                incarnation.encode(out);
                number.encode(out);
            }
            Self::ProbeAnswer { incarnation, number, oldest_ns, at } => {
                out.push(10);
                incarnation.encode(out);
                number.encode(out);
                oldest_ns.encode(out);
                at.encode(out);
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
            _ => return Err(DecodeError::Tag("host message")),
        })
    }
}
