//! Reasons for which a handler does not act, and alarms that it raises.

use quorate_types::{BlockId, Height, ReplicaId, View};

/// Reason for which a handler did nothing, or nothing more, with a message. Effects made before stand. The host counts
/// rejects per peer and reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Reject {
    /// The sender may not send this.
    #[error("wrong sender")]
    WrongSender,
    /// Belongs to a view or height that is over.
    #[error("stale")]
    Stale,
    /// Belongs to a view or height that has not begun. The protocol may keep it.
    #[error("early")]
    Early,
    /// Known already.
    #[error("duplicate")]
    Duplicate,
    /// Conflicts with an earlier message of the same sender.
    #[error("equivocation")]
    Equivocation,
    /// Not acceptable in the present state.
    #[error("not now: {0}")]
    NotNow(&'static str),
    /// Breaks a rule of the protocol.
    #[error("invalid: {0}")]
    Invalid(&'static str),
}

impl Reject {
    /// Returns whether only a faulty replica sends such a message. The other rejects come from messages that cross each
    /// other.
    #[must_use]
    pub const fn is_breach(self) -> bool {
        match self {
            Self::WrongSender | Self::Equivocation | Self::Invalid(_) => true,
            Self::Stale | Self::Early | Self::Duplicate | Self::NotNow(_) => false,
        }
    }

    /// Returns the reason as a name for counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WrongSender => "wrong_sender",
            Self::Stale => "stale",
            Self::Early => "early",
            Self::Duplicate => "duplicate",
            Self::Equivocation => "equivocation",
            Self::NotNow(why) | Self::Invalid(why) => why,
        }
    }
}

/// An event that an operator must hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Alarm {
    /// Two blocks are decided for one height. The replica stops and keeps the evidence.
    #[error("safety is broken at height {height}: {first} and {second}")]
    SafetyBroken {
        /// The height.
        height: Height,
        /// The block decided or executed before.
        first: BlockId,
        /// The block decided now.
        second: BlockId,
    },
    /// This replica's state differs from the state that a quorum has signed. The replica stops before it answers anyone.
    #[error(
        "the state after height {height} differs from the one that a quorum has signed: this replica's disk or memory is corrupt, or the application is not deterministic"
    )]
    StateDiverged {
        /// Height of the state.
        height: Height,
    },
    /// A peer has shown a statement that this replica has signed and that its log lacks: its disk is older than its
    /// statements, or a second machine uses its key. The replica stops before it contradicts itself (DESIGN 9).
    #[error(
        "this replica has signed a statement in view {view} at height {height} that its log does not have: its disk was replaced by an older one, or a second machine uses its key"
    )]
    RolledBack {
        /// View of the statement.
        view: View,
        /// Height of the statement.
        height: Height,
    },
    /// A message came later than the assumed bound on delays allows. Steps that rest on the bound were not taken, so the
    /// replica goes on.
    #[error("the bound on delays does not hold in view {view}: {why}{}", of_peer(*peer))]
    SynchronyDoubt {
        /// View of the observation.
        view: View,
        /// Peer whose link delivered the late message. The host fills it in when a protocol leaves it open while it
        /// handles a message of a peer.
        peer: Option<ReplicaId>,
        /// The observation, as a short constant text.
        why: &'static str,
    },
    /// The message of a leader arrived within 2 Δ of this replica's blame. Such near misses foretell that the bound on delays
    /// will be broken for an honest leader.
    #[error("leader {leader} was blamed in view {view}, and its message arrived within 2 delta")]
    NearMiss {
        /// View of the blame.
        view: View,
        /// The leader.
        leader: ReplicaId,
    },
}

impl Alarm {
    /// Returns whether the replica must send no further message.
    #[must_use]
    pub const fn stops(self) -> bool {
        match self {
            Self::SafetyBroken { .. } | Self::StateDiverged { .. } | Self::RolledBack { .. } => true,
            Self::SynchronyDoubt { .. } | Self::NearMiss { .. } => false,
        }
    }
}

fn of_peer(peer: Option<ReplicaId>) -> String {
    peer.map_or_else(String::new, |peer| format!(" (replica {peer})"))
}
