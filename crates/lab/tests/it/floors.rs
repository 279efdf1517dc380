//! Floors of the hot path: counted costs, which do not depend on the speed of the machine.

use crate::common::{Cluster, reads_leader_first};
use quorate_client::core::LinkState;
use quorate_client::driver::{ClientPool, PoolEvent};
use quorate_client::keys;
use quorate_lab::load::{
    DRAIN, Generator, KeyDistribution, LoadOptions, LoadSummary, Mix, Next, Pace, ReplicaUse,
};
use quorate_node::layout::ADMIN_KEY;
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

fn load(cluster: &Cluster, bundle: Option<u32>, in_flight: usize, seconds: u64) -> LoadSummary {
    let pool = ClientPool::new(cluster.info()).unwrap();
    let admin = keys::read_private(&cluster.dir().join(ADMIN_KEY)).unwrap();
    let options = LoadOptions {
        clients: 1,
        seed: u64::try_from(in_flight).unwrap(),
        bundle,
        pace: Pace::Closed { in_flight },
        mix: Mix::Kv {
            prefix: "load/".to_owned(),
            keys: 1_000,
            distribution: KeyDistribution::Uniform,
            request_bytes: 128,
            reads_per_mille: 0,
        },
        warmup: Duration::from_secs(1),
        seconds: Duration::from_secs(seconds),
        drain: DRAIN,
        timeline: None,
        presign: 0,
        history: false,
        audience: quorate_client::Audience::Leader,
    };
    let summary = Generator::connect(pool, admin, options).unwrap().run(&mut |_| Next::Go).unwrap();
    assert_eq!(summary.counts.errors, 0);
    assert_eq!(summary.replicas.len(), 4, "every replica reports its use");
    summary
}

/// Returns the sum of the counters for each unit, in thousandths.
fn per(used: &ReplicaUse, counters: &[&str], unit: &str) -> u64 {
    let sum: u64 = counters.iter().map(|name| used.ledger[*name]).sum();
    let units = used.ledger[unit];
    assert!(units > 0, "no {unit}");
    sum * 1_000 / units
}

#[test]
fn single_requests_and_idle_replicas_stay_within_the_floors() {
    let cluster = Cluster::start(ClientAuth::Signature);
    let summary = load(&cluster, None, 1, 2);
    for used in &summary.replicas {
        let id = used.id;
        let (syncs, blocks) = (used.ledger["syncs"], used.ledger["blocks"]);
        // The measured time may begin between the syncs of a block and its execution, which counts the block.
        assert!(syncs <= 2 * (blocks + 1), "replica {id}: {syncs} syncs for {blocks} blocks at depth 1");
        // All system calls of the loop for work: polls, sockets, the log.
        let calls = per(used, &["wakeups", "reads", "writes", "log_writes", "syncs"], "requests");
        assert!(calls <= 30_000, "replica {id}: {calls}/1000 system calls per request");
        let switches = used.voluntary_context_switches * 1_000 / used.ledger["requests"];
        assert!(switches <= 12_000, "replica {id}: {switches}/1000 context switches per request");
    }
    for status in cluster.status() {
        assert_eq!(status["usage"]["threads"], 1, "one thread");
        assert!(status["ledger"]["turn_syncs_max"].as_u64().unwrap() <= 1, "one sync per turn");
        assert_eq!(status["contradictions"], 0);
        assert!(reads_leader_first(&status), "{status:#}");
    }
    expect_few_wake_ups(&cluster);
}

/// Checks that idle replicas rarely wake up. The end of the load may still wake them at first, on a busy machine for a while.
fn expect_few_wake_ups(cluster: &Cluster) {
    let mut pool = ClientPool::new(cluster.info()).unwrap();
    // Over existing connections a request for the status wakes a replica exactly once.
    let mut before = read_statuses(&mut pool);
    let mut rates = Vec::new();
    for _ in 0..IDLE_PERIODS {
        let until = pool.now().plus(IDLE_NS);
        while pool.now() < until {
            pool.poll(Duration::from_nanos(until.since(pool.now())), &mut Vec::new()).unwrap();
        }
        let after = read_statuses(&mut pool);
        rates = before.iter().zip(&after).map(|(before, after)| wake_up_rate(before, after)).collect();
        if rates.iter().all(|rate| *rate <= 5_000) {
            return;
        }
        before = after;
    }
    panic!("{rates:?}/1000 wake-ups per second");
}

/// Returns the wake-ups per second between two reports of a replica, in thousandths.
fn wake_up_rate(before: &Value, after: &Value) -> u64 {
    let number = |status: &Value, path: &str| status.pointer(path).unwrap().as_u64().unwrap();
    let wakeups = number(after, "/ledger/wakeups") - number(before, "/ledger/wakeups");
    let ms = number(after, "/uptime_ms") - number(before, "/uptime_ms");
    assert!(ms >= IDLE_NS / 1_000_000 - 1, "only {ms} ms");
    // Only the later request for the status lies between both counts.
    (wakeups - 1) * 1_000_000 / ms
}

#[test]
fn costs_under_load_stay_within_the_floors() {
    let cluster = Cluster::start(ClientAuth::Signature);
    let summary = load(&cluster, Some(100), 15_000, 2);
    for used in &summary.replicas {
        let id = used.id;
        let allocations = used.ledger["allocations"] - used.ledger["allocations_application"];
        let allocations = allocations * 1_000 / used.ledger["requests"];
        println!("replica {id}: {allocations}/1000 allocations per request");
        assert!(allocations <= 100, "replica {id}: {allocations}/1000 allocations per request");
        let writes = per(used, &["writes"], "blocks");
        assert!(writes <= 12_000, "replica {id}: {writes}/1000 writes per block");
        let hashed = per(used, &["body_bytes_hashed"], "body_bytes_new");
        assert!(hashed <= 1_050, "replica {id}: bodies hashed {hashed}/1000 times");
        let copied = per(used, &["body_bytes_copied"], "body_bytes_new");
        assert!(copied <= 2_000, "replica {id}: bodies copied {copied}/1000 times");
    }
    for status in cluster.status() {
        assert!(status["ledger"]["turn_syncs_max"].as_u64().unwrap() <= 1, "one sync per turn");
        let resident = status["usage"]["resident_bytes_max"].as_u64().unwrap();
        assert!(resident < 100 << 20, "{resident} bytes resident");
    }
}

/// Time without requests.
const IDLE_NS: u64 = 4_000_000_000;
/// Number of such times, one after the other, of which one must be quiet.
const IDLE_PERIODS: usize = 4;

/// Returns the status of every replica, by id, over the connections of the pool.
fn read_statuses(pool: &mut ClientPool) -> Vec<Value> {
    let ids = || (0..4).map(ReplicaId);
    let deadline = pool.now().plus(30_000_000_000);
    let mut events = Vec::new();
    while !ids().all(|id| pool.link(id) == Some(LinkState::Up)) {
        assert!(pool.now() < deadline, "{}", pool.trouble());
        pool.poll(Duration::from_millis(20), &mut events).unwrap();
    }
    assert!(ids().all(|id| pool.ask_status(id)));
    let mut answers = BTreeMap::new();
    while answers.len() < 4 {
        assert!(pool.now() < deadline, "{}", pool.trouble());
        pool.poll(Duration::from_millis(20), &mut events).unwrap();
        for event in events.drain(..) {
            if let PoolEvent::Status(id, json) = event {
                answers.insert(id, serde_json::from_str(&json).unwrap());
            }
        }
    }
    answers.into_values().collect()
}
