//! Present state of a protocol, as others see it.

use crate::message::Place;
use quorate_types::{Height, ReplicaId, View};
use std::ops::Range;

/// Views and heights whose messages are worth verifying. The host refuses others before any cryptography. A message that
/// carries a certificate may lie above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// Views.
    pub views: Range<View>,
    /// Heights; 0 (statements about a view) is always inside.
    pub heights: Range<Height>,
}

impl Window {
    /// Returns whether a message at this place is worth verifying.
    #[must_use]
    pub fn admits(&self, place: &Place) -> bool {
        let view = place.view >= self.views.start && (place.certified || place.view < self.views.end);
        let height =
            place.height >= self.heights.start && (place.certified || place.height < self.heights.end);
        view && (height || place.height == Height::ZERO)
    }
}

/// Present state of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Current view.
    pub view: View,
    /// Leader of that view.
    pub leader: ReplicaId,
    /// Whether the view is in normal operation.
    pub normal: bool,
    /// Highest height that the replica is locked on or has prepared; 0 for none.
    pub locked: Height,
    /// Highest height that the replica has committed itself.
    pub committed: Height,
    /// Reason for the last view change, in a few constant words; empty before the first.
    pub last_view_change: &'static str,
    /// Number of views left since the replica was opened.
    pub view_changes: u64,
    /// Request timeout before the leader is suspected; 0 means never. It holds for a leader that no replica suspects yet.
    /// The host limits the waiting requests to those that it can execute in half of this time.
    pub patience_ns: u64,
}
