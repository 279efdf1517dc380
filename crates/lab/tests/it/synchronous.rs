//! Protocols that rest on a bound on delays, as real processes: a leader that is killed, a silent leader, a replica that is
//! paused for longer than the bound, links that are cut and restored. No request is lost, no replica forks, and the status
//! of each replica shows what its synchrony guard sees.
//!
//! Δ is long enough for a machine that runs other tests at the same time, and the load is light. The protocols run side by
//! side, because most of the time is waiting. The tests themselves stand among tests of other protocols, which run while
//! one of these waits.

use crate::common::wires::Wires;
use crate::common::{self, Cluster, reads_leader_first};
use quorate_client::cluster::ClusterInfo;
use quorate_client::keys;
use quorate_lab::load::{Mix, Pace};
use quorate_lab::trial::{self, Act, TrialOutcome, TrialPlan};
use quorate_net::mesh::{self, Mesh};
use quorate_net::{Identity, LinkKey, NetConfig, PeerConfig, Security, reactor};
use quorate_node::layout::{LOG_FILE, node_folder};
use quorate_types::{DecodeError, Reader, ReplicaId, Wire};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PROTOCOLS: [&str; 5] = ["sync-hotstuff", "optsync", "sync-hotstuff-rr", "apollo", "artemis"];
/// Clusters that run side by side: more would find their peers late on two cores.
const TOGETHER: usize = 3;
const DELTA_MS: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(90);
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Runs a test with a cluster of each protocol, side by side.
fn with_each_protocol(test: impl Fn(&str, Cluster) + Sync) {
    // One test at a time: the processes of more clusters would find each other late on two cores.
    static RUNNING: Mutex<()> = Mutex::new(());
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for protocols in PROTOCOLS.chunks(TOGETHER) {
        thread::scope(|scope| {
            for protocol in protocols {
                let test = &test;
                // Nodes end with the thread that has started them, so each thread starts its own.
                let start = || Cluster::start_of(protocol, 3, &[&format!("delta_ms={DELTA_MS}")]);
                scope.spawn(move || test(protocol, start()));
            }
        });
    }
}

/// Offers light load for some seconds, with acts at their times, while `during` runs. Checks that no request is lost and
/// that all running replicas agree at the end.
fn trial(
    cluster: &mut Cluster,
    seconds: u64,
    acts: Vec<(Duration, Act)>,
    during: impl FnOnce(&Observer) + Send,
) -> TrialOutcome {
    let mut plan = TrialPlan { acts, ..common::plan(seconds, seconds) };
    plan.load.pace = Pace::constant(200.0);
    plan.load.mix = Mix::judged(64, 128);
    let (dir, observer) = (cluster.dir(), Observer::of(cluster));
    let (nodes, testnet) = (&mut cluster.nodes, &cluster.testnet);
    let outcome = thread::scope(|scope| {
        let observing = scope.spawn(|| during(&observer));
        // The nodes end with the thread that has started them: this one, which also starts them again.
        let (outcome, _) = trial::run(&dir, testnet, nodes, &plan, &mut |_, _| {}).unwrap();
        observing.join().unwrap();
        outcome
    });
    assert!(outcome.is_good(), "{}", outcome.describe());
    outcome
}

/// An observer of a cluster, which reads what replicas report.
struct Observer {
    info: ClusterInfo,
    dir: PathBuf,
}

impl Observer {
    fn of(cluster: &Cluster) -> Self {
        Self { info: cluster.info(), dir: cluster.dir() }
    }

    /// Reads the status of all replicas until `condition` holds.
    fn wait_until(&self, expected: &str, condition: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let statuses = trial::statuses(&self.info, Duration::from_millis(500)).unwrap();
            if condition(&statuses) {
                return;
            }
            if Instant::now() >= deadline {
                let ids = (0..statuses.len()).map(|id| ReplicaId(u16::try_from(id).unwrap()));
                let log = |id| fs::read_to_string(node_folder(&self.dir, id).join(LOG_FILE)).unwrap();
                let logs: Vec<String> = ids.map(log).collect();
                panic!("{expected} within {PATIENCE:?}: {statuses:#?}\n{}", logs.join("\n"));
            }
            // Each poll makes new connections with TLS, whose work delays the replicas of this machine.
            thread::park_timeout(POLL_EVERY);
        }
    }
}

/// Ids of the peers that a replica finds late.
fn late_peers(status: &Value) -> Vec<u64> {
    let late = status["guard"]["late"].as_array().into_iter().flatten();
    late.filter_map(|late| late["id"].as_u64()).collect()
}

fn is_in_doubt(status: &Value) -> bool {
    status["guard"]["doubt"] == true
}

fn view(status: &Value) -> u64 {
    status["view"].as_u64().unwrap_or(0)
}

/// Whether no replica is late, and all replicas make progress in one view, whose leader they read first.
fn is_stable(statuses: &[Value]) -> bool {
    statuses.iter().all(|status| {
        late_peers(status).is_empty()
            && !is_in_doubt(status)
            && view(status) == view(&statuses[0])
            && status["progress"] == true
            && reads_leader_first(status)
    })
}

/// Whether the two other replicas find the third one late, which is no doubt yet, and make progress in a later view, whose leader
/// they read first.
fn continue_without(statuses: &[Value], id: ReplicaId, before: u64) -> bool {
    let others = statuses.iter().enumerate().filter(|(place, _)| *place != id.index());
    others.map(|(_, status)| status).all(|status| {
        late_peers(status) == [u64::from(id.0)]
            && !is_in_doubt(status)
            && view(status) > before
            && status["progress"] == true
            && reads_leader_first(status)
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A leader that is killed is replaced, and recovers.
pub(crate) fn killed_leader_is_replaced_and_recovers() {
    with_each_protocol(|protocol, mut cluster| {
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        let acts = vec![(seconds(1), Act::Kill(leader)), (seconds(6), Act::Start(leader))];
        let outcome = trial(&mut cluster, 9, acts, |observer| {
            observer.wait_until("the others continue", |statuses| continue_without(statuses, leader, before));
        });
        println!("{protocol}: {:.0} ms without an answer", outcome.summary.timing.longest_gap_ms);
        Observer::of(&cluster).wait_until("the cluster is stable", is_stable);
    });
}

/// A message that is not decoded.
struct AnyMessage;

impl Wire for AnyMessage {
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _ = reader.take_rest();
        Ok(Self)
    }
}

/// Returns the network configuration of a silent replica that takes the place of replica `id`.
fn silent_replica(cluster: &Cluster, id: ReplicaId) -> impl FnOnce(TcpListener) -> NetConfig + Send + use<> {
    let config = &cluster.testnet.cluster;
    let key = keys::read_private(&node_folder(&cluster.dir(), id).join("link.key")).unwrap();
    let link = LinkKey::from_pkcs8(key.to_pkcs8_der().unwrap().expose()).unwrap();
    let peers = config.genesis.members.iter().zip(&config.replicas);
    let peers = peers.map(|(member, at)| PeerConfig { key: member.link, address: at.peers }).collect();
    let committee = config.genesis.committee();
    let identity = Identity {
        cluster: committee.cluster,
        epoch: committee.epoch,
        ..mesh::identity(committee.protocol, id)
    };
    move |listener| NetConfig::new(identity, peers, Security::Tls(link), listener)
}

/// The silent leader is connected to all and receives everything, but sends no messages. The load opens its sessions
/// before: with a silent leader each step of that would take several views.
pub(crate) fn silent_leader_is_replaced() {
    with_each_protocol(|_, mut cluster| {
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        let address = cluster.testnet.cluster.replicas[leader.index()].peers;
        let silent = silent_replica(&cluster, leader);
        let acts = vec![(seconds(1), Act::Kill(leader))];
        let mesh = Mutex::new(None);
        trial(&mut cluster, 6, acts, |observer| {
            let deadline = Instant::now() + PATIENCE;
            // The address is free once the leader is killed.
            let listener = loop {
                assert!(Instant::now() < deadline, "{address} is still in use");
                match reactor::bind(address) {
                    Ok(listener) => break listener,
                    Err(_) => thread::yield_now(),
                }
            };
            *mesh.lock().unwrap() = Some(Mesh::<AnyMessage>::open(silent(listener)).unwrap());
            observer.wait_until("the others continue", |statuses| continue_without(statuses, leader, before));
        });
        let (_, received) = mesh.into_inner().unwrap().unwrap();
        while received.recv_timeout(Duration::ZERO).is_some() {}
    });
}

/// The leader is paused for many Δ. When it resumes, it measures the pause before it decides anything by time.
pub(crate) fn replica_paused_beyond_the_bound_doubts_when_it_resumes() {
    with_each_protocol(|_, mut cluster| {
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        let doubts = |status: &Value| status["guard"]["doubts"].as_u64().unwrap();
        let doubts_before = doubts(&cluster.status()[leader.index()]);
        let acts = vec![(seconds(1), Act::Pause(leader)), (seconds(6), Act::Resume(leader))];
        trial(&mut cluster, 9, acts, |observer| {
            observer.wait_until("the others continue", |statuses| continue_without(statuses, leader, before));
        });
        Observer::of(&cluster).wait_until("the replica has doubted and the cluster is stable", |statuses| {
            is_stable(statuses) && doubts(&statuses[leader.index()]) > doubts_before
        });
    });
}

/// The links of the leader are cut first, then all links. The delayed messages arrive after the links are restored, far
/// too late.
pub(crate) fn replicas_doubt_while_links_are_cut_and_recover_afterwards() {
    with_each_protocol(|_, mut cluster| {
        cluster.nodes.stop_all();
        let wires = Wires::lay(&cluster.dir(), &cluster.testnet);
        let ids = cluster.nodes.ids();
        cluster.nodes.start_all().unwrap();
        cluster.nodes.wait_ready(&ids, PATIENCE).unwrap();
        Observer::of(&cluster).wait_until("the cluster is stable", is_stable);
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        trial(&mut cluster, 10, Vec::new(), |observer| {
            wires.cut(leader, true);
            observer.wait_until("the leader is alone and the others continue", |statuses| {
                let alone = &statuses[leader.index()];
                is_in_doubt(alone)
                    && late_peers(alone).len() == 2
                    && continue_without(statuses, leader, before)
            });
            wires.cut(leader, false);
            observer.wait_until("the cluster is stable", is_stable);
            wires.cut_all(true);
            observer.wait_until("all replicas are in doubt", |statuses| {
                statuses.iter().all(|status| is_in_doubt(status) && late_peers(status).len() == 2)
            });
            wires.cut_all(false);
            observer.wait_until("the cluster is stable again", is_stable);
        });
        Observer::of(&cluster).wait_until("the cluster is stable at the end", is_stable);
    });
}
