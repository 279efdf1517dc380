//! Mistakes of operators: an old backup in the place of a disk, one key on two machines. Such a replica counts as one of the
//! f faulty ones. The others continue, and clients receive no wrong answer.

use crate::common::{self, Cluster};
use quorate_lab::load::Next;
use quorate_lab::trial::{self, Load};
use quorate_node::layout::{node_file, node_folder};
use quorate_types::{ClientAuth, ReplicaId};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

const VICTIM: ReplicaId = ReplicaId(3);
/// The warning that explains the cause.
const WARNING: &str = "this replica has sent more than its disk has";

/// A node outside the cluster's process table.
struct Stray {
    child: Child,
    stderr: PathBuf,
}

impl Stray {
    fn start(config: &Path) -> Self {
        let stderr = config.with_file_name("stderr.txt");
        let mut node = Command::new(env!("CARGO_BIN_EXE_quorate"));
        node.args(["node", "--config"]).arg(config).stderr(File::create(&stderr).unwrap());
        Self {
            child: node.stdout(File::create(config.with_file_name("stdout.txt")).unwrap()).spawn().unwrap(),
            stderr,
        }
    }

    /// Stops the node and returns its error output.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        fs::read_to_string(&self.stderr).unwrap()
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        // The node may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Offers load to the running replicas. Checks that all requests have right answers.
fn run_stretch(load: &mut Load) {
    let judged = load.run_stretch(&mut |_| Next::Go).unwrap();
    let (summary, verdict) = (&judged.summary, &judged.verdict);
    assert!(judged.unread.is_none() && verdict.is_clean(), "{:?} {verdict:?}", judged.unread);
    assert!(summary.counts.errors == 0 && summary.counts.acknowledged > 0, "{summary:?}");
}

/// Checks that the three other replicas are in the first view and report no alarm.
fn expect_no_alarm_of_others(cluster: &Cluster) {
    for status in trial::statuses(&cluster.info(), Duration::from_secs(10)).unwrap().iter().take(3) {
        assert!(status["view"] == 0 && status["alarm"].is_null(), "{status:#}");
    }
}

#[test]
fn replica_on_an_old_backup_reports_it_and_stays_out() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let data = node_folder(&cluster.dir(), VICTIM).join("data");
    let backup = cluster.dir().join("backup");
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, common::plan(2, 601).load).unwrap();
    run_stretch(&mut load);
    cluster.nodes.kill(VICTIM).unwrap();
    copy(&data, &backup);
    cluster.nodes.start(VICTIM).unwrap();
    cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
    run_stretch(&mut load);
    cluster.nodes.kill(VICTIM).unwrap();
    fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    let restored = Stray::start(&node_file(&cluster.dir(), VICTIM));
    run_stretch(&mut load);
    expect_no_alarm_of_others(&cluster);
    let said = restored.end();
    assert!(said.contains(WARNING), "{said}");
}

/// The replica restarts in between, so no peer keeps numbers of the copy's incarnation.
#[test]
fn peers_report_a_replica_on_a_copy_of_an_earlier_incarnation() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let data = node_folder(&cluster.dir(), VICTIM).join("data");
    let backup = cluster.dir().join("backup");
    cluster.nodes.kill(VICTIM).unwrap();
    copy(&data, &backup);
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, common::plan(1, 631).load).unwrap();
    for _ in 0..2 {
        cluster.nodes.start(VICTIM).unwrap();
        cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
        run_stretch(&mut load);
        cluster.nodes.kill(VICTIM).unwrap();
    }
    fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    cluster.nodes.start(VICTIM).unwrap();
    cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
    run_stretch(&mut load);
    expect_no_alarm_of_others(&cluster);
    let log = node_folder(&cluster.dir(), ReplicaId(0)).join("node.log");
    let said = fs::read_to_string(log).unwrap();
    assert!(said.contains("replica 3 counts 2 openings, after 3"), "{said}");
}

#[test]
fn replica_without_its_log_stays_out_after_restarts_of_its_peers() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, common::plan(1, 621).load).unwrap();
    run_stretch(&mut load);
    cluster.nodes.kill(VICTIM).unwrap();
    let log = node_folder(&cluster.dir(), VICTIM).join("data").join("log");
    let bytes = fs::metadata(&log).unwrap().len();
    fs::write(&log, []).unwrap();
    File::options().write(true).open(&log).unwrap().set_len(bytes).unwrap();
    cluster.nodes.start(VICTIM).unwrap();
    cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
    let expect_out = |cluster: &Cluster| {
        let statuses = cluster.status();
        let victim = &statuses[usize::from(VICTIM.0)];
        assert!(victim["alarm"].as_str().unwrap().contains("the log is older than the folder"), "{victim:#}");
        assert_eq!(victim["progress"], false);
        let links = statuses.iter().filter_map(|status| status["peers"].as_array()).flatten();
        assert!(links.filter(|link| link["id"] == VICTIM.0).all(|link| link["connected"] == false));
    };
    expect_out(&cluster);
    run_stretch(&mut load);
    let others = [0, 1, 2].map(ReplicaId);
    others.iter().for_each(|id| cluster.nodes.kill(*id).unwrap());
    others.iter().for_each(|id| cluster.nodes.start(*id).unwrap());
    cluster.nodes.wait_ready(&others, Duration::from_secs(60)).unwrap();
    run_stretch(&mut load);
    expect_out(&cluster);
}

#[test]
fn one_key_on_two_machines_is_reported_and_harmless() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, common::plan(2, 611).load).unwrap();
    run_stretch(&mut load);
    cluster.nodes.kill(VICTIM).unwrap();
    let (first, second) = (node_folder(&cluster.dir(), VICTIM), cluster.dir().join("second"));
    copy(&first, &second);
    let config = node_file(&cluster.dir(), VICTIM);
    let copied = second.join(config.file_name().unwrap());
    let addresses: Vec<String> = {
        let free: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        free.iter().map(|socket| socket.local_addr().unwrap().to_string()).collect()
    };
    let mut table: toml::Table = fs::read_to_string(&copied).unwrap().parse().unwrap();
    for (name, address) in ["listen_peers", "listen_clients"].iter().zip(&addresses) {
        table.insert((*name).to_owned(), toml::Value::String(address.clone()));
    }
    fs::write(&copied, table.to_string()).unwrap();
    let both = [Stray::start(&config), Stray::start(&copied)];
    run_stretch(&mut load);
    expect_no_alarm_of_others(&cluster);
    let said = both.map(Stray::end).concat();
    assert!(said.contains(WARNING), "{said}");
}
