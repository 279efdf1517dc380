//! Replicas are killed and paused under load. No acknowledged request is lost or doubled, and one order explains all answers:
//! the history and the reads of a fresh client show it. `QUORATE_KILL_RUNS` sets the length of the series. Another test
//! pauses an idle replica.

use crate::common::{self, Cluster};
use crate::synchronous;
use quorate_lab::trial::{self, Act, TrialOutcome, TrialPlan};
use quorate_types::{ClientAuth, ReplicaId};
use std::time::{Duration, Instant};

fn runs() -> u64 {
    std::env::var("QUORATE_KILL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1)
}

/// Runs a trial with acts that depend on the leader. Returns the outcome, and the views before and after.
fn trial(
    mut cluster: Cluster,
    seed: u64,
    seconds: u64,
    acts: impl FnOnce(ReplicaId) -> Vec<(Duration, Act)>,
) -> (TrialOutcome, u64, u64) {
    let (view, leader) = trial::leader(&cluster.status(), 1).unwrap();
    let plan = TrialPlan { acts: acts(leader), ..common::plan(seconds, seed) };
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
fn killed_backup_recovers_under_load() {
    for run in 0..runs() {
        // Each run kills another backup at another time.
        let after_leader = 1 + u16::try_from(run % 3).unwrap();
        let at = 800 + run * 131 % 900;
        let cluster = Cluster::start_patient(ClientAuth::Signature);
        let (outcome, before, after) = trial(cluster, run, 4, |leader| {
            let victim = ReplicaId((leader.0 + after_leader) % 4);
            vec![(ms(at), Act::Kill(victim)), (ms(at + 1_200), Act::Start(victim))]
        });
        let run_text = format!("run {run}, a backup killed at {at} ms: {}", outcome.describe());
        assert!(outcome.is_good(), "{run_text}");
        assert_eq!(before, after, "no replica suspects the leader; {run_text}");
    }
}

#[test]
fn all_replicas_recover_after_a_kill_at_once() {
    for run in 0..runs() {
        let at = 1_000 + run * 173 % 900;
        let cluster = Cluster::start(ClientAuth::Signature);
        let (outcome, ..) = trial(cluster, 100 + run, 4, |_| vec![(ms(at), Act::KillAll)]);
        assert!(outcome.is_good(), "run {run}, all killed at {at} ms: {}", outcome.describe());
    }
}

#[test]
fn killed_leader_is_replaced_under_load() {
    for run in 0..runs() {
        // The leader recovers before or after its replacement; in the first run after it.
        let (at, down) = (800 + run * 157 % 900, 200 + (1_800 + run * 389) % 2_600);
        let cluster = Cluster::start(ClientAuth::Signature);
        let (outcome, before, after) = trial(cluster, 200 + run, 6, |leader| {
            vec![(ms(at), Act::Kill(leader)), (ms(at + down), Act::Start(leader))]
        });
        let gap = outcome.summary.timing.longest_gap_ms;
        let run_text = format!(
            "run {run}, the leader of view {before} killed at {at} ms and away for {down} ms, {gap:.0} ms without an \
             answer, then view {after}: {}",
            outcome.describe()
        );
        println!("{run_text}");
        assert!(outcome.is_good(), "{run_text}");
        assert!(after > before || down < 1_000, "a leader that is down this long is replaced; {run_text}");
    }
}

#[test]
fn paused_leader_is_replaced_under_load_and_recovers() {
    for run in 0..runs() {
        let at = 800 + run * 157 % 900;
        let cluster = Cluster::start(ClientAuth::Signature);
        let (outcome, before, after) = trial(cluster, 300 + run, 9, |leader| {
            vec![(ms(at), Act::Pause(leader)), (ms(at + 5_000), Act::Resume(leader))]
        });
        let gap = outcome.summary.timing.longest_gap_ms;
        let run_text = format!(
            "run {run}, the leader of view {before} paused at {at} ms, {gap:.0} ms without an answer, then view \
             {after}: {}",
            outcome.describe()
        );
        println!("{run_text}");
        assert!(outcome.is_good(), "{run_text}");
        assert!(after > before && gap < 5_000.0, "the others continue meanwhile; {run_text}");
    }
}

/// The machine does not report how long a replica was paused. The replica must measure it itself, also when it is idle.
#[test]
fn idle_replica_measures_how_long_it_was_paused() {
    let mut cluster = Cluster::start(ClientAuth::Signature);
    let (info, id) = (cluster.info(), ReplicaId(3));
    let deadline = Instant::now() + Duration::from_secs(90);
    let read = |id: ReplicaId, field: &str| loop {
        assert!(Instant::now() < deadline, "replica {id} does not report the expected {field}");
        let statuses = trial::statuses(&info, ms(200)).unwrap();
        if let Some(number) = statuses.get(id.index()).and_then(|status| status.get(field)?.as_u64()) {
            return number;
        }
    };
    let before = read(id, "longest_pause_ms");
    // The pause begins while the replica sleeps; it has just answered the request for its status.
    let stat = format!("/proc/{}/stat", cluster.nodes.pid(id).unwrap());
    while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {}
    cluster.nodes.pause(id).unwrap();
    let began = read(ReplicaId(0), "uptime_ms");
    while read(ReplicaId(0), "uptime_ms") < began + before + 3_000 {}
    cluster.nodes.resume(id).unwrap();
    // An idle replica sleeps for a second at most.
    while read(id, "longest_pause_ms") < before + 1_900 {}
}

#[test]
fn killed_leader_of_a_synchronous_protocol_is_replaced_and_recovers() {
    synchronous::killed_leader_is_replaced_and_recovers();
}

#[test]
fn synchronous_replica_paused_beyond_the_bound_doubts_when_it_resumes() {
    synchronous::replica_paused_beyond_the_bound_doubts_when_it_resumes();
}
