//! The peers that replicas read first, in the status of real processes.

use crate::common::{Cluster, reads_leader_first};
use quorate_consensus::{Entry, Model};
use quorate_protocols::REGISTRY;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(100);

/// After a request the leaders of rotating protocols have changed, and those of other protocols lead the first view.
#[test]
fn status_shows_the_leader_as_urgent_under_every_protocol() {
    let changes_leader = |entry: &&Entry| entry.spec.replaces_leader || entry.spec.rotates_leaders;
    for entry in REGISTRY.iter().filter(changes_leader) {
        let settings: &[&str] = if entry.spec.model == Model::Synchrony { &["delta_ms=200"] } else { &[] };
        let cluster = Cluster::start_of(entry.spec.name.as_str(), 4, settings);
        let mut kv = Command::new(env!("CARGO_BIN_EXE_quorate"));
        let put = kv.args(["kv", "--cluster"]).arg(cluster.dir()).args(["put", "a", "b"]).output().unwrap();
        assert!(put.status.success(), "{}: {put:?}", entry.spec.name);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let statuses = cluster.status();
            let has_rotated = |view: Option<u64>| view > Some(entry.spec.first_view.0);
            if statuses.iter().all(|status| {
                reads_leader_first(status)
                    && (!entry.spec.rotates_leaders || has_rotated(status["view"].as_u64()))
            }) {
                break;
            }
            assert!(Instant::now() < deadline, "{}: {statuses:#?}", entry.spec.name);
            thread::park_timeout(POLL_EVERY);
        }
    }
}
