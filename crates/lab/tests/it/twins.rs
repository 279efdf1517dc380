//! The command `quorate twins`.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn twins(args: &[&str]) -> Output {
    let folder = std::env::temp_dir();
    Command::new(env!("CARGO_BIN_EXE_quorate")).current_dir(folder).arg("twins").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs twins that pass, and returns the output.
fn passes(args: &[&str]) -> String {
    let ran = twins(args);
    assert_eq!(ran.status.code(), Some(0), "{args:?}: {}{}", text(&ran.stdout), text(&ran.stderr));
    text(&ran.stdout)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&passes(&[args, &["--json"]].concat())).unwrap()
}

#[test]
fn scenarios_of_one_view_pass() {
    let said = passes(&["--views", "1"]);
    assert_eq!(said.lines().count(), 4, "a line for each replica that is a twin: {said}");
    for (id, line) in said.lines().enumerate() {
        let begins = format!(
            "--n 4 --twin {id} --views 1 --parts 2 --leaders own: 16 scenarios, 12 run, 4 the same except for names, 0 failures"
        );
        assert!(line.starts_with(&begins), "{line}");
    }
    let all = json(&["--views", "1", "--twin", "2", "--same"]);
    let part = &all["enumerations"][0];
    assert_eq!((&part["runs"], &part["same"]), (&Value::from(16), &Value::from(0)));
    let drawn = json(&["--sample", "20", "--views", "2", "--parts", "3", "--twin", "1"]);
    assert!(drawn["enumerations"][0]["scenarios"].as_str().unwrap().contains("--leaders drawn --seed 0"));
    let own = passes(&["--protocol", "echo", "--views", "1", "--twin", "3", "--range", "0..1"]);
    assert!(own.starts_with("echo: the protocol's own rule chooses the leaders"), "{own}");
}

#[test]
fn failed_scenario_is_kept_and_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().to_str().unwrap();
    let ran = twins(&["--twin", "0,1", "--views", "1", "--failures", kept]);
    let said = text(&ran.stderr);
    assert_eq!(ran.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("error: ") && last.contains("agreement: replica "), "{last}");
    let (_, again) = last.split_once("-- twins ").unwrap();
    let again: Vec<&str> = again.split(' ').collect();
    let ran = twins(&[&again[..], &["--failures", kept]].concat());
    let trace = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(1));
    let fails = trace.lines().find(|line| line.contains("  fails ")).unwrap_or_default();
    assert!(
        fails.contains("agreement: replica ") && trace.contains("as the second half of the twin"),
        "{trace}"
    );
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let ran = twins(&["--file", file.to_str().unwrap(), "--failures", kept]);
    assert!(text(&ran.stderr).contains("agreement: replica "), "{}", text(&ran.stderr));
}

#[test]
fn scenarios_are_written_to_a_file_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.json");
    let file = file.to_str().unwrap();
    passes(&["--views", "1", "--twin", "3", "--leaders", "2", "--write", file]);
    let all = json(&["--file", file]);
    assert_eq!(
        all["enumerations"][0]["runs"],
        json(&["--views", "1", "--twin", "3", "--leaders", "2"])["enumerations"][0]["runs"]
    );
    let relab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/src/twins/relab/numbers.json");
    let said = passes(&["--file", relab.to_str().unwrap()]);
    assert!(said.starts_with("listed: 2 scenarios, 2 run"), "{said}");
    let said = passes(&["--file", relab.to_str().unwrap(), "--scenario", "1"]);
    assert!(said.starts_with("scenario 1: view 0 led by 1: 0 3 | 1 2 0',"), "{said}");
}

#[test]
fn passed_scenarios_are_not_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let run = |code: &str, range: &str| {
        let all = ["--views", "2", "--twin", "1", "--piece", "8", "--ledger", at];
        let run = json(&[&all[..], &["--code", code, "--range", range]].concat());
        let number = |name: &str| run["enumerations"][0][name].as_u64().unwrap();
        (number("runs") + number("same"), number("runs_now"))
    };
    let (count, now) = run("one", "0..20");
    assert_eq!(count, 20);
    assert!(now > 0);
    assert_eq!(run("one", "0..20"), (20, 0), "nothing is left to do");
    assert_eq!(run("one", "16..32").0, 32, "what is new is added");
    assert_eq!(run("other", "0..20"), (20, now), "other code begins anew");
}

#[test]
fn impossible_scenarios_are_refused_in_one_line() {
    for (args, why) in [
        (&["--protocol", "none"][..], "no protocol is named"),
        (&["--twin", "4"], "replicas below 4"),
        (&["--protocol", "echo", "--leaders", "1"], "no parameter that sets leaders"),
        (&["--protocol", "none"], "sync-hotstuff-rotating"),
        (&["--protocol", "optsync"], "cut the network"),
        (&["--protocol", "sync-hotstuff-rotating"], "cut the network"),
        (&["--views", "1", "--range", "16..20", "--twin", "0"], "there are 16 scenarios"),
        (&["--views", "1", "--scenario", "3", "--trace"], "choose the twin with --twin"),
        (&["--file", "/no/such/file"], "/no/such/file"),
        (&["--ledger", "x"], "--code"),
    ] {
        let ran = twins(args);
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(text(&ran.stderr).contains(why), "{args:?}: {}", text(&ran.stderr));
    }
}
