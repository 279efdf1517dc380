//! What leaders and voters sign where leaders follow each other (§11, §17): one proposal and one vote in each view, so that
//! their statements have no height; and what shows that nobody may rely on silence in a view.

use super::super::message::{PROPOSE, STATUS, VOTE};
use super::super::words::{claim_blames, leader};
use quorate_consensus::parts::chain::bind_certificate;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{Block, BlockId, Height, Statement, View};

/// A block, and in which view its parent was certified: what is bound by `extra`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The block.
    pub block: Block,
    /// The view of the certificate that it rests on.
    pub parent_view: View,
}

impl Header {
    /// What its leader signs.
    #[must_use]
    pub fn statement(&self) -> Statement {
        Statement::new(PROPOSE, self.block.view, Height::ZERO, self.block.id().0)
    }

    /// Whether its parent is what was certified there.
    pub(super) fn rests_on(&self, certificate: &Certificate) -> bool {
        (self.parent_view, self.block.parent) == (certificate.view(), certificate.block())
    }

    /// What is wrong with it that everybody can see: it belongs to a view, comes of its leader, and says on what it rests.
    ///
    /// # Errors
    /// What is wrong.
    fn check(&self, claims: &Claims<'_>) -> Result<(), &'static str> {
        let block = &self.block;
        if block.view == View::ZERO || block.height == Height::ZERO {
            return Err("header of no view");
        }
        if block.proposer != leader(claims.committee(), block.view) {
            return Err("header of somebody who does not lead");
        }
        if self.parent_view >= block.view {
            return Err("parent of no earlier view");
        }
        if (self.parent_view == View::ZERO) != (block.parent == BlockId::ZERO) {
            return Err("genesis is the block of view 0");
        }
        if block.extra != bind_certificate(self.parent_view, block.parent) {
            return Err("header without its parent's view");
        }
        Ok(())
    }

    /// Claims that it is a header of its view's leader, and that this is the leader's signature.
    pub fn claim(header: &Signed<Self>, claims: &mut Claims<'_>) {
        if let Err(why) = header.body.check(claims) {
            return claims.refuse(why);
        }
        if header.by != header.body.block.proposer {
            return claims.refuse("header of somebody who does not lead");
        }
        claims.signature(header.by, header.body.statement(), &header.signature);
    }

    /// Claims that its sender may propose it on top of this certificate.
    pub(super) fn claim_proposal(&self, parent: &Certificate, claims: &mut Claims<'_>) {
        if let Err(why) = self.check(claims) {
            return claims.refuse(why);
        }
        if (parent.view(), parent.block()) != (self.parent_view, self.block.parent) {
            return claims.refuse("proposal beside its certificate");
        }
        claim_votes(parent, claims);
    }
}

impl Wire for Header {
    fn encode(&self, out: &mut Vec<u8>) {
        self.block.encode(out);
        self.parent_view.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { block: Block::decode(reader)?, parent_view: View::decode(reader)? })
    }
}

/// The statement of a vote.
#[must_use]
pub fn vote(view: View, block: BlockId) -> Statement {
    BlockVote { view, block }.statement(VOTE)
}

/// What a replica signs that enters a view with this certificate as its lock.
#[must_use]
pub fn status(view: View, lock: &Certificate) -> Statement {
    Statement::new(STATUS, view, Height::ZERO, bind_certificate(lock.view(), lock.block()))
}

/// R1. §2, §11: claims that f + 1 replicas have voted for one block in one view, or that this is genesis.
pub(super) fn claim_votes(certificate: &Certificate, claims: &mut Claims<'_>) {
    let view = certificate.view();
    if certificate.statement != vote(view, certificate.block()) {
        return claims.refuse("certificate of something else");
    }
    if view == View::ZERO && !certificate.is_genesis() {
        return claims.refuse("certificate of view 0");
    }
    let weak = claims.committee().weak();
    claims.certificate(certificate, weak);
}

/// Why nobody may rely on silence in a view: it can be shown to everybody.
#[derive(Clone, PartialEq, Debug)]
pub enum Evidence {
    /// Its leader has proposed two blocks.
    Conflict(Box<(Signed<Header>, Signed<Header>)>),
    /// Two blocks of it are certified, so that its leader has.
    Certificates(Box<(Certificate, Certificate)>),
    /// f + 1 replicas blame it: this one ends the view as well.
    Blames(Certificate),
}

impl Evidence {
    /// The view.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Self::Conflict(both) => both.0.body.block.view,
            Self::Certificates(both) => both.0.view(),
            Self::Blames(certificate) => certificate.view(),
        }
    }

    /// Claims that it proves what it says.
    pub fn claim(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Conflict(both) => {
                let (first, second) = &**both;
                if first.body.block.view != second.body.block.view || first.body == second.body {
                    return claims.refuse("no contradiction");
                }
                Header::claim(first, claims);
                Header::claim(second, claims);
            }
            Self::Certificates(both) => {
                let (first, second) = &**both;
                if first.view() != second.view() || first.block() == second.block() {
                    return claims.refuse("no contradiction");
                }
                claim_votes(first, claims);
                claim_votes(second, claims);
            }
            Self::Blames(certificate) => claim_blames(certificate, claims),
        }
    }
}

impl Wire for Evidence {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Conflict(both) => {
                out.push(0);
                both.0.encode(out);
                both.1.encode(out);
            }
            Self::Certificates(both) => {
                out.push(1);
                both.0.encode(out);
                both.1.encode(out);
            }
            Self::Blames(certificate) => {
                out.push(2);
                certificate.encode(out);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Conflict(Box::new((Signed::decode(reader)?, Signed::decode(reader)?)))),
            1 => {
                Ok(Self::Certificates(Box::new((Certificate::decode(reader)?, Certificate::decode(reader)?))))
            }
            2 => Ok(Self::Blames(Certificate::decode(reader)?)),
            _ => Err(DecodeError::Tag("evidence")),
        }
    }
}
