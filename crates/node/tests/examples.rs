//! The examples that need a cluster, against one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

#[allow(dead_code, unreachable_pub, reason = "a program of its own")]
#[path = "../../../examples/client.rs"]
mod client;

use quorate_types::ClientAuth;

#[test]
fn a_client_reads_what_it_wrote() {
    let cluster = common::Cluster::start(ClientAuth::Signature);
    assert_eq!(client::run(&cluster.dir()).unwrap(), "hello");
}
