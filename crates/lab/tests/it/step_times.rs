//! Counters of real replicas under load: times of steps, and CPU time of checks of signatures.

use crate::common::Cluster;
use crate::support::{Ran, command};
use quorate_types::ClientAuth;
use serde_json::Value;

/// Runs a load of one second against the cluster, and returns its JSON and its text.
fn load(cluster: &Cluster, more: &[&str]) -> String {
    let mut load = command(&["load", "--in-flight", "200", "--warmup", "0", "--seconds", "1", "--cluster"]);
    let ran = Ran::of(load.arg(cluster.dir()).args(more).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    ran.out
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {value}"))
}

#[test]
fn load_reports_steps_and_signature_checks_of_each_replica() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let summary: Value = serde_json::from_str(&load(&cluster, &["--json"])).unwrap();
    assert_eq!(summary["leader"], 0, "one leader all the time");
    for used in summary["replicas"].as_array().unwrap() {
        let (clients, replicas) =
            (number(used, "/ledger/client_check_ns"), number(used, "/ledger/replica_check_ns"));
        let cpu_ms = number(used, "/cpu_ms");
        assert!(clients > 0, "bundles are signed: {used}");
        assert!(clients + replicas < cpu_ms * 1_000_000, "a part of the CPU time: {used}");
        let percent = used["signature_check_percent"].as_f64().unwrap();
        assert!(percent > 0.0 && percent < 100.0, "{percent} %");
        let count = |kind: &str| number(used, &format!("/steps/{kind}/count"));
        assert!(count("body") + count("request") > 0 && count("message") > 0 && count("vote") > 0, "{used}");
        assert_eq!((count("propose") > 0, count("view_change")), (used["id"] == 0, 0), "{used}");
        // The report of the status ends in the turn that it does not count.
        assert!(count("turn").abs_diff(number(used, "/ledger/turns")) <= 1, "{used}");
        let time = |kind: &str| number(used, &format!("/steps/{kind}/total_ns"));
        let inner: u64 = ["propose", "vote", "body", "request", "message", "other"].map(time).iter().sum();
        assert!(inner > 0 && inner < time("turn"), "{inner} ns in steps: {used}");
    }
    let text = load(&cluster, &[]);
    let share = "% of the CPU of the leader, replica 0\n";
    assert!(text.contains("\nsignature checks: ") && text.ends_with(share), "{text}");
    let shown = Ran::of(command(&["status", "--ledger", "--cluster"]).arg(cluster.dir()).output().unwrap());
    assert!(shown.out.contains("replica 0 step propose: "), "{}", shown.out);
    cluster.nodes.stop_all();
    let log = std::fs::read_to_string(cluster.dir().join("node0/node.log")).unwrap();
    assert!(log.contains(" step propose: ") && log.contains(" client_check_ns "), "{log}");
}

#[test]
fn bundles_without_signatures_cost_no_check() {
    let cluster = Cluster::start_patient(ClientAuth::None);
    load(&cluster, &[]);
    let statuses = cluster.status();
    let checks = |counter: &'static str| {
        statuses.iter().map(move |status| number(status, &format!("/ledger/{counter}")))
    };
    assert_eq!(checks("client_check_ns").collect::<Vec<_>>(), [0; 4]);
    let signed = ["signatures_single", "signatures_batched"].map(|counter| checks(counter).sum::<u64>());
    let others = checks("replica_check_ns").sum::<u64>();
    assert_eq!(others > 0, signed != [0, 0], "only checks take time: {signed:?}, {others} ns");
    assert!(statuses.iter().all(|status| number(status, "/steps/turn/max_ns") > 0));
}

/// Votes of HotStuff are signed, and its leaders rotate.
#[test]
fn signed_votes_count_as_checks_of_replicas() {
    let cluster = Cluster::start_of("hotstuff", 4, &[]);
    let summary: Value = serde_json::from_str(&load(&cluster, &["--json"])).unwrap();
    assert_eq!(summary["leader"], Value::Null);
    for used in summary["replicas"].as_array().unwrap() {
        assert!(number(used, "/ledger/replica_check_ns") > 0, "{used}");
        assert!(number(used, "/steps/propose/count") > 0 && number(used, "/steps/vote/count") > 0, "{used}");
    }
}
