//! Locks (§6; `optsync` §6): certificates that a replica holds when it enters a view.

use super::super::encoding::fields;
use super::super::statements::{STATUS, VOTE};
use super::header::{claim_certificate, claim_votes, end_of, rank, responsive_quorum};
use quorate_consensus::{Certificate, Claims};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::digest::context;
use quorate_types::{BlockId, Digest, Height, Statement, View};

/// Certificates of one view. Without `responsive` this is Sync HotStuff's lock, the highest certificate.
#[derive(Clone, PartialEq, Debug)]
pub struct Lock {
    /// Certificate of the highest block that q_R replicas have voted for.
    pub responsive: Option<Certificate>,
    /// Certificate of the highest block that is that one or extends it.
    pub tip: Certificate,
}

fields!(Lock { responsive, tip });

impl Lock {
    /// Returns the lock of a replica that has never voted.
    #[must_use]
    pub fn genesis() -> Self {
        Self { responsive: None, tip: Certificate::genesis(VOTE) }
    }

    /// Returns the view of its certificates.
    #[must_use]
    pub fn view(&self) -> View {
        self.tip.view()
    }

    /// Returns its signed part.
    #[must_use]
    pub fn name(&self) -> LockName {
        LockName {
            view: self.view(),
            responsive: self.responsive.as_ref().map(end_of),
            tip: end_of(&self.tip),
        }
    }

    /// Claims that its certificates are valid and of one view.
    pub fn claim(&self, claims: &mut Claims<'_>) {
        claim_certificate(&self.tip, claims);
        if let Some(responsive) = &self.responsive {
            if rank(responsive) > rank(&self.tip) || responsive.view() != self.view() {
                return claims.refuse("lock of several views");
            }
            if responsive.is_genesis() {
                return claims.refuse("nobody has voted for genesis");
            }
            let quorum = responsive_quorum(claims.committee().n());
            claim_votes(responsive, quorum, claims);
        }
    }
}

/// A lock without its signatures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockName {
    /// View of its certificates.
    pub view: View,
    /// Height and block of its responsive certificate.
    pub responsive: Option<(Height, BlockId)>,
    /// Height and block of its highest certificate.
    pub tip: (Height, BlockId),
}

impl LockName {
    pub(super) fn digest(&self) -> Digest {
        let mut bytes = b"sync-hotstuff: lock".to_vec();
        self.encode(&mut bytes);
        Digest::of(&context::PROTOCOL, &bytes)
    }

    /// Returns the statement of a replica that reports this lock on entering a view.
    #[must_use]
    pub fn status(&self, view: View) -> Statement {
        Statement::new(STATUS, view, Height::ZERO, self.digest())
    }
}

impl Wire for LockName {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        self.responsive.is_some().encode(out);
        for (height, block) in [self.responsive.unwrap_or_default(), self.tip] {
            height.encode(out);
            block.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let view = View::decode(reader)?;
        let has_responsive = reader.bool()?;
        let mut end = || Ok((Height::decode(reader)?, BlockId::decode(reader)?));
        let (responsive, tip) = (end()?, end()?);
        if !has_responsive && responsive != Default::default() {
            return Err(DecodeError::Tag("lock without a responsive certificate"));
        }
        Ok(Self { view, responsive: has_responsive.then_some(responsive), tip })
    }
}
