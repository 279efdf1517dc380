//! Rules for the workspace: members, dependencies, lints, pure crates.

use super::config::Config;
use super::{Findings, Repository};
use std::collections::BTreeSet;
use toml::Table;

pub(super) fn check(repository: &Repository, config: &Config, findings: &mut Findings) {
    let manifests: Vec<(&str, &str)> = repository
        .ending("/Cargo.toml")
        .filter_map(|(path, text)| Some((path.strip_suffix("/Cargo.toml")?, text)))
        .collect();
    members(&manifests, config, findings);
    for (folder, text) in manifests {
        match text.parse::<Table>() {
            Ok(manifest) => {
                edges(folder, &manifest, config, findings);
                lints(folder, &manifest, config, findings);
                banned(folder, &manifest, config, findings);
            }
            Err(error) => findings.push(format!("{folder}/Cargo.toml: {error}")),
        }
    }
    for (name, reason) in &config.unsafe_crates {
        if reason.trim().is_empty() {
            findings.push(format!("tidy.toml: unsafe in {name} has no reason"));
        }
    }
    pure(repository, config, findings);
}

fn members(manifests: &[(&str, &str)], config: &Config, findings: &mut Findings) {
    let found: BTreeSet<&str> = manifests.iter().map(|(folder, _)| *folder).collect();
    let listed: BTreeSet<&str> = config.members.iter().map(String::as_str).collect();
    for folder in found.difference(&listed) {
        findings.push(format!(
            "{folder}: a new crate needs an ADR that states its benefit; then list it under `members` in tidy.toml"
        ));
    }
    for folder in listed.difference(&found) {
        findings.push(format!("tidy.toml: member {folder} does not exist"));
    }
}

/// Returns the workspace crates among the dependencies, by short name.
fn ours<'a>(manifest: &'a Table, section: &str) -> impl Iterator<Item = &'a str> {
    let table = manifest.get(section).and_then(toml::Value::as_table);
    table.into_iter().flat_map(Table::keys).filter_map(|name| name.strip_prefix("quorate-"))
}

fn edges(folder: &str, manifest: &Table, config: &Config, findings: &mut Findings) {
    let name = folder.strip_prefix("crates/").unwrap_or(folder);
    let Some(allowed) = config.edges.get(name) else {
        findings.push(format!("tidy.toml: [edges] has no entry for {name}"));
        return;
    };
    let in_tests = config.test_edges.get(name);
    for (section, tests) in
        [("dependencies", None), ("build-dependencies", None), ("dev-dependencies", in_tests)]
    {
        for other in ours(manifest, section) {
            let mut all = allowed.iter().chain(tests.into_iter().flatten());
            if other != name && !all.any(|allowed| allowed == other) {
                findings.push(format!(
                    "{folder}/Cargo.toml: {name} must not import {other} ({section}); ARCHITECTURE.md has the reasons"
                ));
            }
        }
    }
}

fn banned(folder: &str, manifest: &Table, config: &Config, findings: &mut Findings) {
    for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
        let names = manifest.get(section).and_then(toml::Value::as_table);
        for name in names.into_iter().flat_map(Table::keys) {
            if let Some(reason) = config.banned.get(name) {
                findings.push(format!("{folder}/Cargo.toml: no direct dependency on {name}: {reason}"));
            }
        }
    }
}

/// Checks that every member inherits the workspace's lints. A crate with `unsafe` must have a table of its own.
fn lints(folder: &str, manifest: &Table, config: &Config, findings: &mut Findings) {
    let name = folder.strip_prefix("crates/").unwrap_or(folder);
    let lints = manifest.get("lints").and_then(toml::Value::as_table);
    let inherited = lints.is_some_and(|lints| lints.get("workspace") == Some(&toml::Value::Boolean(true)));
    if !inherited && !config.unsafe_crates.contains_key(name) {
        findings.push(format!("{folder}/Cargo.toml: [lints] workspace = true is missing"));
    }
}

/// Functions and types that the clippy.toml of a pure crate forbids, by module: files, sockets, threads, processes, their
/// environment, clocks and randomness. [`super::walls`] checks that no other name gives access to them.
const FORBIDDEN: &[(&str, &str)] = &[
    ("std::time", "Instant::now SystemTime::now Instant SystemTime"),
    ("std::thread", "spawn scope sleep park park_timeout yield_now Builder JoinHandle"),
    (
        "std::fs",
        "read read_to_string write copy rename hard_link metadata symlink_metadata read_dir \
         read_link canonicalize exists set_permissions create_dir create_dir_all remove_dir \
         remove_dir_all remove_file File OpenOptions DirBuilder ReadDir",
    ),
    ("std::process", "exit abort id Command Child"),
    ("std::env", "var var_os vars vars_os args args_os current_dir current_exe temp_dir"),
    ("getrandom", "fill fill_uninit u32 u64"),
    ("std::collections", "HashMap HashSet"),
    ("std::hash", "RandomState"),
    ("std::net", "TcpListener TcpStream UdpSocket"),
    ("std::os::unix::net", "UnixListener UnixStream UnixDatagram"),
];

/// Returns the full paths of all functions and types that are forbidden.
pub(super) fn forbidden() -> impl Iterator<Item = String> {
    let names = |(module, names): &(&str, &'static str)| {
        let module = (*module).to_owned();
        names.split(' ').map(move |name| format!("{module}::{name}"))
    };
    FORBIDDEN.iter().flat_map(names)
}

/// Checks that all pure crates have equal copies of one clippy.toml. Clippy reads only the file of the crate itself.
fn pure(repository: &Repository, config: &Config, findings: &mut Findings) {
    let walls: Vec<_> = config
        .pure
        .iter()
        .map(|name| (name, repository.file(&format!("crates/{name}/clippy.toml"))))
        .collect();
    let first = walls.first().and_then(|(_, text)| *text).unwrap_or_default();
    // The quotes matter, because the path of one function is the beginning of others.
    for needed in forbidden().filter(|path| !first.contains(&format!("\"{path}\""))) {
        findings.push(format!("the clippy.toml of the pure crates does not forbid {needed}"));
    }
    for (name, text) in walls {
        match text {
            None => {
                findings.push(format!("crates/{name}: a pure crate needs a clippy.toml that forbids I/O"));
            }
            Some(text) if text != first => {
                findings
                    .push(format!("crates/{name}/clippy.toml: differs from that of the other pure crates"));
            }
            Some(_) => {}
        }
    }
}
