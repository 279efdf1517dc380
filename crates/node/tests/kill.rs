//! Replicas are killed under load; nothing that was acknowledged is lost or doubled, judged by what a fresh
//! client reads and the history. Longer series: set `QUORATE_KILL_RUNS`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::Cluster;
use quorate_node::trial::{self, Act, Outcome, Plan};
use quorate_types::{ClientAuth, ReplicaId};
use std::time::Duration;

fn runs() -> u64 {
    std::env::var("QUORATE_KILL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

fn trial(seed: u64, acts: Vec<(Duration, Act)>) -> Outcome {
    let mut cluster = Cluster::start(ClientAuth::Signature);
    let plan = Plan {
        seconds: Duration::from_secs(4),
        clients: 8,
        in_flight: 256,
        bundle: None,
        request_bytes: 128,
        seed,
        acts,
    };
    let dir = cluster.dir();
    let (outcome, _) = trial::run(&dir, &cluster.testnet, &mut cluster.nodes, &plan, &mut |_, _| {}).unwrap();
    let bytes = common::disk_bytes(&dir);
    assert!(bytes < 4 << 30, "the cluster uses {bytes} bytes of disk");
    outcome
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_backup_dies_under_load_and_comes_back() {
    for run in 0..runs() {
        // Another backup each time, at another moment.
        let victim = ReplicaId(1 + u16::try_from(run % 3).unwrap());
        let at = 800 + run * 131 % 900;
        let outcome = trial(run, vec![(ms(at), Act::Kill(victim)), (ms(at + 1_200), Act::Start(victim))]);
        assert!(outcome.is_good(), "run {run}, replica {victim} killed at {at} ms: {}", outcome.complaint());
    }
}

#[test]
fn all_replicas_die_at_once_and_start_cold() {
    for run in 0..runs() {
        let at = 1_000 + run * 173 % 900;
        let outcome = trial(100 + run, vec![(ms(at), Act::PowerCut)]);
        assert!(outcome.is_good(), "run {run}, all killed at {at} ms: {}", outcome.complaint());
    }
}
