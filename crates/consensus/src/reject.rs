//! Why a handler did not act, and what it must tell the world at once.

use quorate_types::{BlockId, Height, ReplicaId, View};

/// Why a handler did nothing (more) with a message. Effects made before stand. Counted per peer and reason.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Reject {
    /// The sender may not say this.
    #[error("wrong sender")]
    WrongSender,
    /// Belongs to something that is over.
    #[error("stale")]
    Stale,
    /// Belongs to something that has not begun; kept where the protocol says so.
    #[error("early")]
    Early,
    /// Known already.
    #[error("duplicate")]
    Duplicate,
    /// Contradicts what the same sender said before.
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
    /// Whether only a faulty replica says such a thing: everything else comes of messages that cross each other.
    #[must_use]
    pub const fn is_breach(self) -> bool {
        match self {
            Self::WrongSender | Self::Equivocation | Self::Invalid(_) => true,
            Self::Stale | Self::Early | Self::Duplicate | Self::NotNow(_) => false,
        }
    }

    /// The reason as a name for counters.
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

/// What must not go unnoticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Alarm {
    /// Two blocks were decided for one height. The replica stops and keeps the evidence.
    #[error("safety is broken at height {height}: {first} and {second}")]
    SafetyBroken {
        /// Where.
        height: Height,
        /// What was decided or executed before.
        first: BlockId,
        /// What is decided now.
        second: BlockId,
    },
    /// This replica's state differs from the one that a quorum has signed. It stops before it answers anyone.
    #[error(
        "the state after height {height} differs from the one that a quorum has signed: this replica's disk or memory is corrupt, or the application is not deterministic"
    )]
    StateDiverged {
        /// After which height.
        height: Height,
    },
    /// Something came later than the assumed bound on delays allows. What rested on the bound was not done, so the
    /// replica goes on.
    #[error("the bound on delays does not hold in view {view}: {why}{}", of_peer(*peer))]
    SynchronyDoubt {
        /// In which view.
        view: View,
        /// Over whose link that came which should have come earlier. Where a protocol leaves it open while it handles a
        /// peer's message, the host fills it in.
        peer: Option<ReplicaId>,
        /// What was seen, as a short constant text.
        why: &'static str,
    },
}

impl Alarm {
    /// Whether the replica must say nothing more.
    #[must_use]
    pub const fn stops(self) -> bool {
        match self {
            Self::SafetyBroken { .. } | Self::StateDiverged { .. } => true,
            Self::SynchronyDoubt { .. } => false,
        }
    }
}

fn of_peer(peer: Option<ReplicaId>) -> String {
    peer.map_or_else(String::new, |peer| format!(" (replica {peer})"))
}
