//! `quorate bench` and `quorate report`: experiments with real clusters, from a file to the report.

use crate::support::{Ran, command};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A cell that runs, one whose protocol is not built, one that fails, and a system of others.
const STUDY: &str = r#"
tag = "small"
title = "A small experiment"

[[study]]
name = "load"
title = "Two loads"
cells = { protocol = ["pbft", "tomorrow"], n = 4, rate = [40, 80], durability = "none", seconds = "500ms", warmup = "100ms", timeline = "100ms" }
not_built = ["a switch of tomorrow"]
figures = [{ kind = "latency-throughput" }, { kind = "heat-map" }, { kind = "timeline" }, { kind = "cumulative" }, { kind = "ledger" }, { kind = "table" }]

[[study.external]]
system = "other, 0/0"
command = ["./other.sh", "{n}"]
authentication = "none"
durability = "none"
service = "one reply"

[[study]]
name = "wrong"
title = "A command without a result"
work = "command"
command = ["status", "--cluster", "{protocol}"]
cells = { protocol = "pbft" }
"#;
const OTHER: &str = "#!/bin/sh\necho '{\"system\": \"other\", \"protocol\": \"pbft\", \"n\": '$1', \"tx_per_s\": 1000, \
                     \"latency_ms\": 5.5, \"cpu_s_total\": 1, \"rss_mb_max\": 80, \"note\": \"a stub\"}'\n";

struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("small.toml"), STUDY).unwrap();
        let other = folder.path().join("other.sh");
        fs::write(&other, OTHER).unwrap();
        rustix::fs::chmod(&other, rustix::fs::Mode::RWXU).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(command(args).current_dir(self.0.path()).output().unwrap())
    }

    /// Runs the experiment into a folder.
    fn bench(&self, out: &str, more: &[&str]) -> Ran {
        self.run(&[&["bench", "small.toml", "--out", out], more].concat())
    }

    /// Returns all records of a folder, by path.
    fn records(&self, out: &str) -> BTreeMap<PathBuf, Value> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.path(out)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else if entry.file_name() == "cell.json" {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    all.insert(entry.path(), serde_json::from_str(&text).unwrap());
                }
            }
        }
        all
    }
}

/// Returns the outcome of each record, in words.
fn outcomes(records: &BTreeMap<PathBuf, Value>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for record in records.values() {
        let outcome = &record["outcome"];
        let word = outcome.as_str().or_else(|| outcome.as_object()?.keys().next().map(String::as_str));
        *counts.entry(word.unwrap()).or_default() += 1;
    }
    counts
}

/// Returns the names and bytes of the files in a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn experiment_gives_an_archive_and_a_report_and_resumes() {
    let bench = Bench::new();
    let ran = bench.bench("first", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for said in ["6 cells, 6 runs, about ", "not built yet: protocol tomorrow", "FAILED: "] {
        assert!(ran.err.contains(said), "{said}: {}", ran.err);
    }
    let first = bench.records("first");
    let expected = BTreeMap::from([("done", 3), ("failed", 1), ("not-built", 3)]);
    assert_eq!(outcomes(&first), expected, "{first:#?}");
    let loads: Vec<&Value> = first
        .values()
        .filter(|record| record["protocol"] == "pbft" && record["load"]["sent"].is_u64())
        .collect();
    assert_eq!(loads.len(), 2, "{first:#?}");
    for record in loads {
        let (load, rate) = (&record["load"], record["axes"]["rate"].as_f64().unwrap());
        assert_eq!(
            (load["offered"].as_f64(), load["due"].as_f64()),
            (Some(rate), Some(rate / 2.0)),
            "{load}"
        );
        assert!(load["generator_cpu_ms"].as_f64() > Some(0.0), "{load}");
        assert!(load["sent"].as_f64() >= load["due"].as_f64(), "the warm-up is sent too: {load}");
        assert_eq!((&load["durability"], &load["errors"]), (&"none".into(), &0.into()), "{load}");
        assert_eq!(load["timeline"].as_array().unwrap().len(), 5, "{load}");
    }
    let summary = fs::read_to_string(bench.path("first/summary.csv")).unwrap();
    assert!(summary.lines().count() >= 4 && summary.contains("tomorrow"), "{summary}");

    // The report needs nothing but the folder, and gives the same bytes elsewhere.
    let ran = bench.run(&["report", "first"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let report = files(&bench.path("first/report"));
    let page = String::from_utf8(report["index.html"].clone()).unwrap();
    for shown in ["A small experiment", "other", "a stub", "one reply", "tomorrow", "<svg"] {
        assert!(page.contains(shown), "{shown}");
    }
    for fetched in ["src=\"http", "href=\"http", "@import", "<link"] {
        assert!(!page.contains(fetched), "the page opens offline, and has {fetched}");
    }
    fs::create_dir(bench.path("elsewhere")).unwrap();
    fs::rename(bench.path("first"), bench.path("elsewhere/moved")).unwrap();
    fs::remove_dir_all(bench.path("elsewhere/moved/report")).unwrap();
    assert_eq!(bench.run(&["report", "elsewhere/moved"]).code, Some(0));
    assert!(report == files(&bench.path("elsewhere/moved/report")), "other bytes");
    resumes(&bench, &expected);
}

/// Checks that the same command runs what has no result, and nothing else.
fn resumes(bench: &Bench, expected: &BTreeMap<&str, usize>) {
    let moved = bench.records("elsewhere/moved");
    let gone =
        moved.iter().find(|(_, record)| record["axes"]["rate"] == 40 && record["load"]["sent"].is_u64());
    let (path, _) = gone.unwrap();
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let ran = bench.bench("elsewhere/moved", &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let resumed = bench.records("elsewhere/moved");
    assert_eq!(&outcomes(&resumed), expected);
    for (at, record) in &resumed {
        let is_new = at == path || record["study"] == "wrong";
        assert_eq!(record == &moved[at], !is_new, "{}", at.display());
    }
    let ran = bench.bench("elsewhere/moved", &["--seed", "2"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.err.contains("the archive of another experiment, form, seed or profile; choose another --out"),
        "{}",
        ran.err
    );
    let compared = bench.run(&["report", "--compare", "elsewhere/moved", "elsewhere/moved"]);
    assert_eq!(compared.code, Some(0), "{} {}", compared.out, compared.err);
}

#[test]
fn wrong_experiments_are_refused_before_anything_starts() {
    let bench = Bench::new();
    for (args, words) in [
        (&["--only", "protocol=pompom"][..], &["protocol=pompom", "--list"][..]),
        (&["--set", "colour=red"], &["study load: colour: unknown", "durability"]),
        (&["--set", "rate=fast"], &["rate"]),
        (&["--set", "link_delay=100"], &["study load: pbft n=4", "so write 100ms"]),
        (&["--only", "n"], &["AXIS=VALUE"]),
    ] {
        let ran = bench.bench("out", args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{args:?}: expected {word:?} in {}", ran.err);
        }
        assert!(!bench.path("out").exists());
    }
    let ran = bench.run(&["bench", "absent.toml"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("absent.toml"), "{}", ran.err);
    let listed = bench.bench("out", &["--list", "--only", "protocol=pbft", "--only", "rate=40"]);
    assert_eq!((listed.code, listed.out.lines().count()), (Some(0), 2), "{}{}", listed.out, listed.err);
}
