//! The kinds of Byzantine hosts.

use std::fmt;
use std::str::FromStr;

/// How a replica breaks the rules.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Byzantine {
    /// Two replicas with one key and one id. Both hear everything; each speaks to a part of the others, or to all.
    Twin,
    /// Hears everything and says nothing, or nothing of some kinds of messages.
    Mute,
    /// Speaks to some and to nobody else.
    Favourites,
    /// Loses power and comes back with an older image of its disk: it has forgotten what it promised.
    Rollback,
    /// Says again what it said long ago.
    Replay,
    /// Says something else than its protocol does: well formed, a little different, and well signed.
    Mutate,
    /// Says everything just before others lose their patience.
    Delay,
    /// Tells those who lag what was never decided, and sends bodies that nobody asked for.
    CatchUp,
    /// Tells clients what is not so.
    Clients,
    /// Says everything many times, and frames that are larger than any may be.
    Flood,
    /// Attacks that the protocol's own folder knows.
    Own,
    /// Keeps the rules; when somebody leads, that one is corrupted and does one of the other things.
    Adaptive,
}

impl Byzantine {
    /// All of them: documentation, command line and random runs draw from this list.
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

    /// What somebody may become who was honest until then.
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

    /// Whether it changes what its replica says.
    pub(crate) const fn forges(self) -> bool {
        match self {
            Self::Twin | Self::Mute | Self::Favourites | Self::Rollback | Self::Adaptive => false,
            Self::Replay | Self::Mutate | Self::Delay => true,
            Self::CatchUp | Self::Clients | Self::Flood | Self::Own => true,
        }
    }

    /// As the command line and printed facts call it.
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
