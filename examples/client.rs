//! A client of the service in `application.rs`: it takes a lock, reads its state, and releases it.
//!
//! ```text
//! cargo run --release -p quorate-node --example application -- up --dir /tmp/locks      # in one terminal
//! cargo run --release -p quorate-client --example client -- /tmp/locks                  # in another
//! ```
//!
//! A client needs this crate, `cluster.toml` and its key. It does not know the protocol or the program that serves.

use quorate_client::{Client, ClusterInfo, Options, keys};
use std::error::Error;
use std::path::Path;

/// Each call returns when f + 1 replicas report the same result. The key is one that the cluster knows from the start.
pub fn run(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let cluster = ClusterInfo::read(folder)?;
    let key = keys::read_private(&folder.join("clients/locks.key"))?;
    let mut client = Client::connect(cluster, key, Options::default())?;
    let mut answers = Vec::new();
    for operation in ["acquire printer", "look printer", "release printer"] {
        answers.push(String::from_utf8(client.call(operation.as_bytes())?)?);
    }
    Ok(answers)
}

#[allow(clippy::disallowed_methods, reason = "a program reads its arguments")]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("expected the folder of a cluster of locks that runs")?;
    println!("{}", run(Path::new(&folder))?.join("\n"));
    Ok(())
}
