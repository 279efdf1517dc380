//! Messages of chained protocols (§1).
//!
//! All rule sets have the same messages in the same encoding. A rule set may name two kinds of messages itself, so
//! that traces and fault rules use the words of its paper.

use super::Rules;
use crate::encoding::variants;
use quorate_consensus::parts::timeouts::{ViewProof, timeout_statement};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Auth, Claims, Message, Place, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Block, Height, Kind, PayloadId, View};
use std::fmt;
use std::marker::PhantomData;

/// Statement of a PROPOSE.
pub const PROPOSE: Kind = Kind::new("propose");
/// Statement of a VOTE; certificates for blocks consist of these.
pub const VOTE: Kind = Kind::new("vote");
/// Statement of a TIMEOUT, where the rule set does not name it otherwise.
pub const TIMEOUT: Kind = Kind::new("timeout");
/// Kind of an ADVANCE, where the rule set does not name it otherwise.
pub const ADVANCE: Kind = Kind::new("advance");

/// The content of a message.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// PROPOSE: the leader of a view proposes a block. The block's parent is the block of the proof's certificate; the
    /// proof lets into the block's view.
    Propose(Block, ViewProof),
    /// VOTE, to the next leader: the voter holds the block and its ancestors, and votes for no other block in this view.
    Vote(BlockVote),
    /// TIMEOUT: the sender has timed out in the view that the proof lets into. The last vote is sent along because its
    /// collector may have crashed.
    Timeout(View, ViewProof, Option<Signed<BlockVote>>),
    /// ADVANCE: the proof lets into the sender's view. All statements in it are those of others.
    Advance(ViewProof),
}

variants!(Content, "chained message":
    0 = Propose(block, proof),
    1 = Vote(vote),
    2 = Timeout(view, proof, last_vote),
    3 = Advance(proof),
);

/// A message of the protocol with the rules `R`.
#[derive(Clone)]
pub struct ChainedMessage<R> {
    content: Content,
    rules: PhantomData<fn() -> R>,
}

impl<R> From<Content> for ChainedMessage<R> {
    fn from(content: Content) -> Self {
        Self { content, rules: PhantomData }
    }
}

impl<R> From<ChainedMessage<R>> for Content {
    fn from(message: ChainedMessage<R>) -> Self {
        message.content
    }
}

impl<R> fmt::Debug for ChainedMessage<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.content.fmt(f)
    }
}

/// The view that the timeouts of a rule set list for a highest certificate of this view.
pub(super) fn listed<R: Rules>(high: View) -> View {
    if R::TIMEOUTS_LIST_CERTIFICATES { high } else { View::ZERO }
}

impl<R: Rules> Message for ChainedMessage<R> {
    fn kind(&self) -> Kind {
        match &self.content {
            Content::Propose(..) => PROPOSE,
            Content::Vote(_) => VOTE,
            Content::Timeout(..) => R::TIMEOUT,
            Content::Advance(_) => R::ADVANCE,
        }
    }

    fn place(&self) -> Place {
        let about = |view, certified| Place { view, height: Height::ZERO, certified };
        match &self.content {
            Content::Propose(block, _) => Place { view: block.view, height: block.height, certified: true },
            Content::Vote(vote) => about(vote.view, false),
            Content::Timeout(view, ..) => about(*view, true),
            // With terms the proof may let into a later view, which is inside the window all the more.
            Content::Advance(proof) => {
                let timed_out = proof.timeouts.as_ref().map_or(View::ZERO, |timeouts| timeouts.view);
                about(proof.qc.view().max(timed_out).next(), true)
            }
        }
    }

    fn auth(&self) -> Auth {
        match &self.content {
            Content::Propose(block, _) => {
                Auth::Signed(BlockVote { view: block.view, block: block.id() }.statement(PROPOSE))
            }
            Content::Vote(vote) => Auth::Signed(vote.statement(VOTE)),
            Content::Timeout(view, proof, _) => {
                Auth::Signed(timeout_statement(R::TIMEOUT, *view, listed::<R>(proof.qc.view())))
            }
            Content::Advance(_) => Auth::Relay,
        }
    }

    /// A replica may send the timeout of a view again, with a higher certificate.
    fn once(&self) -> bool {
        !matches!(self.content, Content::Timeout(..))
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match &self.content {
            Content::Propose(_, proof) | Content::Advance(proof) => proof.claim(VOTE, R::TIMEOUT, claims),
            Content::Vote(_) => {}
            Content::Timeout(_, proof, last_vote) => {
                proof.claim(VOTE, R::TIMEOUT, claims);
                if let Some(Signed { body, by, signature }) = last_vote {
                    claims.signature(*by, body.statement(VOTE), signature);
                }
            }
        }
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        if let Content::Propose(block, _) = &self.content {
            out.push(block.payload);
        }
    }
}

impl<R> Wire for ChainedMessage<R> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.content.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Content::decode(reader).map(Self::from)
    }
}
