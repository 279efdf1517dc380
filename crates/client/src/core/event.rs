//! What a client core says to its driver and to the caller.

use bytes::Bytes;
use quorate_types::limits::SESSIONS_PER_CLIENT_MAX;
use quorate_types::wire::Refusal;
use quorate_types::{Outcome, ReplicaId, Results, SessionId, Time};
use std::fmt;
use std::sync::Arc;

/// What the driver must do.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Send this message; `frame` is what follows the length on the wire. Shared: cloning it is cheap.
    Send {
        /// To whom.
        to: ReplicaId,
        /// The encoded `FromClient`.
        frame: Bytes,
    },
    /// Something for the caller.
    Event(Event),
}

/// What became of what the caller asked for.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The session is open.
    Opened(SessionId),
    /// No session was opened, and operations go on waiting. The caller may try again with `Core::open`.
    OpenFailed(Failure),
    /// The session is gone (evicted, or the cluster has forgotten it). Bundles that may have been executed have failed;
    /// the others wait for `Core::open` with a new nonce.
    SessionLost,
    /// A bundle was executed, and this is its believed result.
    Done {
        /// `Ticket::bundle` of its operations.
        bundle: u64,
        /// What it resulted in.
        answer: Answer,
        /// Operations in it.
        requests: u32,
        /// When the first of them was submitted.
        submitted: Time,
        /// When the bundle was sent first.
        sent: Time,
        /// How often it was sent again.
        repeats: u32,
    },
    /// A bundle has no result and will have none.
    Failed {
        /// `Ticket::bundle` of its operations.
        bundle: u64,
        /// Operations in it.
        requests: u32,
        /// Why.
        why: Failure,
    },
}

/// The result of a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// One result for each operation, in their order.
    Results(BundleResults),
    /// This many client keys are newly registered.
    Registered(u32),
}

/// The results of a bundle, in one shared buffer.
#[derive(Clone, PartialEq, Eq)]
pub struct BundleResults(Arc<[u8]>);

impl BundleResults {
    /// Takes an encoded outcome; `None` when it does not hold exactly `requests` results.
    pub(crate) fn of(outcome: Arc<[u8]>, requests: u32) -> Option<Self> {
        let count = Outcome::results(&outcome)?.len();
        (u32::try_from(count) == Ok(requests)).then_some(Self(outcome))
    }

    /// The results, in the order of the operations.
    #[must_use]
    pub fn iter(&self) -> Option<Results<'_>> {
        Outcome::results(&self.0)
    }

    /// The result of the operation at `index`.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&[u8]> {
        self.iter()?.nth(usize::try_from(index).ok()?)
    }
}

impl fmt::Debug for BundleResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BundleResults({} bytes)", self.0.len())
    }
}

/// Why there is no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The session was lost while the bundle was on its way, and it is not certain that it was not executed before.
    #[error("the session was lost while the bundle was on its way: whether it was executed is unknown")]
    SessionLost,
    /// One session after the other was lost before it was executed.
    #[error(
        "not executed: the cluster has closed one session after the other before it came to this bundle; it keeps clients_max sessions in all, and {SESSIONS_PER_CLIENT_MAX} for each key"
    )]
    Evicted,
    /// It was executed, or another bundle under its number was, and the result is no longer kept.
    #[error("the result is no longer kept by the replicas")]
    Forgotten,
    /// Another bundle was executed under its number: somebody else uses the same key and session.
    #[error("another bundle was executed under the same number")]
    Superseded,
    /// Its number lay too far above the floor of the session.
    #[error("the number lies outside the window of the session")]
    OutOfWindow,
    /// It was executed, and its results exceed `reply_bytes_max` of the cluster, which is this.
    #[error("executed, but the results exceed reply_bytes_max of the cluster, which is {0} bytes")]
    TooLarge(u32),
    /// Only the admin client registers keys, and only while there is room.
    #[error("only the admin client may register keys, and only while there is room")]
    NotAllowed,
    /// The client's key is not registered.
    #[error("the client key is not registered")]
    NotRegistered,
    /// As many replicas as can be waited for refuse to take it.
    #[error("refused: {}", super::tried::words(*.0))]
    Refused(Refusal),
    /// f + 1 replicas agree on an answer that makes no sense: more than f are faulty.
    #[error("the replicas agree on an impossible answer")]
    Impossible,
    /// It was given up before it was sent.
    #[error("given up before it was sent")]
    NotSent,
}

/// Whether something without a result was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It was executed.
    Executed,
    /// It was not executed and never will be.
    NotExecuted,
    /// It may have been executed, once at most, or may yet be.
    Unknown,
}

impl Failure {
    /// What is known of the bundle's effect.
    #[must_use]
    pub fn fate(self) -> Fate {
        match self {
            Self::TooLarge(_) => Fate::Executed,
            Self::Evicted | Self::Superseded | Self::NotAllowed | Self::NotSent => Fate::NotExecuted,
            Self::SessionLost
            | Self::Forgotten
            | Self::OutOfWindow
            | Self::NotRegistered
            | Self::Refused(_)
            | Self::Impossible => Fate::Unknown,
        }
    }
}

/// What a client has done and met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bundles sent, each counted once.
    pub bundles: u64,
    /// Bundles sent again.
    pub repeats: u64,
    /// Bundles with a believed answer.
    pub answered: u64,
    /// Refusals because a replica has too much to do.
    pub busy: u64,
    /// Refusals for other reasons.
    pub refused: u64,
    /// How often a replica has begun to send its replies to newer connections with this key.
    pub displaced: u64,
    /// Replies that contradict themselves or answer what was never asked.
    pub lies: u64,
}
