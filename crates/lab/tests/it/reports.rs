//! `quorate report --compare` on folders that have a manifest and a summary alone.

use crate::support::{Ran, command};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const MANIFEST: &str = r#"{ "format": 1, "tag": "kept", "title": "Kept", "stamp": "20260101T000000Z",
    "machine": { "processor": "p", "cores": 2, "memory_bytes": 1, "kernel": "k", "file_system": "ext4" },
    "commit": "c", "seed": 1, "form": "short", "yardstick": null, "studies": [] }"#;

struct Folders(TempDir);

impl Folders {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Makes a folder with a summary of one cell.
    fn with(&self, name: &str, goodput: u32, cpu: u32, bytes: u32) -> &Self {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("manifest.json"), MANIFEST).unwrap();
        let head = "study,system,protocol,n,f,rate,runs,failed,not_built,goodput_per_s_min,goodput_per_s_median,\
                    goodput_per_s_max,cpu_us_per_request_min,cpu_us_per_request_median,cpu_us_per_request_max,\
                    saturated,ledger_bytes_out";
        let row =
            format!("s,quorate,pbft,4,1,50%,1,0,,{goodput},{goodput},{goodput},{cpu},{cpu},{cpu},no,{bytes}");
        fs::write(folder.join("summary.csv"), format!("{head}\n{row}\n")).unwrap();
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn compare(&self, before: &str, after: &str, more: &[&str]) -> Ran {
        let words = [&["report", "--compare", before, after], more].concat();
        Ran::of(command(&words).current_dir(self.0.path()).output().unwrap())
    }
}

#[test]
fn counted_comparison_ignores_throughput_and_fails_for_grown_work() {
    let folders = Folders::new();
    folders.with("old", 1_000, 100, 2_000).with("slow", 100, 120, 2_100).with("dear", 1_000, 130, 2_300);
    assert_eq!(folders.compare("old", "slow", &[]).code, Some(1), "less throughput");
    let ran = folders.compare("old", "slow", &["--counted"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    let ran = folders.compare("old", "dear", &["--counted"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    for word in ["CPU µs", "100 -> 130", "bytes sent", "2,000 -> 2,300", "1 of 1 judged cells are worse"] {
        assert!(ran.out.contains(word), "{word}: {}", ran.out);
    }
    ran.fails("grown work", &["the second archive is worse"]);
    let tolerant = ["--counted", "--cpu-tolerance", "40", "--count-tolerance", "20"];
    assert_eq!(folders.compare("old", "dear", &tolerant).code, Some(0));
}

#[test]
fn comparison_without_its_files_names_them() {
    let folders = Folders::new();
    folders.with("old", 1_000, 100, 2_000).with("bare", 1_000, 100, 2_000);
    folders.compare("old", "absent", &["--counted"]).fails("no folder", &["absent: no manifest.json"]);
    fs::remove_file(folders.path("bare/summary.csv")).unwrap();
    folders.compare("bare", "old", &[]).fails("no summary", &["bare: neither runs nor summary.csv"]);
    let head = "study,system,protocol,n,f,runs,failed,not_built\n";
    fs::write(folders.path("bare/summary.csv"), head).unwrap();
    folders.compare("bare", "old", &["--counted"]).fails("no cell", &["nothing was compared"]);
    folders.compare("old", "old", &["--cpu-tolerance", "5"]).refuses("alone", &["--counted"]);
}
