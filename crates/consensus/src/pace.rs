//! What an observer can hold protocols to that leave views by certificate only.

/// The notes by which an observer sees why views are left: a quorum has voted in one, or has given it up.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The note of a replica that votes in its view.
    pub voted: &'static str,
    /// The note of a replica that gives its view up.
    pub gave_up: &'static str,
    /// Giving a view up leads on by so many views at most.
    pub term: u64,
}
