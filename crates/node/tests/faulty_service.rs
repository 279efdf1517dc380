//! A service with faults that only replication shows: its state depends on the process, or it panics. Four processes of
//! this test program replicate it, and their reports name the fault.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use quorate_app::{At, BucketMap, MapApplication, OnMap};
use quorate_client::cluster::LinkMode;
use quorate_client::keys;
use quorate_client::{Client, Options, driver};
use quorate_node::Service;
use quorate_node::config::{Durability, Settings};
use quorate_node::layout::{LOG_FILE, node_folder};
use quorate_node::ports::free_addresses;
use quorate_node::processes::{Event, Processes};
use quorate_node::testnet::{Plan, Testnet};
use quorate_types::{ClientAuth, ReplicaId};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const FAULTY: Service = Service::of::<OnMap<Faulty>>();
const PATIENCE: Duration = Duration::from_secs(60);

/// A counter. `count` counts, `draw` adds the id of the process, `odd` and an id of a process sets a key in that process alone,
/// and `boom` panics.
struct Faulty;

impl MapApplication for Faulty {
    const NAME: &'static str = "faulty";
    const VERSION: u32 = 1;

    fn apply(map: &mut BucketMap, _at: &At, op: &[u8], reply: &mut Vec<u8>) {
        let id = std::process::id();
        let count = map
            .get(b"count")
            .and_then(|count| count.first_chunk())
            .map_or(0, |count| u64::from_le_bytes(*count));
        let next = match op {
            b"draw" => count.wrapping_mul(3).wrapping_add(u64::from(id)),
            b"boom" => panic!("nobody has thought of this"),
            _ => count.wrapping_add(1),
        };
        if op.strip_prefix(b"odd") == Some(id.to_string().as_bytes()) {
            map.insert(b"odd", b"1");
        }
        map.insert(b"count", &next.to_le_bytes());
        reply.extend_from_slice(b"done");
    }

    fn query(_map: &BucketMap, _op: &[u8], _room: usize, _reply: &mut Vec<u8>) {}
}

fn main() -> ExitCode {
    // The clusters start this program for each node, as `up` does. A test inspects their disks.
    if let Some("node" | "inspect") = std::env::args().nth(1).as_deref() {
        return quorate_node::main(FAULTY);
    }
    states_that_differ_are_an_alarm_at_the_first_checkpoint();
    println!("states_that_differ_are_an_alarm_at_the_first_checkpoint ... ok");
    wrong_state_of_one_replica_is_kept_and_replaced();
    println!("wrong_state_of_one_replica_is_kept_and_replaced ... ok");
    process_that_ends_is_reported_with_its_own_cause();
    println!("process_that_ends_is_reported_with_its_own_cause ... ok");
    ExitCode::SUCCESS
}

struct Cluster {
    nodes: Processes,
    testnet: Testnet,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts four replicas.
    fn start() -> Self {
        let plan = Plan {
            service: FAULTY,
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
        Self { nodes, testnet, folder }
    }

    fn client(&self, options: Options) -> Client {
        let key = keys::read_private(&self.folder.path().join(FAULTY.client_key())).unwrap();
        Client::connect(self.testnet.cluster.client_info(), key, options).unwrap()
    }

    /// Returns the status of each replica.
    fn statuses(&self) -> Vec<Value> {
        let answers = driver::status(self.testnet.cluster.client_info(), Duration::from_secs(5)).unwrap();
        let parsed = |answer: Result<String, String>| serde_json::from_str(&answer.ok()?).ok();
        answers.into_iter().map(|answer| parsed(answer).unwrap_or(Value::Null)).collect()
    }

    /// Returns the alarms in the status of each replica.
    fn alarms(&self) -> Vec<Vec<String>> {
        let texts = |list: &Value| {
            list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
        };
        self.statuses().iter().map(|status| texts(&status["alarms"])).collect()
    }

    fn log(&self, id: ReplicaId) -> String {
        fs::read_to_string(node_folder(self.folder.path(), id).join(LOG_FILE)).unwrap()
    }

    /// Returns the next replica whose process ends, and the report.
    fn next_end(&mut self) -> (ReplicaId, String) {
        let deadline = Instant::now().checked_add(PATIENCE);
        loop {
            match self.nodes.next_event(deadline) {
                Some(Event::Gone(gone)) => return (gone.id, gone.line),
                Some(_) => {}
                None => panic!("no process ends"),
            }
        }
    }
}

fn states_that_differ_are_an_alarm_at_the_first_checkpoint() {
    let cluster = Cluster::start();
    let mut client = cluster.client(Options::default());
    client.call(b"count").unwrap();
    assert_eq!(cluster.alarms(), vec![Vec::<String>::new(); 4], "nothing is wrong so far");
    // The calls reach the first checkpoint, but not the end of the window.
    for _ in 0..130 {
        assert_eq!(client.call(b"draw").unwrap(), b"done");
    }
    let deadline = Instant::now() + PATIENCE;
    let begin = "states differ at height 128, no quorum: ";
    let mut alarms = cluster.alarms();
    while !alarms.iter().all(|alarms| alarms.iter().any(|text| text.starts_with(begin))) {
        assert!(Instant::now() < deadline, "{alarms:#?}");
        alarms = cluster.alarms();
    }
    for (id, alarms) in cluster.testnet.cluster.ids().zip(&alarms) {
        assert!(alarms[0].contains(&format!("this one ({id}) signed ")), "{alarms:?}");
        let log = cluster.log(id);
        assert!(log.lines().any(|line| line.contains("ERROR") && line.contains(begin)), "{log}");
    }
}

fn wrong_state_of_one_replica_is_kept_and_replaced() {
    let mut cluster = Cluster::start();
    let odd = ReplicaId(2);
    let mut client = cluster.client(Options::default());
    let op = format!("odd{}", cluster.nodes.pid(odd).unwrap());
    client.call(op.as_bytes()).unwrap();
    for _ in 0..130 {
        client.call(b"count").unwrap();
    }
    let kept = "the wrong state is kept in ";
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, log) = (cluster.statuses()[odd.index()].clone(), cluster.log(odd));
        if log.contains(kept) && status["state"] == "current" && status["missing_state"].is_null() {
            break;
        }
        assert!(Instant::now() < deadline, "{status:#}\n{log}");
        let _ = client.call(b"count");
    }
    cluster.nodes.stop_all();
    let [wrong, healthy] = [odd, ReplicaId(0)].map(|id| node_folder(cluster.folder.path(), id));
    let inspect = |folder: &Path| {
        let evidence = wrong.join("data/diverged-128");
        let program = std::env::current_exe().unwrap();
        Command::new(program)
            .arg("inspect")
            .arg(folder)
            .arg("--json")
            .arg("--diff")
            .arg(evidence)
            .output()
            .unwrap()
    };
    let ran = inspect(&healthy);
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    assert_eq!(found["first"]["height"], found["second"]["height"], "{found}");
    assert_eq!((&found["entries"], &found["first_entry"]["key"]), (&1.into(), &"odd".into()), "{found}");
    assert_eq!(
        (&found["first_entry"]["first"], &found["first_entry"]["second"]),
        (&Value::Null, &"1".into())
    );
    // The replica has the right state now.
    let found: Value = serde_json::from_slice(&inspect(&wrong).stdout).unwrap();
    assert!(
        found["first_entry"]["key"] == "count" && found["first"]["height"].as_u64() >= Some(128),
        "{found}"
    );
}

fn process_that_ends_is_reported_with_its_own_cause() {
    let mut cluster = Cluster::start();
    let killed = ReplicaId(3);
    let pid = i32::try_from(cluster.nodes.pid(killed).unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let (id, line) = cluster.next_end();
    assert_eq!(id, killed);
    assert!(line.starts_with("node 3 has ended (signal 9, SIGKILL)"), "{line}");

    // Each replica that applies the operation ends, also after a restart of all, because it was decided. After the first end too
    // few replicas may be left to decide it.
    cluster.nodes.start(killed).unwrap();
    cluster.nodes.wait_ready(&[killed], PATIENCE).unwrap();
    let mut client = cluster.client(Options { timeout: Duration::from_secs(2), ..Options::default() });
    let place = |(id, line): (ReplicaId, String)| {
        let begin = format!("node {id} has ended (exit code 1): the application has panicked in apply at ");
        let place = line.strip_prefix(&begin).unwrap_or_else(|| panic!("{line}"));
        assert!(place.contains(", client ") && place.contains("of session "), "{line}");
        let (place, advice) = place.split_once(": nobody has thought of this").unwrap();
        assert!(
            place.ends_with("operation 0: \"boom\"") && advice.contains("building-a-service.md"),
            "{line}"
        );
        place.to_owned()
    };
    assert!(client.call(b"boom").is_err());
    let first = place(cluster.next_end());
    cluster.nodes.stop_all();
    cluster.nodes.start_all().unwrap();
    assert!(client.call(b"count").is_err(), "no operation is executed after one that panics");
    assert_eq!(place(cluster.next_end()), first);
}
