//! Emulated delays between real processes: clients, the synchrony guard and the status see them.

use crate::common::Cluster;
use crate::support::{self, Ran, command, quorate};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const DELAY_MS: u64 = 20;
const DELAY: &str = "20ms";
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command of the program with the folder of a cluster.
fn run(cluster: &Cluster, name: &str, args: &[&str]) -> Ran {
    Ran::of(command(&[name, "--cluster"]).arg(cluster.dir()).args(args).output().unwrap())
}

/// Returns the status of all replicas as soon as it is as expected.
fn status(cluster: &Cluster, is_expected: impl Fn(&Value) -> bool) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let statuses = cluster.status();
        if statuses.iter().all(&is_expected) {
            return statuses;
        }
        assert!(Instant::now() < deadline, "{statuses:#?}");
    }
}

/// A request of PBFT takes three messages one after the other: pre-prepare, prepare, commit.
#[test]
fn request_takes_the_delays_of_its_messages() {
    let cluster = Cluster::start_delayed("pbft", 4, &["treq_ms=5000"], DELAY);
    let is_connected = |status: &Value| {
        let peers = status["peers"].as_array().unwrap();
        peers.iter().all(|peer| peer["connected"] == true)
    };
    for status in status(&cluster, is_connected) {
        for peer in status["peers"].as_array().unwrap() {
            assert_eq!(peer["delay_ms"], json!(20.0), "{peer}");
        }
    }
    let start = Instant::now();
    let put = run(&cluster, "kv", &["put", "key", "value"]);
    assert_eq!((put.code, put.out.as_str()), (Some(0), "ok\n"), "{}", put.err);
    assert!(start.elapsed() >= Duration::from_millis(3 * DELAY_MS), "{:?}", start.elapsed());
    let shown = run(&cluster, "status", &[]);
    for id in 0..4 {
        let line = format!("replica {id}: its links emulate one-way delays of 20 ms to its peers\n");
        assert!(shown.out.contains(&line), "{}", shown.out);
    }
}

/// A bound below the round trip is no bound: the guard reports it, as in a network that is slow.
#[test]
fn synchrony_guard_measures_the_emulated_delays() {
    let cluster = Cluster::start_delayed("sync-hotstuff", 3, &["delta_ms=30"], DELAY);
    status(&cluster, |status| {
        let guard = &status["guard"];
        guard["doubt"] == true && guard["p999_ms"].as_f64().is_some_and(|ms| ms >= 2.0 * DELAY_MS as f64)
    });
}

#[test]
fn cluster_is_made_with_delays_and_keeps_them() {
    let made = support::Cluster::new(&["--link-delay", "regions"]);
    assert!(made.text("node1/node.toml").contains("\nlink_delay_ms = [38, 0, 57, 121]\n"));
    let folder = made.path("");
    let up = quorate(&["up", "--dir", folder.to_str().unwrap(), "--link-delay", "20ms"]);
    up.refuses("up", &["--link-delay 20ms is for new clusters"]);
    let other = folder.with_extension("other");
    let wrong = quorate(&["testnet", "--out", other.to_str().unwrap(), "--link-delay", "100"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.err.contains("so write 100ms"), "{}", wrong.err);
}
