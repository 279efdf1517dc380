//! `cargo xtask exam`: examines a protocol with the program built from what is checked in, and keeps the ledger.
//!
//! A range of seeds counts for the code that it was run with: all that runs inside of the simulator, and the protocol's
//! folder. The name of that code is made of what git calls its folders, so another protocol's folder changes nothing.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What runs in the simulator, whatever the protocol.
const SHARED: [&str; 18] = [
    "crates/types",
    "crates/crypto",
    "crates/consensus",
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

/// Examines: `what` is the command, `exam` or `twins`, and `arguments` are the name of the protocol and what goes on to it.
pub(crate) fn run(root: &Path, what: &str, arguments: &[&str]) -> Result<()> {
    let Some((protocol, more)) = arguments.split_first().filter(|(first, _)| !first.starts_with('-')) else {
        bail!("which protocol? cargo xtask {what} pbft");
    };
    let code = code(root, protocol)?;
    let commit = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let program =
        ["run", "--profile", "exam", "--quiet", "--package", "quorate-lab", "--bin", "quorate", "--", what];
    let ledger = ["--ledger", "results/exam", "--code", &code, "--commit", commit.trim()];
    let mut exam = Command::new(env!("CARGO"));
    exam.args(program).args(["--protocol", protocol]).args(ledger).args(more);
    let status = exam.current_dir(root).status().context("the program does not start")?;
    if status.success() { Ok(()) } else { bail!("{protocol} has not passed") }
}

/// A name for all code that a run of the protocol depends on.
fn code(root: &Path, protocol: &str) -> Result<String> {
    let folder = folder(&root.join("crates/protocols/src"), protocol)?;
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

/// The folder of the protocol that was named, by its own name or by a longer one.
fn folder(protocols: &Path, named: &str) -> Result<String> {
    let library = protocols.join("lib.rs");
    let library = fs::read_to_string(&library).with_context(|| library.display().to_string())?;
    folder_of(&folders(protocols)?, own_name(&library, named))
}

/// What a long name stands for, as `LONG_NAMES` says it; any other name is a protocol's own.
fn own_name<'a>(library: &'a str, named: &'a str) -> &'a str {
    let (_, list) = library.split_once("pub const LONG_NAMES").unwrap_or_default();
    let (list, _) = list.split_once("];").unwrap_or_default();
    let (_, rest) = list.split_once(&format!("({named:?}, \"")).unwrap_or_default();
    rest.split_once('"').map_or(named, |(own, _)| own)
}

/// A protocol's folder: its name, and the text of what stands in it.
struct Folder {
    name: String,
    text: String,
}

fn folders(all: &Path) -> Result<Vec<Folder>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(all).with_context(|| all.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let mut text = String::new();
            for file in fs::read_dir(entry.path())? {
                let path = file?.path();
                if path.extension().is_some_and(|extension| extension == "rs") {
                    text.push_str(&fs::read_to_string(&path).with_context(|| path.display().to_string())?);
                }
            }
            folders.push(Folder { name: entry.file_name().to_string_lossy().into_owned(), text });
        }
    }
    Ok(folders)
}

/// The folder of a protocol: the one that gives it its name. Several protocols may be variants of one.
fn folder_of(folders: &[Folder], protocol: &str) -> Result<String> {
    let named = format!("ProtocolId::new({protocol:?})");
    let found = folders.iter().find(|folder| folder.text.contains(&named)).map(|folder| folder.name.clone());
    found.with_context(|| format!("no folder of crates/protocols/src has a protocol {protocol:?}"))
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
    fn variants_belong_to_the_folder_that_names_them() {
        let folder = |name: &str, protocols: &[&str]| Folder {
            name: name.to_owned(),
            text: protocols
                .iter()
                .map(|protocol| format!("name: ProtocolId::new({protocol:?}),\n"))
                .collect(),
        };
        let folders = [
            folder("hotstuff", &["hotstuff"]),
            folder("pbft", &["pbft", "pbft-signed"]),
            folder("sync_hotstuff", &["sync-hotstuff", "optsync", "sync-hotstuff-rr"]),
        ];
        for (protocol, of) in [
            ("pbft", "pbft"),
            ("pbft-signed", "pbft"),
            ("hotstuff", "hotstuff"),
            ("sync-hotstuff", "sync_hotstuff"),
            ("optsync", "sync_hotstuff"),
            ("sync-hotstuff-rr", "sync_hotstuff"),
        ] {
            assert_eq!(folder_of(&folders, protocol).unwrap(), of);
        }
        assert!(folder_of(&folders, "raft").is_err());
    }

    #[test]
    fn a_long_name_stands_for_what_the_library_says() {
        let library =
            r#"pub const LONG_NAMES: [(&str, &str); 2] = [("long", "l"), ("longer", "m")]; x("l", "y")"#;
        for (named, own) in [("long", "l"), ("longer", "m"), ("l", "l"), ("raft", "raft")] {
            assert_eq!(own_name(library, named), own);
        }
        assert_eq!(own_name("", "pbft"), "pbft");
    }

    /// As the registry has it.
    #[test]
    fn a_protocol_has_one_folder_by_whatever_name() {
        let protocols = crate::root().unwrap().join("crates/protocols/src");
        for named in ["sync-hotstuff-rotating", "sync-hotstuff-rr"] {
            assert_eq!(folder(&protocols, named).unwrap(), "sync_hotstuff");
        }
        assert!(folder(&protocols, "raft").is_err());
    }
}
