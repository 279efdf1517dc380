//! Rules for protocols: each has a folder, is registered and documented, and imports no other protocol.

use super::source::{blank, tokens};
use super::{Findings, Repository};
use std::collections::BTreeSet;

const FOLDER: &str = "crates/protocols/src/";
const HEADINGS: [&str; 6] = [
    "## Flow",
    "## Rules",
    "## Invariants",
    "## What survives a crash",
    "## Deviations from the paper",
    "## Not here",
];

pub(super) fn check(repository: &Repository, findings: &mut Findings) {
    let inside =
        || repository.ending(".rs").filter_map(|(path, text)| Some((path.strip_prefix(FOLDER)?, text)));
    let folders: BTreeSet<&str> = inside().filter_map(|(path, _)| path.strip_suffix("/mod.rs")).collect();
    let folders: BTreeSet<&str> = folders.into_iter().filter(|folder| !folder.contains('/')).collect();
    registry(repository, &folders, findings);
    for (path, text) in inside() {
        let Some((folder, _)) = path.split_once('/') else {
            continue;
        };
        imports(path, text, folder, &folders, findings);
        if path == format!("{folder}/mod.rs") {
            documented(path, text, findings);
        }
    }
}

/// Checks that each folder stands in `REGISTRY`, and that each name in `REGISTRY` has a folder.
fn registry(repository: &Repository, folders: &BTreeSet<&str>, findings: &mut Findings) {
    let library = repository.file(&format!("{FOLDER}lib.rs")).unwrap_or_default();
    let tokens = tokens(&blank(library));
    let start = tokens.iter().position(|(token, _)| token == "REGISTRY").unwrap_or(tokens.len());
    let mut registered = BTreeSet::new();
    // Entry::of::<pbft::Pbft>() has the name between `<` and `::`.
    for window in tokens.get(start..).unwrap_or_default().windows(4) {
        let names = window.iter().map(|(token, _)| token.as_str());
        if let ["<", module, ":", ":"] = names.collect::<Vec<_>>().as_slice() {
            registered.insert((*module).to_owned());
        }
    }
    for folder in folders {
        if !registered.contains(*folder) {
            findings.push(format!(
                "{FOLDER}{folder}: not in REGISTRY; exam and commands would not know it, so add it"
            ));
        }
    }
    for module in registered {
        if !folders.contains(module.as_str()) {
            findings.push(format!("{FOLDER}lib.rs: REGISTRY names {module}, which has no folder"));
        }
    }
}

/// Checks that no protocol imports another. Code for two protocols belongs in `consensus/src/parts`.
fn imports(path: &str, text: &str, folder: &str, folders: &BTreeSet<&str>, findings: &mut Findings) {
    let tokens = tokens(&blank(text));
    let is = |at: Option<usize>, text: &str| {
        let token = at.and_then(|at| tokens.get(at));
        token.is_some_and(|(token, _)| token == text)
    };
    for (i, (token, line)) in tokens.iter().enumerate() {
        let foreign = token != folder && folders.contains(token.as_str());
        let begins_path = is(i.checked_add(1), ":") && is(i.checked_add(2), ":");
        let ends_path = is(i.checked_sub(1), ":") && is(i.checked_sub(2), ":");
        if foreign && (begins_path || ends_path) {
            findings.push(format!(
                "{FOLDER}{path}:{line}: {folder} imports {token}; code for both belongs in consensus/src/parts"
            ));
        }
    }
}

/// Checks that the documentation of a protocol has its title, its table and all headings.
fn documented(path: &str, text: &str, findings: &mut Findings) {
    let docs: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    if !docs.first().is_some_and(|line| line.starts_with("# ")) {
        findings.push(format!(
            "{FOLDER}{path}: its documentation must begin with the protocol's name: `//! # Name`"
        ));
    }
    let header = "| model | replicas | quorum | good-case latency | paper |";
    for needed in std::iter::once(header).chain(HEADINGS) {
        if !docs.contains(&needed) {
            findings.push(format!("{FOLDER}{path}: `{needed}` is missing from its documentation (STYLE.md)"));
        }
    }
}
