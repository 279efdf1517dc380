//! The outputs of a client core: messages for its driver, and events for the caller.

use crate::order::Position;
use bytes::Bytes;
use quorate_types::limits::SESSIONS_PER_CLIENT_MAX;
use quorate_types::wire::{NoOrder, Refusal};
use quorate_types::{Outcome, ReplicaId, Results, SessionId, Time};
use std::fmt;
use std::sync::Arc;

/// An instruction for the driver, or an event for the caller.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// A message to send; `frame` follows the length on the wire. The bytes are shared, so a clone is cheap.
    Send {
        /// The receiver.
        to: ReplicaId,
        /// The encoded `FromClient`.
        frame: Bytes,
    },
    /// An event for the caller.
    Event(Event),
}

/// The outcome of a request of the caller, or a change of its session.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The session is open.
    Opened(SessionId),
    /// No session was opened, and operations keep waiting. The caller may try again with `Core::open`.
    OpenFailed(Failure),
    /// The session is gone: evicted, or forgotten by the cluster. Bundles that may have been executed have failed;
    /// the others wait for `Core::open` with a new nonce.
    SessionLost,
    /// A bundle was executed, and this is its accepted result.
    Done {
        /// `Ticket::bundle` of its operations.
        bundle: u64,
        /// The result.
        answer: Answer,
        /// Operations in it.
        requests: u32,
        /// The time at which the first of them was submitted.
        submitted: Time,
        /// The time at which the bundle was first sent.
        sent: Time,
        /// The number of times that it was sent again.
        repeats: u32,
    },
    /// A bundle is ordered, as its call has asked. The proof of one replica shows the place. The results are unknown.
    Ordered {
        /// `Ticket::bundle` of its operations.
        bundle: u64,
        /// The place.
        position: Position,
        /// The replica that has shown the proof.
        by: ReplicaId,
        /// Operations in it.
        requests: u32,
        /// The time at which the bundle was submitted.
        submitted: Time,
        /// The time at which the bundle was first sent.
        sent: Time,
        /// The number of times that it was sent again.
        repeats: u32,
    },
    /// A bundle has no result and will have none.
    Failed {
        /// `Ticket::bundle` of its operations.
        bundle: u64,
        /// Operations in it.
        requests: u32,
        /// The reason.
        why: Failure,
    },
}

/// The result of a bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// One result for each operation, in their order.
    Results(BundleResults),
    /// The number of newly registered client keys.
    Registered(u32),
}

/// The results of a bundle, in one shared buffer.
#[derive(Clone, PartialEq, Eq)]
pub struct BundleResults(Arc<[u8]>);

impl BundleResults {
    /// Takes an encoded outcome; `None` if it does not hold exactly `requests` results.
    pub(crate) fn of(outcome: Arc<[u8]>, requests: u32) -> Option<Self> {
        let count = Outcome::results(&outcome)?.len();
        (u32::try_from(count) == Ok(requests)).then_some(Self(outcome))
    }

    /// Returns the results, in the order of the operations.
    #[must_use]
    pub fn iter(&self) -> Option<Results<'_>> {
        Outcome::results(&self.0)
    }

    /// Returns the result of the operation at `index`.
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

/// The reason why there is no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The session was lost while the bundle was in flight, and the bundle may have been executed before.
    #[error("the session was lost while the bundle was in flight; the outcome is unknown")]
    SessionLost,
    /// One session after the other was lost before the bundle was executed.
    #[error(
        "not executed: the cluster evicted one session after the other before it executed this bundle; it keeps clients_max sessions in all, and {SESSIONS_PER_CLIENT_MAX} for each key"
    )]
    Evicted,
    /// The bundle, or another one with its number, was executed, and the replicas no longer keep the result.
    #[error("the replicas no longer keep the result")]
    Forgotten,
    /// Another bundle was executed under its number: another program uses the same key and session.
    #[error("another bundle was executed under the same number: another program uses this key and session")]
    Superseded,
    /// The number of the bundle is too far above the floor of the session.
    #[error("the number is outside the window of the session")]
    OutOfWindow,
    /// The bundle was executed, and its results exceed this `reply_bytes_max` of the cluster.
    #[error("executed, but the results exceed reply_bytes_max of the cluster, which is {0} bytes")]
    TooLarge(u32),
    /// Only the admin client registers keys, and only while there is room.
    #[error("only the admin client may register keys, and only while there is room")]
    NotAllowed,
    /// The client's key is not registered.
    #[error("the client key is not registered")]
    NotRegistered,
    /// All replicas that may still answer refuse the bundle.
    #[error("refused: {}", super::tried::text(*.0))]
    Refused(Refusal),
    /// f + 1 replicas agree on a nonsensical answer: more than f are faulty.
    #[error("f + 1 replicas agree on an impossible answer: more than f are faulty")]
    Impossible,
    /// The bundle was executed, and no reachable replica has a proof of its order.
    #[error("executed, but no reachable replica has a proof of order: {}", .0.text())]
    NoOrder(NoOrder),
    /// The bundle was abandoned before it was sent.
    #[error("abandoned before it was sent")]
    NotSent,
}

/// Whether an operation without a result was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The operation was executed.
    Executed,
    /// The operation was not executed and never will be.
    NotExecuted,
    /// The operation may have been executed, or may yet be, once at most.
    Unknown,
}

impl Failure {
    /// Returns what is known of the bundle's effect.
    #[must_use]
    pub fn fate(self) -> Fate {
        match self {
            Self::TooLarge(_) | Self::NoOrder(_) => Fate::Executed,
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

/// Counts of a client's messages and of their answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bundles sent, each counted once.
    pub bundles: u64,
    /// Bundles sent again.
    pub repeats: u64,
    /// Bundles with an accepted answer.
    pub answered: u64,
    /// Refusals because a replica is busy.
    pub busy: u64,
    /// Refusals for other reasons.
    pub refused: u64,
    /// Number of times that a replica began to send its replies to newer connections with this key.
    pub displaced: u64,
    /// Replies that contradict themselves, or that answer another content.
    pub lies: u64,
    /// Proofs of order that do not hold.
    pub bad_proofs: u64,
}
