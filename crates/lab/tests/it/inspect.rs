//! `quorate inspect`: the disk of a stopped node, and of one that is damaged.

use crate::common::Cluster;
use crate::support::quorate;
use quorate_node::layout::node_folder;
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const ONE: ReplicaId = ReplicaId(1);

/// Returns the content of all files below a folder.
pub(crate) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    files
}

/// Waits until all replicas have executed the same heights, and returns the status of one of them.
fn level(cluster: &Cluster) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let statuses = cluster.status();
        let executed: Vec<u64> = statuses.iter().map(|status| status["executed"].as_u64().unwrap()).collect();
        if executed[0] > 0 && executed.iter().all(|height| *height == executed[0]) {
            return statuses[ONE.index()].clone();
        }
        assert!(Instant::now() < deadline, "{executed:?}");
    }
}

#[test]
fn stopped_node_is_inspected_and_its_folder_stays_the_same() {
    // A replica of this protocol executes what its own disk has as decided.
    let mut cluster = Cluster::start_of("optsync", 3, &["delta_ms=200"]);
    let dir = cluster.dir();
    let at = dir.to_str().unwrap();
    for key in ["a", "b", "c"] {
        let put = quorate(&["kv", "--cluster", at, "put", key, "1"]);
        assert_eq!(put.code, Some(0), "{}", put.err);
    }
    let last = level(&cluster);
    let node = node_folder(&dir, ONE);
    let inspect = |more: &[&str]| quorate(&[&["inspect", node.to_str().unwrap()], more].concat());
    inspect(&[]).refuses("a running node", &["is in use"]);

    cluster.nodes.stop_all();
    let before = files(&node);
    let ran = inspect(&["--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&found["replica"], &found["protocol"], &found["n"]),
        (&1.into(), &"optsync".into(), &3.into())
    );
    assert_eq!(found["openings"], last["incarnation"], "{found}");
    assert_eq!(
        (&found["executed"], &found["state_digest"]),
        (&last["executed"], &last["state_digest"]),
        "{found}"
    );
    assert_eq!((&found["kept"][0], &found["kept"][1]), (&1.into(), &last["executed"]), "{found}");
    assert!(found["promises"].as_u64() > Some(0) && found["disk_bytes"].as_u64() > Some(0), "{found}");
    assert_eq!((&found["reports_needed"], &found["serving_needed"]), (&2.into(), &2.into()), "{found}");
    let ran = inspect(&[]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let heights = format!("heights 1 to {}", last["executed"]);
    assert!(ran.out.contains("undamaged: its node continues") && ran.out.contains(&heights), "{}", ran.out);
    assert!(files(&node) == before, "a file has changed");
}

#[test]
fn damage_is_reported_with_advice_and_the_folder_stays_the_same() {
    let mut cluster = Cluster::start_of("pbft", 4, &[]);
    let dir = cluster.dir();
    for key in ["a", "b"] {
        let put = quorate(&["kv", "--cluster", dir.to_str().unwrap(), "put", key, "marked-value"]);
        assert_eq!(put.code, Some(0), "{}", put.err);
    }
    level(&cluster);
    cluster.nodes.stop_all();
    let node = node_folder(&dir, ONE);
    let log = node.join("data").join("log");
    let mut bytes = fs::read(&log).unwrap();
    let marked = bytes.windows(12).position(|window| window == b"marked-value").unwrap();
    bytes[marked] ^= 1;
    fs::write(&log, bytes).unwrap();
    let before = files(&node);
    let ran = quorate(&["inspect", node.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{} {}", ran.out, ran.err);
    assert!(ran.err.contains("the log is damaged in segment"), "{}", ran.err);
    assert!(
        ran.err.contains("keep it for inspection") && ran.err.contains("start the node with --rejoin"),
        "{}",
        ran.err
    );
    assert!(files(&node) == before, "a file has changed");
}

/// Returns damage of the log by a seed: some flipped bits, or a truncation.
fn damaged(log: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    // Most of a page is zeros behind its last record.
    let used: Vec<usize> = (0..log.len()).filter(|at| log[*at] != 0).collect();
    let mut damaged = log.to_vec();
    match seed {
        0 => damaged.clear(),
        1 => damaged.truncate(100),
        _ if seed.is_multiple_of(2) => damaged.truncate(*rng.pick(&used).unwrap()),
        _ => (0..=rng.below(3)).for_each(|_| damaged[*rng.pick(&used).unwrap()] ^= 1 << rng.below(8)),
    }
    damaged
}

/// Whether a report tells the operator what to do.
fn has_advice(text: &str) -> bool {
    ["start the node with --rejoin", "start it with --rejoin", "start the node again", "Start the node:"]
        .iter()
        .any(|advice| text.contains(advice))
}

/// Random truncations and bit flips of the log, and files of noise among the snapshots.
#[test]
fn random_damage_never_ends_in_a_panic_or_without_advice() {
    let mut cluster = Cluster::start_of("pbft", 4, &[]);
    let dir = cluster.dir();
    for value in 0..6 {
        let put = quorate(&["kv", "--cluster", dir.to_str().unwrap(), "put", "key", &value.to_string()]);
        assert_eq!(put.code, Some(0), "{}", put.err);
    }
    level(&cluster);
    cluster.nodes.stop_all();
    let node = node_folder(&dir, ONE);
    let (log, snapshots) = (node.join("data/log"), node.join("data/snapshots"));
    let sound = fs::read(&log).unwrap();
    let (mut refused, mut excluded, mut undamaged) = (0, 0, 0);
    for seed in 0..40 {
        fs::write(&log, damaged(&sound, seed)).unwrap();
        let noise: Vec<u8> = (0..seed % 50).map(|byte| (byte * seed) as u8).collect();
        let name =
            ["distrusted", "snapshot-00000000000000000002", "chunks-00000000000000000001"][seed as usize % 3];
        fs::write(snapshots.join(name), noise).unwrap();
        let before = files(&node);
        let ran = quorate(&["inspect", node.to_str().unwrap()]);
        let case = format!("seed {seed}: {:?} {} {}", ran.code, ran.out, ran.err);
        assert!(matches!(ran.code, Some(0 | 1)) && !ran.err.contains("panicked"), "{case}");
        assert!(files(&node) == before, "{case}: a file has changed");
        let is_undamaged = ran.out.contains("undamaged: its node continues");
        assert!(is_undamaged || has_advice(&(ran.out.clone() + &ran.err)), "{case}: no advice");
        refused += u32::from(ran.err.contains("the log is damaged"));
        excluded += u32::from(ran.out.contains("takes no part any more"));
        undamaged += u32::from(is_undamaged);
        fs::remove_file(snapshots.join(name)).unwrap();
    }
    let counts =
        format!("{refused} refused, {excluded} with an older log, {undamaged} whose log only lacks its end");
    assert!(refused > 5 && excluded > 1, "{counts}");
    println!("{counts}");
}
