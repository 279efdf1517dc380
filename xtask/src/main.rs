//! The repository's own checks.
//!
//! * `cargo xtask tidy` checks what compiler and clippy cannot see: layers, documents, lengths, reasons.
//! * `cargo xtask coverage` says which lines of the protocols and the replica are run by tests.
//! * `cargo xtask torture` builds the program and lets it torture a cluster of its own.
//! * `cargo xtask exam` builds the program, examines a protocol and keeps the ledger.
//! * `cargo xtask ci` runs everything that must be green, and says how long each step took.

mod ci;
mod coverage;
mod exam;
mod tidy;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage:
  cargo xtask tidy                  layers, documents, lengths, reasons
  cargo xtask ci [--after-tests]    everything that must be green; --after-tests: the tests have just passed
  cargo xtask exam PROTOCOL [--seeds N] [...]    all scenarios, resumable, with a ledger in results/exam
  cargo xtask twins PROTOCOL [--views N] [...]   the same for twins
  cargo xtask coverage              which lines of the protocols and the replica tests run; needs cargo-tarpaulin
  cargo xtask torture --minutes N [--seed S] [...]    real processes killed and paused; --help says more";

/// The root of the repository.
fn root() -> Result<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    Ok(parent.context("xtask lies in the root of the repository")?.to_path_buf())
}

fn run(arguments: &[String]) -> Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tidy"] => tidy::run(&root()?),
        [what @ ("exam" | "twins"), more @ ..] => exam::run(&root()?, what, more),
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
