//! Advice of the host's executor about a bundle before it is ordered. Execution alone decides order and results.

use quorate_types::{Bundle, ReplyBundle};

/// The executor's advice about a bundle.
#[derive(Clone, PartialEq, Debug)]
pub enum Admission {
    /// The bundle may be ordered.
    New,
    /// The bundle was executed, and this is its reply. The host fills in view and leader.
    Executed(Box<ReplyBundle>),
    /// Another bundle was executed under its number.
    NumberReused,
    /// The bundle was executed or superseded, and the reply is no longer kept.
    Forgotten,
    /// Its number is too far above the floor of the session.
    OutOfWindow,
    /// The session does not exist, or belongs to another client.
    NoSession,
    /// This replica has not executed the height that opened its session.
    Behind,
    /// The client is not registered at this replica, or not yet.
    NotRegistered,
}

/// An executor that gives advice about bundles.
pub trait Admit {
    /// Returns the advice about a bundle.
    fn admit(&self, bundle: &Bundle) -> Admission;
}
