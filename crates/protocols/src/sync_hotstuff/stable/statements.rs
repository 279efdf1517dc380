//! Signed statements of the stable form: headers of blocks, votes, locks, and statements of leaders (§2, §6; `optsync` §6).

use super::super::replica::End;
use super::super::statements::{FIRST_VIEW, NEW_VIEW, PROPOSE, STATUS, VOTE, leader};
use crate::encoding::variants;
use quorate_consensus::{Certificate, Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire};
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

quorate_types::wire_struct!(Header { block, base });

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
            return claims.refuse("header of a replica that does not lead");
        }
        if block.extra != bind_base(header.body.base) {
            return claims.refuse("block that does not bind its base");
        }
        claims.signature(header.by, header.body.statement(), &header.signature);
    }

    /// S5. §2: checks that a certificate is that of its parent in its own view.
    pub(super) fn check_parent(&self, parent: &Certificate) -> Result<(), &'static str> {
        let Block { view, height, .. } = self.block;
        let is_first = view == FIRST_VIEW && parent.is_genesis() && height == Height::ZERO.next();
        if self.block.extra != bind_base(self.base) {
            Err("block that does not bind its base")
        } else if height == Height::ZERO || parent.block() != self.block.parent {
            Err("proposal does not extend its certificate")
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
        return claims.refuse("certificate of another statement");
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

/// Certificates of one view that a replica holds when it enters a later one. Without `responsive` this is Sync HotStuff's
/// lock, the highest certificate.
#[derive(Clone, PartialEq, Debug)]
pub struct Lock {
    /// Certificate of the highest block that q_R replicas have voted for.
    pub responsive: Option<Certificate>,
    /// Certificate of the highest block that is that one or extends it.
    pub tip: Certificate,
}

quorate_types::wire_struct!(Lock { responsive, tip });

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
                return claims.refuse("genesis has no votes");
            }
            let quorum = claims.committee().responsive();
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

/// Content of a leader's signed statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaderStatement {
    /// The header of a proposal.
    Header(Header),
    /// The lock that a view extends.
    NewView(View, LockName),
}

variants!(LeaderStatement, "statement of a leader":
    0 = Header(header),
    1 = NewView(view, lock),
);

impl LeaderStatement {
    /// Returns its view.
    #[must_use]
    pub fn view(&self) -> View {
        match self {
            Self::Header(header) => header.block.view,
            Self::NewView(view, _) => *view,
        }
    }

    /// Returns what is signed.
    #[must_use]
    pub fn statement(&self) -> Statement {
        match self {
            Self::Header(header) => header.statement(),
            Self::NewView(view, lock) => Statement::new(NEW_VIEW, *view, Height::ZERO, lock.digest()),
        }
    }

    /// Returns the base of the view according to this statement.
    #[must_use]
    pub fn base(&self) -> BlockId {
        match self {
            Self::Header(header) => header.base,
            Self::NewView(_, lock) => lock.tip.1,
        }
    }

    /// Whether no honest leader signs both (§2, conflict). [`Split`](super::Split) proves conflicts of headers further apart.
    #[must_use]
    pub fn conflicts_with(&self, other: &Self) -> bool {
        if self.view() != other.view() {
            return false;
        }
        if self.base() != other.base() {
            return true;
        }
        match (self, other) {
            (Self::NewView(..), Self::NewView(..)) => false,
            // The blocks of a view extend its base.
            (Self::NewView(_, lock), Self::Header(header))
            | (Self::Header(header), Self::NewView(_, lock)) => {
                let ((base, id), block) = (lock.tip, &header.block);
                block.height <= base || block.height == base.next() && block.parent != id
            }
            (Self::Header(a), Self::Header(b)) => {
                let (low, high) = if a.block.height <= b.block.height { (a, b) } else { (b, a) };
                match high.block.height.since(low.block.height) {
                    0 => low != high,
                    1 => high.block.parent != low.block.id(),
                    _ => false,
                }
            }
        }
    }

    /// Returns a signed header as a signed statement.
    pub(super) fn of(header: &Signed<Header>) -> Signed<Self> {
        Signed { body: Self::Header(header.body.clone()), by: header.by, signature: header.signature }
    }
}

/// Content of a NEW-VIEW.
#[derive(Clone, PartialEq, Debug)]
pub struct SyncNewView {
    /// The view.
    pub view: View,
    /// The lock, with its certificates.
    pub lock: Lock,
}

quorate_types::wire_struct!(SyncNewView { view, lock });

impl SyncNewView {
    /// Returns its signed part.
    #[must_use]
    pub fn statement(&self) -> LeaderStatement {
        LeaderStatement::NewView(self.view, self.lock.name())
    }

    /// Returns a signed NEW-VIEW as a signed statement.
    pub(super) fn signed_statement(signed: &Signed<Self>) -> Signed<LeaderStatement> {
        Signed { body: signed.body.statement(), by: signed.by, signature: signed.signature }
    }

    /// Claims that its certificates are valid and older than the view.
    pub(super) fn claim(&self, claims: &mut Claims<'_>) {
        if self.lock.view() >= self.view {
            return claims.refuse("lock of no earlier view");
        }
        self.lock.claim(claims);
    }

    /// Claims that the leader of the view has signed it, and the same.
    pub(super) fn claim_signed(signed: &Signed<Self>, claims: &mut Claims<'_>) {
        if signed.by != leader(claims.committee(), signed.body.view) {
            return claims.refuse("new view of a replica that does not lead");
        }
        claims.signature(signed.by, signed.body.statement().statement(), &signed.signature);
        signed.body.claim(claims);
    }
}
