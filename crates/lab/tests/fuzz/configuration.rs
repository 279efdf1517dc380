//! Files that people write and files that tools write: configuration, keys, histories.

use crate::runner::{Decoder, Read, folder};
use quorate_client::cluster::LinkMode;
use quorate_client::config::ReplicaAddresses;
use quorate_client::config::parse_size;
use quorate_client::config::show_size;
use quorate_crypto::{Scheme, SigningKey, VerifyKey};
use quorate_history::History;
use quorate_lab::load::judge_alone;
use quorate_node::config::{ClusterConfig, Durability, NodeConfig, Settings};
use quorate_node::layout::node_file;
use quorate_node::service::Service;
use quorate_node::testnet::{Plan, Testnet};
use quorate_protocols::REGISTRY;
use quorate_sim::twins;
use quorate_types::mutate::{mutate, nudge};
use quorate_types::rng::Rng;
use quorate_types::{ClientAuth, PublicKey, ReplicaId, Signature};
use std::fs;
use std::net::SocketAddr;
use tempfile::TempDir;

fn testnet(entry: &'static quorate_consensus::Entry) -> (TempDir, Testnet) {
    let folder = folder();
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let addresses =
        (0..4).map(|i| ReplicaAddresses { peers: address(4_000 + i), clients: address(5_000 + i) });
    let plan = Plan {
        service: Service::KV,
        entry,
        addresses: addresses.collect(),
        client_auth: ClientAuth::Signature,
        links: LinkMode::Tls,
        durability: Durability::Fsync,
        allow_stop: false,
        settings: Settings::default(),
    };
    let testnet = Testnet::create(folder.path(), &plan).unwrap();
    (folder, testnet)
}

/// Returns the text without comments, which have no meaning for a program.
fn terse(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()
}

/// Changes of a text replace whole words as often as bytes.
fn edit(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    const WORDS: [&str; 16] = [
        "0",
        "-1",
        "18446744073709551615",
        "1e99",
        "nan",
        "\"\"",
        "[]",
        "{}",
        "true",
        "\"99999999999TiB\"",
        "\"0B\"",
        "\n[genesis]\n",
        "\n[[replicas]]\n",
        "''' ",
        "\\u0000",
        "\u{feff}\u{10ffff}",
    ];
    match rng.below(4) {
        0 => nudge(rng, bytes, other),
        1 => mutate(rng, bytes, other),
        _ => {
            // A value is replaced, or a line is doubled or left out.
            let text = String::from_utf8_lossy(bytes).into_owned();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = rng.index(lines.len());
            match (rng.below(4), lines.get(at).cloned()) {
                (0, Some(line)) => lines.insert(rng.index(lines.len()), line),
                (1, Some(_)) => drop(lines.remove(at)),
                (_, Some(line)) => {
                    let name = line.split('=').next().unwrap_or_default();
                    lines[at] = format!("{name}= {}", rng.pick(&WORDS).unwrap());
                }
                (_, None) => {}
            }
            *bytes = lines.join("\n").into_bytes();
        }
    }
}

/// The files of a cluster of each registered protocol.
fn made() -> Vec<TempDir> {
    REGISTRY.iter().map(|entry| testnet(entry).0).collect()
}

#[test]
fn cluster_files_are_read_or_refused() {
    let folders = made();
    let file = |folder: &TempDir| folder.path().join("cluster.toml");
    let samples = folders.iter().map(|folder| terse(&fs::read_to_string(file(folder)).unwrap())).collect();
    let file = file(&folders[0]);
    Decoder::new("cluster-toml", samples, |bytes| {
        fs::write(&file, bytes).unwrap();
        match ClusterConfig::load(&file) {
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "one line: {error}");
                Read::Refused
            }
            Ok(config) => {
                // The parsed content is written and read again.
                fs::write(&file, config.to_toml()).unwrap();
                let again = ClusterConfig::load(&file).unwrap();
                assert_eq!(again.cluster_id(), config.cluster_id());
                assert_eq!((again.to_toml(), again.replicas), (config.to_toml(), config.replicas));
                Read::Taken
            }
        }
    })
    .changed_by(edit)
    .holding(256, 256 << 10)
    .costing(20)
    .fuzz();
}

#[test]
fn node_files_are_read_or_refused() {
    let folder = testnet(&REGISTRY[0]).0;
    let file = node_file(folder.path(), ReplicaId(2));
    let text = fs::read_to_string(&file).unwrap();
    let delayed = text.replace("link_delay_ms = []", "link_delay_ms = [0, 20.5, 1, 2000]");
    assert_ne!(text, delayed);
    Decoder::new("node-toml", vec![terse(&text), terse(&delayed)], |bytes| {
        fs::write(&file, bytes).unwrap();
        match NodeConfig::load(&file) {
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "one line: {error}");
                Read::Refused
            }
            Ok(config) => {
                let _ = (config.insecure().is_none(), config.params());
                Read::Taken
            }
        }
    })
    .changed_by(edit)
    .holding(256, 512 << 10)
    .costing(40)
    .fuzz();
}

#[test]
fn sizes_are_read_or_refused() {
    let samples = ["64MiB", "1 GiB", "0B", "16TiB", "4096B"].map(|text| text.as_bytes().to_vec()).to_vec();
    Decoder::new("size", samples, |bytes| {
        let size = std::str::from_utf8(bytes).ok().and_then(parse_size);
        size.is_some_and(|size| parse_size(&show_size(size)) == Some(size)).into()
    })
    .fuzz();
}

#[test]
fn key_files_are_read_or_refused() {
    let key = SigningKey::from_seed(Scheme::Ed25519, [9; 32]);
    let pem = key.to_pkcs8_pem().unwrap().expose().as_bytes().to_vec();
    Decoder::new("key-file", vec![pem], |bytes| {
        let key = std::str::from_utf8(bytes).ok().and_then(|text| SigningKey::from_pkcs8_pem(text).ok());
        key.inspect(|key| assert!(!key.to_pkcs8_pem().unwrap().expose().is_empty())).is_some().into()
    })
    .holding(16, 16 << 10)
    .costing(8)
    .fuzz();
}

/// A key and a signature of one message.
#[test]
fn signatures_are_decoded_or_refused() {
    let key = SigningKey::from_seed(Scheme::Ed25519, [9; 32]);
    let sample = [&key.public().0[..], &key.sign(b"message").0].concat();
    Decoder::new("signature", vec![sample], |bytes| {
        let Some((public, rest)) = bytes.split_first_chunk::<32>() else { return Read::Refused };
        let Ok(key) = VerifyKey::register(Scheme::Ed25519, PublicKey(*public)) else { return Read::Refused };
        let Ok(signature) = <[u8; 64]>::try_from(rest) else { return Read::Refused };
        let _ = key.verify(b"message", &Signature(signature));
        Read::Taken
    })
    .changed_by(
        |rng, bytes, other| {
            if rng.chance(900_000) { nudge(rng, bytes, other) } else { mutate(rng, bytes, other) }
        },
    )
    .costing(20)
    .fuzz();
}

/// A line of each operation, and the values that keys held before.
const HISTORY: &str = r#"{"key":"a","held":"7"}
{"client":0,"kind":"put","key":"a","arg":"v","expect":null,"call_ns":5,"return_ns":7,"result":"ok"}
{"client":1,"kind":"get","key":"a","arg":null,"expect":null,"call_ns":6,"return_ns":9,"result":"v"}
{"client":1,"kind":"cas","key":"a","arg":"w","expect":"v","call_ns":10,"return_ns":12,"result":"no"}
{"client":2,"kind":"incr","key":"n","arg":"-2","expect":null,"call_ns":3,"return_ns":null,"result":null}
{"client":2,"kind":"del","key":"n","arg":null,"expect":null,"call_ns":13,"return_ns":14,"result":"ok"}
"#;

#[test]
fn histories_are_read_or_refused() {
    let samples = vec![HISTORY.as_bytes().to_vec(), HISTORY.lines().nth(1).unwrap().as_bytes().to_vec()];
    Decoder::new("history", samples, |bytes| {
        let Ok(history) = History::read(bytes) else { return Read::Refused };
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        history.write(&mut once).unwrap();
        let again = History::read(&once[..]).unwrap();
        again.write(&mut twice).unwrap();
        assert_eq!(once, twice, "what was read is written in one way");
        let verdict = judge_alone(&history);
        assert!(verdict.judged as usize <= history.records().len());
        Read::Taken
    })
    .changed_by(edit)
    .holding(512, 1 << 20)
    .costing(10)
    .fuzz();
}

/// Scenarios of twins, in our own format and in that of relab/hotstuff.
#[test]
fn scenarios_of_twins_are_read_or_refused() {
    let twins = vec![ReplicaId(0)];
    let drawn = twins::Enumeration::new(
        4,
        twins,
        2,
        3,
        twins::Leaders::Own,
        Some(twins::Sample { count: 2, seed: 7 }),
    )
    .unwrap();
    let own = twins::to_json(&[drawn.scenario(0), drawn.scenario(1)]);
    let view = |nodes: &str| format!(r#"{{"leader":1,"partitions":[{nodes}]}}"#);
    let (numbers, ids) = (view("[1,3,4],[2,5]"), view(r#"[{"ReplicaID":1,"TwinID":2}],[1,3,4,5]"#));
    let relab = format!(r#"{{"num_nodes":4,"num_twins":1,"views":2,"scenarios":[[{numbers},{ids}]]}}"#);
    Decoder::new("scenarios-of-twins", vec![own.into_bytes(), relab.into_bytes()], |bytes| {
        let Ok(scenarios) =
            std::str::from_utf8(bytes).map_err(drop).and_then(|text| twins::from_json(text).map_err(drop))
        else {
            return Read::Refused;
        };
        let again = twins::from_json(&twins::to_json(&scenarios)).unwrap();
        assert_eq!(scenarios, again, "what was read is written in one way");
        Read::Taken
    })
    .changed_by(edit)
    // A tree of values comes first, so that errors have a place. There are at most as many replicas as ids.
    .holding(64, 1 << 20)
    .costing(10)
    .fuzz();
}
