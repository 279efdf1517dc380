//! Protocols that rest on a bound on delays, as real processes: a leader that dies, one that says nothing, a replica that
//! stands still for longer than the bound, links that are cut and healed. Nothing is lost, nothing is forked, and the
//! guard of each replica says in its status what it sees.
//!
//! Δ is long enough for a machine that runs other tests beside these, and the load is light.

use crate::common::wires::Wires;
use crate::common::{self, Cluster};
use quorate_client::cluster::ClusterInfo;
use quorate_client::keys;
use quorate_lab::load::Pace;
use quorate_lab::trial::{self, Act, Outcome, Plan, Requests};
use quorate_net::mesh::{self, Mesh};
use quorate_net::{Identity, LinkKey, NetConfig, PeerConfig, Security, reactor};
use quorate_node::layout::{LOG_FILE, node_folder};
use quorate_types::{DecodeError, Reader, ReplicaId, Wire};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const PROTOCOLS: [&str; 3] = ["sync-hotstuff", "optsync", "sync-hotstuff-rr"];
const DELTA_MS: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(90);

fn start(protocol: &str) -> Cluster {
    Cluster::start_of(protocol, 3, &[&format!("delta_ms={DELTA_MS}")])
}

/// Light load for so many seconds, acts at their times, and beside it what `during` does. Nothing may be lost, and all that
/// run agree in the end.
fn trial(
    cluster: &mut Cluster,
    seconds: u64,
    acts: Vec<(Duration, Act)>,
    during: impl FnOnce(&Seen) + Send,
) -> Outcome {
    let pace = Pace::Open { rate: 200.0 };
    let plan = Plan {
        acts,
        pace,
        requests: Requests::Judged { shared: 64, request_bytes: 128 },
        ..common::plan(seconds, seconds)
    };
    let (dir, seen) = (cluster.dir(), Seen::of(cluster));
    let (nodes, testnet) = (&mut cluster.nodes, &cluster.testnet);
    let outcome = thread::scope(|scope| {
        let beside = scope.spawn(|| during(&seen));
        // On this thread: nodes die with the one that has started them.
        let (outcome, _) = trial::run(&dir, testnet, nodes, &plan, &mut |_, _| {}).unwrap();
        beside.join().unwrap();
        outcome
    });
    assert!(outcome.is_good(), "{}", outcome.complaint());
    outcome
}

/// A cluster as one sees it from outside.
struct Seen {
    info: ClusterInfo,
    dir: PathBuf,
}

impl Seen {
    fn of(cluster: &Cluster) -> Self {
        Self { info: cluster.info(), dir: cluster.dir() }
    }

    /// Asks until replicas say of themselves what is waited for.
    fn wait_until(&self, what: &str, says: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let statuses = trial::statuses(&self.info, Duration::from_millis(500)).unwrap();
            if says(&statuses) {
                return;
            }
            if Instant::now() >= deadline {
                let ids = (0..statuses.len()).map(|id| ReplicaId(u16::try_from(id).unwrap()));
                let log = |id| fs::read_to_string(node_folder(&self.dir, id).join(LOG_FILE)).unwrap();
                let logs: Vec<String> = ids.map(log).collect();
                panic!("waited until {what}: {statuses:#?}\n{}", logs.join("\n"));
            }
        }
    }
}

/// Whom a replica finds late.
fn late(status: &Value) -> Vec<u64> {
    let late = status["guard"]["late"].as_array().into_iter().flatten();
    late.filter_map(|late| late["id"].as_u64()).collect()
}

fn doubts(status: &Value) -> bool {
    status["guard"]["doubt"] == true
}

fn view(status: &Value) -> u64 {
    status["view"].as_u64().unwrap_or(0)
}

/// Everybody answers in time, is in one view and goes on.
fn all_is_well(statuses: &[Value]) -> bool {
    statuses.iter().all(|status| {
        late(status).is_empty()
            && !doubts(status)
            && view(status) == view(&statuses[0])
            && status["progress"] == true
    })
}

/// Two replicas see that the third is late, which is no doubt as long as it is one; and are in a later view.
fn go_on_without(statuses: &[Value], id: ReplicaId, before: u64) -> bool {
    let others = statuses.iter().enumerate().filter(|(place, _)| *place != id.index());
    others.map(|(_, status)| status).all(|status| {
        late(status) == [u64::from(id.0)]
            && !doubts(status)
            && view(status) > before
            && status["progress"] == true
    })
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_leader_that_dies_is_replaced_and_comes_back() {
    for protocol in PROTOCOLS {
        let mut cluster = start(protocol);
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        let acts = vec![(seconds(1), Act::Kill(leader)), (seconds(6), Act::Start(leader))];
        let outcome = trial(&mut cluster, 9, acts, |seen| {
            seen.wait_until("the others go on", |statuses| go_on_without(statuses, leader, before));
        });
        println!("{protocol}: {:.0} ms without an answer", outcome.summary.timing.longest_gap_ms);
        Seen::of(&cluster).wait_until("all is well", all_is_well);
    }
}

/// Bytes that nobody looks at.
struct Anything;

impl Wire for Anything {
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _ = reader.take_rest();
        Ok(Self)
    }
}

/// It is connected to all, hears everything and never says a word.
#[test]
fn a_leader_that_says_nothing_is_replaced() {
    for protocol in PROTOCOLS {
        let mut cluster = start(protocol);
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        cluster.nodes.kill(leader).unwrap();
        let config = &cluster.testnet.cluster;
        let key = keys::read_private(&node_folder(&cluster.dir(), leader).join("link.key")).unwrap();
        let link = LinkKey::from_pkcs8(key.to_pkcs8_der().unwrap().expose()).unwrap();
        let peers = config.genesis.members.iter().zip(&config.replicas);
        let peers = peers.map(|(member, at)| PeerConfig { key: member.link, address: at.peers }).collect();
        let committee = config.genesis.committee();
        let identity = Identity {
            cluster: committee.cluster,
            epoch: committee.epoch,
            ..mesh::identity(committee.protocol, leader)
        };
        let listener = reactor::bind(config.replicas[leader.index()].peers).unwrap();
        let net = NetConfig::new(identity, peers, Security::Tls(link), listener);
        let mute = Mesh::<Anything>::open(net).unwrap();
        trial(&mut cluster, 5, Vec::new(), |seen| {
            seen.wait_until("the others go on", |statuses| go_on_without(statuses, leader, before));
        });
        while mute.1.recv_timeout(Duration::ZERO).is_some() {}
    }
}

/// The leader stands still for many Δ. When it goes on it notices that it was away before it decides anything by time.
#[test]
fn a_replica_that_stands_still_for_longer_than_the_bound_doubts_when_it_goes_on() {
    for protocol in PROTOCOLS {
        let mut cluster = start(protocol);
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        let had = |status: &Value| status["guard"]["doubts"].as_u64().unwrap();
        let doubts_before = had(&cluster.status()[leader.index()]);
        let acts = vec![(seconds(1), Act::Pause(leader)), (seconds(6), Act::Resume(leader))];
        trial(&mut cluster, 9, acts, |seen| {
            seen.wait_until("the others go on", |statuses| go_on_without(statuses, leader, before));
        });
        let has_doubted = |statuses: &[Value]| had(&statuses[leader.index()]) > doubts_before;
        Seen::of(&cluster).wait_until("it has doubted, and all is well", |statuses| {
            all_is_well(statuses) && has_doubted(statuses)
        });
    }
}

/// First the leader's links are cut, then all; what was said meanwhile arrives when they are healed, far too late.
#[test]
fn links_are_cut_and_healed() {
    for protocol in PROTOCOLS {
        let mut cluster = start(protocol);
        cluster.nodes.stop_all();
        let wires = Wires::lay(&cluster.dir(), &cluster.testnet);
        let ids = cluster.nodes.ids();
        cluster.nodes.start_all().unwrap();
        cluster.nodes.wait_ready(&ids, PATIENCE).unwrap();
        Seen::of(&cluster).wait_until("all is well", all_is_well);
        let (before, leader) = trial::leader(&cluster.status(), 1).unwrap();
        trial(&mut cluster, 10, Vec::new(), |seen| {
            wires.cut(leader, true);
            seen.wait_until("one is alone, the others go on", |statuses| {
                let alone = &statuses[leader.index()];
                doubts(alone) && late(alone).len() == 2 && go_on_without(statuses, leader, before)
            });
            wires.cut(leader, false);
            seen.wait_until("all is well", all_is_well);
            wires.cut_all(true);
            seen.wait_until("everybody doubts", |statuses| {
                statuses.iter().all(|status| doubts(status) && late(status).len() == 2)
            });
            wires.cut_all(false);
            seen.wait_until("all is well again", all_is_well);
        });
        Seen::of(&cluster).wait_until("all is well in the end", all_is_well);
    }
}
