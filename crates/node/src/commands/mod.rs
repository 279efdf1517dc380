//! The commands, one file each.

mod crew;
mod delta;
pub mod demo;
pub mod exam;
mod folder;
pub mod judge;
pub mod kv;
mod ledger;
pub mod load;
pub mod machine;
pub mod node;
mod seeds;
pub mod sim;
pub mod stage;
pub mod status;
pub mod testnet;
pub mod torture;
pub mod twins;
pub mod up;

use crate::config::ClusterConfig;
use crate::exit::Failure;
use quorate_client::cluster::ClusterInfo;
use std::path::Path;

/// Reads the cluster's file.
///
/// # Errors
/// What is wrong with it, on one line.
pub fn open_cluster(file: &Path) -> Result<ClusterConfig, Failure> {
    Ok(ClusterConfig::load(file)?)
}

/// The cluster as clients see it.
///
/// # Errors
/// When the file lists another number of addresses than replicas.
pub fn cluster_info(config: &ClusterConfig) -> Result<ClusterInfo, Failure> {
    let info = config.client_info();
    (info.n() == config.genesis.members.len())
        .then_some(info)
        .ok_or_else(|| Failure::usage("cluster.toml lists another number of addresses than replicas"))
}
