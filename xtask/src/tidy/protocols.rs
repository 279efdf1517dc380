//! Rules for protocols: each has a folder, or a file of its own in the folder of its family. They are registered, documented,
//! and do not import each other.

use super::source::{are, text, tokens};
use super::{Findings, Repository};
use std::collections::BTreeSet;

const FOLDER: &str = "crates/protocols/src/";
const TESTS: &str = "crates/protocols/tests/";
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
            documented(repository, folder, path, text, findings);
            for module in public_modules(text) {
                let files = [format!("{folder}/{module}.rs"), format!("{folder}/{module}/mod.rs")];
                let known =
                    files.iter().find_map(|path| Some((path, repository.file(&format!("{FOLDER}{path}"))?)));
                if let Some((path, text)) = known {
                    documented(repository, folder, path, text, findings);
                }
            }
        }
    }
}

/// Checks that each folder is in `REGISTRY`, and that each entry of `REGISTRY` has a folder.
fn registry(repository: &Repository, folders: &BTreeSet<&str>, findings: &mut Findings) {
    let library = repository.file(&format!("{FOLDER}lib.rs")).unwrap_or_default();
    let tokens = tokens(library).unwrap_or_default();
    let start = tokens.iter().position(|(token, _)| token == "REGISTRY").unwrap_or(tokens.len());
    let mut registered = BTreeSet::new();
    // Entry::of::<pbft::Pbft>(): the name between `<` and `::`.
    for window in tokens.get(start..).unwrap_or_default().windows(4) {
        let names = window.iter().map(|(token, _)| token.as_str());
        if let ["<", module, ":", ":"] = names.collect::<Vec<_>>().as_slice() {
            registered.insert((*module).to_owned());
        }
    }
    for folder in folders {
        if !registered.contains(*folder) {
            findings.push(format!("{FOLDER}{folder}: not in REGISTRY, so no exam and no command knows it"));
        }
    }
    for module in registered {
        if !folders.contains(module.as_str()) {
            findings.push(format!("{FOLDER}lib.rs: REGISTRY names {module}, which has no folder"));
        }
    }
}

/// Checks that no folder imports another: code that two of them share belongs into `consensus/src/parts`.
fn imports(path: &str, text: &str, folder: &str, folders: &BTreeSet<&str>, findings: &mut Findings) {
    let tokens = tokens(text).unwrap_or_default();
    for (i, (token, line)) in tokens.iter().enumerate() {
        let foreign = token != folder && folders.contains(token.as_str());
        let begins_path = are(&tokens, i.saturating_add(1), &[":", ":"]);
        let ends_path = i.checked_sub(2).is_some_and(|before| are(&tokens, before, &[":", ":"]));
        if foreign && (begins_path || ends_path) {
            findings.push(format!(
                "{FOLDER}{path}:{line}: {folder} imports {token}; code that both need belongs into consensus/src/parts"
            ));
        }
    }
}

/// Returns the modules that a protocol's folder makes public: each is a protocol of the same family.
fn public_modules(source: &str) -> Vec<String> {
    let tokens = tokens(source).unwrap_or_default();
    let begins = (0..tokens.len()).filter(|at| are(&tokens, *at, &["pub", "mod"]));
    let whole = begins.filter(|at| text(&tokens, at.saturating_add(3)) == ";");
    whole.map(|at| text(&tokens, at.saturating_add(2)).to_owned()).collect()
}

/// Checks the header of a protocol, and that the tests in its rule table exist.
fn documented(repository: &Repository, folder: &str, path: &str, text: &str, findings: &mut Findings) {
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
    let own = format!("{FOLDER}{folder}/");
    let sources: Vec<&str> = repository
        .ending(".rs")
        .filter(|(path, _)| path.starts_with(&own) || path.starts_with(TESTS))
        .map(|(_, text)| text)
        .collect();
    for name in tests_in_table(&docs) {
        if !sources.iter().any(|text| has_test(text, name)) {
            findings
                .push(format!("{FOLDER}{path}: its rule table names the test {name}, which does not exist"));
        }
    }
}

/// Whether a source has a test of this name, as a function or in the list `a / b: body;` of a macro. A name may end with `*`.
fn has_test(source: &str, name: &str) -> bool {
    let stem = name.trim_end_matches('*');
    let after = |before: &str, ends: [char; 2]| {
        source.split(&format!("{before}{stem}")).skip(1).any(|rest| {
            let rest = if stem == name { rest } else { rest.trim_start_matches(is_in_name) };
            rest.starts_with(ends)
        })
    };
    after("fn ", ['(', '<']) || after("/ ", [':', ':'])
}

fn is_in_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// Returns the tests in the last column of the rule table.
fn tests_in_table<'a>(docs: &[&'a str]) -> Vec<&'a str> {
    let after_heading = docs.iter().skip_while(|line| **line != "## Rules").skip(1);
    let section = after_heading.take_while(|line| !line.starts_with("## "));
    let rows = section.filter(|line| line.starts_with("| ") && !line.starts_with("| id "));
    let last = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next());
    last.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}
