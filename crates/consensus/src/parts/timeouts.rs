//! What lets a replica into a view where views are left by certificate only: a certificate for a block of the view
//! before, or enough signed words that the view before led to nothing.

use super::certificate::Certificate;
use crate::message::{Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{Digest, Height, Kind, ReplicaSet, Statement, View};

/// What a replica signs that gives a view up: the view, and as subject the view of the highest certificate that it
/// shows with it. Both are signed, so that nobody can make it list less.
#[must_use]
pub fn timeout_statement(kind: Kind, view: View, high: View) -> Statement {
    let mut subject = [0; 32];
    if let Some(start) = subject.first_chunk_mut() {
        *start = high.0.to_le_bytes();
    }
    Statement::new(kind, view, Height::ZERO, Digest(subject))
}

/// A timeout certificate: a quorum has given a view up, each with the view of the highest certificate that it had.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimeoutCertificate {
    /// The view that is given up.
    pub view: View,
    /// Who has, with the view of the highest certificate of each; in the order of their ids.
    pub listed: Vec<Signed<View>>,
}

impl TimeoutCertificate {
    /// The highest view of a certificate that anyone lists.
    #[must_use]
    pub fn high(&self) -> View {
        self.listed.iter().map(|timeout| timeout.body).max().unwrap_or_default()
    }

    /// Who has given the view up.
    #[must_use]
    pub fn signers(&self) -> ReplicaSet {
        self.listed.iter().map(|timeout| timeout.by).collect()
    }

    /// Claims that it is valid: a quorum of distinct members, each with its own signature under what it lists.
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

/// Why a replica is in its view. Every message that binds its sender to a view carries one, so that whoever hears it
/// can follow at once.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewProof {
    /// The highest certificate for a block that the sender knows of.
    pub qc: Certificate,
    /// Where that is not of the view before: who has given an earlier view up. Nothing that it lists is higher than `qc`,
    /// so that whoever enters by it has what it needs to lead.
    pub timeouts: Option<TimeoutCertificate>,
}

impl ViewProof {
    /// The beginning: the certificate of the genesis block lets everybody into view 1.
    #[must_use]
    pub fn genesis(votes: Kind) -> Self {
        Self { qc: Certificate::genesis(votes), timeouts: None }
    }

    /// Claims that it is valid: certificates of votes have the kind `votes`, timeouts the kind `timeouts`.
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

/// Claims that this is a certificate of votes of that kind for a block, or that of genesis.
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
