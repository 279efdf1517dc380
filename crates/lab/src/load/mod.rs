//! The load generator: open loop (without coordinated omission) or closed loop, against a running cluster.
//!
//! Latency runs from the due time of a request to the f + 1st equal reply after execution. In the open loop the due time
//! follows from the rate alone, so a slow cluster cannot slow down the requests and seem fast. Every request that was due
//! in the measured time counts, also when its answer comes later. A request without an answer at the end, or one that could
//! never be sent, is an error, never a zero. An answer that is an error of the service is an error too.

mod arrivals;
mod errors;
mod generator;
mod judge;
mod latencies;
mod meter;
pub(crate) mod numbers;
mod options;
mod progress;
mod reading;
mod schedule;
mod sessions;
mod summary;
mod timeline;
mod workload;
mod zipf;

pub use errors::Errors;
pub use generator::Generator;
pub use judge::{Verdict, judge, judge_alone};
pub use latencies::Latency;
pub use options::{DRAIN, LoadError, LoadOptions, Pace, Spacing};
pub use progress::{Next, Progress, Watch};
pub use summary::{ClusterFacts, Counts, LoadSummary, Offer, ReplicaUse, Timing};
pub use timeline::{INTERVALS_MAX, TimelineEntry};
pub use workload::{KeyDistribution, Mix, Workload};
