//! A replicated service of another program: the locks of `examples/application.rs` on four processes of this test program.
//! One of them is killed and recovers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[allow(dead_code, unreachable_pub, reason = "its `main` is not used")]
#[path = "../../../examples/application.rs"]
mod application;

#[allow(dead_code, unreachable_pub, reason = "its `main` is not used")]
#[path = "../../../examples/client.rs"]
mod client;

use application::Locks;
use quorate_app::OnMap;
use quorate_client::cluster::LinkMode;
use quorate_client::keys;
use quorate_client::{Client, Options, driver};
use quorate_node::Service;
use quorate_node::config::{Durability, Settings};
use quorate_node::layout::{ADMIN_KEY, node_file};
use quorate_node::ports::free_addresses;
use quorate_node::processes::Processes;
use quorate_node::testnet::{Plan, Testnet};
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The environment variable that lets a process of this program serve the key-value store.
const AS_STORE: &str = "QUORATE_TEST_AS_STORE";
const LOCKS: Service = Service::of::<OnMap<Locks>>();

fn main() -> ExitCode {
    // The cluster starts this program for each node, as `up` does.
    if std::env::args().nth(1).is_some_and(|command| command == "node" || command == "call") {
        let is_store = std::env::var_os(AS_STORE).is_some();
        return quorate_node::main(if is_store { Service::KV } else { LOCKS });
    }
    let (folder, testnet, mut nodes) = start();
    client_takes_a_lock_and_gives_it_back(folder.path());
    call_asks_the_service_from_the_command_line(folder.path());
    locks_are_replicated(folder.path(), &testnet, &mut nodes);
    program_of_another_service_is_refused(folder.path());
    for name in [
        "client_takes_a_lock_and_gives_it_back",
        "call_asks_the_service_from_the_command_line",
        "locks_are_replicated",
        "program_of_another_service_is_refused",
    ] {
        println!("{name} ... ok");
    }
    ExitCode::SUCCESS
}

/// Starts four replicas.
fn start() -> (tempfile::TempDir, Testnet, Processes) {
    let plan = Plan {
        service: LOCKS,
        entry: quorate_protocols::find("pbft").unwrap(),
        addresses: free_addresses(4).unwrap(),
        client_auth: ClientAuth::Signature,
        links: LinkMode::Tls,
        durability: Durability::Fsync,
        allow_stop: false,
        settings: Settings::default(),
    };
    let folder = tempfile::tempdir().unwrap();
    let mut testnet = Testnet::create(folder.path(), &plan).unwrap();
    let program = std::env::current_exe().unwrap();
    let mut nodes = Processes::new(program, folder.path(), testnet.cluster.ids(), false);
    testnet.start(&mut nodes).unwrap();
    (folder, testnet, nodes)
}

/// The example of a client needs only the cluster's folder.
fn client_takes_a_lock_and_gives_it_back(folder: &Path) {
    assert_eq!(client::run(folder).unwrap(), ["granted 1", "held 1", "released"]);
}

fn call_asks_the_service_from_the_command_line(folder: &Path) {
    let call = |args: &[&str]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ran = command.arg("call").arg("--cluster").arg(folder).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };
    let printed = |text: &str| (Some(0), text.to_owned(), String::new());
    assert_eq!(call(&["acquire desk"]), printed("granted 2\n"));
    let operation = folder.join("operation");
    std::fs::write(&operation, "look desk").unwrap();
    assert_eq!(call(&["--file", operation.to_str().unwrap()]), printed("held 2\n"));
    let digits = quorate_types::digest::hex(b"release desk");
    assert_eq!(call(&["--hex", &digits, "--json"]), printed("{\"result\":\"released\"}\n"));
    assert_eq!(call(&["look desk", "--out", "-"]), printed("free"));
    let (code, out, error) = call(&["look desk", "--key", "/none.key"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(error.starts_with("error: /none.key: ") && error.lines().count() == 1, "{error}");
}

fn locks_are_replicated(folder: &Path, testnet: &Testnet, nodes: &mut Processes) {
    let info = testnet.cluster.client_info();
    let connect = |key| Client::connect(info.clone(), key, Options::default()).unwrap();
    let ask = |client: &mut Client, op: &str| String::from_utf8(client.call(op.as_bytes()).unwrap()).unwrap();
    let mut anna = connect(keys::read_private(&folder.join(LOCKS.client_key())).unwrap());
    let bens = keys::generate().unwrap();
    let mut admin = connect(keys::read_private(&folder.join(ADMIN_KEY)).unwrap());
    assert_eq!(admin.register(&[bens.public()]).unwrap(), 1);
    let mut ben = connect(bens);

    assert_eq!(ask(&mut anna, "acquire printer"), "granted 3");
    assert_eq!(ask(&mut ben, "acquire printer"), "held 3");
    assert_eq!(ask(&mut ben, "release printer"), "not yours");
    nodes.kill(ReplicaId(3)).unwrap();
    assert_eq!(ask(&mut anna, "release printer"), "released");
    assert_eq!(ask(&mut ben, "acquire printer"), "granted 4");
    nodes.start(ReplicaId(3)).unwrap();

    // The restarted replica catches up, and all replicas have the same state.
    let deadline = Instant::now() + Duration::from_secs(30);
    let states = || -> Vec<(Value, Value)> {
        let answers = driver::status(info.clone(), Duration::from_secs(2)).unwrap();
        let parse = |answer: Result<String, String>| serde_json::from_str(&answer.ok()?).ok();
        let statuses: Vec<Value> = answers.into_iter().filter_map(parse).collect();
        statuses.iter().map(|status| (status["executed"].clone(), status["state_digest"].clone())).collect()
    };
    let together =
        |states: &[(Value, Value)]| states.len() == 4 && states.iter().all(|state| *state == states[0]);
    let mut now = states();
    while !together(&now) {
        assert!(Instant::now() < deadline, "{now:?}");
        now = states();
    }
}

/// A program that serves the key-value store refuses the folder of a cluster of locks, and starts nothing.
fn program_of_another_service_is_refused(folder: &Path) {
    let file = node_file(folder, ReplicaId(0));
    let program = std::env::current_exe().unwrap();
    let ran =
        Command::new(program).env(AS_STORE, "1").arg("node").arg("--config").arg(file).output().unwrap();
    let error = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{error}");
    assert!(
        error.contains("genesis.application: expected \"kv 1\"") && error.contains("\"locks 1\""),
        "{error}"
    );
}
