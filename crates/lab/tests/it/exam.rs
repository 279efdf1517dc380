//! The command `quorate exam`.

use quorate_sim::fault::{Fault, FaultSource};
use std::path::Path;
use std::process::{Command, Output};

/// Runs an exam with the lowest priority, because other tests measure times while all cores work on it.
fn exam(args: &[&str]) -> Output {
    let mut command = Command::new("nice");
    command.args(["-n", "19", env!("CARGO_BIN_EXE_quorate"), "exam"]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs an exam that passes, and returns the output.
fn passes(args: &[&str]) -> String {
    let ran = exam(args);
    assert_eq!(ran.status.code(), Some(0), "{args:?}: {}{}", text(&ran.stdout), text(&ran.stderr));
    text(&ran.stdout)
}

/// The short exam is a test, because a step of its own would build everything again with other features.
#[test]
fn short_exam_passes() {
    let printed = passes(&["--short"]);
    assert!(printed.trim_end().ends_with("passed"), "{printed}");
}

#[test]
fn passed_seeds_are_not_examined_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let sit = |code: &str, seeds: &str| {
        let scenario =
            ["--protocol", "echo", "--scenario", "good day", "--n", "4", "--piece", "2", "--ledger", at];
        passes(&[&scenario[..], &["--code", code, "--seeds", seeds]].concat())
    };
    assert!(sit("one", "3").contains("      3 runs, 0 failures"));
    assert!(sit("one", "5").contains("      2 runs, 3 before, 0 failures"));
    assert!(sit("other", "4").contains("      4 runs, 0 failures"), "other code begins anew");
    let ledger = std::fs::read_to_string(folder.path().join("echo.jsonl")).unwrap();
    assert_eq!(ledger.lines().count(), 2 + 1 + 2, "{ledger}");
    // A failed piece runs again.
    std::fs::write(folder.path().join("echo.jsonl"), ledger.replace("\"failures\":0", "\"failures\":1"))
        .unwrap();
    assert!(sit("one", "5").contains("      5 runs, 0 failures"));
}

#[test]
fn ledger_is_the_same_for_the_long_name_of_a_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    let sit = |protocol: &str, seeds: &str| {
        let scenario = ["--scenario", "good day", "--n", "3", "--ledger", at, "--code", "one"];
        passes(&[&scenario[..], &["--protocol", protocol, "--seeds", seeds]].concat())
    };
    assert!(sit("sync-hotstuff-rotating", "1").contains("      1 runs, 0 failures"));
    assert!(sit("sync-hotstuff-rr", "2").contains("      1 runs, 1 before, 0 failures"));
    assert!(sit("sync-hotstuff-rotating", "3").contains("      1 runs, 2 before, 0 failures"));
    let ledger = std::fs::read_to_string(folder.path().join("sync-hotstuff-rr.jsonl")).unwrap();
    assert!(ledger.lines().count() == 3 && !ledger.contains("rotating"), "{ledger}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn impossible_exams_are_refused_in_one_line() {
    for (args, why) in [
        (&["--protocol", "none"][..], "no protocol is named"),
        (&["--protocol", "none"], "sync-hotstuff-rotating"),
        (&["--scenario", "cribbing"], "cribbing"),
        (&["--n", "3"], "3"),
        (&["--ledger", "/tmp"], "--code"),
        (&["--short", "--seeds", "9"], "--short"),
    ] {
        let ran = exam(args);
        let said = text(&ran.stderr);
        assert!(ran.status.code().is_some_and(|code| code > 0) && said.contains(why), "{args:?}: {said}");
    }
}

#[test]
fn tests_that_cover_faults_exist() {
    for fault in Fault::ALL {
        let FaultSource::Processes(tests) = fault.source() else { continue };
        for test in tests {
            let (file, name) = test.split_once("::").unwrap();
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(file);
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(&format!("\n#[test]\nfn {name}()")), "{fault}: {test}");
        }
    }
}
