//! Retries and messages of a client without simple answers: one cluster of real processes for all cases.

use crate::common::Cluster;
use crate::support::{Ran, quorate};
use quorate_app::{KvOp, KvResult};
use quorate_client::driver::{Client, Options};
use quorate_client::keys;
use quorate_crypto::SigningKey;
use quorate_node::layout::KV_KEY;
use quorate_types::limits::SESSIONS_PER_CLIENT_MAX;
use quorate_types::{ClientAuth, Wire as _};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

/// Bytes of a value. Four such values have room in a reply.
const VALUE_BYTES: usize = 250_000;

fn key(cluster: &Cluster) -> SigningKey {
    keys::read_private(&cluster.dir().join(KV_KEY)).unwrap()
}

fn client(cluster: &Cluster) -> Client {
    Client::connect(cluster.info(), key(cluster), Options::default()).unwrap()
}

fn value(i: u8) -> Vec<u8> {
    vec![b'a' + i; VALUE_BYTES]
}

fn kv(cluster: &Cluster, args: &[&str]) -> Ran {
    let file = cluster.dir().join("cluster.toml");
    quorate(&[&["kv", "--cluster", file.to_str().unwrap(), "--timeout", "1s"], args].concat())
}

/// The processes of a cluster's nodes.
fn processes(cluster: &Cluster) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).into_owned();
        let is_node = line.split('\0').nth(1) == Some("node");
        if is_node && line.contains(cluster.dir().to_str().unwrap()) {
            found.extend(Pid::from_raw(id));
        }
    }
    found
}

#[test]
fn client_retries_and_explains_missing_answers() {
    let cluster = Cluster::start_patient(ClientAuth::Signature);
    let mut idle = client(&cluster);
    let reads: Vec<Vec<u8>> = (0..6u8).map(|i| KvOp::Get { key: &[b'k', i] }.to_bytes()).collect();
    for i in 0..6u8 {
        let put = KvOp::Put { key: &[b'k', i], value: &value(i) }.to_bytes();
        assert_eq!(idle.call(&put).unwrap(), KvResult::Done.to_bytes());
    }

    // Six values do not fit into one reply: values without room are requested again alone.
    let results = idle.call_many(reads.iter().map(Vec::as_slice)).unwrap();
    for (i, result) in (0..6u8).zip(&results) {
        assert!(*result == KvResult::Value(value(i)).to_bytes(), "value {i}: {} bytes", result.len());
    }
    let scan = kv(&cluster, &["get", "none", "--timeout", "60s"]);
    assert_eq!((scan.code, scan.out.as_str()), (Some(3), ""), "{}", scan.err);

    // Other clients with the same key open many sessions, so that this one's session is evicted: it does not notice.
    let add = KvOp::Increment { key: b"n", by: 1 }.to_bytes();
    assert_eq!(idle.call(&add).unwrap(), KvResult::Number(1).to_bytes());
    for _ in 0..=SESSIONS_PER_CLIENT_MAX {
        drop(client(&cluster));
    }
    assert_eq!(idle.call(&add).unwrap(), KvResult::Number(2).to_bytes(), "executed once more, and once only");
    assert_eq!(idle.call(&add).unwrap(), KvResult::Number(3).to_bytes());

    // All replicas are paused.
    for process in processes(&cluster) {
        kill_process(process, Signal::STOP).unwrap();
    }
    let (put, get) = (kv(&cluster, &["put", "a", "b"]), kv(&cluster, &["get", "a"]));
    for process in processes(&cluster) {
        kill_process(process, Signal::CONT).unwrap();
    }
    for ran in [put, get] {
        let says = "error: no answer within 1s: no session was opened yet: sent to no replica, none has answered; \
                    it was not executed and will not take effect (replica 0: no hello yet; ";
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
        assert!(ran.err.starts_with(says) && ran.err.lines().count() == 1, "{}", ran.err);
    }
    assert_eq!(idle.call(&add).unwrap(), KvResult::Number(4).to_bytes());
}
