//! Signatures of several replicas on the same statement.

use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{ReplicaId, Signature};

/// The signatures of a certificate, without the set of its signers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AggregateSignature {
    /// One signature for each signer, in the order of their ids.
    List(Vec<Signature>),
}

impl AggregateSignature {
    /// Aggregates votes in any order. Each replica may occur once.
    #[must_use]
    pub fn of(votes: &[(ReplicaId, Signature)]) -> Self {
        let mut votes = votes.to_vec();
        votes.sort_unstable_by_key(|(by, _)| *by);
        Self::List(votes.into_iter().map(|(_, signature)| signature).collect())
    }

    /// Returns the number of signers that the value claims.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::List(signatures) => signatures.len(),
        }
    }
}

impl Wire for AggregateSignature {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::List(signatures) => {
                out.push(0);
                put_list(out, signatures);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => reader.list("signatures", REPLICAS_MAX, 64, Signature::decode).map(Self::List),
            _ => Err(DecodeError::Tag("aggregate signature")),
        }
    }
}
