//! `cargo xtask exam`: examines a protocol with the program built from the commit, and keeps the ledger.
//!
//! A ledger entry holds for the code of its run: all code inside the simulator, the files that all protocols share, and the
//! protocol's folder. The name of that code is a hash of git's names of these. A change of another protocol's folder
//! therefore keeps it.

use crate::tidy::Repository;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// The folder of the protocols.
const PROTOCOLS: &str = "crates/protocols/src/";

/// Code that runs in the simulator with each protocol.
const SHARED: [&str; 20] = [
    "crates/types",
    "crates/crypto",
    "crates/consensus",
    "crates/protocols/src/attack_table.rs",
    "crates/protocols/src/encoding.rs",
    "crates/replica",
    "crates/host",
    "crates/storage",
    "crates/app",
    "crates/history",
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

/// Runs `command`, which is `exam` or `twins`. The first argument names the protocol, the others go to the command.
pub(crate) fn run(root: &Path, command: &str, arguments: &[&str]) -> Result<()> {
    let Some((protocol, more)) = arguments.split_first().filter(|(first, _)| !first.starts_with('-')) else {
        bail!("the name of a protocol is missing; for example: cargo xtask {command} pbft");
    };
    let code = code(root, protocol)?;
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let program = ["--package", "quorate-lab", "--bin", "quorate", "--", command];
    let ledger = ["--ledger", "results/exam", "--code", &code, "--commit", commit.trim()];
    let mut exam = Command::new(env!("CARGO"));
    exam.args(["run", "--profile", "exam", "--quiet"]).args(program);
    exam.args(["--protocol", protocol]).args(ledger).args(more);
    let status = exam.current_dir(root).status().context("cannot start the program")?;
    if status.success() { Ok(()) } else { bail!("{protocol} has not passed: {status}") }
}

/// Returns a name for all code that a run of the protocol depends on.
fn code(root: &Path, protocol: &str) -> Result<String> {
    let own = folder(&Repository::load(root)?, protocol)?;
    let paths: Vec<&str> = SHARED.into_iter().chain([own.as_str()]).collect();
    let changed = git(root, &[&["status", "--porcelain", "--"], paths.as_slice()].concat())?;
    if !changed.trim().is_empty() {
        bail!(
            "uncommitted changes; commit first, because a ledger names its code by commit. Changed:\n{changed}"
        );
    }
    let mut names = String::new();
    for path in paths {
        names.push_str(&git(root, &["rev-parse", &format!("HEAD:{path}")])?);
    }
    Ok(blake3::hash(names.as_bytes()).to_hex().chars().take(16).collect())
}

/// Returns the path of the folder whose code has the id of the named protocol. The name is its own or a long one. Protocols
/// of one family share a folder.
fn folder(repository: &Repository, named: &str) -> Result<String> {
    let library = repository.file(&format!("{PROTOCOLS}lib.rs")).unwrap_or_default();
    let id = format!("ProtocolId::new({:?})", own_name(library, named));
    let folder = |(path, text): (&str, &str)| {
        let (folder, file) = path.strip_prefix(PROTOCOLS)?.split_once('/')?;
        (!file.contains("tests") && text.contains(&id)).then(|| format!("{PROTOCOLS}{folder}"))
    };
    let found = repository.ending(".rs").find_map(folder);
    found.with_context(|| format!("no folder of {PROTOCOLS} has the protocol id of {named:?}"))
}

/// Returns the own name for a long name that `LONG_NAMES` lists. Any other name is already a protocol's own.
fn own_name<'a>(library: &'a str, named: &'a str) -> &'a str {
    let (_, list) = library.split_once("pub const LONG_NAMES").unwrap_or_default();
    let (list, _) = list.split_once("];").unwrap_or_default();
    let (_, rest) = list.split_once(&format!("({named:?}, \"")).unwrap_or_default();
    rest.split_once('"').map_or(named, |(own, _)| own)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("git").args(arguments).current_dir(root).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_is_replaced_by_the_own_name_in_long_names() {
        let library =
            r#"pub const LONG_NAMES: [(&str, &str); 2] = [("long", "l"), ("longer", "m")]; x("l", "y")"#;
        for (named, own) in [("long", "l"), ("longer", "m"), ("l", "l"), ("raft", "raft")] {
            assert_eq!(own_name(library, named), own);
        }
        assert_eq!(own_name("", "pbft"), "pbft");
    }

    /// The names are those of the registry. Long and own name lead to the same folder, as do the protocols of a family.
    #[test]
    fn protocol_has_the_folder_with_its_id() {
        let repository = Repository::load(&crate::root().unwrap()).unwrap();
        for (named, expected) in [
            ("pbft", "pbft"),
            ("pbft-signed", "pbft"),
            ("sync-hotstuff", "sync_hotstuff"),
            ("optsync", "sync_hotstuff"),
            ("sync-hotstuff-rotating", "sync_hotstuff"),
            ("sync-hotstuff-rr", "sync_hotstuff"),
            ("hotstuff", "chained"),
        ] {
            assert_eq!(folder(&repository, named).unwrap(), format!("{PROTOCOLS}{expected}"));
        }
        assert!(folder(&repository, "raft").is_err());
    }
}
