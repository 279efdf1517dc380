//! The names of the files in the folder of a cluster, besides [`CLUSTER_FILE`](quorate_client::config::CLUSTER_FILE).
//!
//! ```text
//! DIR/cluster.toml               equal at all nodes and clients, no secrets
//! DIR/clients/admin.key          key of the client that registers others
//! DIR/clients/kv.key             key of a client that is registered from the start, named after the service
//! DIR/node0/node.toml            configuration of one node
//! DIR/node0/{replica,link}.key   secrets of that node
//! DIR/node0/data/                log and snapshots
//! ```
//!
//! The folder of a node has no secrets of other nodes, so it can be moved to another machine together with
//! `cluster.toml`.

use quorate_types::ReplicaId;
use std::path::{Path, PathBuf};

/// The path of the key of the client that registers others, inside the folder of a cluster.
pub const ADMIN_KEY: &str = "clients/admin.key";
/// The path of the key that `quorate kv` uses, inside the folder of a cluster of the key-value store.
pub const KV_KEY: &str = "clients/kv.key";
/// The name of the file in a node's folder with its error stream.
pub const LOG_FILE: &str = "node.log";

/// The name of the configuration in a node's folder.
pub const NODE_FILE: &str = "node.toml";

/// Returns the folder of a replica's node.
#[must_use]
pub fn node_folder(dir: &Path, id: ReplicaId) -> PathBuf {
    dir.join(format!("node{id}"))
}

/// Returns the configuration file of a replica's node.
#[must_use]
pub fn node_file(dir: &Path, id: ReplicaId) -> PathBuf {
    node_folder(dir, id).join(NODE_FILE)
}
