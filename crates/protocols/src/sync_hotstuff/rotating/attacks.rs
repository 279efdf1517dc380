//! Messages of the rotating form under the attacks of the family ([`super::super::attacks`]).

use super::super::attacks::{AttackMemory, AttackMessage};
use super::super::statements::{CERTIFIED, EVIDENCE, PROPOSE};
use super::header::Header;
use super::message::{Answer, RotatingMessage};
use crate::attack_table::other;
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Certificate, Message as _, Scene, Signed};
use quorate_types::{Block, BlockId, Height, Kind, View};

fn signed(body: Header, scene: &Scene<'_>) -> Signed<Header> {
    let signature = (scene.sign)(&body.statement());
    Signed { body, by: scene.me, signature }
}

/// Returns the same block on an older certificate.
fn on(header: &Header, (certificate, height): &(Certificate, Height)) -> Header {
    let parent_view = certificate.view();
    let (parent, extra) = match certificate.is_genesis() {
        true => (BlockId::ZERO, bind_certificate(View::ZERO, BlockId::ZERO)),
        false => (certificate.block(), bind_certificate(parent_view, certificate.block())),
    };
    Header { block: Block { parent, height: height.next(), extra, ..header.block.clone() }, parent_view }
}

impl AttackMessage for RotatingMessage {
    type Header = Header;
    const PROPOSE_OR_SHOW: &'static [Kind] = &[PROPOSE, EVIDENCE, CERTIFIED];

    fn equivocated(&self, scene: &Scene<'_>) -> Option<Self> {
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
            // The block above a certificate has its height.
            Self::Propose { header, parent } => Some((parent.clone(), header.block.height.minus(1))),
            _ => None,
        }
    }

    fn lowered(&self, memory: &mut AttackMemory<Self>, scene: &Scene<'_>) -> Option<Self> {
        let view = self.place().view;
        match self {
            Self::Propose { header, .. } => {
                let low = memory.low(view, true)?.clone();
                let body = on(header, &low);
                memory.becomes(header.block.id(), body.clone());
                Some(Self::Propose { header: body, parent: low.0 })
            }
            // It votes for the header that has replaced its own.
            Self::Vote(header) => {
                let body = memory.became(header.body.block.id())?.clone();
                Some(Self::Vote(signed(body, scene)))
            }
            Self::Status { .. } => Some(Self::Status { view, lock: memory.low(view, true)?.0.clone() }),
            _ => None,
        }
    }

    fn blame(view: View) -> Self {
        Self::Blame(view)
    }

    fn forgotten(self) -> Self {
        let Self::Answer(answer) = self else { return self };
        Self::Answer(Box::new(Answer::bare(answer.incarnation, RecoveryStage::Running)))
    }
}
