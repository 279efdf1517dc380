//! The report of `status --ready` on whether a cluster is available.

use crate::common::Cluster;
use quorate_client::config::CLUSTER_FILE;
use quorate_node::layout::node_folder;
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

fn ready(dir: &Path) -> Output {
    let mut status = Command::new(env!("CARGO_BIN_EXE_quorate"));
    status.args(["status", "--ready", "--cluster"]).arg(dir).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `status` until its first line begins with `expected`, or the time is over.
fn verdict(dir: &Path, expected: &str) -> Output {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let output = ready(dir);
        if text(&output).starts_with(expected) || Instant::now() > deadline {
            return output;
        }
    }
}

fn uptimes(statuses: &[Value]) -> Vec<u64> {
    statuses.iter().map(|status| status["uptime_ms"].as_u64().unwrap()).collect()
}

#[test]
fn cluster_without_pending_requests_is_ready() {
    let mut cluster = Cluster::start(ClientAuth::Signature);
    // The leader is paused while a request goes to all replicas. When it resumes, the others have executed the request.
    cluster.nodes.pause(ReplicaId(0)).unwrap();
    let mut kv = Command::new(env!("CARGO_BIN_EXE_quorate"));
    let put = kv.args(["kv", "--cluster"]).arg(cluster.dir()).args(["put", "a", "b"]).output().unwrap();
    assert!(put.status.success(), "{put:?}");
    cluster.nodes.resume(ReplicaId(0)).unwrap();
    let began = uptimes(&cluster.status());
    loop {
        let statuses = cluster.status();
        for status in &statuses {
            assert_eq!(
                (&status["progress"], &status["pool"]["bundles"]),
                (&true.into(), &0.into()),
                "{status:#}"
            );
        }
        // The time is longer than a replica needs to report a standstill.
        if uptimes(&statuses).iter().zip(&began).all(|(now, began)| *now > began + 6_000) {
            break;
        }
    }
    let output = ready(&cluster.dir());
    assert!(output.status.success() && text(&output).starts_with("AVAILABLE: 4 of 4"), "{output:?}");
}

#[test]
fn unconnected_replicas_are_not_ready_and_log_the_dialled_addresses() {
    let mut cluster = Cluster::start(ClientAuth::Signature);
    let dir = cluster.dir();
    assert!(verdict(&dir, "AVAILABLE: 4 of 4").status.success());
    cluster.nodes.stop_all();
    // Nothing listens on these ports below 1024.
    let file = dir.join(CLUSTER_FILE);
    let mut table: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
    for (port, replica) in (1..).zip(table["replicas"].as_array_mut().unwrap()) {
        replica["peers"] = format!("127.0.0.1:{port}").into();
    }
    fs::write(&file, table.to_string()).unwrap();
    cluster.nodes.start_all().unwrap();
    let ids = cluster.nodes.ids();
    cluster.nodes.wait_ready(&ids, Duration::from_secs(60)).unwrap();
    let output = verdict(&dir, "NOT AVAILABLE");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line =
        "NOT AVAILABLE: 0 of 4 replicas, 3 needed (replica 0: connected to 0 others that serve, 2 needed";
    assert!(text(&output).starts_with(line), "{output:?}");
    let log = || -> String {
        let log = |id: u16| node_folder(&dir, ReplicaId(id)).join("node.log");
        (0..4).map(|id| fs::read_to_string(log(id)).unwrap_or_default()).collect()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !log().contains("connecting to 127.0.0.1:") && Instant::now() < deadline {
        verdict(&dir, "NOT AVAILABLE");
    }
    assert!(log().contains("no link to replica "), "{}", log());
    assert!(log().contains("connecting to 127.0.0.1:"), "{}", log());
}
