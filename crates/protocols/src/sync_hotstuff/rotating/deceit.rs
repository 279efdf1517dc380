//! What the attacks of this family ([`super::super::attacks`]) are where leaders follow each other.

use super::super::attacks::{Known, Words, other};
use super::message::{Answer, RotatingMessage};
use super::words::Header;
use crate::sync_hotstuff::message::{CERTIFIED, EVIDENCE, PROPOSE};
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Certificate, Message as _, Scene, Signed};
use quorate_types::{Block, BlockId, Height, Kind, View};

fn signed(body: Header, scene: &Scene<'_>) -> Signed<Header> {
    let signature = (scene.sign)(&body.statement());
    Signed { body, by: scene.me, signature }
}

/// The same block on an older certificate.
fn on(header: &Header, (certificate, height): &(Certificate, Height)) -> Header {
    let parent_view = certificate.view();
    let (parent, extra) = match certificate.is_genesis() {
        true => (BlockId::ZERO, bind_certificate(View::ZERO, BlockId::ZERO)),
        false => (certificate.block(), bind_certificate(parent_view, certificate.block())),
    };
    Header { block: Block { parent, height: height.next(), extra, ..header.block.clone() }, parent_view }
}

impl Words for RotatingMessage {
    type Header = Header;

    fn retold(&self, scene: &Scene<'_>) -> Option<Self> {
        let again = |header: &Header| Header { block: other(&header.block), parent_view: header.parent_view };
        match self {
            Self::Propose { header, parent } => {
                Some(Self::Propose { header: again(header), parent: parent.clone() })
            }
            Self::Vote(header) if header.by == scene.me => {
                Some(Self::Vote(signed(again(&header.body), scene)))
            }
            _ => None,
        }
    }

    fn certificate(&self) -> Option<(Certificate, Height)> {
        match self {
            // A certificate's height is in the block above it.
            Self::Propose { header, parent } => Some((parent.clone(), header.block.height.minus(1))),
            _ => None,
        }
    }

    fn lowered(&self, known: &mut Known<Self>, scene: &Scene<'_>) -> Option<Self> {
        let view = self.place().view;
        match self {
            Self::Propose { header, .. } => {
                let low = known.low(view, true)?.clone();
                let body = on(header, &low);
                known.becomes(header.block.id(), body.clone());
                Some(Self::Propose { header: body, parent: low.0 })
            }
            // For what it has proposed, whatever that has become.
            Self::Vote(header) => {
                let body = known.became(header.body.block.id())?.clone();
                Some(Self::Vote(signed(body, scene)))
            }
            Self::Status { .. } => Some(Self::Status { view, lock: known.low(view, true)?.0.clone() }),
            _ => None,
        }
    }

    fn blame(view: View) -> Self {
        Self::Blame(view)
    }

    fn forgotten(self) -> Self {
        let Self::Answer(answer) = self else { return self };
        Self::Answer(Box::new(Answer::bare(answer.incarnation, Standing::Running)))
    }

    fn is_shown(kind: Kind) -> bool {
        [PROPOSE, EVIDENCE, CERTIFIED].contains(&kind)
    }
}
