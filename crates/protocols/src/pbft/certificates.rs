//! Checks of certificates in messages of variant S (§9).

use super::certified::CERTIFIED_MAX;
use super::kinds::{PRE_PREPARE, PREPARE};
use super::message::PbftMessage;
use super::params::PbftParams;
use super::view_message::{BlockClaim, EntryProof, NewView, ViewChange};
use quorate_consensus::{Claims, Signed};
use quorate_types::{BlockId, Committee, Height, Kind, ReplicaId, Statement};

/// Largest size of a [`Certified`](super::certified::Certified) and its entry, without the signatures of its PREPAREs.
const CERTIFIED_BYTES: usize = 400;

/// Returns the largest size of one height in a VIEW-CHANGE: its entry and its certificates.
pub(super) fn certified_bytes(committee: &Committee) -> usize {
    CERTIFIED_BYTES.saturating_add(committee.quorum().saturating_mul(64))
}

impl BlockClaim {
    fn statement(&self, kind: Kind) -> Statement {
        Statement::new(kind, self.view, self.height, self.block.0)
    }
}

/// Checks all that §9 demands but the signatures, which the intake has checked.
pub(super) fn check_certified(
    change: &ViewChange,
    committee: &Committee,
    params: &PbftParams,
) -> Result<(), &'static str> {
    if !change.pre_prepared.is_empty() {
        return Err("Q in variant S");
    }
    if change.certified.len() != change.prepared.len() {
        return Err("certificates and entries differ");
    }
    for (entry, shown) in change.prepared.iter().zip(&change.certified) {
        let leader = params.leader(committee, entry.view);
        // The same view, height and block in both. `ViewChange::check` covers h < height <= h + L and the view.
        if shown.proposal.statement != entry.statement(PRE_PREPARE)
            || shown.prepares.statement != entry.statement(PREPARE)
        {
            return Err("certificate of something else");
        }
        if !shown.proposal.signers.iter().eq([leader]) {
            return Err("proposal of another than the leader");
        }
        // The set makes them distinct. The leader's PRE-PREPARE is its vote: it must not count twice.
        if shown.prepares.signers.contains(leader) {
            return Err("the leader's own PREPARE");
        }
        let needed = committee.quorum_of_backups();
        shown.prepares.check_form(committee, needed)?;
        // Certificates of honest replicas fit into frames and logs; more PREPAREs show nothing more.
        if shown.prepares.signers.len() != needed {
            return Err("more PREPAREs than needed");
        }
    }
    Ok(())
}

/// Claims every signature of every certificate, to be checked before a handler sees the message.
pub(super) fn claim_certified(message: &PbftMessage, claims: &mut Claims<'_>) {
    match message {
        PbftMessage::ViewChange(change) => claim(std::iter::once(&**change), claims),
        PbftMessage::NewView(new) => claim(bodies(&new.changes), claims),
        PbftMessage::Entry { proof: EntryProof::NewView(new), .. } => {
            claim(bodies(&new.body.changes), claims);
        }
        PbftMessage::Entry { proof: EntryProof::ViewChanges(changes), .. } => {
            claim(bodies(changes), claims);
        }
        _ => {}
    }
}

fn bodies(changes: &[Signed<ViewChange>]) -> impl Iterator<Item = &ViewChange> {
    changes.iter().map(|change| &change.body)
}

fn claim<'a>(changes: impl Iterator<Item = &'a ViewChange>, claims: &mut Claims<'_>) {
    let (n, needed) = (claims.committee().n(), claims.committee().quorum_of_backups());
    for change in changes {
        if change.certified.len() > CERTIFIED_MAX {
            return claims.refuse("too many certificates");
        }
        // A VIEW-CHANGE has O(L n) signatures in this variant: that is its cost.
        claims.make_room(change.certified.len().saturating_mul(n.saturating_add(1)));
        for shown in &change.certified {
            claims.certificate(&shown.proposal, 1);
            claims.certificate(&shown.prepares, needed);
        }
    }
}

impl NewView {
    /// Returns the replicas that have the body of a block that the view takes over: those that claim, or have signed, to
    /// have accepted it.
    pub(super) fn holders(&self, height: Height, block: BlockId) -> Vec<ReplicaId> {
        let mut holders = Vec::new();
        for change in &self.changes {
            if change.body.pre_prepared_at(height, block).is_some() {
                holders.push(change.by);
            }
            let certified = change.body.prepared.iter().zip(&change.body.certified);
            for (_, shown) in certified.filter(|(entry, _)| entry.height == height && entry.block == block) {
                holders.extend(shown.prepares.signers.iter());
            }
        }
        holders.sort_unstable();
        holders.dedup();
        holders
    }
}
