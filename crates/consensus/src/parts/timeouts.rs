//! Proofs that let a replica into a view, in protocols that leave views by certificate only. A proof is a certificate for a
//! block of the view before, or a timeout certificate of an earlier view.

use super::certificate::Certificate;
use crate::message::{Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{Digest, Height, Kind, ReplicaSet, Statement, View};

/// Returns the statement of a timeout: the view, and as subject the view of the highest certificate that the sender
/// shows. Both are signed, so that nobody can make the sender list a lower certificate.
#[must_use]
pub fn timeout_statement(kind: Kind, view: View, high: View) -> Statement {
    let mut subject = [0; 32];
    if let Some(start) = subject.first_chunk_mut() {
        *start = high.0.to_le_bytes();
    }
    Statement::new(kind, view, Height::ZERO, Digest(subject))
}

/// A timeout certificate: a quorum has timed out in a view. Each signer lists the view of its highest certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeoutCertificate {
    /// The view that ended by timeouts.
    pub view: View,
    /// The signers in the order of their ids, each with the view of its highest certificate.
    pub listed: Vec<Signed<View>>,
}

impl TimeoutCertificate {
    /// Returns the highest view of a certificate that a signer lists.
    #[must_use]
    pub fn high(&self) -> View {
        self.listed.iter().map(|timeout| timeout.body).max().unwrap_or_default()
    }

    /// Returns the replicas that have timed out in the view.
    #[must_use]
    pub fn signers(&self) -> ReplicaSet {
        self.listed.iter().map(|timeout| timeout.by).collect()
    }

    /// Claims that the certificate is valid: a quorum of distinct members, each with a signature under the view that it
    /// lists.
    pub fn claim(&self, kind: Kind, claims: &mut Claims<'_>) {
        if self.listed.len() < claims.committee().quorum() {
            return claims.refuse("too few timeouts");
        }
        // Distinct, and one encoding only.
        if !self.listed.is_sorted_by(|a, b| a.by < b.by) {
            return claims.refuse("timeouts out of order");
        }
        for Signed { body: high, by, signature } in &self.listed {
            if *high >= self.view {
                return claims.refuse("timeout lists a certificate of its own view");
            }
            claims.signature(*by, timeout_statement(kind, self.view, *high), signature);
        }
    }
}

/// Bytes of one entry.
const LISTED_BYTES: usize = 2 + 8 + 64;

impl Wire for TimeoutCertificate {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        put_list(out, &self.listed);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            view: View::decode(reader)?,
            listed: reader.list("timeouts", REPLICAS_MAX, LISTED_BYTES, Signed::decode)?,
        })
    }
}

/// Proof that lets a replica into its view. Every message that binds its sender to a view carries one, so that receivers
/// can follow at once.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewProof {
    /// The highest certificate for a block that the sender knows.
    pub qc: Certificate,
    /// Timeout certificate of an earlier view, where `qc` is not of the view before. It lists no view above `qc`, so that a
    /// replica that enters by it has the certificate that it needs to lead.
    pub timeouts: Option<TimeoutCertificate>,
}

impl ViewProof {
    /// Returns the proof for view 1: the certificate of the genesis block.
    #[must_use]
    pub fn genesis(votes: Kind) -> Self {
        Self { qc: Certificate::genesis(votes), timeouts: None }
    }

    /// Claims that the proof is valid. Certificates of votes have the kind `votes`, timeouts the kind `timeouts`.
    pub fn claim(&self, votes: Kind, timeouts: Kind, claims: &mut Claims<'_>) {
        claim_votes(&self.qc, votes, claims);
        if let Some(given_up) = &self.timeouts {
            if self.qc.view() < given_up.high() {
                return claims.refuse("certificate below what timeouts list");
            }
            given_up.claim(timeouts, claims);
        }
    }
}

/// Claims that `qc` is a certificate of votes of this kind for a block, or the genesis certificate.
pub fn claim_votes(qc: &Certificate, kind: Kind, claims: &mut Claims<'_>) {
    let said = Statement::new(kind, qc.view(), Height::ZERO, qc.block().0);
    if qc.statement != said {
        return claims.refuse("certificate of something else");
    }
    // Nobody votes in view 0: only the certificate of genesis is of it.
    if qc.view() == View::ZERO && !qc.is_genesis() {
        return claims.refuse("certificate of view 0");
    }
    let quorum = claims.committee().quorum();
    claims.certificate(qc, quorum);
}

impl Wire for ViewProof {
    fn encode(&self, out: &mut Vec<u8>) {
        self.qc.encode(out);
        self.timeouts.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { qc: Certificate::decode(reader)?, timeouts: Option::decode(reader)? })
    }
}
