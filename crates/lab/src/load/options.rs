//! The options of a run, and the reasons why there is no result.

use super::workload::Mix;
use quorate_client::core::Audience;
use quorate_client::driver::ClientError;
use std::time::Duration;

/// Time in which a cluster has to connect, to register keys, to open sessions, and to answer the requests in flight at the
/// end.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Time in which replicas have to report their status at the end.
pub(super) const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// The way in which load is offered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// A fixed number of requests in flight: the next is sent when one has its answer.
    Closed {
        /// Requests without an answer.
        in_flight: usize,
    },
    /// A fixed number of requests in a second, whatever the answers do.
    Open {
        /// Requests in a second.
        rate: f64,
    },
}

/// The load to offer.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Clients, each with a key and a session of its own; they take turns.
    pub clients: usize,
    /// Seed of keys and operations.
    pub seed: u64,
    /// Requests in a bundle; `None`: all that wait when a bundle can be sent.
    pub bundle: Option<u32>,
    /// The way in which load is offered.
    pub pace: Pace,
    /// The mixture of requests.
    pub mix: Mix,
    /// Time before figures count.
    pub warmup: Duration,
    /// Time that figures count.
    pub seconds: Duration,
    /// Requests to build and sign before the run; the run ends when they are used up.
    pub presign: usize,
    /// Whether every operation is recorded and judged.
    pub history: bool,
    /// The replicas that are sent a bundle first.
    pub audience: Audience,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The client's driver failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The watcher has stopped the run.
    #[error("stopped")]
    Stopped,
    /// The cluster did not do its part in time.
    #[error("{0}")]
    Stuck(String),
}
