//! The caller's view of a run while it lasts.

use std::time::Duration;

/// A caller that watches a run.
pub trait Watch {
    /// Called about ten times in a second.
    fn look(&mut self, progress: &Progress) -> Next;
}

/// The decision of a watcher on how a run continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// As planned.
    Go,
    /// The run ends as if its time were over: requests in flight are waited for.
    End,
    /// The run stops without a result.
    Stop,
}

/// A run without a watcher.
impl Watch for () {
    fn look(&mut self, _: &Progress) -> Next {
        Next::Go
    }
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Since the first request.
    pub elapsed: Duration,
    /// The whole run, warm-up included.
    pub planned: Duration,
    /// Requests sent.
    pub sent: u64,
    /// Requests with a good answer.
    pub acknowledged: u64,
    /// Since the last good answer, or since the first request.
    pub silent: Duration,
    /// Longest time without a good answer that has ended since the last look.
    pub gap: Duration,
}
