//! Histories of real clusters and of simulated ones, judged by the program; and a short torture.

use crate::common::Cluster;
use crate::support::{self, Ran, quorate};
use quorate_lab::history_file::{self, HistoryOutput};
use quorate_lab::load::{LoadOptions, Mix, Next, Pace, Progress};
use quorate_lab::trial::Load;
use quorate_types::ClientAuth;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn judge(file: &Path) -> Ran {
    quorate(&["judge", file.to_str().unwrap()])
}

fn parse(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Checks that the judge refuses a history in which a read of a shared key returned a value without a write, and names the
/// key.
fn expect_refusal_of_a_wrong_read(file: &Path, text: &str) {
    let is_read = |line: &Value| line["kind"] == "get" && line["result"].is_string();
    let (at, read) = parse(text).into_iter().enumerate().find(|(_, line)| is_read(line)).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let seen = format!("\"result\":{}", read["result"]);
    lines[at] = lines[at].replace(&seen, "\"result\":\"nobody wrote this\"");
    fs::write(file, lines.join("\n")).unwrap();
    let ran = judge(file);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (Some(1), "error: the history is not linearizable\n"),
        "{}",
        ran.out
    );
    let key = read["key"].as_str().unwrap();
    assert!(ran.out.contains(&format!("{key}: ")) && ran.out.contains("nobody wrote this"), "{}", ran.out);
    assert!(ran.out.ends_with("keys not linearizable 1, keys too hard to judge 0\n"), "{}", ran.out);
}

#[test]
fn judge_reads_the_history_of_a_load() {
    let cluster = Cluster::start(ClientAuth::Signature);
    let (config, file) = (cluster.dir().join("cluster.toml"), cluster.dir().join("history.jsonl"));
    let args =
        ["--clients", "6", "--in-flight", "128", "--seconds", "2", "--warmup", "0", "--json", "--history"];
    let load =
        [&["load", "--cluster", config.to_str().unwrap()], &args[..], &[file.to_str().unwrap()]].concat();
    let ran = quorate(&load);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let summary: Value = serde_json::from_str(&ran.out).unwrap();

    let text = fs::read_to_string(&file).unwrap();
    let lines = parse(&text);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &lines {
        *kinds.entry(line["kind"].as_str().unwrap()).or_default() += 1;
    }
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), ["cas", "del", "get", "incr", "put"], "{kinds:?}");
    let keys: BTreeSet<&str> = lines.iter().map(|line| line["key"].as_str().unwrap()).collect();
    let acknowledged = usize::try_from(summary["acknowledged"].as_u64().unwrap()).unwrap();
    assert_eq!(lines.len(), acknowledged + keys.len(), "each answer, and each key read at the end");
    let swapped = lines.iter().filter(|line| line["kind"] == "cas" && line["result"] == "ok").count();
    assert!(swapped > 0, "swaps expect the last seen value, so some succeed");

    let ran = judge(&file);
    let said =
        format!("{} operations judged, keys not linearizable 0, keys too hard to judge 0\n", lines.len());
    assert_eq!((ran.code, ran.out), (Some(0), said), "{}", ran.err);
    expect_refusal_of_a_wrong_read(&file, &text);

    // The keys of the first run do not disturb the second one.
    let ran = quorate(&load);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let ran = judge(&file);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
}

/// Ends the load after 3,000 answers.
fn end_of_stretch(progress: &Progress) -> Next {
    if progress.acknowledged < 3_000 { Next::Go } else { Next::End }
}

/// A later stretch of a torture begins with the values of the last one. The file has these values.
#[test]
fn history_of_a_later_stretch_can_be_judged() {
    let cluster = Cluster::start(ClientAuth::Signature);
    let (pace, minute) = (Pace::Closed { in_flight: 64 }, Duration::from_secs(60));
    let options = LoadOptions::alone(Mix::judged(64, 128), pace, 4, 7, minute);
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, options).unwrap();
    let first = load.run_stretch(&mut end_of_stretch).unwrap();
    assert!(first.verdict.is_clean() && first.history.held().is_empty(), "{:?}", first.verdict);
    let second = load.run_stretch(&mut end_of_stretch).unwrap();
    assert!(second.verdict.is_clean() && second.history.held().len() > 64, "{:?}", second.verdict);

    let file = cluster.dir().join("history.jsonl");
    history_file::save(&second.history, &file).unwrap();
    let ran = judge(&file);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
    let text = fs::read_to_string(&file).unwrap();
    let operations: Vec<&str> = text.lines().filter(|line| !line.contains("\"held\":")).collect();
    assert_eq!(operations.len(), second.history.records().len());
    fs::write(&file, operations.join("\n")).unwrap();
    let ran = judge(&file);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), "error: the history is not linearizable\n"));

    // One file may have both: what the second stretch begins with follows from the first.
    let mut output = HistoryOutput::open(&file).unwrap();
    output.append(&first.history).unwrap();
    output.append(&second.history).unwrap();
    let ran = judge(&file);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
    let lines = fs::read_to_string(&file).unwrap().lines().count();
    assert_eq!(lines, first.history.records().len() + second.history.records().len());
}

#[test]
fn judge_reads_the_history_of_a_simulation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let ran =
        quorate(&["sim", "--protocol", "pbft", "--seed", "6", "--json", "--history", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let summary: Value = serde_json::from_str(&ran.out).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let ran = quorate(&["judge", "--json", file.to_str().unwrap()]);
    let verdict: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.code, &verdict["illegal"], &verdict["judged"]),
        (Some(0), &0.into(), &summary["requests"])
    );
    expect_refusal_of_a_wrong_read(&file, &text);
}

#[test]
fn files_without_a_history_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    judge(&file).refuses("no file", &["history.jsonl", "No such file"]);
    fs::write(&file, "{}\n").unwrap();
    judge(&file).refuses("no history", &["history.jsonl: line 1: missing field"]);
    for nothing in ["", "{\"key\":\"s1\",\"held\":\"5\"}\n"] {
        fs::write(&file, nothing).unwrap();
        let ran = judge(&file);
        assert_eq!(ran.code, Some(1), "{nothing:?}: {}", ran.out);
        assert!(ran.err.contains("no operation: nothing was judged"), "{}", ran.err);
    }
}

/// The seed's only event here is a killed leader. `cargo xtask torture` runs for hours.
#[test]
fn torture_reports_its_events_and_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let (runs, file) = (folder.path().join("runs"), folder.path().join("history.jsonl"));
    fs::create_dir(&runs).unwrap();
    let arguments = ["torture", "--minutes", "0.001", "--seed", "21", "--json", "--history"];
    let mut command = support::command(&[&arguments[..], &[file.to_str().unwrap()]].concat());
    let ran = command.env("TMPDIR", &runs).output().unwrap();
    let (out, err) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert_eq!(ran.status.code(), Some(0), "{out} {err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&said["good"], &said["stretches"]), (&true.into(), &1.into()), "{said}");
    for counter in ["errors", "lost", "doubled", "wrong", "illegal", "undecided"] {
        assert_eq!(said[counter], 0, "{counter}: {said}");
    }
    assert_eq!(said["again"], "cargo xtask torture --minutes 0.001 --seed 21");
    let events = said["events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["fault"]), (1, &"kill_backup".into()), "{said}");
    let judged = said["judged"].as_u64().unwrap();
    assert!(judged > said["acknowledged"].as_u64().unwrap() && judged > 1_000, "{said}");
    let digests = said["digests"].as_array().unwrap();
    assert!(digests.len() == 4 && digests.iter().all(|digest| *digest == digests[0]), "{said}");
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 0, "the folder is gone");
    let text = fs::read_to_string(&file).unwrap();
    assert!(u64::try_from(text.lines().count()).unwrap() >= judged, "{said}");
    let ran = judge(&file);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
    expect_refusal_of_a_wrong_read(&file, &text);
}

/// Two minutes of all faults while one replica of seven lies. The first six events of this seed are of six kinds.
#[test]
fn replicas_return_under_torture_while_another_lies() {
    let ran = quorate(&[
        "torture",
        "--minutes",
        "2",
        "--n",
        "7",
        "--liar",
        "own",
        "--rate",
        "100",
        "--seed",
        "6",
        "--json",
    ]);
    assert_eq!(ran.code, Some(0), "{} {}", ran.out, ran.err);
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&said["good"], &said["errors"], &said["lost"]),
        (&true.into(), &0.into(), &0.into()),
        "{said}"
    );
    let events = said["events"].as_array().unwrap();
    let faults: BTreeSet<&str> = events.iter().map(|event| event["fault"].as_str().unwrap()).collect();
    let all = ["kill_all", "kill_backup", "kill_leader", "pause_backup", "pause_leader", "wipe_backup"];
    assert_eq!(faults, BTreeSet::from(all), "{said}");
    let digests = said["digests"].as_array().unwrap();
    assert!(digests.len() == 6 && digests.iter().all(|digest| *digest == digests[0]), "{said}");
}

/// Starts a long torture, and stops it once `begun` holds for its folder.
fn stop(more: &[&str], begun: impl Fn(&Path) -> bool) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = support::command(&[&["torture", "--minutes", "30", "--seed", "21"], more].concat());
    let command = command.env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let dir = folder.path().join(format!("quorate-torture-{}", child.id()));
    let deadline = Instant::now() + Duration::from_secs(90);
    while !begun(&dir) {
        assert!(Instant::now() < deadline, "the torture has not begun");
        std::thread::yield_now();
    }
    kill_process(pid, Signal::INT).unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is gone: {}", ran.err);
    ran
}

/// A torture that is interrupted reports its findings until then. The first event is a killed leader, so a replica logs a
/// new view.
#[test]
fn stopped_torture_reports_its_findings() {
    let replaced = |dir: &Path| {
        let logs = (0..4).map(|id| fs::read_to_string(dir.join(format!("node{id}/node.log"))));
        logs.flatten().any(|log| log.contains("view 1, led by"))
    };
    let ran = stop(&[], replaced);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (Some(1), "error: stopped; again: cargo xtask torture --minutes 30 --seed 21\n")
    );
    let last = ran.out.lines().last().unwrap();
    assert!(
        last.contains(" in 1 stretch, ") && last.ends_with("stopped, nothing wrong until then"),
        "{}",
        ran.out
    );
    assert!(!last.contains(" 0 operations judged"), "{}", ran.out);

    let ran = stop(&["--json"], |dir| dir.exists());
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&said["good"], &said["failure"]), (&false.into(), &"stopped".into()), "{said}");
}
