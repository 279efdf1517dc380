//! Evidence that silence in a view proves nothing (§11, 5).

use super::super::statements::claim_blames;
use super::header::{Header, claim_votes};
use crate::encoding::variants;
use quorate_consensus::{Certificate, Claims, Signed};
use quorate_types::View;

/// Evidence that silence in a view proves nothing. Every replica can verify it.
#[derive(Clone, PartialEq, Debug)]
pub enum ViewEvidence {
    /// Two proposals of its leader.
    Conflict(Box<(Signed<Header>, Signed<Header>)>),
    /// Certificates of two blocks of the view: its leader has proposed both.
    Certificates(Box<(Certificate, Certificate)>),
    /// Blames of f + 1 replicas: these end the view as well.
    Blames(Certificate),
}

variants!(ViewEvidence, "evidence":
    0 = Conflict(both),
    1 = Certificates(both),
    2 = Blames(certificate),
);

impl ViewEvidence {
    /// Returns the view.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Self::Conflict(both) => both.0.body.block.view,
            Self::Certificates(both) => both.0.view(),
            Self::Blames(certificate) => certificate.view(),
        }
    }

    /// Claims that it is valid.
    pub fn claim(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Conflict(both) => {
                let (first, second) = &**both;
                if first.body.block.view != second.body.block.view || first.body == second.body {
                    return claims.refuse("no conflict");
                }
                Header::claim(first, claims);
                Header::claim(second, claims);
            }
            Self::Certificates(both) => {
                let (first, second) = &**both;
                if first.view() != second.view() || first.block() == second.block() {
                    return claims.refuse("no conflict");
                }
                claim_votes(first, claims);
                claim_votes(second, claims);
            }
            Self::Blames(certificate) => claim_blames(certificate, claims),
        }
    }
}
