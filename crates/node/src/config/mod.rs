//! Configuration: `cluster.toml`, equal at every node and client, and `node.toml`, one for each node.
//!
//! * The documentation of each field is beside its reader (`cluster`, `node`); generated files have it as comments.
//! * Every field but `link_delay_ms` is required, and unknown fields are refused. An error is one line with file, line, field, the
//!   expected value, and advice.
//! * `cluster.toml` has the values that must be equal everywhere; `node.toml` has those that may differ.

mod choice;
mod cluster;
mod duration;
mod link_delay;
mod node;
mod params;
mod settings;
#[cfg(test)]
mod tests;
mod writer;

pub use choice::choice;
pub use cluster::{ClusterConfig, client_auth_name, parse_replicas, protocol_names, replicas_or_default};
pub use duration::{parse_minutes, parse_seconds};
pub use link_delay::{LinkDelay, LinkDelays};
pub use node::{DiskLimits, Durability, NodeConfig, NodeKeys};
pub use settings::{Applied, Setting, Settings};
