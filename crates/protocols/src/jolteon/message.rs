//! What replicas say to each other (§1, §3).

use quorate_consensus::parts::timeouts::{ViewProof, timeout_statement};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::parts::words::{Said, Words};
use quorate_consensus::{Auth, Claims, Message, Place, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Block, Height, Kind, PayloadId, View};

/// Statement of a PROPOSE.
pub const PROPOSE: Kind = Kind::new("propose");
/// Statement of a VOTE; certificates are made of these.
pub const VOTE: Kind = Kind::new("vote");
/// Statement of a TIMEOUT; what ends a view is made of these.
pub const TIMEOUT: Kind = Kind::new("timeout");
/// An ADVANCE states nothing: everything in it is said by others.
pub const ADVANCE: Kind = Kind::new("advance");

/// A message of this protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum JolteonMessage {
    /// The leader of a view: vote for this block.
    Propose {
        /// The block; its parent is the block of the proof's certificate, its `justify`.
        block: Block,
        /// What lets into the view of the block.
        proof: ViewProof,
    },
    /// To the next leader: I hold this block and its ancestors, and vote for no other in this view.
    Vote(BlockVote),
    /// My timer of this view has expired: I vote in it no more, and this is the highest certificate that I know.
    Timeout {
        /// The view.
        view: View,
        /// What lets into it.
        proof: ViewProof,
        /// The sender's last vote: its receiver may be dead.
        last_vote: Option<Signed<BlockVote>>,
    },
    /// Why I am in my view: for who is not.
    Advance(ViewProof),
}

impl JolteonMessage {
    fn tag(&self) -> u8 {
        match self {
            Self::Propose { .. } => 0,
            Self::Vote(_) => 1,
            Self::Timeout { .. } => 2,
            Self::Advance(_) => 3,
        }
    }
}

impl Message for JolteonMessage {
    fn kind(&self) -> Kind {
        match self {
            Self::Propose { .. } => PROPOSE,
            Self::Vote(_) => VOTE,
            Self::Timeout { .. } => TIMEOUT,
            Self::Advance(_) => ADVANCE,
        }
    }

    fn place(&self) -> Place {
        let about = |view, certified| Place { view, height: Height::ZERO, certified };
        match self {
            Self::Propose { block, .. } => Place { view: block.view, height: block.height, certified: true },
            Self::Vote(vote) => about(vote.view, false),
            Self::Timeout { view, .. } => about(*view, true),
            // With terms it may lead further; then it lies inside the window all the more.
            Self::Advance(proof) => {
                let given_up = proof.timeouts.as_ref().map_or(View::ZERO, |timeouts| timeouts.view);
                about(proof.qc.view().max(given_up).next(), true)
            }
        }
    }

    fn auth(&self) -> Auth {
        match self {
            Self::Propose { block, .. } => {
                Auth::Signed(BlockVote { view: block.view, block: block.id() }.statement(PROPOSE))
            }
            Self::Vote(vote) => Auth::Signed(vote.statement(VOTE)),
            Self::Timeout { view, proof, .. } => {
                Auth::Signed(timeout_statement(TIMEOUT, *view, proof.qc.view()))
            }
            Self::Advance(_) => Auth::Relay,
        }
    }

    /// A timeout may be said again with a higher certificate.
    fn once(&self) -> bool {
        !matches!(self, Self::Timeout { .. })
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Propose { proof, .. } | Self::Advance(proof) => proof.claim(VOTE, TIMEOUT, claims),
            Self::Vote(_) => {}
            Self::Timeout { proof, last_vote, .. } => {
                proof.claim(VOTE, TIMEOUT, claims);
                if let Some(Signed { body, by, signature }) = last_vote {
                    claims.signature(*by, body.statement(VOTE), signature);
                }
            }
        }
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        if let Self::Propose { block, .. } = self {
            out.push(block.payload);
        }
    }
}

impl Wire for JolteonMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Self::Propose { block, proof } => {
                block.encode(out);
                proof.encode(out);
            }
            Self::Vote(vote) => vote.encode(out),
            Self::Timeout { view, proof, last_vote } => {
                view.encode(out);
                proof.encode(out);
                last_vote.encode(out);
            }
            Self::Advance(proof) => proof.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::Propose { block: Block::decode(reader)?, proof: ViewProof::decode(reader)? },
            1 => Self::Vote(BlockVote::decode(reader)?),
            2 => Self::Timeout {
                view: View::decode(reader)?,
                proof: ViewProof::decode(reader)?,
                last_vote: Option::decode(reader)?,
            },
            3 => Self::Advance(ViewProof::decode(reader)?),
            _ => return Err(DecodeError::Tag("jolteon message")),
        })
    }
}

impl Words for JolteonMessage {
    const PROPOSE: Kind = PROPOSE;
    const VOTE: Kind = VOTE;
    const GIVE_UP: Kind = TIMEOUT;
    const SHOW: Kind = ADVANCE;
}

impl From<Said> for JolteonMessage {
    fn from(said: Said) -> Self {
        match said {
            Said::Propose(block, proof) => Self::Propose { block, proof },
            Said::Vote(vote) => Self::Vote(vote),
            Said::GiveUp(view, proof, last_vote) => Self::Timeout { view, proof, last_vote },
            Said::Show(proof) => Self::Advance(proof),
        }
    }
}

impl From<JolteonMessage> for Said {
    fn from(message: JolteonMessage) -> Self {
        match message {
            JolteonMessage::Propose { block, proof } => Self::Propose(block, proof),
            JolteonMessage::Vote(vote) => Self::Vote(vote),
            JolteonMessage::Timeout { view, proof, last_vote } => Self::GiveUp(view, proof, last_vote),
            JolteonMessage::Advance(proof) => Self::Show(proof),
        }
    }
}
