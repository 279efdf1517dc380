//! Evidence for which a view is left (§5).

use super::super::statements::{CERTIFICATE_BYTES, claim_blames, leader};
use super::split::Split;
use super::statements::{LeaderStatement, bind_base};
use crate::encoding::variants;
use quorate_consensus::{Certificate, Claims, Signed};
use quorate_types::View;

/// Maximum number of consecutive equivocations of leaders, with the blames before them: as many replicas may be faulty.
pub(super) const EVIDENCE_MAX: usize = quorate_types::limits::REPLICAS_MAX;
/// Minimum bytes of one evidence: blames. Conflicts are longer.
pub(super) const EVIDENCE_BYTES: usize = 1 + CERTIFICATE_BYTES;

/// Evidence for which a view is left. Every replica can verify it.
#[derive(Clone, PartialEq, Debug)]
pub enum QuitEvidence {
    /// Two conflicting statements of its leader.
    Conflict(Box<(Signed<LeaderStatement>, Signed<LeaderStatement>)>),
    /// Two headers of its leader that are not on one chain.
    Split(Box<Split>),
    /// Blames of f + 1 replicas.
    Blames(Certificate),
}

variants!(QuitEvidence, "evidence":
    0 = Conflict(both),
    1 = Blames(certificate),
    2 = Split(split),
);

impl QuitEvidence {
    /// Returns the view that is left.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Self::Conflict(both) => both.0.body.view(),
            Self::Split(split) => split.view(),
            Self::Blames(certificate) => certificate.view(),
        }
    }

    /// Whether it proves that a leader equivocates. Blames prove that an honest replica is in the view.
    pub(super) fn is_equivocation(&self) -> bool {
        !matches!(self, Self::Blames(_))
    }

    /// Claims that it is valid.
    pub fn claim(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Conflict(both) => {
                let (first, second) = &**both;
                if !first.body.conflicts_with(&second.body) {
                    return claims.refuse("no conflict");
                }
                let author = leader(claims.committee(), first.body.view());
                if first.by != author || second.by != author || first.body.view() == View::ZERO {
                    return claims.refuse("statements of a replica that does not lead");
                }
                for signed in [first, second] {
                    // The signature covers the block alone: the block must bind the base.
                    if let LeaderStatement::Header(header) = &signed.body
                        && header.block.extra != bind_base(header.base)
                    {
                        return claims.refuse("block that does not bind its base");
                    }
                    claims.signature(author, signed.body.statement(), &signed.signature);
                }
            }
            Self::Split(split) => split.claim(claims),
            Self::Blames(certificate) => claim_blames(certificate, claims),
        }
    }
}
