//! The actor of an event, and the time of one.

use quorate_types::{ReplicaId, Time};
use std::fmt;

/// The actor of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// The world: faults begin and end.
    World,
    /// A replica.
    Replica(ReplicaId),
    /// A client, by its index in the world.
    Client(usize),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::World => "world".to_owned(),
            Self::Replica(id) => format!("r{id}"),
            Self::Client(index) => format!("c{index}"),
        };
        f.pad(&text)
    }
}

impl Who {
    pub(super) fn tag(self) -> [u8; 9] {
        let (kind, number) = match self {
            Self::World => (0, 0),
            Self::Replica(id) => (1, u64::from(id.0)),
            Self::Client(index) => (2, u64::try_from(index).unwrap_or(u64::MAX)),
        };
        let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
        [kind, a, b, c, d, e, f, g, h]
    }
}

/// Formats a time as `12.345678901`.
pub(crate) fn seconds(at: Time) -> String {
    format!("{}.{:09}", at.0 / 1_000_000_000, at.0 % 1_000_000_000)
}
