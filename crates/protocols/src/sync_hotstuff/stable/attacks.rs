//! Messages of the stable form under the attacks of the family ([`super::super::attacks`]).

use super::super::attacks::{AttackMemory, AttackMessage};
use super::super::statements::{CERTIFIED, EVIDENCE, NEW_VIEW, PROPOSE, STATUS};
use super::message::{Answer, SyncMessage};
use super::statements::{Header, Lock};
use crate::attack_table::other;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Certificate, Message as _, Scene, Signed};
use quorate_types::{Height, Kind, View};

fn equivocated(header: &Header) -> Header {
    Header { block: other(&header.block), base: header.base }
}

impl AttackMessage for SyncMessage {
    type Header = Header;
    const PROPOSE_OR_SHOW: &'static [Kind] = &[PROPOSE, NEW_VIEW, EVIDENCE, CERTIFIED];

    fn equivocated(&self, scene: &Scene<'_>) -> Option<Self> {
        match self {
            Self::Propose { header, parent } => {
                Some(Self::Propose { header: equivocated(header), parent: parent.clone() })
            }
            Self::Vote(header) if header.by == scene.me => {
                let body = equivocated(&header.body);
                let signature = (scene.sign)(&body.statement());
                Some(Self::Vote(Signed { body, by: scene.me, signature }))
            }
            _ => None,
        }
    }

    fn certificate(&self) -> Option<(Certificate, Height)> {
        let certificate = match self {
            Self::Propose { parent: certificate, .. } | Self::Certified(certificate) => certificate,
            Self::NewView { lock, .. } | Self::Status { lock, .. } => &lock.tip,
            _ => return None,
        };
        Some((certificate.clone(), certificate.statement.height))
    }

    fn lowered(&self, memory: &mut AttackMemory<Self>, _: &Scene<'_>) -> Option<Self> {
        let view = self.place().view;
        let is_status = self.kind() == STATUS;
        let lock = memory
            .low(view, is_status)
            .map_or_else(Lock::genesis, |(tip, _)| Lock { responsive: None, tip: tip.clone() });
        match self {
            Self::Status { .. } => Some(Self::Status { view, lock }),
            Self::NewView { .. } => Some(Self::NewView { view, lock }),
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
