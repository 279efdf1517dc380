//! The progress of a run, and the caller's decision on it.

use std::time::Duration;

/// A caller that watches a run. The run calls it about ten times in a second.
pub type Watch<'a> = dyn FnMut(&Progress) -> Next + 'a;

/// The decision of a watcher on how a run continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// The run continues as planned.
    Go,
    /// The run ends as if its time were over: it still waits for requests in flight.
    End,
    /// The run stops without a result.
    Stop,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Time since the first request.
    pub elapsed: Duration,
    /// The whole run, warm-up included.
    pub planned: Duration,
    /// Requests sent.
    pub sent: u64,
    /// Requests with a good answer.
    pub acknowledged: u64,
    /// Time since the last good answer, or since the first request.
    pub silent: Duration,
    /// Longest time without a good answer that has ended since the last report.
    pub gap: Duration,
}
