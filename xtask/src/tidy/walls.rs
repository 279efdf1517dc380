//! The walls of the pure crates, checked as text. Clippy knows single functions and types. This rule knows whole
//! modules, and it also sees code that this platform does not compile.

use super::config::Config;
use super::rust::crate_of;
use super::source::{Token, are, closing, text, tokens};
use super::{Findings, Repository};
use std::collections::BTreeSet;

/// Modules of `std`.
const MODULES: &[&str] = &["env", "fs", "net", "process", "thread"];
/// Names that are forbidden from any crate or module.
const NAMES: &[&str] = &["RandomState", "getrandom", "tokio"];
/// Types of `std::net` that are plain values.
const VALUES: &[&str] =
    &["AddrParseError", "IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6"];

pub(super) fn check(repository: &Repository, config: &Config, findings: &mut Findings) {
    let mut used = BTreeSet::new();
    for (path, text) in repository.ending(".rs") {
        if !path.starts_with("crates/") || !config.pure.iter().any(|pure| pure == crate_of(path)) {
            continue;
        }
        let named = named(&tokens(text).unwrap_or_default());
        let covers =
            |driver: &&String| *driver == path || (driver.ends_with('/') && path.starts_with(*driver));
        match config.drivers.keys().find(covers) {
            Some(driver) if !named.is_empty() => {
                used.insert(driver.clone());
            }
            Some(_) => {}
            None => findings.extend(named.iter().map(|(name, line)| {
                format!("{path}:{line}: a pure crate names {name}; drivers are listed under [drivers] in tidy.toml")
            })),
        }
    }
    for (driver, reason) in &config.drivers {
        if !used.contains(driver) {
            findings.push(format!("tidy.toml: the exception for {driver} is no longer needed: take it out"));
        }
        if reason.trim().is_empty() {
            findings.push(format!("tidy.toml: the exception for {driver} has no reason"));
        }
    }
}

/// Returns all forbidden names among the tokens, each with its line.
fn named(tokens: &[Token]) -> Vec<Token> {
    let mut named = Vec::new();
    for (i, (token, line)) in tokens.iter().enumerate() {
        if NAMES.contains(&token.as_str()) {
            named.push((token.clone(), *line));
        }
        if token != "std" {
            continue;
        }
        // `std::fs`, or `std::{fs, net::TcpStream}`.
        let Some(next) = after_colons(tokens, i) else { continue };
        for at in branches(tokens, next) {
            let Some((module, line)) = tokens.get(at) else { continue };
            if MODULES.contains(&module.as_str()) && !(module == "net" && are_values(tokens, at)) {
                named.push((format!("std::{module}"), *line));
            }
        }
    }
    named
}

/// Returns the index behind `::` after the token at `at`.
fn after_colons(tokens: &[Token], at: usize) -> Option<usize> {
    are(tokens, at.saturating_add(1), &[":", ":"]).then(|| at.saturating_add(3))
}

/// Returns the indices at which the paths at `at` begin: one path, or all those in braces.
fn branches(tokens: &[Token], at: usize) -> Vec<usize> {
    if text(tokens, at) != "{" {
        return vec![at];
    }
    let end = closing(tokens, at).unwrap_or(tokens.len());
    let mut begins = Vec::new();
    let mut i = at.saturating_add(1);
    while i < end {
        begins.push(i);
        // Advance to the comma behind this path. Commas in inner braces are part of the path.
        while i < end && text(tokens, i) != "," {
            i = if text(tokens, i) == "{" { closing(tokens, i).unwrap_or(end) } else { i };
            i = i.saturating_add(1);
        }
        i = i.saturating_add(1);
    }
    begins
}

/// Whether the module at `at` is named for plain values only.
fn are_values(tokens: &[Token], at: usize) -> bool {
    let Some(next) = after_colons(tokens, at) else { return false };
    let names = branches(tokens, next).into_iter().filter_map(|at| tokens.get(at));
    names.into_iter().all(|(name, _)| VALUES.contains(&name.as_str()))
}
