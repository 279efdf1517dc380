//! Twins: systematic attacks on any protocol (Bano et al., *Twins: BFT Systems Made Robust*, OPODIS 2021).
//!
//! A Byzantine replica consists of two correct ones with one key and one id. For each of the first views, a
//! [`Scenario`] sets the leader, and which nodes (replicas and their twins) reach each other. After these views all
//! nodes reach each other, and the cluster has to decide within the protocol's bound. Nothing here knows a protocol,
//! so an [`Enumeration`] of scenarios tests every registered one.
//!
//! ## What a run is
//!
//! A run uses the whole world ([`crate::World`]): real hosts, logs, pools and one real client. The world is lean:
//! datagrams with equal delays, and disks and work without costs. Both halves of a twin have a disk and a life of
//! their own. A message to or from one half is not one to or from the other.
//!
//! A view of the scenario has two acts. The first act begins when the first node enters the view. For [`ACT_NS`]
//! frames pass only between nodes in one part of the view's partition. In the second act, messages of the view's
//! leader are lost and all others pass. So even a view that works is left, and the next one begins.
//!
//! A message names the view that a frame belongs to. Where it names none (or the first, which looks the same), the
//! sender's view counts. All frames pass once a node has left the last view of the scenario, or after [`VIEW_NS_MAX`]
//! for each of its views.
//!
//! ## What it is judged by
//!
//! All oracles of the world judge the run. Twins count as Byzantine, so their messages are not judged, and the others
//! must agree.

mod enumeration;
mod file;
mod partition;
mod play;
mod scenario;
mod symmetry;
#[cfg(test)]
mod tests;

pub use enumeration::{Enumeration, Leaders, Sample};
pub use file::{from_json, to_json};
pub use partition::{NODES_MAX, Partition};
pub use play::{Outcome, RangeResult, ScenarioRun, run_range};
pub use scenario::{BadScenario, Round, Scenario};

/// Duration of a partition.
pub const ACT_NS: u64 = crate::ms(60);
/// Longest duration of a view of the scenario, if no node leaves it.
pub const VIEW_NS_MAX: u64 = crate::secs(2);
