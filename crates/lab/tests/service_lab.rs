//! The example of a program that tests a service of its own, with each of its commands. The test program runs the example
//! when it is started with a command.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[allow(dead_code, unreachable_pub, reason = "its `main` is called by the one below")]
#[path = "../../../examples/service_lab.rs"]
mod service_lab;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let is_command = |word: &str| ["node", "up", "call", "load", "sim", "torture"].contains(&word);
    if std::env::args().nth(1).is_some_and(|word| is_command(&word)) {
        return service_lab::main();
    }
    service_is_deterministic_in_the_simulator();
    println!("service_is_deterministic_in_the_simulator ... ok");
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("locks");
    let up = Up::start(&dir);
    load_is_offered_and_errors_are_counted(&dir);
    println!("load_is_offered_and_errors_are_counted ... ok");
    drop(up);
    tortured_service_ends_with_equal_states();
    println!("tortured_service_ends_with_equal_states ... ok");
    ExitCode::SUCCESS
}

fn example(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args);
    command
}

fn run(args: &[&str]) -> Output {
    example(args).output().unwrap()
}

/// Runs a command that succeeds, and returns its JSON object.
fn json(args: &[&str]) -> Value {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn service_is_deterministic_in_the_simulator() {
    let told = json(&["sim", "--seeds", "3", "--json"]);
    let number = |name: &str| told[name].as_u64().unwrap();
    assert_eq!(number("seeds"), 3);
    assert!(number("operations") > 1_000 && number("snapshots") > 0 && number("restarts") > 0, "{told}");
    let again = json(&["sim", "--seeds", "3", "--json"]);
    assert_eq!(told, again, "a seed is a run");
}

/// A cluster that `up` runs.
struct Up(Child);

impl Up {
    fn start(dir: &Path) -> Self {
        let mut command = example(&["up", "--dir", dir.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let up = Self(child);
        assert!(lines.into_iter().any(|line| line == "ready"), "it serves");
        up
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load_is_offered_and_errors_are_counted(dir: &Path) {
    let cluster = dir.to_str().unwrap();
    let said = json(&[
        "load",
        "--cluster",
        cluster,
        "--seconds",
        "1",
        "--warmup",
        "0",
        "--in-flight",
        "16",
        "--json",
    ]);
    assert!(said["acknowledged"].as_u64().unwrap() > 10, "{said}");
    assert_eq!(said["errors"], 0, "{said}");
    // Another service does not have the options of the store.
    let refused = run(&["load", "--cluster", cluster, "--keys", "7"]);
    assert_eq!(refused.status.code(), Some(2));
    let called = run(&["call", "--cluster", cluster, "look lock7"]);
    let answer = String::from_utf8(called.stdout).unwrap();
    assert!(answer == "free\n" || answer.starts_with("held "), "{answer}");
}

fn tortured_service_ends_with_equal_states() {
    let told = json(&[
        "torture",
        "--minutes",
        "0.001",
        "--seed",
        "21",
        "--only",
        "kill-leader",
        "--clients",
        "4",
        "--json",
    ]);
    assert_eq!((&told["good"], &told["errors"]), (&true.into(), &0.into()), "{told}");
    let digests = told["digests"].as_array().unwrap();
    assert_eq!(digests.len(), 4);
    assert!(digests.iter().all(|digest| digest == &digests[0]), "{told}");
    assert!(!told["events"].as_array().unwrap().is_empty(), "{told}");
}
