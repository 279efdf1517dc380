//! A cluster of real processes in a folder of its own.

pub(crate) mod wires;

use quorate_client::cluster::ClusterInfo;
use quorate_client::driver;
use quorate_lab::load::{LoadOptions, Mix, Pace};
use quorate_lab::trial::{self, TrialPlan};
use quorate_node::Service;
use quorate_node::config::{LinkDelay, Settings};
use quorate_node::processes::Processes;
use quorate_node::testnet::Testnet;
use quorate_types::ClientAuth;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// Returns a plan of judged load without faults.
pub(crate) fn plan(seconds: u64, seed: u64) -> TrialPlan {
    let (pace, seconds) = (Pace::Closed { in_flight: 256 }, Duration::from_secs(seconds));
    TrialPlan { load: LoadOptions::alone(Mix::judged(256, 128), pace, 8, seed, seconds), acts: Vec::new() }
}

/// Running replicas, as processes of the program under test: four of PBFT by default.
pub(crate) struct Cluster {
    /// Field before the folder, so that the processes end before it is removed.
    pub(crate) nodes: Processes,
    pub(crate) testnet: Testnet,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster.
    pub(crate) fn start(client_auth: ClientAuth) -> Self {
        Self::start_with(client_auth, toml::Table::new())
    }

    /// Starts a cluster that does not suspect a slow leader, also on a busy machine.
    pub(crate) fn start_patient(client_auth: ClientAuth) -> Self {
        Self::start_with(client_auth, "treq_ms = 60_000\ncap_ms = 60_000".parse().unwrap())
    }

    /// Starts a cluster that the admin may stop.
    pub(crate) fn start_stoppable() -> Self {
        Self::make("pbft", 4, ClientAuth::Signature, &Settings::default(), |testnet| {
            testnet.allow_stop = true;
        })
    }

    fn start_with(client_auth: ClientAuth, params: toml::Table) -> Self {
        Self::make("pbft", 4, client_auth, &Settings::default(), |testnet| testnet.params.extend(params))
    }

    /// Starts replicas of any protocol, with settings of `--set`.
    pub(crate) fn start_of(protocol: &str, n: u16, settings: &[&str]) -> Self {
        Self::start_set(protocol, n, settings, None)
    }

    /// Starts replicas whose links emulate a delay, with settings of `--set`.
    pub(crate) fn start_delayed(protocol: &str, n: u16, settings: &[&str], delay: &str) -> Self {
        Self::start_set(protocol, n, settings, Some(delay.parse().unwrap()))
    }

    fn start_set(protocol: &str, n: u16, settings: &[&str], link_delay: Option<LinkDelay>) -> Self {
        let set = settings.iter().map(|setting| setting.parse().unwrap()).collect();
        let settings = Settings { set, link_delay };
        Self::make(protocol, n, ClientAuth::Signature, &settings, |_| {})
    }

    fn make(
        protocol: &str,
        n: u16,
        client_auth: ClientAuth,
        set: &Settings,
        change: impl FnOnce(&mut Testnet),
    ) -> Self {
        let entry = quorate_protocols::find(protocol).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("cluster");
        let mut testnet = trial::make(&dir, Service::KV, entry, n, client_auth, set).unwrap();
        change(&mut testnet);
        testnet.write().unwrap();
        let insecure = client_auth == ClientAuth::None;
        let binary = env!("CARGO_BIN_EXE_quorate").into();
        let mut nodes = Processes::new(binary, &dir, testnet.cluster.ids(), insecure);
        testnet.start(&mut nodes).unwrap();
        Self { nodes, testnet, folder }
    }

    pub(crate) fn dir(&self) -> std::path::PathBuf {
        self.folder.path().join("cluster")
    }

    pub(crate) fn info(&self) -> ClusterInfo {
        self.testnet.cluster.client_info()
    }

    /// Returns the status of every replica.
    pub(crate) fn status(&self) -> Vec<Value> {
        let answers = driver::status(self.info(), Duration::from_secs(10)).unwrap();
        answers.into_iter().map(|answer| serde_json::from_str(&answer.unwrap()).unwrap()).collect()
    }
}

/// Whether a replica reads the messages of its view's leader first: all wait for them. A leader reads no peer first. Replicas of
/// Artemis wait for the voter of their round, whose turn the status does not show.
pub(crate) fn reads_leader_first(status: &Value) -> bool {
    let peers = status["peers"].as_array().into_iter().flatten();
    let urgent: Vec<&Value> = peers.filter(|peer| peer["urgent"] == true).map(|peer| &peer["id"]).collect();
    if status["settings"]["protocol"] == "artemis" {
        return urgent.len() <= 1;
    }
    let leader = [&status["leader"]].into_iter().filter(|leader| **leader != status["id"]);
    urgent == leader.collect::<Vec<_>>()
}

/// Returns the bytes of all files below a folder.
pub(crate) fn disk_bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let data = entry.metadata().unwrap();
            if data.is_dir() { disk_bytes(&entry.path()) } else { data.len() }
        })
        .sum()
}
