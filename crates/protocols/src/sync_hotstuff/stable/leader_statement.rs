//! Statements of a leader about its view, and when two of them conflict (§2).

use super::super::encoding::{fields, variants};
use super::super::statements::{NEW_VIEW, leader};
use super::header::Header;
use super::lock::{Lock, LockName};
use quorate_consensus::{Claims, Signed};
use quorate_types::{BlockId, Height, Statement, View};

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

fields!(SyncNewView { view, lock });

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
            return claims.refuse("new view of somebody who does not lead");
        }
        claims.signature(signed.by, signed.body.statement().statement(), &signed.signature);
        signed.body.claim(claims);
    }
}
