//! The reports of `quorate load`: errors are no answers, limits are named, keys can be read.

use crate::common::{self, Cluster};
use crate::support::{self, Ran, quorate};
use quorate_lab::load::{DRAIN, LoadSummary, Pace};
use quorate_lab::trial::{self, Act, TrialPlan};
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn load(config: &Path, more: &[&str]) -> Ran {
    quorate(&[&["load", "--cluster", config.to_str().unwrap()], more].concat())
}

/// No replica runs, so a load that starts would wait for half a minute.
#[test]
fn impossible_load_is_refused_before_it_starts() {
    let cluster = support::Cluster::new(&["--n", "4", "--set", "clients_max=4"]);
    let config = cluster.path("cluster.toml");
    let file = cluster.path("none/history");
    for (line, words) in [
        (&["--in-flight", "0"][..], &["--in-flight 0", "1 to 1000000"][..]),
        (&["--bundle", "100", "--in-flight", "10"], &["--bundle 100", "--in-flight 100"]),
        (&["--send-to", "9"], &["--send-to 9", "0 to 3"]),
        (&["--keys", "0"], &["--keys 0", "1 to 1000000000"]),
        (&["--rate", "1e9"], &["--rate 1000000000", "0.001 to 10000000"]),
        (&["--reply-bytes", "4000000000"], &["--reply-bytes 4000000000", "0 to 1048576"]),
        (&["--bundle", "60000", "--in-flight", "60000"], &["--bundle 60000", "_max = "]),
        (&["--history", file.to_str().unwrap()], &["none/history", "No such file"]),
    ] {
        load(&config, line).refuses(&line.join(" "), words);
    }
    let ran = load(&config, &["--clients", "8"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("clients_max = 4") && ran.err.lines().count() == 1, "{}", ran.err);
}

#[test]
fn error_answers_are_counted_and_keys_can_be_read() {
    let cluster = Cluster::start(ClientAuth::Signature);
    let config = cluster.dir().join("cluster.toml");
    // One reply has no room for the results of such a bundle.
    let large = ["--reply-bytes", "200000", "--bundle", "6", "--in-flight", "12"];
    let ran = load(&config, &large);
    ran.refuses("six of 200,000 bytes", &["1200000", "reply_bytes_max = 1048576"]);
    let natural = ["--reply-bytes", "200000", "--in-flight", "64", "--warmup", "0", "--seconds", "1"];
    let ran = load(&config, &[&natural[..], &["--json"]].concat());
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    let number = |pointer: &str| said.pointer(pointer).and_then(Value::as_u64).unwrap();
    assert!(number("/errors_by_kind/NoRoom") > 0, "{said}");
    assert_eq!(number("/sent"), number("/acknowledged") + number("/errors"), "{said}");
    assert!(number("/latency_ns/samples") <= number("/acknowledged"), "{said}");
    let kind = format!("{} NoRoom", number("/errors_by_kind/NoRoom"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains(&kind) && ran.err.contains("reply_bytes_max = 1048576"), "{}", ran.err);

    // Values without room in one reply are read at the end nevertheless, and judged.
    let file = cluster.dir().join("history.jsonl");
    let history = ["--in-flight", "1", "--request-bytes", "200000", "--warmup", "0", "--seconds", "0.5"];
    let ran = load(&config, &[&history[..], &["--history", file.to_str().unwrap()]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains(" samples, rank rounded up; 0 of them beyond 600 s"), "{}", ran.out);
    assert_eq!(quorate(&["judge", file.to_str().unwrap()]).code, Some(0));
    assert!(fs::read_to_string(&file).unwrap().contains("\"key\":\"load/"));

    let few = ["--keys", "12", "--prefix", "a/", "--in-flight", "32", "--warmup", "0", "--seconds", "0.3"];
    let ran = load(&config, &few);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let ran = quorate(&["kv", "--cluster", config.to_str().unwrap(), "scan", "--prefix", "a/"]);
    let keys: Vec<&str> = ran.out.lines().map(|line| line.split('\t').next().unwrap()).collect();
    let expected: Vec<String> = (0..12).map(|key| format!("a/k{key:02}")).collect();
    assert_eq!(keys, expected);
}

/// Runs a load of 100 requests a second for 2 s. Two of four replicas are paused from the middle of the measured time to
/// beyond its end.
fn stalled(cluster: &mut Cluster, drain: Duration) -> LoadSummary {
    let ms = Duration::from_millis;
    let two = [ReplicaId(2), ReplicaId(3)];
    let acts = two.iter().flat_map(|id| [(ms(700), Act::Pause(*id)), (ms(2_500), Act::Resume(*id))]);
    let mut plan = TrialPlan { acts: acts.collect(), ..common::plan(2, 5) };
    (plan.load.pace, plan.load.drain) = (Pace::constant(100.0), drain);
    let dir = cluster.dir();
    let (outcome, _) = trial::run(&dir, &cluster.testnet, &mut cluster.nodes, &plan, &mut |_, _| {}).unwrap();
    outcome.summary
}

#[test]
fn load_with_a_stall_at_the_end_is_not_carried() {
    let mut cluster = Cluster::start(ClientAuth::Signature);
    let summary = stalled(&mut cluster, DRAIN);
    assert_eq!(summary.counts.errors, 0, "the answers come within the time of the drain: {summary}");
    assert!(!summary.is_carried(), "{summary}");
    assert_eq!((summary.counts.due, summary.timing.seconds.to_bits()), (200, 2.0f64.to_bits()), "{summary}");
    assert!(summary.timing.goodput > 20.0 && summary.timing.goodput < 60.0, "{summary}");
    assert!(summary.timing.longest_gap_ms > 1_500.0, "{summary}");
    assert!(summary.to_string().contains("NOT CARRIED") && summary.saturated, "{summary}");
    let impatient = stalled(&mut cluster, Duration::from_millis(1));
    let unanswered = impatient.counts.errors_by_kind.of("NoAnswer");
    assert!(unanswered > 100 && unanswered == impatient.counts.errors, "{impatient}");
}

#[test]
fn figures_of_a_run_are_in_the_json() {
    let cluster = Cluster::start(ClientAuth::Signature);
    let config = cluster.dir().join("cluster.toml");
    let line = [
        "--rate",
        "200",
        "--arrivals",
        "poisson",
        "--key-distribution",
        "zipf",
        "--seconds",
        "1",
        "--warmup",
        "0",
        "--drain",
        "20s",
        "--timeline",
        "100ms",
        "--json",
    ];
    let ran = load(&config, &line);
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    // A busy machine may not carry even this load.
    assert_eq!(said["saturated"], ran.code == Some(1), "{}", ran.err);
    assert_eq!(said["errors"], 0, "{said}");
    assert_eq!((&said["arrivals"], &said["key_distribution"]), (&"poisson".into(), &"zipf".into()));
    assert_eq!((&said["zipf_exponent"], &said["drain_seconds"]), (&0.99.into(), &20.0.into()));
    assert_eq!(said["in_flight"], 0);
    let goodput = |name: &str| said[name].as_f64().unwrap();
    assert!(goodput("goodput_first_reply") >= goodput("goodput") && goodput("goodput") > 0.0, "{said}");
    let timeline = said["timeline"].as_array().unwrap();
    assert_eq!(timeline.len(), 10);
    let answered: u64 = timeline.iter().map(|entry| entry["answered"].as_u64().unwrap()).sum();
    assert_eq!(said["answered"], answered);
    for histogram in timeline.iter().map(|entry| &entry["histogram"]).chain([&said["latency_histogram"]]) {
        assert!(histogram.as_str().unwrap().starts_with("HISTE"), "{histogram}");
    }
}
