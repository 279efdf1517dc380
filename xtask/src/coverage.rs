//! Lines of the protocols and of the replica that tests run: unit tests, golden scripts, and the exam.
//!
//! The tool is cargo-tarpaulin, which needs nothing but a Linux kernel. This module adds up its counts. Only executable
//! lines count, and no lines of tests.

use crate::tidy::is_test;
use crate::{finish, is_installed};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the protocols. Each protocol has a line of its own in the report.
const PROTOCOLS: &str = "crates/protocols/src/";
const REPLICA: &str = "crates/replica/src/";
/// The per cent of lines that tests should run.
const GOAL: usize = 95;
/// The format of the file that `--out` writes.
const FORMAT: usize = 1;
/// The advice for machines without the tool.
const INSTALL: &str = "cargo-tarpaulin is not installed: cargo install cargo-tarpaulin --no-default-features";
/// The largest number of ranges of uncovered lines that the report names for each file.
const RANGES_MAX: usize = 12;

/// Runs of tests: the name, and the arguments for the tool.
const RUNS: [(&str, &[&str]); 3] = [
    ("unit", &["--packages", "quorate-protocols", "--packages", "quorate-replica", "--lib"]),
    (
        "scripts",
        &["--packages", "quorate-protocols", "--test", "simulated", "--", "scripts::", "conformance::"],
    ),
    ("exam", &["--packages", "quorate-protocols", "--test", "simulated"]),
];

/// The number of executions of each line of a file.
type Lines = BTreeMap<usize, u64>;
/// Lines of files, by path from the root.
type Files = BTreeMap<String, Lines>;

/// The orders of a user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Orders {
    /// The file for the counts, for the report of a benchmark.
    pub(crate) out: Option<PathBuf>,
    /// The per cent of lines that each protocol must reach.
    pub(crate) floor: Option<usize>,
}

impl Orders {
    /// Reads `--out FILE` and `--floor PERCENT`.
    pub(crate) fn read(arguments: &[&str]) -> Result<Self> {
        let mut orders = Self::default();
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value = rest.next().with_context(|| format!("{name}: expected a value behind it"))?;
            match *name {
                "--out" => orders.out = Some(PathBuf::from(value)),
                "--floor" => orders.floor = Some(percent(value)?),
                _ => bail!("{name}: expected --out FILE or --floor PERCENT"),
            }
        }
        Ok(orders)
    }
}

fn percent(text: &str) -> Result<usize> {
    let percent = text.parse::<usize>().ok().filter(|percent| *percent <= 100);
    percent.with_context(|| format!("--floor {text}: expected a whole number from 0 to 100"))
}

/// Runs the tests and prints their coverage.
pub(crate) fn run(root: &Path, orders: &Orders) -> Result<()> {
    if !is_installed("tarpaulin") {
        bail!("{INSTALL}");
    }
    let mut runs = Vec::new();
    for (name, arguments) in RUNS {
        println!("== {name}");
        runs.push((name, measure(root, name, arguments)?));
    }
    print!("{}", report(&runs));
    let folders = folders(&merge(&runs));
    if let Some(out) = &orders.out {
        let text = json(&folders, orders.floor.unwrap_or(GOAL));
        std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    }
    orders.floor.map_or(Ok(()), |floor| check(&folders, floor))
}

/// The counts of a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Folder {
    folder: String,
    lines: usize,
    covered: usize,
}

impl Folder {
    fn is_below(&self, floor: usize) -> bool {
        self.covered.saturating_mul(100) < self.lines.saturating_mul(floor)
    }
}

/// Returns the counts of each folder with lines.
fn folders(files: &Files) -> Vec<Folder> {
    let units: BTreeSet<String> = files.keys().map(|path| unit(path)).collect();
    let of = |folder: String| {
        let lines = counted(files, &folder).count();
        let covered = counted(files, &folder).filter(|(_, hits)| **hits > 0).count();
        Folder { folder, lines, covered }
    };
    units.into_iter().map(of).filter(|folder| folder.lines > 0).collect()
}

/// Returns the counts as JSON. The names of folders have no characters that JSON escapes.
fn json(folders: &[Folder], floor: usize) -> String {
    let one = |of: &Folder| {
        let (folder, lines, covered) = (&of.folder, of.lines, of.covered);
        let percent = share(covered, lines);
        format!(
            "    {{ \"folder\": \"{folder}\", \"lines\": {lines}, \"covered\": {covered}, \"percent\": {percent} }}"
        )
    };
    let all: Vec<String> = folders.iter().map(one).collect();
    format!(
        "{{\n  \"format\": {FORMAT},\n  \"floor\": {floor},\n  \"folders\": [\n{}\n  ]\n}}\n",
        all.join(",\n")
    )
}

/// Fails when a protocol is below the floor.
fn check(folders: &[Folder], floor: usize) -> Result<()> {
    let below = folders.iter().filter(|of| of.folder.starts_with(PROTOCOLS) && of.is_below(floor));
    let below: Vec<String> =
        below.map(|of| format!("{} {} %", of.folder, share(of.covered, of.lines))).collect();
    if below.is_empty() {
        return Ok(());
    }
    bail!("fewer than {floor} % of the lines of a protocol are covered: {}", below.join(", "))
}

/// Runs the tool once. Its builds have a folder of their own, because it compiles with other flags.
fn measure(root: &Path, name: &str, arguments: &[&str]) -> Result<Files> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let out = target.join("coverage").join(name);
    std::fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    let mut command = Command::new(env!("CARGO"));
    command.args(["tarpaulin", "--engine", "ptrace", "--profile", "coverage"]);
    command.args(["--skip-clean", "--out", "Lcov"]);
    command.args(["--timeout", "1800", "--include-files", "crates/protocols/src/*", "crates/replica/src/*"]);
    command.arg("--target-dir").arg(target.join("coverage")).arg("--output-dir").arg(&out);
    finish(command.args(arguments).current_dir(root))?;
    let file = out.join("lcov.info");
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    read(&text, &root.to_string_lossy())
}

/// Parses the tool's output: files, and lines with counts.
fn read(text: &str, root: &str) -> Result<Files> {
    let mut files = Files::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = path.strip_prefix(root).unwrap_or(path).trim_start_matches('/');
            current = is_counted(path).then(|| path.to_owned());
        } else if let (Some(count), Some(path)) = (line.strip_prefix("DA:"), &current) {
            let (number, hits) =
                count.split_once(',').with_context(|| format!("not a line of LCOV: {line}"))?;
            let hits = hits.split(',').next().unwrap_or_default();
            let entry = files.entry(path.clone()).or_default().entry(number.parse()?).or_default();
            *entry = (*entry).max(hits.parse()?);
        }
    }
    Ok(files)
}

/// Whether the report counts a file: one of protocols or replica, but no test.
fn is_counted(path: &str) -> bool {
    let is_product = path.starts_with(PROTOCOLS) || path.starts_with(REPLICA);
    is_product && !is_test(path) && path.ends_with(".rs")
}

/// Returns the unit that counts a file: the folder of a protocol, or the crate.
fn unit(path: &str) -> String {
    let folder = path.strip_prefix(PROTOCOLS).and_then(|rest| rest.split_once('/'));
    match folder {
        Some((folder, _)) => format!("{PROTOCOLS}{folder}"),
        None => path.rsplit_once('/').map_or(path, |(folder, _)| folder).to_owned(),
    }
}

/// Merges the runs: a line has the largest count of any run.
fn merge(runs: &[(&str, Files)]) -> Files {
    let mut all = Files::new();
    for (_, files) in runs {
        for (path, lines) in files {
            let known = all.entry(path.clone()).or_default();
            for (line, hits) in lines {
                let count = known.entry(*line).or_default();
                *count = (*count).max(*hits);
            }
        }
    }
    all
}

/// Returns all lines of the unit `of`, and of the units in its folder, with their counts.
fn counted<'a>(files: &'a Files, of: &'a str) -> impl Iterator<Item = (&'a usize, &'a u64)> {
    let is_in = move |path: &str| {
        unit(path).strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    files.iter().filter(move |(path, _)| is_in(path)).flat_map(|(_, lines)| lines)
}

fn report(runs: &[(&str, Files)]) -> String {
    let all = merge(runs);
    let mut text = format!("{:<28}", "lines covered by");
    for (name, _) in runs {
        let _ = write!(text, "{name:>10}");
    }
    let _ = writeln!(text, "{:>10}", "all");
    for folder in folders(&all) {
        let (of, total) = (&folder.folder, folder.lines);
        let _ = write!(text, "{of:<28}");
        for files in runs.iter().map(|(_, files)| files).chain([&all]) {
            let hit = counted(files, of).filter(|(_, hits)| **hits > 0).count();
            let _ = write!(text, "{:>8} %", share(hit, total));
        }
        let note = if folder.is_below(GOAL) { format!(", less than {GOAL} %") } else { String::new() };
        let _ = writeln!(text, "  {} of {total} lines{note}", folder.covered);
    }
    for (path, lines) in &all {
        let missed = ranges(lines.iter().filter(|(_, hits)| **hits == 0).map(|(line, _)| *line));
        if !missed.is_empty() {
            let shown: Vec<&str> = missed.iter().take(RANGES_MAX).map(String::as_str).collect();
            let more = if missed.len() > RANGES_MAX { " …" } else { "" };
            let _ = writeln!(text, "not covered: {path}: {}{more}", shown.join(" "));
        }
    }
    text
}

/// Formats a share in per cent, with one digit after the point.
fn share(hit: usize, total: usize) -> String {
    let tenths = hit.saturating_mul(1_000).checked_div(total).unwrap_or(1_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Formats ascending lines as ranges: `3`, `5-7`.
fn ranges(lines: impl Iterator<Item = usize>) -> Vec<String> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for line in lines {
        match ranges.last_mut() {
            Some((_, last)) if last.saturating_add(1) == line => *last = line,
            _ => ranges.push((line, line)),
        }
    }
    let shown = |(first, last): (usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "\
TN:
SF:/r/crates/protocols/src/pbft/votes.rs
DA:3,7
DA:5,0
DA:6,0
DA:8,0
end_of_record
SF:/r/crates/protocols/src/pbft/tests/codec.rs
DA:1,0
end_of_record
SF:/r/crates/types/src/block.rs
DA:1,0
end_of_record
";
    const EXAM: &str = "SF:/r/crates/protocols/src/pbft/votes.rs\nDA:5,2,abc\nend_of_record\nSF:crates/replica/src/lib.rs\nDA:9,1\n";

    #[test]
    fn runs_are_merged_without_lines_of_tests() {
        let runs = [("unit", read(UNIT, "/r").unwrap()), ("exam", read(EXAM, "/r").unwrap())];
        let expected = "\
lines covered by                  unit      exam       all
crates/protocols/src/pbft       25.0 %    25.0 %    50.0 %  2 of 4 lines, less than 95 %
crates/replica/src               0.0 %   100.0 %   100.0 %  1 of 1 lines
not covered: crates/protocols/src/pbft/votes.rs: 6 8
";
        assert_eq!(report(&runs), expected);
    }

    #[test]
    fn counts_of_folders_are_json_and_have_a_floor() {
        let merged = merge(&[("unit", read(UNIT, "/r").unwrap()), ("exam", read(EXAM, "/r").unwrap())]);
        let folders = folders(&merged);
        let expected = r#"{
  "format": 1,
  "floor": 95,
  "folders": [
    { "folder": "crates/protocols/src/pbft", "lines": 4, "covered": 2, "percent": 50.0 },
    { "folder": "crates/replica/src", "lines": 1, "covered": 1, "percent": 100.0 }
  ]
}
"#;
        assert_eq!(json(&folders, 95), expected);
        let error = check(&folders, 51).unwrap_err().to_string();
        assert!(error.contains("crates/protocols/src/pbft 50.0 %"), "{error}");
        check(&folders, 50).unwrap();
    }

    #[test]
    fn floor_binds_protocols_alone() {
        let text = "SF:crates/replica/src/lib.rs\nDA:9,0\n";
        check(&folders(&read(text, "").unwrap()), 95).unwrap();
    }

    #[test]
    fn options_have_values() {
        let orders = Orders { out: Some(PathBuf::from("a.json")), floor: Some(95) };
        assert_eq!(Orders::read(&["--out", "a.json", "--floor", "95"]).unwrap(), orders);
        for wrong in [&["--out"][..], &["--floor", "101"], &["--floor", "x"], &["--other", "1"]] {
            assert!(Orders::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn consecutive_lines_are_one_range() {
        assert_eq!(ranges([1, 2, 3, 5, 8, 9].into_iter()), ["1-3", "5", "8-9"]);
        assert!(read("SF:crates/replica/src/lib.rs\nDA:nonsense\n", "/r").is_err());
    }
}
