//! Headers of blocks, votes for them, and certificates of these votes (§2).

use super::super::encoding::fields;
use super::super::replica::End;
use super::super::statements::{FIRST_VIEW, PROPOSE, VOTE, leader};
use quorate_consensus::{Certificate, Claims, Signed};
use quorate_types::codec::Wire as _;
use quorate_types::digest::context;
use quorate_types::{Block, BlockId, Committee, Digest, Height, Statement, View};

/// Returns the binding of a block (its `extra`) to the base of its view.
#[must_use]
pub fn bind_base(base: BlockId) -> Digest {
    let mut bytes = b"sync-hotstuff: base of the view".to_vec();
    base.encode(&mut bytes);
    Digest::of(&context::PROTOCOL, &bytes)
}

/// A block with the base of its view: two views shown to different replicas are provable by their bases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The block.
    pub block: Block,
    /// The block certified inside the view's NEW-VIEW; zero in the first view.
    pub base: BlockId,
}

fields!(Header { block, base });

impl Header {
    /// Returns the statement that its leader signs.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement::new(PROPOSE, self.block.view, self.block.height, self.block.id().0)
    }

    /// Returns the statement of a vote for it.
    #[must_use]
    pub fn vote(&self) -> Statement {
        vote(self.block.view, self.block.height, self.block.id())
    }

    /// Whether the leader of its view has signed and proposed it.
    pub(super) fn is_of_leader(header: &Signed<Self>, committee: &Committee) -> bool {
        let block = &header.body.block;
        header.by == leader(committee, block.view) && block.proposer == header.by
    }

    /// Claims that the leader of its view has signed it.
    pub fn claim(header: &Signed<Self>, claims: &mut Claims<'_>) {
        let block = &header.body.block;
        if block.view == View::ZERO || block.height == Height::ZERO {
            return claims.refuse("header of no view");
        }
        if !Self::is_of_leader(header, claims.committee()) {
            return claims.refuse("header of somebody who does not lead");
        }
        if block.extra != bind_base(header.body.base) {
            return claims.refuse("header without its base");
        }
        claims.signature(header.by, header.body.statement(), &header.signature);
    }

    /// S5. §2: checks that a certificate is that of its parent in its own view.
    pub(super) fn check_parent(&self, parent: &Certificate) -> Result<(), &'static str> {
        let Block { view, height, .. } = self.block;
        let is_first = view == FIRST_VIEW && parent.is_genesis() && height == Height::ZERO.next();
        if self.block.extra != bind_base(self.base) {
            Err("header without its base")
        } else if height == Height::ZERO || parent.block() != self.block.parent {
            Err("proposal beside its certificate")
        } else if !is_first && rank(parent) != (view, height.minus(1)) {
            Err("certificate of another place")
        } else {
            Ok(())
        }
    }
}

/// Returns the statement of a vote.
#[must_use]
pub fn vote(view: View, height: Height, block: BlockId) -> Statement {
    Statement::new(VOTE, view, height, block.0)
}

/// Returns the rank of a certificate: first the view, then the height.
pub(super) fn rank(certificate: &Certificate) -> (View, Height) {
    (certificate.statement.view, certificate.statement.height)
}

/// Returns the certified block as the end of a chain.
pub(super) fn end_of(certificate: &Certificate) -> End {
    (certificate.statement.height, certificate.block())
}

/// Claims that a certificate consists of votes of at least so many replicas, or is that of genesis.
pub(super) fn claim_votes(certificate: &Certificate, at_least: usize, claims: &mut Claims<'_>) {
    let (view, height) = rank(certificate);
    if certificate.statement != vote(view, height, certificate.block()) {
        return claims.refuse("certificate of something else");
    }
    if view == View::ZERO && !certificate.is_genesis() {
        return claims.refuse("certificate of view 0");
    }
    claims.certificate(certificate, at_least);
}

/// Claims that a certificate consists of votes of f + 1 replicas, or is that of genesis.
pub(super) fn claim_certificate(certificate: &Certificate, claims: &mut Claims<'_>) {
    let weak = claims.committee().weak();
    claim_votes(certificate, weak, claims);
}

/// Returns q_R: so many votes decide at once (`optsync` §1). Two such quorums share an honest replica, and each contains an
/// honest one, among n ≥ 2f + 1.
pub(super) fn responsive_quorum(n: usize) -> usize {
    n.saturating_mul(3).checked_div(4).unwrap_or(0).saturating_add(1)
}
