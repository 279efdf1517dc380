//! The options of a run, and the reasons why there is no result.

use super::workload::Mix;
use quorate_client::core::Audience;
use quorate_client::driver::ClientError;
use std::time::Duration;

/// Time in which a cluster has to connect, register keys, open sessions, and answer the reads of keys at the end.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// Time in which the requests in flight at the end may still be answered, by default.
pub const DRAIN: Duration = Duration::from_secs(30);
/// Time in which replicas have to report their status at the end.
pub(super) const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// The gaps between the due times of an open loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spacing {
    /// Equal gaps.
    Constant,
    /// Gaps of a Poisson process: each is drawn from the exponential distribution, independently of the others. The seed of
    /// the run decides them.
    Poisson,
}

impl Spacing {
    /// All kinds of gaps.
    pub const ALL: [Self; 2] = [Self::Constant, Self::Poisson];

    /// Returns the name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
        }
    }
}

/// The way in which load is offered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// A fixed number of requests in flight: each answer makes room for the next request.
    Closed {
        /// Requests without an answer.
        in_flight: usize,
    },
    /// A fixed mean number of requests in a second, independent of the answers.
    Open {
        /// Requests in a second.
        rate: f64,
        /// The gaps between their due times.
        spacing: Spacing,
    },
}

impl Pace {
    /// Returns an open loop with equal gaps: `rate` requests in a second.
    #[must_use]
    pub const fn constant(rate: f64) -> Self {
        Self::Open { rate, spacing: Spacing::Constant }
    }
}

/// The load to offer.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Clients, which take turns. Each has a key and a session of its own.
    pub clients: usize,
    /// Seed of keys, operations and due times.
    pub seed: u64,
    /// Requests in a bundle; `None`: all pending requests at the time of sending.
    pub bundle: Option<u32>,
    /// The way in which load is offered.
    pub pace: Pace,
    /// The mixture of requests.
    pub mix: Mix,
    /// Time before the measured time.
    pub warmup: Duration,
    /// The measured time.
    pub seconds: Duration,
    /// Time after the end in which due requests may still be sent and answered.
    pub drain: Duration,
    /// Length of the intervals of the measured time that the result reports; `None`: it reports none.
    pub timeline: Option<Duration>,
    /// Requests to build and sign before the run. The run ends when they are used up.
    pub presign: usize,
    /// Whether every operation is recorded and judged.
    pub history: bool,
    /// The replicas that are sent a bundle first.
    pub audience: Audience,
}

impl LoadOptions {
    /// Returns the options of a load on a cluster that nothing else uses: without warm-up, and recorded if it can be judged.
    #[must_use]
    pub fn alone(mix: Mix, pace: Pace, clients: usize, seed: u64, seconds: Duration) -> Self {
        Self {
            clients,
            seed,
            bundle: None,
            pace,
            history: matches!(mix, Mix::Judged { .. }),
            mix,
            warmup: Duration::ZERO,
            seconds,
            drain: DRAIN,
            timeline: None,
            presign: 0,
            audience: Audience::Leader,
        }
    }
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The client's driver failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The watcher has stopped the run.
    #[error("stopped")]
    Stopped,
    /// The cluster did not connect, register, open or answer in time, or refused requests.
    #[error("{0}")]
    Stuck(String),
}
