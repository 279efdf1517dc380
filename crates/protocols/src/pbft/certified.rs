//! Variant S (§9): that a block has prepared is shown by signatures, to whomever.
//!
//! A certificate is the PRE-PREPARE of the leader of a view, without the block, and the PREPAREs of Q - 1 others for
//! the same view, height and block. What a view takes over its leader pre-prepares again by id (`Again`), so that it
//! can be certified in that view.

use super::message::{PRE_PREPARE, PREPARE, PbftMessage, Vote};
use super::variant::Variant;
use super::view_message::{BlockClaim, EntryProof, NewView, ViewChange};
use super::{Pbft, PbftParams, VIEWS_AHEAD};
use quorate_consensus::{Certificate, Claims, Cx, Evidence, Reject, Seal, Signed, To};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{BlockId, Committee, Height, ReplicaId, Signature, Statement, View};

/// Heights that one VIEW-CHANGE may show certificates for; L is at most this in variant S.
pub(super) const CERTIFIED_MAX: usize = 512;

/// Bytes of a [`Certified`] and its entry beside the signatures of its PREPAREs, at most.
const CERTIFIED_BYTES: usize = 400;

/// Bytes that a VIEW-CHANGE has for one height at most: its entry, and what shows it.
pub(super) fn certified_bytes(committee: &Committee) -> usize {
    CERTIFIED_BYTES.saturating_add(committee.quorum().saturating_mul(64))
}

/// A block has prepared: the two certificates that show it.
#[derive(Clone, PartialEq, Debug)]
pub struct Certified {
    /// The leader's PRE-PREPARE.
    pub proposal: Certificate,
    /// Q - 1 PREPAREs of distinct others.
    pub prepares: Certificate,
}

/// A signed PRE-PREPARE without its block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pledge {
    pub(super) view: View,
    pub(super) block: BlockId,
    pub(super) signature: Signature,
}

impl BlockClaim {
    fn says(&self, kind: quorate_types::Kind) -> Statement {
        Statement::new(kind, self.view, self.height, self.block.0)
    }
}

/// §9, all but the signatures, which the intake has checked.
pub(super) fn check_certified(
    change: &ViewChange,
    committee: &Committee,
    params: &PbftParams,
) -> Result<(), &'static str> {
    if !change.pre_prepared.is_empty() {
        return Err("Q where nobody needs it");
    }
    if change.certified.len() != change.prepared.len() {
        return Err("certificates and entries differ");
    }
    for (entry, shown) in change.prepared.iter().zip(&change.certified) {
        let leader = params.leader(committee, entry.view);
        // The same view, height and block in both; h < height <= h + L and view < that of the change are the form.
        if shown.proposal.statement != entry.says(PRE_PREPARE)
            || shown.prepares.statement != entry.says(PREPARE)
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
        let needed = committee.quorum().saturating_sub(1);
        shown.prepares.check_form(committee, needed)?;
        // What honest replicas show fits into frames and logs; more shows nothing more.
        if shown.prepares.signers.len() != needed {
            return Err("more PREPAREs than show it");
        }
    }
    Ok(())
}

/// Every signature of every certificate is checked before a handler sees the message.
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
    let (n, quorum) = (claims.committee().n(), claims.committee().quorum());
    for change in changes {
        if change.certified.len() > CERTIFIED_MAX {
            return claims.refuse("too many certificates");
        }
        // A VIEW-CHANGE has O(L n) signatures in this variant: that is its price.
        claims.make_room(change.certified.len().saturating_mul(n.saturating_add(1)));
        for shown in &change.certified {
            claims.certificate(&shown.proposal, 1);
            claims.certificate(&shown.prepares, quorum.saturating_sub(1));
        }
    }
}

impl NewView {
    /// Who has the body of a block that the view takes over: whoever claims, or has signed, to have accepted it.
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

impl<V: Variant> Pbft<V> {
    /// A PRE-PREPARE signed by the leader of its view, with its block or without. Of the views from the current one
    /// on, the one for the lowest is kept: what a later leader says early must not cost this view its certificates.
    pub(super) fn note_pledge(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, vote: Vote) {
        let Vote { view, height, block } = vote;
        let is_near = view >= self.current.view && view.since(self.current.view) <= VIEWS_AHEAD;
        let Some(signature) = seal.signature.filter(|_| V::SIGNED && is_near) else {
            return;
        };
        if self.check_window(height).is_err() {
            return;
        }
        let current = self.current.view;
        let pledge = Pledge { view, block, signature };
        let known = &mut self.instance(height).pledge;
        match known {
            Some(first) if first.view == view && first.block != block => {
                let first = (*first, Vote { block: first.block, ..vote });
                self.accuse(cx, seal.by, PRE_PREPARE, (first.1, first.0.signature), (vote, signature));
                // Everybody can be shown that this leader is faulty.
                if view == current && self.current.normal {
                    self.suspect_at_once(cx);
                }
            }
            Some(first) if first.view >= current && first.view <= view => {}
            _ => *known = Some(pledge),
        }
    }

    /// Two signed statements of one replica for one slot.
    pub(super) fn accuse(
        &self,
        cx: &mut Cx<'_, Self>,
        by: ReplicaId,
        kind: quorate_types::Kind,
        first: (Vote, Signature),
        second: (Vote, Signature),
    ) {
        let says = |(vote, signature): (Vote, Signature)| (vote.statement(kind), signature);
        cx.accuse(Evidence { by, first: says(first), second: says(second) });
    }

    /// The leader pre-prepares by id what its NEW-VIEW has taken over.
    pub(super) fn on_again(&mut self, cx: &mut Cx<'_, Self>, seal: Seal, vote: Vote) -> Result<(), Reject> {
        self.check_window(vote.height)?;
        if !V::SIGNED {
            return Err(Reject::Invalid("variant"));
        }
        if vote.view < self.current.view {
            return Err(Reject::Stale);
        }
        if seal.by != self.leader_of(cx, vote.view) {
            return Err(Reject::WrongSender);
        }
        self.note_pledge(cx, seal, vote);
        self.check_prepared(cx, vote.height);
        Ok(())
    }

    /// Says so, in variant S, for a height that the view takes over.
    pub(super) fn say_pledge(&self, cx: &mut Cx<'_, Self>, to: To, height: Height, block: BlockId) {
        if V::SIGNED {
            cx.send(to, PbftMessage::Again(Vote { view: self.current.view, height, block }).into());
        }
    }

    /// What shows that a block has prepared in the current view; in variant H nothing has to be shown.
    pub(super) fn certify(
        &self,
        height: Height,
        block: BlockId,
        quorum: usize,
    ) -> Result<Option<Certified>, Incomplete> {
        if !V::SIGNED {
            return Ok(None);
        }
        let view = self.current.view;
        let instance = self.instances.get(&height).ok_or(Incomplete)?;
        let is_it = |pledge: &Pledge| pledge.view == view && pledge.block == block;
        let pledge = instance.pledge.filter(is_it).ok_or(Incomplete)?;
        let vote = Vote { view, height, block };
        let mut prepares = instance.prepares.signed(view, block);
        prepares.truncate(quorum.saturating_sub(1));
        Ok(Some(Certified {
            proposal: Certificate::of(
                vote.statement(PRE_PREPARE),
                &[(self.current.leader, pledge.signature)],
            ),
            prepares: Certificate::of(vote.statement(PREPARE), &prepares),
        }))
    }

    /// Whether the leader's signature for what it has proposed is missing: it has to say it again.
    pub(super) fn lacks_pledge(&self, height: Height) -> bool {
        let Some(instance) = self.instances.get(&height).filter(|_| V::SIGNED) else {
            return false;
        };
        instance.pledge.is_none_or(|pledge| pledge.view != self.current.view)
    }
}

/// A signature is missing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incomplete;

impl Wire for Certified {
    fn encode(&self, out: &mut Vec<u8>) {
        self.proposal.encode(out);
        self.prepares.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { proposal: Certificate::decode(reader)?, prepares: Certificate::decode(reader)? })
    }
}
