//! Blames: signed complaints about the leader of a view, of which f + 1 are a certificate (`sync-hotstuff` §5, `apollo` §5).

use super::certificate::Certificate;
use crate::message::{Claims, Seal};
use crate::reject::Reject;
use quorate_types::{Digest, Height, Kind, ReplicaId, Signature, Statement, View};
use std::collections::BTreeMap;

/// Kind of the statement of a BLAME.
pub const BLAME: Kind = Kind::new("blame");

/// Returns the statement of a blame.
#[must_use]
pub fn blame(view: View) -> Statement {
    Statement::new(BLAME, view, Height::ZERO, Digest::ZERO)
}

/// Claims that f + 1 replicas blame a view.
pub fn claim_blames(certificate: &Certificate, claims: &mut Claims<'_>) {
    let view = certificate.view();
    if certificate.statement != blame(view) || view == View::ZERO {
        return claims.refuse("blames for nothing");
    }
    let weak = claims.committee().weak();
    claims.certificate(certificate, weak);
}

/// The newest blame of each replica. Each replica takes the room of one.
#[derive(Debug, Default)]
pub struct Blames(BTreeMap<ReplicaId, (View, Signature)>);

impl Blames {
    /// Notes a blame. Returns the certificate as soon as `quorum` replicas blame its view.
    ///
    /// # Errors
    /// Fails for a blame without a signature, and for one that is older than the known blame of its author.
    pub fn add(&mut self, seal: Seal, view: View, quorum: usize) -> Result<Option<Certificate>, Reject> {
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        if self.0.get(&seal.by).is_some_and(|(known, _)| *known > view) {
            return Err(Reject::Stale);
        }
        self.0.insert(seal.by, (view, signature));
        Ok(self.certificate(view, quorum))
    }

    /// Returns the certificate of a view that at least `quorum` replicas blame.
    #[must_use]
    pub fn certificate(&self, view: View, quorum: usize) -> Option<Certificate> {
        let of_view = self.0.iter().filter(|(_, (blamed, _))| *blamed == view);
        let votes: Vec<_> = of_view.map(|(by, (_, signature))| (*by, *signature)).collect();
        (votes.len() >= quorum).then(|| Certificate::of(blame(view), &votes))
    }
}
