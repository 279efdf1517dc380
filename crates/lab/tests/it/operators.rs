//! What operators do wrong with the best intentions: a backup of long ago in the place of a disk, one key on two
//! machines. Whoever was treated so counts among the f; the others go on, and clients are told nothing that is wrong.

use crate::common::{self, Cluster};
use quorate_lab::load::{Next, Progress, Watch};
use quorate_lab::trial::{self, Load};
use quorate_node::layout::{node_file, node_folder};
use quorate_types::{ClientAuth, ReplicaId};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

const VICTIM: ReplicaId = ReplicaId(3);
/// What somebody reads who looks for the cause.
const WARNING: &str = "this one has said more than its disk knows";

/// A node that nobody but this test knows of.
struct Stray {
    child: Child,
    said: PathBuf,
}

impl Stray {
    fn start(config: &Path) -> Self {
        let said = config.with_file_name("stderr.txt");
        let mut node = Command::new(env!("CARGO_BIN_EXE_quorate"));
        node.args(["node", "--config"]).arg(config).stderr(File::create(&said).unwrap());
        Self {
            child: node.stdout(File::create(config.with_file_name("stdout.txt")).unwrap()).spawn().unwrap(),
            said,
        }
    }

    /// What it has said, once it is gone.
    fn end(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        fs::read_to_string(&self.said).unwrap()
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        // It may be gone already.
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

/// Load against what the cluster has running: what clients are told has to be right, and everything is answered.
fn stretch(load: &mut Load) {
    let judged = load.stretch(&mut ToTheEnd).unwrap();
    let (summary, verdict) = (&judged.summary, &judged.verdict);
    assert!(judged.unread.is_none() && verdict.is_clean(), "{:?} {verdict:?}", judged.unread);
    assert!(summary.counts.errors == 0 && summary.counts.acknowledged > 0, "{summary:?}");
}

/// The three that nothing was done to are in the first view, and nobody contradicts anybody.
fn others_agree(cluster: &Cluster) {
    for status in trial::statuses(&cluster.info(), Duration::from_secs(10)).unwrap().iter().take(3) {
        assert!(status["view"] == 0 && status["alarm"].is_null(), "{status:#}");
    }
}

struct ToTheEnd;

impl Watch for ToTheEnd {
    fn look(&mut self, _: &Progress) -> Next {
        Next::Go
    }
}

#[test]
fn a_backup_of_long_ago_is_put_in_the_place_of_a_disk() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let data = node_folder(&cluster.dir(), VICTIM).join("data");
    let backup = cluster.dir().join("backup");
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, &common::plan(2, 601)).unwrap();
    stretch(&mut load);
    cluster.nodes.kill(VICTIM).unwrap();
    copy(&data, &backup);
    cluster.nodes.start(VICTIM).unwrap();
    cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
    stretch(&mut load);
    cluster.nodes.kill(VICTIM).unwrap();
    fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    let restored = Stray::start(&node_file(&cluster.dir(), VICTIM));
    stretch(&mut load);
    others_agree(&cluster);
    let said = restored.end();
    assert!(said.contains(WARNING), "{said}");
}

/// Restarts in between: no peer remembers a number of the life that the copy opens.
#[test]
fn a_copy_of_some_lives_ago_is_told_of_by_the_others() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let data = node_folder(&cluster.dir(), VICTIM).join("data");
    let backup = cluster.dir().join("backup");
    cluster.nodes.kill(VICTIM).unwrap();
    copy(&data, &backup);
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, &common::plan(1, 631)).unwrap();
    for _ in 0..2 {
        cluster.nodes.start(VICTIM).unwrap();
        cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
        stretch(&mut load);
        cluster.nodes.kill(VICTIM).unwrap();
    }
    fs::remove_dir_all(&data).unwrap();
    copy(&backup, &data);
    cluster.nodes.start(VICTIM).unwrap();
    cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
    stretch(&mut load);
    others_agree(&cluster);
    let log = node_folder(&cluster.dir(), ReplicaId(0)).join("node.log");
    let said = fs::read_to_string(log).unwrap();
    assert!(said.contains("replica 3 counts 2 openings, after 3"), "{said}");
}

#[test]
fn a_replica_that_lost_its_log_stays_out_also_when_nobody_remembers() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, &common::plan(1, 621)).unwrap();
    stretch(&mut load);
    cluster.nodes.kill(VICTIM).unwrap();
    let log = node_folder(&cluster.dir(), VICTIM).join("data").join("log");
    let bytes = fs::metadata(&log).unwrap().len();
    fs::write(&log, []).unwrap();
    File::options().write(true).open(&log).unwrap().set_len(bytes).unwrap();
    cluster.nodes.start(VICTIM).unwrap();
    cluster.nodes.wait_ready(&[VICTIM], Duration::from_secs(60)).unwrap();
    let is_out = |cluster: &Cluster| {
        let statuses = cluster.status();
        let victim = &statuses[usize::from(VICTIM.0)];
        assert!(victim["alarm"].as_str().unwrap().contains("the log is older than the folder"), "{victim:#}");
        assert_eq!(victim["progress"], false);
        let links = statuses.iter().filter_map(|status| status["peers"].as_array()).flatten();
        assert!(links.filter(|link| link["id"] == VICTIM.0).all(|link| link["connected"] == false));
    };
    is_out(&cluster);
    stretch(&mut load);
    let others = [0, 1, 2].map(ReplicaId);
    others.iter().for_each(|id| cluster.nodes.kill(*id).unwrap());
    others.iter().for_each(|id| cluster.nodes.start(*id).unwrap());
    cluster.nodes.wait_ready(&others, Duration::from_secs(60)).unwrap();
    stretch(&mut load);
    is_out(&cluster);
}

#[test]
fn one_key_runs_on_two_machines() {
    let mut cluster = Cluster::start_patient(ClientAuth::Signature);
    let mut load = Load::connect(&cluster.dir(), &cluster.testnet, &common::plan(2, 611)).unwrap();
    stretch(&mut load);
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
    stretch(&mut load);
    others_agree(&cluster);
    let said = both.map(Stray::end).concat();
    assert!(said.contains(WARNING), "{said}");
}
