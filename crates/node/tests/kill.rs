//! Replicas are killed and paused under load; nothing that was acknowledged is lost or doubled, and one order explains
//! what all clients were told, judged by what a fresh client reads and the history. Longer series: set
//! `QUORATE_KILL_RUNS`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::Cluster;
use quorate_node::load::Pace;
use quorate_node::trial::{self, Act, Outcome, Plan};
use quorate_types::{ClientAuth, ReplicaId};
use std::time::Duration;

fn runs() -> u64 {
    std::env::var("QUORATE_KILL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

/// A cluster under load to which something is done that depends on who leads. Also the views before and after.
fn trial(
    seed: u64,
    seconds: u64,
    acts: impl FnOnce(ReplicaId) -> Vec<(Duration, Act)>,
) -> (Outcome, u64, u64) {
    let mut cluster = Cluster::start(ClientAuth::Signature);
    let (view, leader) = trial::leader(&cluster.status(), 1).unwrap();
    let plan = Plan {
        seconds: Duration::from_secs(seconds),
        clients: 8,
        pace: Pace::Closed { in_flight: 256 },
        bundle: None,
        shared: 256,
        request_bytes: 128,
        seed,
        acts: acts(leader),
    };
    let dir = cluster.dir();
    let (outcome, _) = trial::run(&dir, &cluster.testnet, &mut cluster.nodes, &plan, &mut |_, _| {}).unwrap();
    let bytes = common::disk_bytes(&dir);
    assert!(bytes < 4 << 30, "the cluster uses {bytes} bytes of disk");
    let (after, _) = trial::leader(&cluster.status(), 1).unwrap();
    (outcome, view, after)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_backup_dies_under_load_and_comes_back() {
    for run in 0..runs() {
        // Another backup each time, at another moment.
        let after_leader = 1 + u16::try_from(run % 3).unwrap();
        let at = 800 + run * 131 % 900;
        let (outcome, before, after) = trial(run, 4, |leader| {
            let victim = ReplicaId((leader.0 + after_leader) % 4);
            vec![(ms(at), Act::Kill(victim)), (ms(at + 1_200), Act::Start(victim))]
        });
        let what = format!("run {run}, a backup killed at {at} ms: {}", outcome.complaint());
        assert!(outcome.is_good(), "{what}");
        assert_eq!(before, after, "nobody need suspect the leader; {what}");
    }
}

#[test]
fn all_replicas_die_at_once_and_start_cold() {
    for run in 0..runs() {
        let at = 1_000 + run * 173 % 900;
        let (outcome, ..) = trial(100 + run, 4, |_| vec![(ms(at), Act::PowerCut)]);
        assert!(outcome.is_good(), "run {run}, all killed at {at} ms: {}", outcome.complaint());
    }
}

#[test]
fn the_leader_dies_under_load_and_another_takes_over() {
    for run in 0..runs() {
        // It comes back before or after the others have gone on without it.
        let (at, down) = (800 + run * 157 % 900, 200 + run * 389 % 2_600);
        let (outcome, before, after) = trial(200 + run, 6, |leader| {
            vec![(ms(at), Act::Kill(leader)), (ms(at + down), Act::Start(leader))]
        });
        let gap = outcome.summary.longest_gap_ms;
        let what = format!(
            "run {run}, the leader of view {before} killed at {at} ms and away for {down} ms, {gap:.0} ms without an \
             answer, then view {after}: {}",
            outcome.complaint()
        );
        println!("{what}");
        assert!(outcome.is_good(), "{what}");
        assert!(after > before || down < 1_000, "a leader that is away this long is replaced; {what}");
    }
}

#[test]
fn the_leader_stands_still_under_load_and_goes_on() {
    for run in 0..runs() {
        let at = 800 + run * 157 % 900;
        let (outcome, before, after) = trial(300 + run, 9, |leader| {
            vec![(ms(at), Act::Pause(leader)), (ms(at + 5_000), Act::Resume(leader))]
        });
        let gap = outcome.summary.longest_gap_ms;
        let what = format!(
            "run {run}, the leader of view {before} paused at {at} ms, {gap:.0} ms without an answer, then view \
             {after}: {}",
            outcome.complaint()
        );
        println!("{what}");
        assert!(outcome.is_good(), "{what}");
        assert!(after > before && gap < 5_000.0, "others go on meanwhile; {what}");
    }
}
