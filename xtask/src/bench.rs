//! The benchmark of each merge: from an experiment file to pictures in about a minute, and a comparison with the committed
//! milestone in counted terms. Throughput and latency are printed and decide nothing, so a busy machine fails no merge.

use crate::finish;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The experiment.
const EXPERIMENT: &str = "experiments/ci.toml";
/// The committed milestone: a manifest and a summary.
const MILESTONE: &str = "results/ci";
/// The archive of this run.
const ARCHIVE: &str = "target/bench-ci";

/// Percentage by which the CPU time for each request may grow. Processors differ by a factor of two, and other work on a machine
/// takes caches away. Syncs, bytes and allocations have the limits of the report.
const CPU_TOLERANCE: &str = "150";

/// Runs the program of the tests, which is built already in most cases.
fn quorate(root: &Path, arguments: &[&str]) -> Result<()> {
    let program = ["run", "--quiet", "--package", "quorate-lab", "--bin", "quorate", "--"];
    finish(Command::new(env!("CARGO")).args(program).args(arguments).current_dir(root))
}

/// Measures, and makes the report.
fn measure(root: &Path) -> Result<()> {
    let archive = root.join(ARCHIVE);
    if archive.exists() {
        fs::remove_dir_all(&archive).with_context(|| format!("cannot remove {ARCHIVE}"))?;
    }
    quorate(root, &["bench", EXPERIMENT, "--out", ARCHIVE])?;
    quorate(root, &["report", ARCHIVE])
}

/// Measures, and fails where a counted term of a request is worse than in the milestone.
pub(crate) fn check(root: &Path) -> Result<()> {
    measure(root)?;
    quorate(root, &["report", "--compare", MILESTONE, ARCHIVE, "--counted", "--cpu-tolerance", CPU_TOLERANCE])
        .context("a request costs more than in results/ci; `cargo xtask bench --accept` after a change that is worth it")
}

/// Measures, and makes the result the milestone.
pub(crate) fn accept(root: &Path) -> Result<()> {
    measure(root)?;
    fs::create_dir_all(root.join(MILESTONE)).with_context(|| format!("cannot create {MILESTONE}"))?;
    for name in ["manifest.json", "summary.csv"] {
        let (from, to) = (root.join(ARCHIVE).join(name), root.join(MILESTONE).join(name));
        fs::copy(&from, &to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    }
    println!("{MILESTONE} has the new milestone");
    Ok(())
}
