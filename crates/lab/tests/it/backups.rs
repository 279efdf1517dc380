//! Backups: a checkpoint of a node becomes a folder, and a new cluster begins with its state.

use crate::common::Cluster;
use crate::inspect::files;
use crate::support::quorate;
use quorate_client::cluster::ClusterInfo;
use quorate_client::driver;
use quorate_node::config::{ClusterConfig, NodeConfig};
use quorate_node::layout::{node_file, node_folder};
use quorate_node::ports::free_addresses;
use quorate_node::processes::Processes;
use quorate_types::ReplicaId;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const ONE: ReplicaId = ReplicaId(1);
/// Checkpoints every four blocks.
const SHORT: [&str; 2] = ["checkpoint_every=4", "window=8"];

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn put(cluster: &Path, key: &str, value: &str) {
    let ran = quorate(&["kv", "--cluster", text(cluster), "put", key, value]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
}

fn value(cluster: &Path, key: &str) -> String {
    let ran = quorate(&["kv", "--cluster", text(cluster), "get", key]);
    assert_eq!(ran.code, Some(0), "{key}: {}", ran.err);
    ran.out.trim().to_owned()
}

fn statuses(info: &ClusterInfo) -> Vec<Value> {
    let answers = driver::status(info.clone(), Duration::from_secs(10)).unwrap();
    let parsed =
        |answer: Result<String, String>| answer.ok().and_then(|text| serde_json::from_str(&text).ok());
    answers.into_iter().map(|answer| parsed(answer).unwrap_or(Value::Null)).collect()
}

/// Waits until each status fulfils a condition.
fn wait_for(info: &ClusterInfo, condition: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let statuses = statuses(info);
        if statuses.iter().all(&condition) {
            return;
        }
        assert!(Instant::now() < deadline, "{statuses:#?}");
    }
}

/// Starts the nodes of a cluster that a command has made, at free addresses.
fn start(dir: &Path) -> (Processes, ClusterInfo) {
    let file = dir.join("cluster.toml");
    let mut cluster = ClusterConfig::load(&file).unwrap();
    cluster.replicas = free_addresses(cluster.n()).unwrap();
    fs::write(&file, cluster.to_toml()).unwrap();
    for id in cluster.ids() {
        let mut node = NodeConfig::load(&node_file(dir, id)).unwrap();
        let addresses = cluster.replicas[id.index()];
        (node.listen_peers, node.listen_clients) = (addresses.peers, addresses.clients);
        fs::write(node_file(dir, id), node.to_toml()).unwrap();
    }
    let mut nodes = Processes::new(env!("CARGO_BIN_EXE_quorate").into(), dir, cluster.ids(), false);
    nodes.start_all().unwrap();
    nodes.wait_ready(&nodes.ids(), PATIENCE).unwrap();
    (nodes, cluster.client_info())
}

#[test]
fn new_cluster_begins_with_the_state_of_a_backup() {
    let mut old = Cluster::start_of("pbft", 4, &SHORT);
    let dir = old.dir();
    for number in 0..9 {
        put(&dir, &format!("key{number}"), &format!("value{number}"));
    }
    wait_for(&old.info(), |status| status["stable"].as_u64() >= Some(8));
    old.nodes.stop_all();
    let node = node_folder(&dir, ONE);
    let before = files(&node);
    let backup = dir.join("backup");
    let ran = quorate(&["backup", text(&node), "--out", text(&backup)]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("signed by  3 of 4 replicas; verified"), "{}", ran.out);
    assert!(files(&node) == before, "a backup changes nothing");

    // The state of another node at that height is the same.
    let other = node_folder(&dir, ReplicaId(2));
    let ran = quorate(&["inspect", text(&other), "--diff", text(&backup)]);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
    assert!(ran.out.ends_with("equal\n"), "{}", ran.out);

    let ran = quorate(&["restore", text(&backup)]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let new = dir.join("new");
    let ran = quorate(
        &[
            &["restore", text(&backup), "--out", text(&new), "--protocol", "jolteon", "--set"],
            &SHORT[..1],
            &["--set"],
            &SHORT[1..],
        ]
        .concat(),
    );
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let (mut nodes, info) = start(&new);
    for number in 0..7 {
        assert_eq!(value(&new, &format!("key{number}")), format!("value{number}"));
    }
    put(&new, "key1", "changed");

    // A replica that loses its folder before the first checkpoint has no peer that sends the first state. It waits.
    nodes.wipe(ONE).unwrap();
    nodes.start(ONE).unwrap();
    nodes.wait_ready(&[ONE], PATIENCE).unwrap();
    wait_for(&info, |status| status["state"] == "current" && status["amnesia"].is_null());
    assert_eq!(value(&new, "key1"), "changed");
    nodes.stop_all();
    let [one, two] = [ONE, ReplicaId(2)].map(|id| node_folder(&new, id));
    let ran = quorate(&["inspect", text(&one), "--diff", text(&two)]);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
}

#[test]
fn backup_that_does_not_hold_is_refused() {
    let mut old = Cluster::start_of("hotstuff", 4, &SHORT);
    let dir = old.dir();
    let node = node_folder(&dir, ONE);
    let backup = dir.join("backup");
    for number in 0..3 {
        put(&dir, &format!("key{number}"), "value");
    }
    let unready = quorate(&["backup", text(&node), "--out", text(&backup)]);
    unready.fails("no snapshot yet", &["no checkpoint that a quorum has signed", "stop the node"]);
    wait_for(&old.info(), |status| status["stable"].as_u64() >= Some(4));
    old.nodes.stop_all();
    let ran = quorate(&["backup", text(&node), "--out", text(&backup)]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let id = old.testnet.cluster.cluster_id().to_string();
    let restore = |more: &[&str]| quorate(&[&["restore", text(&backup)], more].concat());
    assert_eq!(restore(&["--from-cluster", &id]).code, Some(0));
    restore(&["--from-cluster", &"0".repeat(64)])
        .refuses("another cluster", &["it is a backup of cluster", &id]);
    quorate(&["backup", text(&node), "--out", text(&backup)]).refuses("a used folder", &["is not empty"]);

    for (file, mark, reason) in [
        ("chunks", "value", "is damaged"),
        // A signature is the last part of the proof, which precedes the header with the name of the service.
        ("manifest", "kv 1", "a signature of its checkpoint is wrong"),
    ] {
        let path = backup.join(file);
        let whole = fs::read(&path).unwrap();
        let at = whole.windows(mark.len()).rposition(|bytes| bytes == mark.as_bytes()).unwrap();
        let at = if file == "manifest" { at - 20 } else { at };
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        restore(&[]).fails(file, &[reason]);
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_ne!(restore(&[]).code, Some(0), "{file} without its end");
        fs::write(&path, whole).unwrap();
    }
    assert_eq!(restore(&[]).code, Some(0));
    fs::remove_file(backup.join("manifest")).unwrap();
    restore(&[]).refuses("no manifest", &["its backup was interrupted"]);
}
