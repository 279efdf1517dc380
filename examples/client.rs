//! A client of a key-value store cluster: it writes a key and reads it again.
//!
//! ```text
//! cargo run --release -- up --dir /tmp/cluster                                  # in one terminal
//! cargo run --release -p quorate --example client -- /tmp/cluster               # in another
//! ```

use quorate_app::{KvOp, KvResult};
use quorate_client::{Client, Options};
use quorate_node::{config::ClusterConfig, keys, testnet};
use quorate_types::Wire;
use std::error::Error;
use std::path::Path;

/// Writes and reads a key. Each call returns when f + 1 replicas agree on its result. The client's key is registered from the start.
pub fn run(folder: &Path) -> Result<String, Box<dyn Error>> {
    let cluster = ClusterConfig::load(&folder.join(testnet::CLUSTER_FILE))?;
    let key = keys::read_private(&folder.join(testnet::KV_KEY))?;
    let mut client = Client::connect(cluster.client_info(), key, Options::default())?;
    client.call(&KvOp::Put { key: b"greeting", value: b"hello" }.to_bytes())?;
    let result = client.call(&KvOp::Get { key: b"greeting" }.to_bytes())?;
    match KvResult::from_bytes(&result)? {
        KvResult::Value(value) => Ok(String::from_utf8(value)?),
        other => Err(format!("{other:?}").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder =
        std::env::args_os().nth(1).ok_or("no folder given: expected the folder of a running cluster")?;
    println!("greeting = {}", run(Path::new(&folder))?);
    Ok(())
}
