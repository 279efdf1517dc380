//! The bound that an observer can hold protocols to that leave views by certificate only.

/// The notes by which an observer sees why views are left: a quorum has voted in the view, or has timed out in it.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Note of a replica that votes in its view.
    pub voted: &'static str,
    /// Note of a replica that times out in its view.
    pub gave_up: &'static str,
    /// Largest number of views that a timeout skips.
    pub term: u64,
}
