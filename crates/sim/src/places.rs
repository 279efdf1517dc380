//! Sets of places: replicas first, then clients.

/// A set of places, as bits: replicas first, then clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Places(pub u64);

impl Places {
    /// All places.
    pub const ALL: Self = Self(u64::MAX);

    /// Returns a set of one place.
    #[must_use]
    pub fn one(place: usize) -> Self {
        let bit = u32::try_from(place).ok().and_then(|place| 1u64.checked_shl(place));
        Self(bit.unwrap_or(0))
    }

    /// Returns a set of these places.
    #[must_use]
    pub fn of(places: impl IntoIterator<Item = usize>) -> Self {
        Self(places.into_iter().fold(0, |bits, place| bits | Self::one(place).0))
    }

    /// Returns all other places.
    #[must_use]
    pub const fn others(self) -> Self {
        Self(!self.0)
    }

    /// Whether a place is in the set.
    #[must_use]
    pub fn contains(self, place: usize) -> bool {
        self.0 & Self::one(place).0 != 0
    }
}
