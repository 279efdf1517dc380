//! Proofs that let a replica into a view where a certificate alone ends a view: a certificate for a block of the view
//! before, or a quorum of timeouts of an earlier view.

use super::certificate::Certificate;
use crate::message::{Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{Digest, Height, Kind, ReplicaSet, Statement, View};

/// Returns the statement of a timeout: the view, and as subject the view of the highest certificate that the timeout
/// lists. Both are signed, so that no other replica can make it list less.
#[must_use]
pub fn timeout_statement(kind: Kind, view: View, high: View) -> Statement {
    let mut subject = [0; 32];
    if let Some(start) = subject.first_chunk_mut() {
        *start = high.0.to_le_bytes();
    }
    Statement::new(kind, view, Height::ZERO, Digest(subject))
}

/// A timeout certificate: a quorum has timed out in a view, each replica with the view of its highest certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeoutCertificate {
    /// The failed view.
    pub view: View,
    /// Timeouts with the view of the highest certificate of each, in the order of the replicas' ids.
    pub listed: Vec<Signed<View>>,
}

impl TimeoutCertificate {
    /// Returns the highest listed view of a certificate.
    #[must_use]
    pub fn high(&self) -> View {
        self.listed.iter().map(|timeout| timeout.body).max().unwrap_or_default()
    }

    /// Returns the replicas that have timed out.
    #[must_use]
    pub fn signers(&self) -> ReplicaSet {
        self.listed.iter().map(|timeout| timeout.by).collect()
    }

    /// Claims that the certificate is valid: a quorum of distinct members, each with its signature under the listed view.
    pub fn claim(&self, kind: Kind, claims: &mut Claims<'_>) {
        if self.listed.len() < claims.committee().quorum() {
            return claims.refuse("too few timeouts");
        }
        // Distinct replicas, and one encoding only.
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

/// The proof that lets a replica into its view. Each message that binds its sender to a view carries one, so that its
/// receivers can follow at once.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewProof {
    /// The highest certificate for a block that the sender knows.
    pub qc: Certificate,
    /// Timeouts of an earlier view, where `qc` is not of the view before. They list no certificate higher than `qc`, so that
    /// a leader that enters by them can propose.
    pub timeouts: Option<TimeoutCertificate>,
}

impl ViewProof {
    /// Returns the proof of view 1: the certificate of the genesis block.
    #[must_use]
    pub fn genesis(votes: Kind) -> Self {
        Self { qc: Certificate::genesis(votes), timeouts: None }
    }

    /// Claims that the proof is valid. Votes have statements of the kind `votes`, timeouts of the kind `timeouts`.
    pub fn claim(&self, votes: Kind, timeouts: Kind, claims: &mut Claims<'_>) {
        claim_votes(&self.qc, votes, claims);
        if let Some(certificate) = &self.timeouts {
            if self.qc.view() < certificate.high() {
                return claims.refuse("certificate below what timeouts list");
            }
            certificate.claim(timeouts, claims);
        }
    }
}

/// Claims that a certificate has votes of that kind for a block, or is that of genesis.
pub fn claim_votes(qc: &Certificate, kind: Kind, claims: &mut Claims<'_>) {
    let expected = Statement::new(kind, qc.view(), Height::ZERO, qc.block().0);
    if qc.statement != expected {
        return claims.refuse("certificate of something else");
    }
    // No replica votes in view 0: only the certificate of genesis is of it.
    if qc.view() == View::ZERO && !qc.is_genesis() {
        return claims.refuse("certificate of view 0");
    }
    let quorum = claims.committee().quorum();
    claims.certificate(qc, quorum);
}

quorate_types::wire_struct!(ViewProof { qc, timeouts });
