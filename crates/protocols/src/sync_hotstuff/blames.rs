//! Blames of views (§5). Only the newest blame of each replica is kept, so each replica takes the room of one.

use super::statements::blame;
use quorate_consensus::{Certificate, Reject, Seal};
use quorate_types::{ReplicaId, Signature, View};
use std::collections::BTreeMap;

/// Newest blame of each replica.
#[derive(Debug, Default)]
pub(super) struct Blames(BTreeMap<ReplicaId, (View, Signature)>);

impl Blames {
    /// Notes a blame. Returns the certificate as soon as `quorum` replicas blame its view.
    pub(super) fn add(
        &mut self,
        seal: Seal,
        view: View,
        quorum: usize,
    ) -> Result<Option<Certificate>, Reject> {
        let signature = seal.signature.ok_or(Reject::Invalid("unsigned"))?;
        if self.0.get(&seal.by).is_some_and(|(known, _)| *known > view) {
            return Err(Reject::Stale);
        }
        self.0.insert(seal.by, (view, signature));
        let of_view = self.0.iter().filter(|(_, (blamed, _))| *blamed == view);
        let votes: Vec<_> = of_view.map(|(by, (_, signature))| (*by, *signature)).collect();
        Ok((votes.len() >= quorum).then(|| Certificate::of(blame(view), &votes)))
    }
}
