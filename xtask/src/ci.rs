//! All checks that a merge needs, the same on each machine.

use crate::{bench, coverage, finish, is_installed, tidy};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Whether the run contains the tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    Run,
    HavePassed,
}

/// Runs all steps. The first step that fails ends the run. A step is skipped where the command that it needs is not
/// installed.
pub(crate) fn run(root: &Path, tests: Tests) -> Result<()> {
    let start = Instant::now();
    let mut report = Vec::new();
    let mut step = |name: &str, needs: Option<&str>, work: &dyn Fn() -> Result<()>| -> Result<()> {
        println!("== {name}");
        let start = Instant::now();
        let note = match needs.filter(|needed| !is_installed(needed)) {
            Some(missing) => format!("  SKIPPED: cargo-{missing} is not installed"),
            None => {
                work().with_context(|| format!("{name} failed after {}", minutes(start)))?;
                String::new()
            }
        };
        report.push(format!("{name:<10} {}{note}", minutes(start)));
        Ok(())
    };
    step("format", None, &|| cargo(root, &["fmt", "--all", "--check"]))?;
    step("tidy", None, &|| tidy::run(root))?;
    step("clippy", None, &|| {
        let all = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        cargo(root, &all)
    })?;
    if tests == Tests::Run {
        step("test", None, &|| cargo(root, &["test", "--workspace"]))?;
    }
    step("bench", None, &|| bench::check(root))?;
    step("doc", None, &|| doc(root))?;
    // This needs no network once all crates are fetched. Advisories need the network, so they are checked by hand.
    let licences = ["deny", "--offline", "check", "bans", "licenses", "sources"];
    step("licences", Some("deny"), &|| cargo(root, &licences))?;
    // This builds everything once more, and takes longer than all other steps.
    step("coverage", Some("tarpaulin"), &|| coverage::run(root))?;
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

fn cargo(root: &Path, arguments: &[&str]) -> Result<()> {
    finish(Command::new(env!("CARGO")).args(arguments).current_dir(root))
}

fn doc(root: &Path) -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["doc", "--workspace", "--no-deps"]).current_dir(root);
    finish(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Tortures a cluster of processes. The released program does all of it, from the arguments to the verdict.
pub(crate) fn torture(root: &Path, arguments: &[&str]) -> Result<()> {
    let program =
        ["run", "--release", "--quiet", "--package", "quorate-lab", "--bin", "quorate", "--", "torture"];
    cargo(root, &[&program, arguments].concat())
}
