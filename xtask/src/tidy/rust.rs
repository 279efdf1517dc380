//! Rules for Rust files: lengths, sizes of structs, reasons, `unsafe`, ignored tests, sleeps. The scripts of drawings
//! have a limited length too.

use super::config::Config;
use super::source::{blank, closing, functions, is_test, structs, test_regions, tokens};
use super::{Findings, Repository};
use std::collections::BTreeSet;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 700;
const STRUCT_FIELDS_MAX: usize = 20;

pub(super) fn check(repository: &Repository, config: &Config, findings: &mut Findings) {
    let mut used = BTreeSet::new();
    for (path, text) in repository.ending(".rs") {
        let tokens = tokens(&blank(text));
        lengths(path, text, &tokens, config, &mut used, findings);
        if !is_test(path) {
            sizes(path, &tokens, config, &mut used, findings);
        }
        attributes(path, &tokens, findings);
        let name = crate_of(path);
        let pure = config.pure.iter().any(|pure| pure == name) && !config.sleeps.contains_key(path);
        for (i, (token, line)) in tokens.iter().enumerate() {
            let called = tokens.get(i.saturating_add(1)).is_some_and(|(next, _)| next == "(");
            if token == "unsafe" && !config.unsafe_crates.contains_key(name) {
                findings.push(format!(
                    "{path}:{line}: only crates listed under [unsafe] in tidy.toml may have unsafe"
                ));
            }
            let before = i.checked_sub(1).and_then(|i| tokens.get(i)).map(|(token, _)| token.as_str());
            // A method called `sleep` is not the one of `std`.
            let function = called && !matches!(before, Some("." | "fn"));
            if token == "sleep" && function && pure {
                findings.push(format!("{path}:{line}: nothing in a pure crate sleeps, tests included"));
            }
        }
    }
    for (path, text) in repository.ending(".js") {
        length(path, text, config, &mut used, findings);
    }
    stale(config, &used, findings);
}

/// Returns the folder under `crates/`, or the first folder of any other path.
pub(super) fn crate_of(path: &str) -> &str {
    let inside = path.strip_prefix("crates/").unwrap_or(path);
    inside.split('/').next().unwrap_or(inside)
}

/// Checks the length of a file.
fn length(
    path: &str,
    text: &str,
    config: &Config,
    used: &mut BTreeSet<(String, String)>,
    findings: &mut Findings,
) {
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        let exception = config.long_files.iter().find(|exception| exception.file == path);
        used.insert((path.to_owned(), String::new()));
        if exception.is_none_or(|exception| lines > exception.lines) {
            let most = exception.map_or(FILE_LINES_MAX, |exception| exception.lines);
            findings.push(format!("{path}: {lines} lines; at most {most}"));
        }
    }
}

/// Checks the length of a file and of its functions.
fn lengths(
    path: &str,
    text: &str,
    tokens: &[(String, usize)],
    config: &Config,
    used: &mut BTreeSet<(String, String)>,
    findings: &mut Findings,
) {
    length(path, text, config, used, findings);
    for function in functions(tokens).iter().filter(|f| f.lines > FUNCTION_LINES_MAX) {
        let fits = |name: &str, file: &str| file == path && name == function.name;
        let exception = config.long_functions.iter().find(|e| fits(&e.function, &e.file));
        used.insert((path.to_owned(), function.name.clone()));
        if exception.is_none_or(|exception| function.lines > exception.lines) {
            let most = exception.map_or(FUNCTION_LINES_MAX, |exception| exception.lines);
            let (name, line, lines) = (&function.name, function.line, function.lines);
            findings.push(format!("{path}:{line}: function {name} has {lines} lines; at most {most}"));
        }
    }
}

/// Checks the number of fields of each struct outside tests. An exception states the exact number.
fn sizes(
    path: &str,
    tokens: &[(String, usize)],
    config: &Config,
    used: &mut BTreeSet<(String, String)>,
    findings: &mut Findings,
) {
    let tests = test_regions(tokens);
    for found in structs(tokens) {
        let (name, line, fields) = (found.name, found.line, found.fields);
        if fields <= STRUCT_FIELDS_MAX || tests.iter().any(|region| region.contains(&line)) {
            continue;
        }
        used.insert((path.to_owned(), format!("struct {name}")));
        let allowed = config.large_structs.iter().find(|e| e.file == path && e.name == name);
        let most = allowed.map_or(STRUCT_FIELDS_MAX, |exception| exception.fields);
        if fields > most {
            findings.push(format!("{path}:{line}: struct {name} has {fields} fields; at most {most}"));
        } else if fields < most {
            findings.push(format!(
                "tidy.toml: the exception for {path} struct {name} allows {most} fields, it has {fields}: lower the number"
            ));
        }
    }
}

/// Checks that each exception is needed and has a reason. `used` has the places that break a limit.
fn stale(config: &Config, used: &BTreeSet<(String, String)>, findings: &mut Findings) {
    let files = config.long_files.iter().map(|e| (&e.file, String::new(), &e.reason));
    let functions = config.long_functions.iter().map(|e| (&e.file, e.function.clone(), &e.reason));
    let structs = config.large_structs.iter().map(|e| (&e.file, format!("struct {}", e.name), &e.reason));
    for (file, item, reason) in files.chain(functions).chain(structs) {
        if reason.trim().is_empty() {
            findings.push(format!("tidy.toml: the exception for {file} {item} has no reason"));
        }
        let place = (file.clone(), item);
        if !used.contains(&place) {
            findings.push(format!(
                "tidy.toml: the exception for {file} {} is no longer needed: take it out",
                place.1
            ));
        }
    }
}

/// Checks that each `allow` and `expect` has a reason, and that no test is ignored.
fn attributes(path: &str, tokens: &[(String, usize)], findings: &mut Findings) {
    let is = |i: usize, text: &str| tokens.get(i).is_some_and(|(token, _)| token == text);
    for i in 0..tokens.len() {
        let inner = usize::from(is(i.saturating_add(1), "!"));
        let open = i.saturating_add(1).saturating_add(inner);
        if !is(i, "#") || !is(open, "[") {
            continue;
        }
        let end = closing(tokens, open).unwrap_or(tokens.len());
        for at in open..end {
            let Some((token, line)) = tokens.get(at) else {
                break;
            };
            let called = is(at.saturating_add(1), "(");
            match token.as_str() {
                "allow" | "expect" if called => {
                    let close = closing(tokens, at.saturating_add(1)).unwrap_or(end);
                    if !(at..close).any(|i| is(i, "reason") && is(i.saturating_add(1), "=")) {
                        findings.push(format!("{path}:{line}: {token} without a reason"));
                    }
                }
                "ignore" if !called => {
                    findings.push(format!("{path}:{line}: no test may be ignored: repair it or delete it"));
                }
                _ => {}
            }
        }
    }
}
