//! Proofs of order: from simulated replicas, and from real processes by the command line.

use crate::common::Cluster;
use crate::support::{Ran, quorate};
use quorate_client::OrderVerifier;
use quorate_sim::{Op, Settings, Survives, World, secs};
use quorate_types::wire::{FromClient, FromReplica, NoOrder};
use quorate_types::{BundleDigest, Height, ReplicaId, Wire as _};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The messages of replicas to clients that concern order.
#[derive(Default)]
struct Heard {
    /// Bundles with a reply.
    bundles: BTreeSet<BundleDigest>,
    /// Answers with or without a proof.
    answers: Vec<(ReplicaId, FromReplica)>,
}

/// A world whose answers to questions for order are noted.
fn world(protocol: &str, n: usize, seed: u64) -> (World, Rc<RefCell<Heard>>) {
    let entry = quorate_protocols::find(protocol).unwrap();
    let mut settings = Settings::new(entry, seed).with_n(n);
    if entry.spec.model == quorate_consensus::Model::Synchrony {
        // Replicas keep proofs above the stable checkpoint: empty blocks should not move it on while the test asks.
        settings.set("heartbeat_ms", 1_000);
    }
    let mut world = World::new(settings).unwrap();
    let heard = Rc::new(RefCell::new(Heard::default()));
    let noted = heard.clone();
    world.hook_replies(move |from, _, message| {
        match FromReplica::from_bytes(&message).unwrap() {
            FromReplica::Reply(_, reply) if reply.number.0 > 0 => {
                noted.borrow_mut().bundles.insert(reply.bundle);
            }
            answer @ (FromReplica::Order { .. } | FromReplica::NoOrder { .. }) => {
                noted.borrow_mut().answers.push((from, answer));
            }
            _ => {}
        }
        Some(message)
    });
    let clients = world.settings().clients;
    let is_open = move |world: &World| (0..clients).all(|client| world.session(client).is_some());
    world.run_while("all clients have their sessions", secs(20), |world| !is_open(world)).unwrap();
    (world, heard)
}

/// Executes one operation, and returns the digest of its bundle.
fn execute(world: &mut World, heard: &RefCell<Heard>, number: u32) -> BundleDigest {
    heard.borrow_mut().bundles.clear();
    world.submit(0, &[Op::Put { key: "k".to_owned(), value: number.to_string() }]);
    world.run_while("the operation is answered", secs(60), |world| !world.is_done(0)).unwrap();
    *heard.borrow().bundles.last().unwrap()
}

/// Asks a replica for the order of a bundle, and returns its answer.
fn ask(world: &mut World, heard: &RefCell<Heard>, from: ReplicaId, bundle: BundleDigest) -> FromReplica {
    heard.borrow_mut().answers.clear();
    let question = FromClient::AskOrder { client: world.client_id(0).unwrap(), bundle };
    world.forge_client_message(0, from, question.to_bytes().into());
    world.run_for(secs(1)).unwrap();
    let answers = std::mem::take(&mut heard.borrow_mut().answers);
    let [(by, answer)] = <[_; 1]>::try_from(answers).unwrap_or_else(|all| panic!("{} answers", all.len()));
    assert_eq!(by, from);
    answer
}

/// The rule of the client is that of the protocol: each replica alone proves each bundle, also with a dead leader.
#[test]
fn every_replica_of_apollo_proves_the_order_alone() {
    every_replica_proves_the_order_alone("apollo");
}

#[test]
fn every_replica_of_artemis_proves_the_order_alone() {
    every_replica_proves_the_order_alone("artemis");
}

fn every_replica_proves_the_order_alone(protocol: &str) {
    for (n, dead) in [(3, None), (5, Some(ReplicaId(4)))] {
        let (mut world, heard) = world(protocol, n, 7);
        let verifier = OrderVerifier::new(world.settings().scheme, world.genesis().committee()).unwrap();
        if let Some(dead) = dead {
            world.crash(dead, Survives::Everything);
        }
        let mut last = Height::ZERO;
        for number in 0..4 {
            let bundle = execute(&mut world, &heard, number);
            let mut places = BTreeSet::new();
            for id in world.replicas().filter(|id| Some(*id) != dead) {
                let answer = ask(&mut world, &heard, id, bundle);
                let FromReplica::Order { proof, .. } = answer else {
                    panic!("{protocol}, {n}: replica {id} has no proof of bundle {number}: {answer:?}");
                };
                let position = verifier.verify(bundle, &proof).unwrap();
                assert!(position.height > last, "replica {id}: {position:?}");
                places.insert((position.height, position.index, position.block));
            }
            assert_eq!(places.len(), 1, "all replicas show one place");
            last = places.first().unwrap().0;
        }
    }
}

#[test]
fn replica_of_pbft_answers_with_the_reason() {
    let (mut world, heard) = world("pbft", 4, 7);
    let bundle = execute(&mut world, &heard, 1);
    let FromReplica::NoOrder { why, .. } = ask(&mut world, &heard, ReplicaId(1), bundle) else {
        panic!("a proof");
    };
    assert_eq!(why, NoOrder::NoProofs);
}

fn kv(cluster: &Cluster, args: &[&str]) -> Ran {
    let dir = cluster.dir();
    quorate(&[&["kv", "--cluster", dir.to_str().unwrap(), "--timeout", "60s"], args].concat())
}

/// A client receives the order from one replica while another one is down.
#[test]
fn command_line_prints_the_order_that_one_replica_proves() {
    let mut cluster = Cluster::start_of("apollo", 3, &["delta_ms=200"]);
    let first = kv(&cluster, &["put", "k", "one", "--order"]);
    assert_eq!(first.code, Some(0), "{}", first.err);
    assert!(first.out.starts_with("ordered at height "), "{}", first.out);
    assert!(first.out.contains("proved by one replica ("), "{}", first.out);
    cluster.nodes.kill(ReplicaId(0)).unwrap();
    let second = kv(&cluster, &["put", "k", "two", "--order", "--json"]);
    assert_eq!(second.code, Some(0), "{}", second.err);
    let place: Value = serde_json::from_str(&second.out).unwrap();
    assert!(place["height"].as_u64() > Some(0) && place["place"] == 0, "{place}");
    assert!(place["by"] == 1 || place["by"] == 2, "{place}");
    let read = kv(&cluster, &["get", "k"]);
    assert_eq!((read.code, read.out.as_str()), (Some(0), "two\n"), "{}", read.err);
    kv(&cluster, &["get", "k", "--order"]).refuses("a read", &["omit --order"]);
}

#[test]
fn command_line_names_the_reason_where_there_are_no_proofs() {
    let cluster = Cluster::start_of("pbft", 4, &[]);
    let ran = kv(&cluster, &["put", "k", "one", "--order"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.contains("this protocol has no proofs of order; nothing was sent"), "{}", ran.err);
    assert_eq!(kv(&cluster, &["get", "k"]).code, Some(3), "the key has no value");
}
