//! Rules for Rust files: lengths, sizes of structs, reasons, `unsafe`, ignored tests, sleeps. The scripts of drawings
//! have a limited length too.

use super::config::{Config, Exception};
use super::source::{Item, Token, are, closing, functions, is_test, structs, test_regions, text, tokens};
use super::{Findings, Repository};
use std::collections::BTreeSet;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 700;
const STRUCT_FIELDS_MAX: usize = 20;

/// A limit on the size of files or of one kind of item, and the exceptions from it.
struct Limit<'a> {
    /// `function `, `struct `, or nothing for files.
    kind: &'static str,
    most: usize,
    unit: &'static str,
    exceptions: &'a [Exception],
    /// Files and items that are larger.
    large: BTreeSet<(String, String)>,
}

impl<'a> Limit<'a> {
    fn new(kind: &'static str, most: usize, unit: &'static str, exceptions: &'a [Exception]) -> Self {
        Self { kind, most, unit, exceptions, large: BTreeSet::new() }
    }

    /// Checks the size of an item of `file` at `place`. A struct has no fewer fields than its exception allows.
    fn check(&mut self, (file, place): (&str, &str), item: &str, found: usize, findings: &mut Findings) {
        if found <= self.most {
            return;
        }
        self.large.insert((file.to_owned(), item.to_owned()));
        let exception = self.exceptions.iter().find(|e| e.file == file && e.item == item);
        let most = exception.map_or(self.most, |exception| exception.most);
        let Self { kind, unit, .. } = self;
        if found > most {
            let has = if item.is_empty() { String::new() } else { format!("{kind}{item} has ") };
            findings.push(format!("{place}: {has}{found} {unit}; at most {most}"));
        } else if found < most && *unit == "fields" {
            findings.push(format!(
                "tidy.toml: the exception for {file} {kind}{item} allows {most} {unit}, it has {found}: lower the number"
            ));
        }
    }

    /// Checks that each exception is needed and has a reason.
    fn check_exceptions(&self, findings: &mut Findings) {
        for Exception { file, item, reason, .. } in self.exceptions {
            let kind = self.kind;
            if reason.trim().is_empty() {
                findings.push(format!("tidy.toml: the exception for {file} {kind}{item} has no reason"));
            }
            if !self.large.contains(&(file.clone(), item.clone())) {
                findings.push(format!(
                    "tidy.toml: the exception for {file} {kind}{item} is no longer needed: take it out"
                ));
            }
        }
    }
}

pub(super) fn check(repository: &Repository, config: &Config, findings: &mut Findings) {
    let mut files = Limit::new("", FILE_LINES_MAX, "lines", &config.long_files);
    let mut functions_limit = Limit::new("function ", FUNCTION_LINES_MAX, "lines", &config.long_functions);
    let mut structs_limit = Limit::new("struct ", STRUCT_FIELDS_MAX, "fields", &config.large_structs);
    for (path, text) in repository.ending(".rs").chain(repository.ending(".js")) {
        files.check((path, path), "", text.lines().count(), findings);
    }
    for (path, text) in repository.ending(".rs") {
        let tokens = match tokens(text) {
            Ok(tokens) => tokens,
            Err(error) => {
                let place = error.span().start();
                findings.push(format!("{path}:{}:{}: no Rust source", place.line, place.column));
                continue;
            }
        };
        for Item { name, line, size } in functions(&tokens) {
            functions_limit.check((path, &format!("{path}:{line}")), &name, size, findings);
        }
        let regions = test_regions(&tokens);
        let structs = structs(&tokens)
            .into_iter()
            .filter(|found| !regions.iter().any(|region| region.contains(&found.line)));
        for Item { name, line, size } in structs.filter(|_| !is_test(path)) {
            structs_limit.check((path, &format!("{path}:{line}")), &name, size, findings);
        }
        attributes(path, &tokens, findings);
        calls(path, &tokens, config, findings);
    }
    for limit in [files, functions_limit, structs_limit] {
        limit.check_exceptions(findings);
    }
}

/// Checks that `unsafe` and calls of `sleep` stand only in crates that may have them.
fn calls(path: &str, tokens: &[Token], config: &Config, findings: &mut Findings) {
    let name = crate_of(path);
    let pure = config.pure.iter().any(|pure| pure == name) && !config.sleeps.contains_key(path);
    for (i, (token, line)) in tokens.iter().enumerate() {
        if token == "unsafe" && !config.unsafe_crates.contains_key(name) {
            findings.push(format!(
                "{path}:{line}: only crates listed under [unsafe] in tidy.toml may have unsafe"
            ));
        }
        let called = text(tokens, i.saturating_add(1)) == "(";
        let before = i.checked_sub(1).map(|before| text(tokens, before));
        // A method called `sleep` is not the one of `std`.
        if token == "sleep" && called && !matches!(before, Some("." | "fn")) && pure {
            findings.push(format!("{path}:{line}: nothing in a pure crate sleeps, tests included"));
        }
    }
}

/// Returns the folder under `crates/`, or the first folder of any other path.
pub(super) fn crate_of(path: &str) -> &str {
    let inside = path.strip_prefix("crates/").unwrap_or(path);
    inside.split('/').next().unwrap_or(inside)
}

/// Checks that each `allow` and `expect` has a reason, and that no test is ignored.
fn attributes(path: &str, tokens: &[Token], findings: &mut Findings) {
    for i in 0..tokens.len() {
        let inner = usize::from(are(tokens, i, &["#", "!"]));
        let open = i.saturating_add(1).saturating_add(inner);
        if text(tokens, i) != "#" || text(tokens, open) != "[" {
            continue;
        }
        let end = closing(tokens, open).unwrap_or(tokens.len());
        for at in open..end {
            let Some((token, line)) = tokens.get(at) else {
                break;
            };
            let called = text(tokens, at.saturating_add(1)) == "(";
            match token.as_str() {
                "allow" | "expect" if called => {
                    let close = closing(tokens, at.saturating_add(1)).unwrap_or(end);
                    if !(at..close).any(|i| are(tokens, i, &["reason", "="])) {
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
