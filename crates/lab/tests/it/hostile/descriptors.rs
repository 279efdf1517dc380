//! A replica with few file descriptors, and strangers that try to use all of them.

use super::attacker::{Attacker, PATIENCE};
use quorate_app::KvOp;
use quorate_client::driver::{self, Client, Options};
use quorate_client::keys;
use quorate_lab::trial;
use quorate_net::{Session, tls};
use quorate_node::Service;
use quorate_node::config::Settings;
use quorate_node::layout::{KV_KEY, node_file};
use quorate_types::wire::{FromClient, VERSION};
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DESCRIPTORS: usize = 600;

/// A node that is killed at the end of the test.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Node {
    /// Starts a node with few descriptors; `None` if another process took its address.
    fn start(dir: &Path) -> Option<Self> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {DESCRIPTORS}; exec \"$0\" node --config \"$1\""));
        command.arg(env!("CARGO_BIN_EXE_quorate")).arg(node_file(dir, ReplicaId(0)));
        let mut node = Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut said = String::new();
        BufReader::new(node.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        (said == "ready\n").then_some(node)
    }
}

#[test]
fn strangers_cannot_take_the_last_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let entry = quorate_protocols::find("pbft").unwrap();
    let (dir, testnet, mut node) = (0..5)
        .find_map(|attempt| {
            let dir = folder.path().join(attempt.to_string());
            let testnet =
                trial::make(&dir, Service::KV, entry, 1, ClientAuth::Signature, &Settings::default())
                    .unwrap();
            Node::start(&dir).map(|node| (dir, testnet, node))
        })
        .unwrap();
    let info = testnet.cluster.client_info();
    let replica = info.replicas[0];
    let hello = FromClient::Hello { version: VERSION, cluster: info.cluster };
    // They send a hello as clients do, and keep the connections open.
    let crowd: Vec<Attacker> = (0..400)
        .map(|_| {
            let session = Session::dial(&tls::dial_replica(replica.link).unwrap()).unwrap();
            let mut attacker = Attacker::over(replica.address, session);
            attacker.say_to_replica(&hello);
            while attacker.end.is_none() && attacker.heard.is_empty() {
                attacker.read();
            }
            attacker
        })
        .collect();
    let inside = crowd.iter().filter(|attacker| attacker.end.is_none()).count();
    assert!((50..300).contains(&inside), "{inside} connections are open");
    let open = std::fs::read_dir(format!("/proc/{}/fd", node.0.id())).unwrap().count();
    assert!(open < DESCRIPTORS - 100, "{open} descriptors are in use");

    // A real client is admitted nevertheless, once the strangers have used up their time.
    let key = keys::read_private(&dir.join(KV_KEY)).unwrap();
    let options = Options { timeout: PATIENCE, ..Options::default() };
    let mut client = Client::connect(info.clone(), key, options).unwrap();
    client.call(&KvOp::Put { key: b"k", value: b"v" }.to_bytes()).unwrap();
    let status = driver::status(info, PATIENCE).unwrap().remove(0).unwrap();
    let status: Value = serde_json::from_str(&status).unwrap();
    let refused = &status["rejects"]["client 127.0.0.1"]["too many connections"];
    assert!(refused.as_u64().is_some_and(|count| count >= 100), "{status}");
    assert!(node.0.try_wait().unwrap().is_none(), "the node has ended");
    drop(crowd);
}
