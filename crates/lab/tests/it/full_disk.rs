//! A full disk: the node makes no statement and says so, and goes on when there is room.

use crate::common::Cluster;
use crate::support::quorate;
use quorate_client::driver;
use quorate_node::layout::{LOG_FILE, node_folder};
use quorate_types::ReplicaId;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(90);
const ONE: ReplicaId = ReplicaId(1);

/// A small file system in memory, until it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts it on a folder.
    ///
    /// # Errors
    /// Fails where the system does not let this process mount.
    fn mount(at: &Path) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        let ran = mount.args(["-t", "tmpfs", "-o", "size=96m", "small"]).arg(at).output();
        let ran = ran.map_err(|error| error.to_string())?;
        if ran.status.success() {
            Ok(Self(at.to_owned()))
        } else {
            Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned())
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Writes a file until the disk is full.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[7; 64 << 10]).is_ok() {}
}

#[test]
fn node_on_a_full_disk_waits_for_room_and_goes_on() {
    let mut cluster = Cluster::start_of("pbft", 4, &[]);
    let dir = cluster.dir();
    let data = node_folder(&dir, ONE).join("data");
    cluster.nodes.kill(ONE).unwrap();
    let aside = data.with_extension("aside");
    fs::rename(&data, &aside).unwrap();
    fs::create_dir(&data).unwrap();
    let _disk = match SmallDisk::mount(&data) {
        Ok(disk) => disk,
        Err(why) => return eprintln!("skipped: no small disk can be mounted here: {why}"),
    };
    copy(&aside, &data);
    cluster.nodes.start(ONE).unwrap();
    cluster.nodes.wait_ready(&[ONE], PATIENCE).unwrap();
    let filler = data.join("filler");
    fill(&filler);

    let value = "v".repeat(100_000);
    let put = |key: &str| {
        let ran = quorate(&["kv", "--cluster", dir.to_str().unwrap(), "put", key, &value]);
        assert_eq!(ran.code, Some(0), "the others serve: {}", ran.err);
    };
    // A node that opens its replica anew resets its connections.
    let statuses = |cluster: &Cluster| -> Vec<Value> {
        let answers = driver::status(cluster.info(), Duration::from_secs(10)).unwrap();
        let parsed = |answer: Result<String, String>| serde_json::from_str(&answer.ok()?).ok();
        answers.into_iter().map(|answer| parsed(answer).unwrap_or(Value::Null)).collect()
    };
    let status = |cluster: &Cluster| statuses(cluster)[ONE.index()].clone();
    let is_full =
        |status: &Value| status["alarm"].as_str().is_some_and(|text| text.contains("the disk is full"));
    let deadline = Instant::now() + PATIENCE;
    while !is_full(&status(&cluster)) {
        put("k");
        assert!(Instant::now() < deadline, "{:#}", status(&cluster));
    }
    assert_eq!(status(&cluster)["progress"], false);
    put("meanwhile");
    fs::remove_file(&filler).unwrap();
    loop {
        let statuses = statuses(&cluster);
        let one = &statuses[ONE.index()];
        if one["alarm"].is_null() && one["executed"] == statuses[0]["executed"] && one["state"] == "current" {
            break;
        }
        assert!(Instant::now() < deadline, "{one:#}");
    }
    let log = fs::read_to_string(node_folder(&dir, ONE).join(LOG_FILE)).unwrap();
    assert!(log.contains("the disk has room again"), "{log}");
    assert!(cluster.nodes.is_ready(ONE), "the same process goes on");
    cluster.nodes.stop_all();
}
