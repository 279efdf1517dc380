//! The kinds of Byzantine hosts.

use std::fmt;
use std::str::FromStr;

/// The way in which a replica breaks the rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Byzantine {
    /// Two replicas with one key and one id. Both receive everything; each sends to some of the others, or to all.
    Twin,
    /// The replica receives everything and sends nothing, or nothing of some kinds.
    Mute,
    /// The replica sends to some others only.
    Favourites,
    /// The replica loses power and recovers with an older image of its disk, so it has forgotten promises.
    Rollback,
    /// The replica resends old messages.
    Replay,
    /// The replica sends well-formed and well-signed messages that differ a little from those of its protocol.
    Mutate,
    /// The replica sends everything just before the others' timers expire.
    Delay,
    /// The replica reports undecided heights to peers that lag, and sends unrequested bodies.
    CatchUp,
    /// The replica sends false replies to clients.
    Clients,
    /// The replica repeats every message many times, and sends frames above the size limit.
    Flood,
    /// The replica runs an attack that its protocol's folder defines.
    Own,
    /// The replica keeps the rules. Later the current leader is corrupted and becomes one of the other kinds.
    Adaptive,
}

impl Byzantine {
    /// All kinds. Documentation, command line and random runs draw from this list.
    pub const ALL: [Self; 12] = [
        Self::Twin,
        Self::Mute,
        Self::Favourites,
        Self::Rollback,
        Self::Replay,
        Self::Mutate,
        Self::Delay,
        Self::CatchUp,
        Self::Clients,
        Self::Flood,
        Self::Own,
        Self::Adaptive,
    ];

    /// Kinds that an honest replica may become during a run.
    pub(crate) const LATER: [Self; 9] = [
        Self::Mute,
        Self::Favourites,
        Self::Rollback,
        Self::Replay,
        Self::Mutate,
        Self::Delay,
        Self::CatchUp,
        Self::Flood,
        Self::Own,
    ];

    /// Whether the host changes the messages of its replica.
    pub(crate) const fn forges(self) -> bool {
        match self {
            Self::Twin | Self::Mute | Self::Favourites | Self::Rollback | Self::Adaptive => false,
            Self::Replay | Self::Mutate | Self::Delay => true,
            Self::CatchUp | Self::Clients | Self::Flood | Self::Own => true,
        }
    }

    /// Returns the name that the command line and printed facts use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Twin => "twin",
            Self::Mute => "mute",
            Self::Favourites => "favourites",
            Self::Rollback => "rollback",
            Self::Replay => "replay",
            Self::Mutate => "mutate",
            Self::Delay => "delay",
            Self::CatchUp => "catch-up",
            Self::Clients => "clients",
            Self::Flood => "flood",
            Self::Own => "own",
            Self::Adaptive => "adaptive",
        }
    }
}

impl fmt::Display for Byzantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Byzantine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("no Byzantine host is named {text:?}; there are {}", known.join(", "))
        })
    }
}
