//! The kinds of Byzantine hosts. Documentation, command line and random runs draw from this list.

use crate::named_enum::named_enum;
use std::str::FromStr;

named_enum! {
    /// The way in which a replica breaks the rules.
    pub enum Byzantine {
        /// Two replicas with one key and one id. Both receive everything; each sends to some of the others, or to all.
        Twin = "twin",
        /// The replica receives everything and sends nothing, or nothing of some kinds.
        Mute = "mute",
        /// The replica sends to some others only.
        Favourites = "favourites",
        /// The replica loses power and recovers with an older image of its disk, so it has forgotten promises.
        Rollback = "rollback",
        /// The replica resends old messages.
        Replay = "replay",
        /// The replica sends well-formed and well-signed messages that differ a little from those of its protocol.
        Mutate = "mutate",
        /// The replica sends everything just before the others' timers expire.
        Delay = "delay",
        /// The replica reports undecided heights to peers that lag, and sends unrequested bodies.
        CatchUp = "catch-up",
        /// The replica sends false replies to clients.
        Clients = "clients",
        /// The replica repeats every message many times, and sends frames above the size limit.
        Flood = "flood",
        /// The replica runs an attack that its protocol's folder defines.
        Own = "own",
        /// The replica keeps the rules. Later the current leader is corrupted and becomes one of the other kinds.
        Adaptive = "adaptive",
    }
}

impl Byzantine {
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
}

impl FromStr for Byzantine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("no Byzantine host is named {text:?}; there are {}", known.join(", "))
        })
    }
}
