//! What the host's executor knows of a bundle before it is ordered. Advice: order and results are decided by
//! execution alone.

use quorate_types::{Bundle, ReplyBundle};

/// What is known of a bundle.
#[derive(Clone, PartialEq, Debug)]
pub enum Admission {
    /// It may be ordered.
    New,
    /// It was executed; this is the reply (view and leader are for the host to fill in).
    Executed(Box<ReplyBundle>),
    /// Another bundle was executed under its number.
    NumberReused,
    /// It was executed, or superseded, and the reply is no longer kept.
    Forgotten,
    /// Its number lies too far above the floor of the session.
    OutOfWindow,
    /// No such session, or it belongs to another client.
    NoSession,
    /// The height that opened its session is not executed here yet.
    Behind,
    /// The client is not registered here (yet).
    NotRegistered,
}

/// Asks the executor.
pub trait Admit {
    /// What is known of a bundle.
    fn admit(&self, bundle: &Bundle) -> Admission;
}
