//! Messages that the runs do not show with a certificate, made of the parts of those that they show.

use super::door::{Door, Seen};
use quorate_consensus::{Certificate, Claim};
use quorate_protocols::sync_hotstuff::rotating::{RotatingMessage, ViewEvidence};
use quorate_protocols::unique_chain::apollo::{NoMessage, Proposal};
use quorate_protocols::unique_chain::artemis::{ArtemisMessage, Vote};
use quorate_protocols::unique_chain::{self as unique, OwnMessage, UniqueMessage};
use quorate_types::codec::Wire;
use quorate_types::{Digest, Incarnation, Kind, Reader, Statement};

/// Returns further messages with certificates.
pub(super) fn more(door: &Door) -> Vec<Seen> {
    match door.entry.spec.name.as_str() {
        "apollo" => round_proofs::<Proposal, NoMessage>(door),
        "artemis" => round_proofs::<Vote, ArtemisMessage>(door),
        "sync-hotstuff-rr" => two_certificates(door),
        _ => Vec::new(),
    }
}

/// Returns a proof of a round with skip certificates in every message that may carry one.
fn round_proofs<E, X>(door: &Door) -> Vec<Seen>
where
    E: unique::Entry,
    X: OwnMessage<E> + 'static,
{
    for seen in &door.seen {
        let proof = match UniqueMessage::<E, X>::decode(&mut Reader::new(&seen.body)).unwrap() {
            UniqueMessage::Proof(proof) => proof,
            UniqueMessage::Answer(answer) => Box::new(answer.proof),
            _ => continue,
        };
        if !proof.skips.is_empty() {
            let ask = UniqueMessage::Ask { incarnation: Incarnation(1), proof: proof.clone() };
            let messages: [UniqueMessage<E, X>; 2] = [ask, UniqueMessage::Blame(proof)];
            return messages.iter().map(|message| door.said(seen.from, message)).collect();
        }
    }
    panic!("no proof of a round skips one")
}

/// Returns evidence by two certificates for one view.
fn two_certificates(door: &Door) -> Vec<Seen> {
    let is_vote = |certificate: &Certificate| certificate.statement.kind == Kind::new("vote");
    for seen in &door.seen {
        let claims = door.claims(&seen.body).unwrap().into_iter();
        let first = claims.filter_map(|claim| match claim {
            Claim::Certificate(certificate) => Some(certificate),
            Claim::Signature { .. } => None,
        });
        if let Some(first) = first.into_iter().find(is_vote) {
            let other = Statement { subject: Digest([7; 32]), ..first.statement };
            let second = door.certificate(other, first.signers.iter());
            let evidence = ViewEvidence::Certificates(Box::new((first, second)));
            return vec![door.said(seen.from, &RotatingMessage::Evidence(evidence))];
        }
    }
    panic!("no certificate of votes")
}
