//! Rules for the workspace: members, who depends on whom and on what, lints, pure crates.

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
    let there: BTreeSet<&str> = manifests.iter().map(|(folder, _)| *folder).collect();
    let listed: BTreeSet<&str> = config.members.iter().map(String::as_str).collect();
    for folder in there.difference(&listed) {
        findings.push(format!(
            "{folder}: a new crate wants an ADR that says what it buys; then list it under `members` in tidy.toml"
        ));
    }
    for folder in listed.difference(&there) {
        findings.push(format!("tidy.toml: member {folder} is not there"));
    }
}

/// Our crates among the dependencies, by short name.
fn ours<'a>(manifest: &'a Table, section: &str) -> impl Iterator<Item = &'a str> {
    let table = manifest.get(section).and_then(toml::Value::as_table);
    table.into_iter().flat_map(Table::keys).filter_map(|name| name.strip_prefix("quorate-"))
}

fn edges(folder: &str, manifest: &Table, config: &Config, findings: &mut Findings) {
    let name = folder.strip_prefix("crates/").unwrap_or(folder);
    let Some(allowed) = config.edges.get(name) else {
        findings.push(format!("tidy.toml: [edges] says nothing about {name}"));
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
                    "{folder}/Cargo.toml: {name} must not import {other} ({section}): ARCHITECTURE.md says why"
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

/// Every member has the workspace's lints, except that a crate with `unsafe` must write its own table.
fn lints(folder: &str, manifest: &Table, config: &Config, findings: &mut Findings) {
    let name = folder.strip_prefix("crates/").unwrap_or(folder);
    let lints = manifest.get("lints").and_then(toml::Value::as_table);
    let inherited = lints.is_some_and(|lints| lints.get("workspace") == Some(&toml::Value::Boolean(true)));
    if !inherited && !config.unsafe_crates.contains_key(name) {
        findings.push(format!("{folder}/Cargo.toml: [lints] workspace = true is missing"));
    }
}

/// The walls of the pure crates are one list, copied: clippy reads only the file of the crate itself.
fn pure(repository: &Repository, config: &Config, findings: &mut Findings) {
    let walls: Vec<_> = config
        .pure
        .iter()
        .map(|name| (name, repository.file(&format!("crates/{name}/clippy.toml"))))
        .collect();
    let first = walls.first().and_then(|(_, text)| *text).unwrap_or_default();
    for needed in
        ["std::time::Instant", "std::time::SystemTime", "std::collections::HashMap", "std::thread::spawn"]
    {
        if !first.contains(needed) {
            findings.push(format!("the clippy.toml of the pure crates does not forbid {needed}"));
        }
    }
    for (name, text) in walls {
        match text {
            None => findings.push(format!("crates/{name}: a pure crate has a clippy.toml that forbids I/O")),
            Some(text) if text != first => {
                findings.push(format!(
                    "crates/{name}/clippy.toml: not the same as that of the other pure crates"
                ));
            }
            Some(_) => {}
        }
    }
}
