//! Configuration: `cluster.toml`, equal at every node and client, and `node.toml`, one for each node.
//!
//! * Every field is documented where it is read (`cluster`, `node`); the comments of generated files are
//!   the same words.
//! * Every field must be there, unknown ones are refused, and every error is one line that names file, line and
//!   field, what was expected, and what to do.
//! * `cluster.toml` decides; `node.toml` holds only what may differ between nodes.

mod choice;
mod cluster;
mod duration;
mod node;
mod params;
mod settings;
#[cfg(test)]
mod tests;
mod writer;

pub use choice::choice;
pub use cluster::{
    ClusterConfig, client_auth_name, client_auth_names, parse_replicas, protocol_names, replicas_or_default,
};
pub use duration::{parse_minutes, parse_seconds};
pub use node::{DiskLimits, Durability, NodeConfig, NodeKeys, Placement};
pub use settings::{Applied, Setting, Settings};
