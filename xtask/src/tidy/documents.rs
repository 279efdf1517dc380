//! Rules for documents: one title each, links with existing targets, and a current description of the wire format.

use super::{Findings, Repository};
use std::collections::BTreeSet;

const WIRE: &str = "crates/types/src/wire.rs";
const WIRE_DOCUMENT: &str = "docs/wire.md";

pub(super) fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.ending(".md") {
        let titles = prose(text).filter(|(_, line)| line.starts_with("# ")).count();
        if titles != 1 {
            findings.push(format!("{path}: {titles} titles (`# `); a document has one"));
        }
        for (number, line) in prose(text) {
            for target in links(&line) {
                if let Some(why) = broken(repository, path, &target) {
                    findings.push(format!("{path}:{number}: link to {target}: {why}"));
                }
            }
        }
    }
    wire(repository, findings);
}

/// Returns the lines outside fenced code, numbered from 1, without inline code.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let fence = line.trim_start().starts_with("```");
        let shown = !fenced && !fence;
        fenced ^= fence;
        let plain = line.split('`').step_by(2).collect::<Vec<_>>().join("` `");
        shown.then(|| (i.saturating_add(1), plain))
    })
}

/// Returns the targets of all `[text](target)` in a line.
fn links(line: &str) -> Vec<String> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.trim().to_owned())
        .collect()
}

/// Returns the reason why a link leads nowhere; `None` for a sound link.
fn broken(repository: &Repository, from: &str, target: &str) -> Option<&'static str> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { from.to_owned() } else { resolve(from, file) };
    if !repository.has(&path) && repository.file(&path).is_none() {
        return Some("no such file");
    }
    let text = repository.file(&path)?;
    let known = anchor.is_none_or(|anchor| anchors(text).contains(anchor));
    (!known).then_some("no such heading")
}

fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns the headings as anchors: in lower case, with dashes for blanks, and only letters, digits, dashes and `_`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence && line.starts_with('#')
        })
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter_map(|c| match c {
                    ' ' => Some('-'),
                    c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                    _ => None,
                })
                .collect()
        })
        .collect()
}

/// Checks the hash of the wire format's source that the description carries. A change of the format thus asks for a
/// review of its description.
fn wire(repository: &Repository, findings: &mut Findings) {
    let Some(source) = repository.file(WIRE) else {
        findings.push(format!("{WIRE} is missing"));
        return;
    };
    let hash = blake3::hash(source.as_bytes()).to_hex();
    let document = repository.file(WIRE_DOCUMENT).unwrap_or_default();
    if !document.lines().any(|line| line.trim() == format!("BLAKE3 of `{WIRE}`: `{hash}`")) {
        findings.push(format!(
            "{WIRE_DOCUMENT}: {WIRE} has changed. Read the page again, correct it, then set its line to:\n\
             BLAKE3 of `{WIRE}`: `{hash}`"
        ));
    }
}
