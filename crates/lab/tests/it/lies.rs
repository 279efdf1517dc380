//! One replica of four lies to the others on a real network. The cluster continues, and all answers are right.

#[allow(dead_code, unreachable_pub, reason = "a program of its own")]
#[path = "../../../../examples/liar.rs"]
mod liar;

use crate::common::{self, Cluster};
use crate::synchronous;
use liar::Lies;
use quorate_lab::trial::{self, TrialOutcome};
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Sets the flag at the end of the scope, also after a panic, so that the liar ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Offers load to three replicas and a liar. Also returns the status of each replica at the end.
fn trial(mut cluster: Cluster, seed: u64, id: ReplicaId) -> (TrialOutcome, Lies, Vec<Value>) {
    cluster.nodes.kill(id).unwrap();
    let plan = common::plan(4, seed);
    let (dir, stop) = (cluster.dir(), AtomicBool::new(false));
    thread::scope(|scope| {
        let liar = scope.spawn(|| liar::lie(&dir, id, &stop).unwrap());
        let end = SetAtEnd(&stop);
        let ran = trial::run(&dir, &cluster.testnet, &mut cluster.nodes, &plan, &mut |_, _| {});
        let statuses = trial::statuses(&cluster.info(), Duration::from_secs(10)).unwrap();
        drop(end);
        (ran.unwrap().0, liar.join().unwrap(), statuses)
    })
}

#[test]
fn lying_backup_changes_no_answer() {
    let (outcome, lies, statuses) = trial(Cluster::start_patient(ClientAuth::Signature), 501, ReplicaId(3));
    assert!(outcome.is_good(), "{}\n{lies:?}", outcome.describe());
    assert!(lies.votes > 100 && outcome.summary.counts.acknowledged > 1_000, "{lies:?}");
    for status in statuses.iter().take(3) {
        assert_eq!(status["view"], 0, "suspicion of one replica changes no view: {status}");
    }
}

#[test]
fn lying_leader_is_replaced() {
    let (outcome, lies, statuses) = trial(Cluster::start(ClientAuth::Signature), 502, ReplicaId(0));
    assert!(outcome.is_good(), "{}\n{lies:?}", outcome.describe());
    assert!(lies.proposals > 0 && outcome.summary.counts.acknowledged > 1_000, "{lies:?}");
    for status in statuses.iter().skip(1) {
        assert!(status["view"].as_u64().unwrap() % 4 != 0, "{status}");
    }
}

#[test]
fn silent_leader_of_a_synchronous_protocol_is_replaced() {
    synchronous::silent_leader_is_replaced();
}
