//! Requests to stop a node. Only the admin stops it, only once for each start, and only where `node.toml` allows it.

use super::attacker::Attacker;
use super::target::Target;
use crate::common::Cluster;
use crate::support::quorate;
use quorate_client::keys;
use quorate_crypto::{SigningKey, stop_preimage};
use quorate_node::layout::{ADMIN_KEY, KV_KEY};
use quorate_node::processes::Event;
use quorate_types::limits::STOPS_PER_SECOND_MAX;
use quorate_types::wire::{FromClient, FromReplica, StopAnswer};
use quorate_types::{ClientAuth, ClusterId, Digest, Incarnation, ReplicaId, Signature};
use std::time::{Duration, Instant};

const CLIENT: &str = "client 127.0.0.1";

fn key(target: &Target, name: &str) -> SigningKey {
    keys::read_private(&target.cluster.dir().join(name)).unwrap()
}

fn incarnation(target: &Target, id: u16) -> Incarnation {
    Incarnation(target.status(id)["incarnation"].as_u64().unwrap())
}

/// A request to stop one incarnation of replica `id`.
fn request(key: &SigningKey, cluster: ClusterId, id: u16, incarnation: Incarnation) -> FromClient {
    let signature = key.sign(&stop_preimage(cluster, ReplicaId(id), incarnation));
    FromClient::Stop { incarnation, signature }
}

fn answers(at: &Attacker) -> Vec<StopAnswer> {
    let answer = |message| if let FromReplica::Stop(answer) = message { Some(answer) } else { None };
    at.messages().into_iter().filter_map(answer).collect()
}

fn answer(target: &Target, id: u16, request: &FromClient) -> StopAnswer {
    let mut at = target.greeted_client(id);
    at.say_to_replica(request);
    at.until("an answer", |at| !answers(at).is_empty());
    answers(&at)[0]
}

/// Waits for the end of a node, which nobody has killed.
fn end_of(cluster: &mut Cluster) -> (ReplicaId, Option<i32>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match cluster.nodes.next_event(Some(deadline)).expect("a node ends") {
            Event::Gone(gone) => return (gone.id, gone.code),
            _ => continue,
        }
    }
}

#[test]
fn only_the_admin_stops_a_node_and_no_request_is_valid_twice() {
    let mut target = Target::start_stoppable();
    let (cluster, admin) = (target.committee().cluster, key(&target, ADMIN_KEY));
    let (first, other) = (incarnation(&target, 0), incarnation(&target, 1));
    let good = request(&admin, cluster, 0, first);
    let forged = FromClient::Stop { incarnation: first, signature: Signature([3; 64]) };
    let earlier = request(&admin, cluster, 0, Incarnation(first.0 - 1));
    let foreign = ClusterId(Digest([7; 32]));
    let (unsigned, stale) = ("stop without the admin's signature", "stop of another incarnation");
    for (case, request, expected, reason) in [
        ("forged", &forged, StopAnswer::BadSignature, unsigned),
        (
            "another client",
            &request(&key(&target, KV_KEY), cluster, 0, first),
            StopAnswer::BadSignature,
            unsigned,
        ),
        ("foreign cluster", &request(&admin, foreign, 0, first), StopAnswer::BadSignature, unsigned),
        ("another replica", &request(&admin, cluster, 1, first), StopAnswer::BadSignature, unsigned),
        ("an earlier start", &earlier, StopAnswer::OtherIncarnation, stale),
    ] {
        let before = target.refused(0, CLIENT, reason);
        assert_eq!(answer(&target, 0, request), expected, "{case}");
        assert_eq!(target.refused(0, CLIENT, reason), before + 1, "{case}");
    }
    target.is_well("refused requests to stop");

    assert_eq!(answer(&target, 0, &good), StopAnswer::Accepted);
    assert_eq!(end_of(&mut target.cluster), (ReplicaId(0), Some(0)), "as on SIGTERM");
    let log = std::fs::read_to_string(target.cluster.dir().join("node0/node.log")).unwrap();
    assert!(log.contains("stopped on a request of the cluster's admin"), "{log}");
    target.cluster.nodes.start(ReplicaId(0)).unwrap();
    target.cluster.nodes.wait_ready(&[ReplicaId(0)], Duration::from_secs(60)).unwrap();
    assert_eq!(answer(&target, 0, &good), StopAnswer::OtherIncarnation, "a replay");
    if other == first {
        assert_eq!(answer(&target, 1, &good), StopAnswer::BadSignature, "a replay at another replica");
    }
    target.serves("a replayed request");

    let ran = quorate(&["stop", "--cluster", target.cluster.dir().to_str().unwrap()]);
    let lines: Vec<String> = (0..4).map(|id| format!("replica {id} has stopped\n")).collect();
    assert_eq!((ran.code, ran.out, ran.err.as_str()), (Some(0), lines.concat(), ""));
    let mut ends: Vec<_> = (0..4).map(|_| end_of(&mut target.cluster)).collect();
    ends.sort();
    assert!(ends.iter().all(|(_, code)| *code == Some(0)), "{ends:?}");
    let ran = quorate(&["stop", "--cluster", target.cluster.dir().to_str().unwrap()]);
    ran.fails("no node runs", &["4 of 4 replicas have not stopped", "replica 3: "]);
}

#[test]
fn node_refuses_to_stop_unless_its_configuration_allows_it() {
    let mut target = Target::start();
    let good = request(&key(&target, ADMIN_KEY), target.committee().cluster, 0, incarnation(&target, 0));
    assert_eq!(answer(&target, 0, &good), StopAnswer::NotAllowed);
    let ran = quorate(&["stop", "--cluster", target.cluster.dir().to_str().unwrap()]);
    let advice = "node.toml has allow_stop = false; write allow_stop = true and start the node again";
    ran.fails("not allowed", &["4 of 4 replicas have not stopped: replica 0: ", advice]);
    assert_eq!(target.refused(0, CLIENT, "stop not allowed"), 2);

    let mut flood = target.greeted_client(0);
    let most = usize::try_from(STOPS_PER_SECOND_MAX).unwrap();
    (0..3 * most).for_each(|_| flood.say_to_replica(&good));
    target.until_refused(0, CLIENT, "stop asked too often", 2 * u64::from(STOPS_PER_SECOND_MAX));
    target.is_well("a flood of requests to stop");
}

#[test]
fn load_stops_its_cluster_after_the_run() {
    let mut cluster = Cluster::start_stoppable();
    let dir = cluster.dir();
    let line = ["load", "--cluster", dir.to_str().unwrap(), "--in-flight", "8", "--warmup", "0"];
    let ran = quorate(&[&line[..], &["--seconds", "0.3", "--stop-cluster"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("goodput"), "{}", ran.out);
    assert!((0..4).all(|_| end_of(&mut cluster).1 == Some(0)));

    let cluster = Cluster::start(ClientAuth::Signature);
    let dir = cluster.dir();
    let line = ["load", "--cluster", dir.to_str().unwrap(), "--in-flight", "8", "--warmup", "0"];
    let ran = quorate(&[&line[..], &["--seconds", "0.3", "--stop-cluster"]].concat());
    ran.fails("not allowed", &["4 of 4 replicas have not stopped", "allow_stop = true"]);
    assert!(ran.out.contains("goodput"), "the figures are printed: {}", ran.out);
}
