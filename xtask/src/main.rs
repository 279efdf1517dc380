//! The repository's own checks.
//!
//! * `cargo xtask tidy` checks layers, documents, lengths and reasons, which compiler and clippy cannot see.
//! * `cargo xtask coverage` reports the lines of the protocols and the replica that tests run.
//! * `cargo xtask torture` builds the program and lets it torture a cluster of its own.
//! * `cargo xtask bench` measures some clusters, and compares counted terms with the committed milestone.
//! * `cargo xtask exam` builds the program, examines a protocol and keeps the ledger.
//! * `cargo xtask ci` runs every check that a merge needs, and reports the time of each step.

mod bench;
mod ci;
mod coverage;
mod exam;
mod tidy;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str = "usage:
  cargo xtask tidy                  check layers, documents, lengths, reasons and sentences
  cargo xtask tidy --headless NAME  list sentences and test names that begin without a noun, in a crate or in documents
  cargo xtask ci [--after-tests]    run all checks that a merge needs; --after-tests skips the tests, which have passed
  cargo xtask exam PROTOCOL [--seeds N] [...]    run all scenarios, resumable, with a ledger in results/exam
  cargo xtask twins PROTOCOL [--views N] [...]   run all twins scenarios, in the same way
  cargo xtask bench [--accept]      measure some clusters, and compare the work for each request with results/ci, or replace it
  cargo xtask coverage              report the lines of protocols and replica that tests run; needs cargo-tarpaulin
  cargo xtask torture --minutes N [--seed S] [...]    kill, pause and wipe real processes under load; --help lists options";

/// Returns the root of the repository.
fn root() -> Result<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(parent
        .context("the folder of xtask has no parent; it belongs in the root of the repository")?
        .to_path_buf())
}

/// Whether cargo has this command, which is not part of cargo itself.
fn is_installed(command: &str) -> bool {
    let mut probe = Command::new(env!("CARGO"));
    probe.args([command, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Runs a command to its end, and fails as it does.
fn finish(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    if status.success() { Ok(()) } else { bail!("{command:?}: {status}") }
}

fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tidy"] => tidy::run(&root()?),
        ["tidy", "--headless", name] => tidy::list_headless(&root()?, name),
        [command @ ("exam" | "twins"), more @ ..] => exam::run(&root()?, command, more),
        ["bench"] => bench::check(&root()?),
        ["bench", "--accept"] => bench::accept(&root()?),
        ["coverage"] => coverage::run(&root()?),
        ["torture", more @ ..] => ci::torture(&root()?, more),
        ["ci"] => ci::run(&root()?, ci::Tests::Run),
        ["ci", "--after-tests"] => ci::run(&root()?, ci::Tests::HavePassed),
        _ => bail!("{USAGE}"),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
