//! All checks that a merge needs, the same on each machine.

use crate::{coverage, tidy};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Whether the run contains the tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    Run,
    HavePassed,
}

enum Outcome {
    Passed,
    Skipped(&'static str),
}

/// Runs all steps. The first step that fails ends the run.
pub(crate) fn run(root: &Path, tests: Tests) -> Result<()> {
    let start = Instant::now();
    let mut report = Vec::new();
    let mut step = |name: &str, work: &dyn Fn() -> Result<Outcome>| -> Result<()> {
        println!("== {name}");
        let start = Instant::now();
        let outcome = work().with_context(|| format!("{name} failed after {}", minutes(start)))?;
        let note = match outcome {
            Outcome::Passed => String::new(),
            Outcome::Skipped(reason) => format!("  SKIPPED: {reason}"),
        };
        report.push(format!("{name:<10} {}{note}", minutes(start)));
        Ok(())
    };
    step("format", &|| cargo(root, &["fmt", "--all", "--check"]))?;
    step("tidy", &|| tidy::run(root).map(|()| Outcome::Passed))?;
    step("clippy", &|| {
        let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        cargo(root, &all)
    })?;
    if tests == Tests::Run {
        step("test", &|| cargo(root, &["test", "--workspace"]))?;
    }
    step("doc", &|| doc(root))?;
    step("licences", &|| licences(root))?;
    step("coverage", &|| measure_coverage(root))?;
    for line in &report {
        println!("{line}");
    }
    println!("{:<10} {}", "total", minutes(start));
    Ok(())
}

fn minutes(start: Instant) -> String {
    let tenths = start.elapsed().as_millis().div_ceil(100);
    let (minutes, tenths) = (tenths / 600, tenths % 600);
    format!("{minutes:>3} min {:>2}.{} s", tenths / 10, tenths % 10)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    finish(Command::new(env!("CARGO")).args(arguments).current_dir(root))
}

/// Measures coverage. This step builds everything once more, and takes longer than all other steps.
fn measure_coverage(root: &Path) -> Result<Outcome> {
    if !coverage::is_installed() {
        return Ok(Outcome::Skipped("cargo-tarpaulin is not installed"));
    }
    coverage::run(root)?;
    Ok(Outcome::Passed)
}

fn doc(root: &Path) -> Result<Outcome> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["doc", "--workspace", "--no-deps"]).current_dir(root);
    finish(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Checks licences, bans and sources, which needs no network once all crates are fetched. Advisories need the network,
/// so they are checked by hand.
fn licences(root: &Path) -> Result<Outcome> {
    let mut probe = Command::new(env!("CARGO"));
    probe.args(["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return Ok(Outcome::Skipped("cargo-deny is not installed"));
    }
    cargo(root, &["deny", "--offline", "check", "bans", "licenses", "sources"])
}

/// Tortures a cluster of processes. The released program does all of it, from the arguments to the verdict.
pub(crate) fn torture(root: &Path, arguments: &[&str]) -> Result<()> {
    let program =
        ["run", "--release", "--quiet", "--package", "quorate-lab", "--bin", "quorate", "--", "torture"];
    cargo(root, &[&program, arguments].concat()).map(drop)
}

fn finish(command: &mut Command) -> Result<Outcome> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(Outcome::Passed)
}
