//! Twins: systematic attacks on any protocol (Bano et al., *Twins: BFT Systems Made Robust*, OPODIS 2021).
//!
//! A faulty replica is two correct ones with one key and one id. A [`Scenario`] says for each of the first views who
//! leads it and which nodes, replicas and their twins, reach each other; after that everybody does, and the cluster
//! has to decide together, within the bound that the protocol states. Every protocol of a registry can be put
//! through all scenarios of an [`Enumeration`], because nothing here knows one.
//!
//! ## What a run is
//!
//! The whole world ([`crate::World`]): real hosts, logs, pools and one real client, made lean (frames that travel by
//! themselves, all equally long; disks and work that take no time). The two of a twin have a disk and a life of
//! their own; what is said to or by one of them is not said to or by the other.
//!
//! A view of the scenario is played in two acts. It begins when the first node is in it. For [`ACT_NS`] frames pass
//! between two nodes only if its partition has them in one part. Then what its leader sends in it is lost and all
//! else passes, so that a view which works is left as well, and the next one gets its turn. Which view a frame
//! belongs to its message says; where it names none (or the first, which looks the same), the sender's view counts.
//! When a node has gone beyond the last view of the scenario, or after [`VIEW_NS_MAX`] for each of its views,
//! everything passes.
//!
//! ## What it is judged by
//!
//! All oracles of the world. Twins count as faulty: nobody judges what they say, and the others must agree.

mod enumeration;
mod file;
mod partition;
mod play;
mod scenario;
mod symmetry;
#[cfg(test)]
mod tests;

pub use enumeration::{Enumeration, Leaders};
pub use file::{from_json, to_json};
pub use partition::{NODES_MAX, Partition};
pub use play::{Outcome, RangeResult, ScenarioRun, run_range};
pub use scenario::{BadScenario, Round, Scenario};

/// How long a partition holds.
pub const ACT_NS: u64 = crate::ms(60);
/// How long a view of the scenario may take, where nobody goes on.
pub const VIEW_NS_MAX: u64 = crate::secs(2);
