//! What replicas say to each other (§1).

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
/// Statement of a COMPLAIN; what ends a view is made of these.
pub const COMPLAIN: Kind = Kind::new("complain");
/// A NEXTVIEW states nothing: everything in it is said by others.
pub const NEXT_VIEW: Kind = Kind::new("next-view");

/// A message of this protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum HotStuffMessage {
    /// The leader of a view: vote for this block.
    Propose {
        /// The block; its parent is the block of the proof's certificate, its `justify`.
        block: Block,
        /// What lets into the view of the block.
        proof: ViewProof,
    },
    /// To the next leader: I hold this block and its ancestors, and vote for no other in this view.
    Vote(BlockVote),
    /// This view leads to nothing.
    Complain {
        /// The view.
        view: View,
        /// What lets into it.
        proof: ViewProof,
        /// The sender's last vote: its receiver may be dead.
        last_vote: Option<Signed<BlockVote>>,
    },
    /// Why I am in my view: for who is not.
    NextView(ViewProof),
}

impl HotStuffMessage {
    fn tag(&self) -> u8 {
        match self {
            Self::Propose { .. } => 0,
            Self::Vote(_) => 1,
            Self::Complain { .. } => 2,
            Self::NextView(_) => 3,
        }
    }
}

impl Message for HotStuffMessage {
    fn kind(&self) -> Kind {
        match self {
            Self::Propose { .. } => PROPOSE,
            Self::Vote(_) => VOTE,
            Self::Complain { .. } => COMPLAIN,
            Self::NextView(_) => NEXT_VIEW,
        }
    }

    fn place(&self) -> Place {
        let about = |view, certified| Place { view, height: Height::ZERO, certified };
        match self {
            Self::Propose { block, .. } => Place { view: block.view, height: block.height, certified: true },
            Self::Vote(vote) => about(vote.view, false),
            Self::Complain { view, .. } => about(*view, true),
            // With terms it may lead further; then it lies inside the window all the more.
            Self::NextView(proof) => {
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
            Self::Complain { view, proof, .. } => {
                Auth::Signed(timeout_statement(COMPLAIN, *view, proof.qc.view()))
            }
            Self::NextView(_) => Auth::Relay,
        }
    }

    /// A complaint may be made again with a higher certificate.
    fn once(&self) -> bool {
        !matches!(self, Self::Complain { .. })
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Propose { proof, .. } | Self::NextView(proof) => proof.claim(VOTE, COMPLAIN, claims),
            Self::Vote(_) => {}
            Self::Complain { proof, last_vote, .. } => {
                proof.claim(VOTE, COMPLAIN, claims);
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

impl Wire for HotStuffMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Self::Propose { block, proof } => {
                block.encode(out);
                proof.encode(out);
            }
            Self::Vote(vote) => vote.encode(out),
            Self::Complain { view, proof, last_vote } => {
                view.encode(out);
                proof.encode(out);
                last_vote.encode(out);
            }
            Self::NextView(proof) => proof.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::Propose { block: Block::decode(reader)?, proof: ViewProof::decode(reader)? },
            1 => Self::Vote(BlockVote::decode(reader)?),
            2 => Self::Complain {
                view: View::decode(reader)?,
                proof: ViewProof::decode(reader)?,
                last_vote: Option::decode(reader)?,
            },
            3 => Self::NextView(ViewProof::decode(reader)?),
            _ => return Err(DecodeError::Tag("hotstuff message")),
        })
    }
}

impl Words for HotStuffMessage {
    const PROPOSE: Kind = PROPOSE;
    const VOTE: Kind = VOTE;
    const GIVE_UP: Kind = COMPLAIN;
    const SHOW: Kind = NEXT_VIEW;
}

impl From<Said> for HotStuffMessage {
    fn from(said: Said) -> Self {
        match said {
            Said::Propose(block, proof) => Self::Propose { block, proof },
            Said::Vote(vote) => Self::Vote(vote),
            Said::GiveUp(view, proof, last_vote) => Self::Complain { view, proof, last_vote },
            Said::Show(proof) => Self::NextView(proof),
        }
    }
}

impl From<HotStuffMessage> for Said {
    fn from(message: HotStuffMessage) -> Self {
        match message {
            HotStuffMessage::Propose { block, proof } => Self::Propose(block, proof),
            HotStuffMessage::Vote(vote) => Self::Vote(vote),
            HotStuffMessage::Complain { view, proof, last_vote } => Self::GiveUp(view, proof, last_vote),
            HotStuffMessage::NextView(proof) => Self::Show(proof),
        }
    }
}
