//! Replicas are killed and paused under load; nothing that was acknowledged is lost or doubled, and one order explains
//! what all clients were told, judged by what a fresh client reads and the history. Longer series: set
//! `QUORATE_KILL_RUNS`. And one that is paused without load notices it.

use crate::common::{self, Cluster};
use quorate_lab::trial::{self, Act, Outcome, Plan};
use quorate_types::{ClientAuth, ReplicaId};
use std::time::{Duration, Instant};

fn runs() -> u64 {
    std::env::var("QUORATE_KILL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

/// A cluster under load to which something is done that depends on who leads. Also the views before and after.
fn trial(
    mut cluster: Cluster,
    seed: u64,
    seconds: u64,
    acts: impl FnOnce(ReplicaId) -> Vec<(Duration, Act)>,
) -> (Outcome, u64, u64) {
    let (view, leader) = trial::leader(&cluster.status(), 1).unwrap();
    let plan = Plan { acts: acts(leader), ..common::plan(seconds, seed) };
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
        let cluster = Cluster::start_patient(ClientAuth::Signature);
        let (outcome, before, after) = trial(cluster, run, 4, |leader| {
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
        let cluster = Cluster::start(ClientAuth::Signature);
        let (outcome, ..) = trial(cluster, 100 + run, 4, |_| vec![(ms(at), Act::KillAll)]);
        assert!(outcome.is_good(), "run {run}, all killed at {at} ms: {}", outcome.complaint());
    }
}

#[test]
fn the_leader_dies_under_load_and_another_takes_over() {
    for run in 0..runs() {
        // It comes back before or after the others have gone on without it: in the first run after.
        let (at, down) = (800 + run * 157 % 900, 200 + (1_800 + run * 389) % 2_600);
        let cluster = Cluster::start(ClientAuth::Signature);
        let (outcome, before, after) = trial(cluster, 200 + run, 6, |leader| {
            vec![(ms(at), Act::Kill(leader)), (ms(at + down), Act::Start(leader))]
        });
        let gap = outcome.summary.timing.longest_gap_ms;
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
        let cluster = Cluster::start(ClientAuth::Signature);
        let (outcome, before, after) = trial(cluster, 300 + run, 9, |leader| {
            vec![(ms(at), Act::Pause(leader)), (ms(at + 5_000), Act::Resume(leader))]
        });
        let gap = outcome.summary.timing.longest_gap_ms;
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

/// Nobody may learn from the machine how long a replica was away: it must know itself, also when it had nothing to do.
#[test]
fn an_idle_replica_knows_how_long_it_stood_still() {
    let mut cluster = Cluster::start(ClientAuth::Signature);
    let (info, id) = (cluster.info(), ReplicaId(3));
    let deadline = Instant::now() + Duration::from_secs(90);
    let ask = |id: ReplicaId, what: &str| loop {
        assert!(Instant::now() < deadline, "replica {id} does not say the {what} that is waited for");
        let statuses = trial::statuses(&info, ms(200)).unwrap();
        if let Some(number) = statuses.get(id.index()).and_then(|status| status.get(what)?.as_u64()) {
            return number;
        }
    };
    let before = ask(id, "longest_pause_ms");
    // Only once it sleeps: it has just had our question to answer.
    let stat = format!("/proc/{}/stat", cluster.nodes.pid(id).unwrap());
    while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {}
    cluster.nodes.pause(id).unwrap();
    let began = ask(ReplicaId(0), "uptime_ms");
    while ask(ReplicaId(0), "uptime_ms") < began + before + 3_000 {}
    cluster.nodes.resume(id).unwrap();
    // It had meant to sleep for a second at most.
    while ask(id, "longest_pause_ms") < before + 1_900 {}
}
