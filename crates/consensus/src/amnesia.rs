//! The return of a replica that has lost its disk, and with it its promises (ADR 0015).
//!
//! Such a replica signs nothing. It asks all others for all they know. The answers of n - f others prove how far its
//! forgotten promises can reach, and the replica abstains up to there for good. The host has one procedure for all
//! protocols; a protocol states its bounds ([`crate::Protocol::abstain`]).

use quorate_types::{Floors, Height, Kind, View};

/// The promises that a replica without memory may have forgotten, and the signs that they no longer matter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abstention {
    /// The replica makes no statement below these floors, for ever. Kinds that may be sent again count too.
    pub floors: Floors,
    /// The replica makes no statement at all before a checkpoint of this height is stable.
    pub stable: Height,
    /// The replica makes no statement at all before n - f others have shown views above this one, in one round of answers.
    /// Zero asks for no such round.
    pub view: View,
}

impl Abstention {
    /// A replica that never makes a statement again: for protocols that state no bounds.
    pub const FOR_EVER: Self = Self {
        floors: Floors { height: Height::MAX, views: Vec::new() },
        stable: Height::MAX,
        view: View::MAX,
    };

    /// Abstains from these kinds of statements in views up to this one, and from all statements about heights up to this one.
    #[must_use]
    pub fn up_to(kinds: &[Kind], view: View, height: Height) -> Self {
        let views = kinds.iter().map(|kind| (*kind, view.next())).collect();
        let floors = Floors { height: if height > Height::ZERO { height.next() } else { height }, views };
        Self { floors, stable: Height::ZERO, view: View::ZERO }
    }
}
