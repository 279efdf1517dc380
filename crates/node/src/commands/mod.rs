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
use crate::testnet::CLUSTER_FILE;
use quorate_client::cluster::ClusterInfo;
use quorate_consensus::Entry;
use quorate_sim::smallest;
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// The file of a cluster that the command line names by its file or by its folder.
///
/// # Errors
/// Never: whether there is such a file is found out when it is read.
pub fn cluster_file(text: &str) -> Result<PathBuf, Infallible> {
    let path = PathBuf::from(text);
    Ok(if path.is_dir() { path.join(CLUSTER_FILE) } else { path })
}

/// Refuses options that would do nothing.
fn refuse(options: &[(&str, bool)], why: &str) -> Result<(), Failure> {
    match options.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::usage(format!("{name} would do nothing: {why}"))),
        None => Ok(()),
    }
}

/// A test of what faults do needs a cluster that tolerates one.
fn tolerates_one(entry: &Entry, n: usize) -> Result<(), Failure> {
    if (entry.spec.faults)(n) > 0 {
        return Ok(());
    }
    let (name, least) = (entry.spec.name, smallest(entry, 1));
    Err(Failure::usage(format!("--n {n}: {name} tolerates no fault with so few; expected at least {least}")))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_named_by_its_file_or_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        for named in [folder.path(), file.as_path()] {
            assert_eq!(cluster_file(named.to_str().unwrap()), Ok(file.clone()));
        }
    }
}
