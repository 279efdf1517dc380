//! `cargo xtask exam`: examines a protocol with the program built from what is checked in, and keeps the ledger.
//!
//! A range of seeds counts for the code that it was run with: all that runs inside of the simulator, and the protocol's
//! folder. The name of that code is made of what git calls its folders, so another protocol's folder changes nothing.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What runs in the simulator, whatever the protocol.
const SHARED: [&str; 17] = [
    "crates/types",
    "crates/crypto",
    "crates/consensus",
    "crates/replica",
    "crates/host",
    "crates/storage",
    "crates/app",
    "crates/client/src/core",
    "crates/client/src/core.rs",
    "crates/net/src/link",
    "crates/net/src/link.rs",
    "crates/net/src/frame.rs",
    "crates/net/src/lanes.rs",
    "crates/sim/src",
    "crates/sim/Cargo.toml",
    "Cargo.toml",
    "Cargo.lock",
];

/// Examines: `what` is the command, `exam` or `twins`, and `arguments` are the name of the protocol and what goes on to it.
pub(crate) fn run(root: &Path, what: &str, arguments: &[&str]) -> Result<()> {
    let Some((protocol, more)) = arguments.split_first().filter(|(first, _)| !first.starts_with('-')) else {
        bail!("which protocol? cargo xtask {what} pbft");
    };
    let code = code(root, protocol)?;
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let program =
        ["run", "--profile", "exam", "--quiet", "--package", "quorate", "--bin", "quorate", "--", what];
    let ledger = ["--ledger", "results/exam", "--code", &code, "--commit", commit.trim()];
    let mut exam = Command::new(env!("CARGO"));
    exam.args(program).args(["--protocol", protocol]).args(ledger).args(more);
    let status = exam.current_dir(root).status().context("the program does not start")?;
    if status.success() { Ok(()) } else { bail!("{protocol} has not passed") }
}

/// A name for all code that a run of the protocol depends on.
fn code(root: &Path, protocol: &str) -> Result<String> {
    let folder = folder_of(&names(&root.join("crates/protocols/src"))?, protocol)?;
    let own = format!("crates/protocols/src/{folder}");
    let paths: Vec<&str> = SHARED.into_iter().chain([own.as_str()]).collect();
    let changed = git(root, &[&["status", "--porcelain", "--"], paths.as_slice()].concat())?;
    if !changed.trim().is_empty() {
        bail!("commit first, a ledger is for code that can be found again; changed:\n{changed}");
    }
    let mut names = String::new();
    for path in paths {
        names.push_str(&git(root, &["rev-parse", &format!("HEAD:{path}")])?);
    }
    Ok(blake3::hash(names.as_bytes()).to_hex().chars().take(16).collect())
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// The folder of a protocol: a variant's name begins with that of its folder.
fn folder_of(folders: &[String], protocol: &str) -> Result<String> {
    let plain = protocol.replace('-', "_");
    let fits = folders.iter().filter(|folder| plain.starts_with(folder.as_str()));
    let longest = fits.max_by_key(|folder| folder.len()).cloned();
    longest.with_context(|| format!("no folder of crates/protocols/src is that of {protocol:?}"))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root).output().context("git does not start")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_belong_to_the_folder_that_their_name_begins_with() {
        let folders = ["echo", "pbft", "sync_hotstuff", "hotstuff"].map(str::to_owned);
        for (protocol, folder) in
            [("pbft", "pbft"), ("pbft-signed", "pbft"), ("sync-hotstuff-rotating", "sync_hotstuff")]
        {
            assert_eq!(folder_of(&folders, protocol).unwrap(), folder);
        }
        assert!(folder_of(&folders, "raft").is_err());
    }
}
