//! Facts that survive a crash.

use quorate_types::{Digest, Height, Wire};

/// A fact that must survive a crash.
pub trait Record: Wire + Sized {
    /// Returns the identity of the fact: a later record with the same key replaces this one. The host drops a record with
    /// a height when a checkpoint at or above that height is stable.
    fn key(&self) -> RecordKey;
}

/// Identity of the fact that a record states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordKey {
    /// Kind of record, as the protocol numbers them.
    pub kind: u8,
    /// Height of the fact; 0 for one that no checkpoint makes obsolete.
    pub height: Height,
    /// Branch or block of the fact; zero where the height identifies it.
    pub scope: Digest,
}
