//! Folders and keys of another replica, and folders that are not empty: one line and exit code 2.

use crate::support::{Cluster, quorate};
use quorate_node::config::ClusterConfig;
use quorate_storage::folder;
use quorate_types::ReplicaId;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

#[test]
fn existing_files_are_not_overwritten() {
    let cluster = Cluster::new(&[]);
    let out = cluster.path("");
    let before = cluster.text("cluster.toml");
    quorate(&["testnet", "--out", out.to_str().unwrap()])
        .refuses("again", &["is not empty", "choose another folder"]);
    assert_eq!(cluster.text("cluster.toml"), before);
    let file = cluster.path("cluster.toml");
    assert_eq!(quorate(&["testnet", "--out", file.to_str().unwrap()]).code, Some(2), "a file is no folder");
}

#[test]
fn failed_testnet_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new");
    let ran = quorate(&["testnet", "--out", out.to_str().unwrap(), "--n", "0"]);
    ran.refuses("no replicas", &["replicas"]);
    assert!(!out.exists());
    fs::create_dir(&out).unwrap();
    quorate(&["testnet", "--out", out.to_str().unwrap(), "--n", "257"]).refuses("too many", &["replicas"]);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}

#[test]
fn addresses_and_ports_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new");
    let out = out.to_str().unwrap();
    quorate(&["testnet", "--out", out, "--addresses", "10.0.0.1,10.0.0.2"])
        .refuses("two", &["--addresses lists 2"]);
    quorate(&["testnet", "--out", out, "--base-port", "65530"]).refuses("ports", &["--base-port"]);
    for wrong in [
        ["--n", "x"],
        ["--protocol", "raft"],
        ["--addresses", "host"],
        ["--client-auth", "mac"],
        ["--fly", "x"],
    ] {
        let ran = quorate(&[&["testnet", "--out", out], wrong.as_slice()].concat());
        assert_eq!(ran.code, Some(2), "{wrong:?}: {}", ran.err);
    }
    let ran = quorate(&[
        "testnet",
        "--out",
        out,
        "--addresses",
        "10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4",
        "--base-port",
        "7000",
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let text = fs::read_to_string(folder.path().join("new/node2/node.toml")).unwrap();
    assert!(
        text.contains("listen_peers = \"10.0.0.3:7004\"")
            && text.contains("listen_clients = \"10.0.0.3:7005\"")
    );
}

#[test]
fn secret_files_are_readable_by_their_owner_only() {
    let cluster = Cluster::new(&[]);
    let keys = ["node0/replica.key", "node0/link.key", "clients/admin.key", "clients/kv.key"];
    let mut seen = Vec::new();
    for key in keys {
        assert_eq!(fs::metadata(cluster.path(key)).unwrap().mode() & 0o777, 0o600, "{key}");
        seen.push(cluster.text(key));
    }
    // Only the key's own file has it: no other node's file, and no shared file.
    for id in 0..4 {
        for name in ["replica.key", "link.key"] {
            let key = cluster.text(&format!("node{id}/{name}"));
            let secret = key.lines().nth(1).unwrap();
            for other in (0..4).filter(|other| *other != id) {
                for file in ["node.toml", "replica.key", "link.key"] {
                    assert!(!cluster.text(&format!("node{other}/{file}")).contains(secret));
                }
            }
            assert!(!cluster.text("cluster.toml").contains(secret));
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), keys.len());
}

#[test]
fn key_readable_by_others_is_refused() {
    let cluster = Cluster::new(&[]);
    for (key, field) in [("node0/replica.key", "replica_key"), ("node0/link.key", "link_key")] {
        for mode in [0o640, 0o604] {
            fs::set_permissions(cluster.path(key), Permissions::from_mode(mode)).unwrap();
            cluster.start().refuses(key, &["node.toml:", &format!(": {field}: "), "chmod 600", key]);
        }
        fs::set_permissions(cluster.path(key), Permissions::from_mode(0o600)).unwrap();
    }
    let key = cluster.path("clients/kv.key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let file = cluster.path("cluster.toml");
    quorate(&["kv", "--cluster", file.to_str().unwrap(), "get", "k"])
        .refuses("kv.key", &["kv.key", "chmod 600"]);
}

#[test]
fn keys_that_differ_from_the_listed_ones_are_refused() {
    let cluster = Cluster::new(&[]);
    for (from, to, field) in [
        ("\"replica.key\"", "\"../node1/replica.key\"", "replica_key"),
        ("\"replica.key\"", "\"link.key\"", "replica_key"),
        ("\"link.key\"", "\"replica.key\"", "link_key"),
        ("\"link.key\"", "\"../clients/kv.key\"", "link_key"),
    ] {
        let ran = cluster.with_change("node0/node.toml", from, to, || cluster.start());
        ran.refuses(
            to,
            &["node.toml:", &format!(": {field}: "), "cluster.toml lists", "use that replica's own key file"],
        );
    }
    let ran = cluster.with_change("node0/node.toml", "\"link.key\"", "\"none.key\"", || cluster.start());
    ran.refuses("missing", &[": link_key: ", "none.key: No such file"]);
    let ran = cluster.with_change("node0/node.toml", "\"link.key\"", "\"node.toml\"", || cluster.start());
    assert_eq!(ran.code, Some(2), "{}", ran.err);
}

#[test]
fn data_folder_of_another_replica_is_refused() {
    let cluster = Cluster::new(&[]);
    let other = Cluster::new(&[]);
    let empty = tempfile::tempdir().unwrap();
    let foreign = other.path("node0/data");
    for (folder, problem) in [
        (empty.path().to_str().unwrap(), "is not a formatted data folder"),
        ("none", "is not a formatted data folder"),
        ("../node1/data", "belongs to replica 1"),
        (foreign.to_str().unwrap(), "belongs to cluster"),
    ] {
        let ran =
            cluster.with_change("node0/node.toml", "\"data\"", &format!("\"{folder}\""), || cluster.start());
        ran.refuses(folder, &["node.toml:", ": data_dir: ", problem]);
    }
}

#[test]
fn data_folder_in_use_is_refused_and_unchanged() {
    let cluster = Cluster::new(&[]);
    let config = ClusterConfig::load(&cluster.path("cluster.toml")).unwrap();
    let held = folder::open(&cluster.path("node0/data"), &config.identity(ReplicaId(0))).unwrap();
    cluster.start().refuses("in use", &["node.toml:", ": data_dir: ", "in use by another process"]);
    drop(held);
    // A process that another test starts at the same time keeps copies of all open files until it runs its program.
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = folder::open(&cluster.path("node0/data"), &config.identity(ReplicaId(0))) {
        assert!(error.to_string().contains("in use") && Instant::now() < deadline, "{error}");
    }
}

#[test]
fn taken_address_is_named() {
    let cluster = Cluster::new(&[]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (field, listed) in [("listen_peers", "127.0.0.1:4000"), ("listen_clients", "127.0.0.1:4001")] {
        // Another process may take the other address at this time; then the next attempt uses another address.
        let attempts = (0..10).map(|_| {
            let free = format!("127.0.0.1:{}", quorate_node::ports::free(1).unwrap()[0]);
            let text = cluster.text("node0/node.toml").replace(listed, &address);
            let text = text.replace("127.0.0.1:4000", &free).replace("127.0.0.1:4001", &free);
            (free, cluster.with_text("node0/node.toml", &text, || cluster.start()))
        });
        let ran = attempts.filter(|(free, ran)| !ran.err.contains(free.as_str())).map(|(_, ran)| ran).next();
        ran.unwrap().refuses(field, &["node.toml:", &format!(": {field}: cannot listen on {address}")]);
    }
}

#[test]
fn usage_errors_have_exit_code_two() {
    for args in [
        vec!["fly"],
        vec!["node"],
        vec!["node", "--config"],
        vec!["kv"],
        vec!["kv", "get"],
        vec!["up"],
        vec![],
    ] {
        assert_eq!(quorate(&args).code, Some(2), "{args:?}");
    }
    assert_eq!(quorate(&["--help"]).code, Some(0));
    assert_eq!(quorate(&["--version"]).code, Some(0));
}
