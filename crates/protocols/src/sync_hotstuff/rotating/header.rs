//! Headers and votes of the rotating form (§11, §17). A view has one proposal and one vote of each replica, so their statements
//! have no height.

use super::super::statements::{PROPOSE, STATUS, VOTE, leader};
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, Claims, Signed};
use quorate_types::{Block, BlockId, Height, Statement, View};

/// A block with the view in which its parent was certified; its `extra` binds both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The block.
    pub block: Block,
    /// The view of its parent's certificate.
    pub parent_view: View,
}

quorate_types::wire_struct!(Header { block, parent_view });

impl Header {
    /// Returns the statement that its leader signs.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement::new(PROPOSE, self.block.view, Height::ZERO, self.block.id().0)
    }

    /// Whether its parent is the block of this certificate.
    pub(super) fn extends_certified(&self, certificate: &Certificate) -> bool {
        (self.parent_view, self.block.parent) == (certificate.view(), certificate.block())
    }

    /// Checks that it belongs to a view, is proposed by the leader of that view, and names its parent's certificate.
    fn check(&self, claims: &Claims<'_>) -> Result<(), &'static str> {
        let block = &self.block;
        if block.view == View::ZERO || block.height == Height::ZERO {
            return Err("header of no view");
        }
        if block.proposer != leader(claims.committee(), block.view) {
            return Err("header of a replica that does not lead");
        }
        if self.parent_view >= block.view {
            return Err("parent of no earlier view");
        }
        if (self.parent_view == View::ZERO) != (block.parent == BlockId::ZERO) {
            return Err("genesis is the block of view 0");
        }
        if block.extra != bind_certificate(self.parent_view, block.parent) {
            return Err("block that does not bind its parent's view");
        }
        Ok(())
    }

    /// Claims that the leader of its view has signed it.
    pub fn claim(header: &Signed<Self>, claims: &mut Claims<'_>) {
        if let Err(why) = header.body.check(claims) {
            return claims.refuse(why);
        }
        if header.by != header.body.block.proposer {
            return claims.refuse("header of a replica that does not lead");
        }
        claims.signature(header.by, header.body.statement(), &header.signature);
    }

    /// Claims that its sender may propose it on this certificate.
    pub(super) fn claim_proposal(&self, parent: &Certificate, claims: &mut Claims<'_>) {
        if let Err(why) = self.check(claims) {
            return claims.refuse(why);
        }
        if !self.extends_certified(parent) {
            return claims.refuse("proposal does not extend its certificate");
        }
        claim_votes(parent, claims);
    }
}

/// Returns the statement of a vote.
#[must_use]
pub fn vote(view: View, block: BlockId) -> Statement {
    BlockVote { view, block }.statement(VOTE)
}

/// Returns the statement of a replica that enters a view with this lock.
#[must_use]
pub fn status(view: View, lock: &Certificate) -> Statement {
    Statement::new(STATUS, view, Height::ZERO, bind_certificate(lock.view(), lock.block()))
}

/// R1. §2, §11: claims that f + 1 replicas have voted for one block in one view, or that this is genesis.
pub(super) fn claim_votes(certificate: &Certificate, claims: &mut Claims<'_>) {
    let view = certificate.view();
    if certificate.statement != vote(view, certificate.block()) {
        return claims.refuse("certificate of another statement");
    }
    if view == View::ZERO && !certificate.is_genesis() {
        return claims.refuse("certificate of view 0");
    }
    let weak = claims.committee().weak();
    claims.certificate(certificate, weak);
}
