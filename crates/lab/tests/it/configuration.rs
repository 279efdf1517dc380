//! Errors of a configuration: one line that names file, line and field, and exit code 2.

use crate::support::{Cluster, Ran, command, place, quorate};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

const FILES: [&str; 2] = ["node0/node.toml", "cluster.toml"];

/// Returns the lines that set a field, as line number, table and name.
fn fields(text: &str) -> Vec<(usize, String, String)> {
    let (mut table, mut fields) = (String::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            line.trim_matches(['[', ']']).clone_into(&mut table);
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            fields.push((index + 1, table.clone(), name.to_owned()));
        }
    }
    fields
}

fn without_line(text: &str, line: usize) -> String {
    let kept = text.lines().enumerate().filter(|(index, _)| index + 1 != line);
    kept.map(|(_, text)| format!("{text}\n")).collect()
}

fn with_line(text: &str, line: usize, new: &str) -> String {
    let lines = text.lines().enumerate();
    lines.map(|(index, text)| format!("{}\n", if index + 1 == line { new } else { text })).collect()
}

#[test]
fn missing_field_is_refused() {
    let cluster = Cluster::new(&[]);
    for file in FILES {
        let text = cluster.text(file);
        let fields = fields(&text);
        assert!(fields.len() >= 13, "{file}");
        // Files of earlier versions lack the delays of experiments.
        for (line, table, name) in fields.into_iter().filter(|(_, _, name)| name != "link_delay_ms") {
            let ran = cluster.with_text(file, &without_line(&text, line), || cluster.start());
            let what = format!("{file} without {table}.{name}");
            let path = cluster.path(file);
            ran.refuses(
                &what,
                &[path.to_str().unwrap(), &format!("{name}: missing; expected "), "; add, for example, "],
            );
        }
    }
}

#[test]
fn field_of_another_type_is_refused() {
    let cluster = Cluster::new(&[]);
    for file in FILES {
        let text = cluster.text(file);
        for (line, table, name) in fields(&text) {
            for wrong in ["{ }", "[[]]", "1979-05-27", "-1", "1.5", "\"\""] {
                let ran =
                    cluster.with_text(file, &with_line(&text, line, &format!("{name} = {wrong}")), || {
                        cluster.start()
                    });
                let place = place(&cluster.path(file), line);
                ran.refuses(
                    &format!("{table}.{name} = {wrong} in {file}"),
                    &[&place, &format!("{name}: expected ")],
                );
            }
        }
    }
}

#[test]
fn unknown_field_is_refused_in_every_table() {
    let cluster = Cluster::new(&[]);
    for file in FILES {
        let text = cluster.text(file);
        let mut headers: Vec<usize> = vec![0];
        headers.extend(
            text.lines().enumerate().filter(|(_, line)| line.starts_with('[')).map(|(index, _)| index + 1),
        );
        for header in headers {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.insert(header, "speed = 9");
            let ran = cluster.with_text(file, &lines.join("\n"), || cluster.start());
            let place = place(&cluster.path(file), header + 1);
            ran.refuses(
                &format!("after line {header} of {file}"),
                &[&place, "speed: unknown field; expected "],
            );
        }
    }
}

#[test]
fn duplicate_field_and_invalid_toml_are_refused() {
    let cluster = Cluster::new(&[]);
    let text = cluster.text("node0/node.toml");
    let lines = text.lines().count();
    for (added, field) in
        [("id = 0", "id"), ("id = ", "id"), ("what is this", "what is this"), ("[genesis", "[genesis")]
    {
        // The fields of the root table end where the parameters of the protocol begin.
        let text = text.replacen("\n[protocol.pbft]", &format!("\n{added}\n[protocol.pbft]"), 1);
        let ran = cluster.with_text("node0/node.toml", &text, || cluster.start());
        ran.refuses(added, &["node.toml:", &format!(": {field}: not valid TOML: ")]);
    }
    let ran = cluster.with_text("node0/node.toml", "", || cluster.start());
    ran.refuses("empty", &["node.toml:1: id: missing"]);
    assert!(lines > 13);
}

/// The file, the original text, the replacement, the named field, and the expected error.
const RANGES: &str = r#"
node0/node.toml | id = 0 | id = 4 | id | from 0 to 3
node0/node.toml | id = 0 | id = 65536 | id | from 0 to 65535
node0/node.toml | link_delay_ms = [] | link_delay_ms = [0, 1, 2] | link_delay_ms | expected one number for each of the 4 replicas
node0/node.toml | link_delay_ms = [] | link_delay_ms = [0, 1, 2, 2001] | link_delay_ms | a list of milliseconds from 0 to 2000
node0/node.toml | disk_bytes_max = "8GiB" | disk_bytes_max = "1MiB" | disk_bytes_max | from "272MiB"
node0/node.toml | disk_bytes_max = "8GiB" | disk_bytes_max = "1GiB" | disk_bytes_max | at least the sum of keep_bytes and 256MiB
node0/node.toml | disk_bytes_max = "8GiB" | disk_bytes_max = "8 gigabytes" | disk_bytes_max | expected a size from
node0/node.toml | keep_bytes = "1GiB" | keep_bytes = "1KiB" | keep_bytes | from "16MiB"
node0/node.toml | record = false | record = true | record | expected false
node0/node.toml | log = "info" | log = "loud" | log | "error" or "warn" or "info" or "debug" or "trace"
node0/node.toml | allow_stop = false | allow_stop = "yes" | allow_stop | expected true or false
node0/node.toml | placement = "inline" | placement = "staged" | placement | expected "inline"
node0/node.toml | durability = "fsync" | durability = "sync" | durability | "fsync" or "os" or "none"
node0/node.toml | listen_peers = "127.0.0.1:4000" | listen_peers = "127.0.0.1:0" | listen_peers | other than 0
node0/node.toml | listen_peers = "127.0.0.1:4000" | listen_peers = "localhost:4000" | listen_peers | an IP address and a port
node0/node.toml | listen_clients = "127.0.0.1:4001" | listen_clients = "0.0.0.0:4000" | listen_clients | is the address of listen_peers too
node0/node.toml | # status_ms = 1000 | status_ms = -3 | protocol.pbft.status_ms | expected a whole number that the protocol can use
node0/node.toml | # status_ms = 1000 | status_ms = true | protocol.pbft.status_ms | expected a whole number
cluster.toml | f = 1 | f = 2 | genesis.f | expected at most 1: pbft with 4 replicas tolerates no more
cluster.toml | f = 1 | f = 256 | genesis.f | from 0 to 255
cluster.toml | protocol = "pbft" | protocol = "raft" | genesis.protocol | expected "pbft" or "pbft-signed" or "hotstuff" or "jolteon" or "hotstuff2" or "sync-hotstuff" or "optsync" or "sync-hotstuff-rr" or "apollo" or "artemis" or "echo"
cluster.toml | client_auth = "signature" | client_auth = "mac" | genesis.client_auth | "signature" or "none"
cluster.toml | request_bytes_max = "256KiB" | request_bytes_max = "0B" | genesis.request_bytes_max | from "1B" to "1MiB"
cluster.toml | request_bytes_max = "256KiB" | request_bytes_max = "1MiB" | genesis.bundle_bytes_max | at least request_bytes_max + 128
cluster.toml | checkpoint_every = 128 | checkpoint_every = 1 | genesis.checkpoint_every | from 2 to 1048576
cluster.toml | window = 256 | window = 300 | genesis.window | a multiple of checkpoint_every
cluster.toml | application = "kv 1" | application = "kv 2" | genesis.application | expected "kv 1"
cluster.toml | id = 2 | id = 3 | replicas[2].id | expected 2, since the entries stand in order
cluster.toml | link_auth = "tls" | link_auth = "ssl" | link_auth | "tls" or "plain"
cluster.toml | bundle_requests_max = 4096 | bundle_requests_max = 0 | genesis.bundle_requests_max | a whole number from 1 to
cluster.toml | bundle_bytes_max = "1MiB" | bundle_bytes_max = "1GiB" | genesis.bundle_bytes_max | a size from
cluster.toml | block_bundles_max = 256 | block_bundles_max = 4097 | genesis.block_bundles_max | a whole number from 1 to 4096
cluster.toml | block_requests_max = 1048576 | block_requests_max = 0 | genesis.block_requests_max | a whole number from 1 to 268435456
cluster.toml | block_bytes_max = "4MiB" | block_bytes_max = "1GiB" | genesis.block_bytes_max | a size from
cluster.toml | reply_bytes_max = "1MiB" | reply_bytes_max = "4MiB" | genesis.reply_bytes_max | a size from
cluster.toml | client_window = 16384 | client_window = 0 | genesis.client_window | a whole number from 1 to
cluster.toml | clients_max = 4096 | clients_max = 99999999 | genesis.clients_max | a whole number from 1 to 1048576
cluster.toml | peers = "127.0.0.1:4002" | peers = "127.0.0.1:0" | replicas[1].peers | other than 0
cluster.toml | clients = "127.0.0.1:4003" | clients = "127.0.0.1:70000" | replicas[1].clients | an IP address and a port
cluster.toml | peers = "127.0.0.1:4002" | peers = "0.0.0.0:4002" | replicas[1].peers | that others can dial
cluster.toml | peers = "127.0.0.1:4002" | peers = "[ff02::1]:4002" | replicas[1].peers | that others can dial
cluster.toml | clients = "127.0.0.1:4003" | clients = "[::]:4003" | replicas[1].clients | that others can dial
cluster.toml | clients = "127.0.0.1:4003" | clients = "255.255.255.255:4003" | replicas[1].clients | that others can dial
cluster.toml | peers = "127.0.0.1:4002" | peers = "127.0.0.1:4000" | replicas[1].peers | is replicas[0].peers already
cluster.toml | clients = "127.0.0.1:4003" | clients = "127.0.0.1:4002" | replicas[1].clients | is replicas[1].peers already
node0/node.toml | listen_peers = "127.0.0.1:4000" | listen_peers = "224.0.0.1:4000" | listen_peers | not multicast
node0/node.toml | listen_peers = "127.0.0.1:4000" | listen_peers = "192.0.2.1:4000" | listen_peers | write an address of this machine
"#;

/// Fields without a row above: any path may be valid, and keys have a test of their own.
const ELSEWHERE: [&str; 9] = [
    "cluster",
    "data_dir",
    "replica_key",
    "link_key",
    "genesis.admin",
    "genesis.clients",
    "genesis.salt",
    "replicas.sign",
    "replicas.link",
];

/// A new field without a row fails here.
#[test]
fn fields_have_a_range_or_a_test_of_their_own() {
    let cluster = Cluster::new(&[]);
    for file in FILES {
        let rows = RANGES.trim().lines().filter(|row| row.starts_with(file));
        let tested: Vec<String> = rows
            .map(|row| {
                let field = row.split(" | ").nth(3).unwrap();
                let numbers: &[_] = &['0', '1', '2', '3', '[', ']'];
                field.split('.').map(|name| name.trim_end_matches(numbers)).collect::<Vec<_>>().join(".")
            })
            .collect();
        for (_, table, name) in fields(&cluster.text(file)) {
            let field = format!("{table}.{name}");
            let field = field.trim_start_matches('.');
            assert!(tested.iter().any(|row| row == field) || ELSEWHERE.contains(&field), "{field} of {file}");
        }
        // Parameters are comments in the file until they are set.
        let text = cluster.text(file);
        let (_, params) = text.split_once("[protocol.pbft]").unwrap_or_default();
        for name in params.lines().filter_map(|line| line.strip_prefix("# ")?.split_once(" = ")) {
            let known = PARAMETERS.iter().any(|(row, _)| row.starts_with(&format!("{} = ", name.0)));
            assert!(known, "protocol.pbft.{} of {file}", name.0);
        }
    }
}

#[test]
fn value_outside_its_range_is_refused() {
    let cluster = Cluster::new(&[]);
    let cases = RANGES.trim().lines();
    for case in cases {
        let [file, from, to, field, expected] = case.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{case}");
        };
        let ran = cluster.with_change(file, from, to, || cluster.start());
        let place = cluster.path(file).display().to_string();
        ran.refuses(to, &[&place, &format!(": {field}: "), expected]);
        let named = ran.err.trim_start_matches("error: ").trim_start_matches(&place);
        let number =
            named.strip_prefix(':').is_some_and(|line| line.starts_with(|c: char| c.is_ascii_digit()));
        assert!(number, "no line: {}", ran.err);
    }
}

/// Protocol parameters outside their ranges.
const PARAMETERS: [(&str, &str); 6] = [
    ("status_ms = 3", "expected 10 to 60000"),
    ("idle_status_ms = 5", "expected 1000 to 600000"),
    ("blocks_in_flight = 0", "expected 1 to 256"),
    ("treq_ms = 9", "expected 10 to 60000"),
    ("t0_ms = 60001", "expected 10 to 60000"),
    ("cap_ms = 399", "expected 400 to 600000"),
];

/// Only the protocol knows the ranges of its numbers. It checks them when the node opens.
#[test]
fn protocol_parameter_outside_its_range_is_refused() {
    let cluster = Cluster::new(&[]);
    let mut text = cluster.text(FILES[0]);
    for (listed, free) in [4_000, 4_001].iter().zip(quorate_node::ports::free(2).unwrap()) {
        text = text.replace(&format!("127.0.0.1:{listed}"), &format!("127.0.0.1:{free}"));
    }
    for (param, expected) in PARAMETERS {
        let name = param.split(' ').next().unwrap();
        let line = text.lines().position(|line| line.starts_with(&format!("# {name} = "))).unwrap() + 1;
        let ran = cluster.with_text(FILES[0], &with_line(&text, line, param), || cluster.start());
        let place = place(&cluster.path(FILES[0]), line);
        ran.refuses(param, &[&place, &format!("protocol.pbft.{name}: "), expected]);
    }
}

/// A long name is valid in every file and option. A cluster that was made under one of the two names opens under
/// the other.
#[test]
fn long_name_of_a_protocol_is_accepted() {
    let cluster = Cluster::new(&["--protocol", "sync-hotstuff-rotating"]);
    let text = cluster.text("cluster.toml");
    for part in ["protocol = \"sync-hotstuff-rr\"\n", "[protocol.sync-hotstuff-rr]\n", "delta_ms = 50\n"] {
        assert!(text.contains(part), "{text}");
    }
    let long = text.replace("sync-hotstuff-rr", "sync-hotstuff-rotating");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let node = cluster.text(FILES[0]).replace("127.0.0.1:4000", &address);
    let start = |text: &str| {
        cluster.with_text(FILES[1], text, || cluster.with_text(FILES[0], &node, || cluster.start()))
    };
    // The data folder is opened before the sockets.
    start(&long).refuses("the same cluster", &[": listen_peers: cannot listen on "]);
    start(&long.replace("delta_ms = 50", "delta_ms = 51")).refuses("another cluster", &[": data_dir: "]);
}

#[test]
fn invalid_or_equal_keys_of_members_are_refused() {
    let cluster = Cluster::new(&[]);
    let text = cluster.text("cluster.toml");
    let key = |name: &str, nth: usize| {
        let line = text.lines().filter(|line| line.starts_with(&format!("{name} = "))).nth(nth).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    };
    let identity_point = format!("01{}", "00".repeat(31));
    for (from, to, field, problem) in [
        (key("sign", 1), key("sign", 0), "replicas[1].sign", "another place of the list"),
        (key("link", 3), key("sign", 0), "replicas[3].link", "another place of the list"),
        (key("sign", 2), identity_point.clone(), "replicas[2].sign", "an Ed25519 public key"),
        (key("sign", 2), "00".to_owned(), "replicas[2].sign", "64 hexadecimal digits"),
        (key("admin", 0), "zz".repeat(32), "genesis.admin", "64 hexadecimal digits"),
        (key("clients", 0), identity_point, "genesis.clients", "a list, each entry an Ed25519 public key"),
        (key("salt", 0), "12".to_owned(), "genesis.salt", "64 hexadecimal digits"),
    ] {
        let ran = cluster.with_change("cluster.toml", &from, &to, || cluster.start());
        ran.refuses(field, &["cluster.toml:", &format!(": {field}: "), problem]);
    }
    let twice = format!("[\"{0}\", \"{0}\"]", key("clients", 0));
    let ran = cluster
        .with_change("cluster.toml", &format!("[\"{}\"]", key("clients", 0)), &twice, || cluster.start());
    ran.refuses("a client twice", &[": genesis.clients: ", "none twice"]);
}

#[test]
fn value_in_place_of_a_table_is_refused() {
    let cluster = Cluster::new(&[]);
    let text = cluster.text("cluster.toml");
    let root: String = text.split("[genesis]").next().unwrap().to_owned();
    let replicas = text.find("[[replicas]]").unwrap();
    for (text, field, problem) in [
        (root.clone(), "genesis", "missing; expected a table; add, for example, [genesis]"),
        (format!("{root}genesis = 3\n"), "genesis", "expected a table, found 3"),
        (text[..replicas].to_owned(), "replicas", "missing; expected a list of tables"),
        (format!("replicas = 3\n{}", &text[..replicas]), "replicas", "expected a list of tables, found 3"),
        (format!("replicas = []\n{}", &text[..replicas]), "replicas", "expected 1 to 256 entries"),
        (format!("replicas = [1]\n{}", &text[..replicas]), "replicas[0]", "expected a table, found 1"),
        (format!("{text}\n[protocol.echo]\nx = 1\n"), "protocol.echo", "parameters of another protocol"),
        (
            format!("{text}\n[protocol.pbft]\nstatus_ms = 50\n"),
            "protocol.pbft.status_ms",
            "a value of each node",
        ),
    ] {
        let ran: Ran = cluster.with_text("cluster.toml", &text, || cluster.start());
        ran.refuses(field, &["cluster.toml:", &format!(": {field}: "), problem]);
    }
}

#[test]
fn missing_file_is_named() {
    let cluster = Cluster::new(&[]);
    cluster.start_node("node9/node.toml").refuses("node.toml", &["node9/node.toml: (file): cannot be read"]);
    fs::rename(cluster.path("cluster.toml"), cluster.path("away")).unwrap();
    cluster.start().refuses("cluster.toml", &["cluster.toml: (file): cannot be read"]);
}

#[test]
fn insecure_settings_need_the_insecure_flag() {
    for (more, field) in [
        (["--client-auth", "none"], "genesis.client_auth"),
        (["--link-auth", "plain"], "link_auth"),
        (["--durability", "none"], "durability"),
    ] {
        let cluster = Cluster::new(&more);
        cluster.start().refuses(field, &[&format!(": {field}: "), "--insecure"]);
    }
}

/// Everything that a node would refuse is refused before anything is written.
#[test]
fn testnet_refuses_a_cluster_that_could_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cluster");
    let dir = dir.to_str().unwrap();
    for (args, said) in [
        (
            &["--protocol", "sync-hotstuff", "--set", "delta_ms=0"][..],
            "protocol.sync-hotstuff.delta_ms: expected 1 to",
        ),
        (
            &["--protocol", "optsync", "--set", "delta_ms=9999999999"],
            "protocol.optsync.delta_ms: expected 1 to",
        ),
        (&["--set", "t0_ms=0"], "protocol.pbft.t0_ms: expected 10 to 60000"),
        (&["--set", "keep_bytes=1KiB"], "keep_bytes: expected a size from \"16MiB\""),
        (&["--set", "block_requests_max=1", "--set", "block_requests_max=2"], "a name is given twice"),
        (&["--addresses", "10.0.0.1,10.0.0.2,10.0.0.3,0.0.0.0"], "replicas[3].peers: expected an IP address"),
        (&["--n", "1000"], "expected 1 to 256 replicas"),
        (&["--n", "0"], "expected 1 to 256 replicas"),
        (&["--base-port", "65529"], "--base-port 65529: expected 1 to 65528"),
        (&["--base-port", "0"], "expected 1 to 65528"),
    ] {
        quorate(&[&["testnet", "--out", dir][..], args].concat()).refuses(&args.join(" "), &[said]);
        assert!(!folder.path().join("cluster").exists(), "{args:?}");
    }
}

#[test]
fn testnet_accepts_unusual_but_valid_sizes() {
    let last = Cluster::new(&["--base-port", "65528"]);
    assert!(last.text("cluster.toml").contains("clients = \"127.0.0.1:65535\""));
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("cluster");
    let made = quorate(&["testnet", "--out", dir.to_str().unwrap(), "--n", "3", "--set", "keep_bytes=64MiB"]);
    assert_eq!(made.code, Some(0));
    assert_eq!(
        made.err.trim_end(),
        "warning: pbft with 3 replicas tolerates no faulty replica; expected at least 4 replicas"
    );
    assert!(fs::read_to_string(dir.join("node2/node.toml")).unwrap().contains("keep_bytes = \"64MiB\""));
    // This is the example of the help.
    Cluster::new(&["--set", "block_requests_max=400"]);
}

/// A run that tests nothing is refused, and so is an option without effect.
#[test]
fn run_without_effect_is_a_usage_error() {
    for (line, said) in [
        ("exam --n 4 --seeds 0", "--seeds"),
        ("exam --n 0", "expected 1 to 256 replicas"),
        ("exam --n 3", "--n 3: pbft tolerates no fault with so few replicas; expected at least 4"),
        ("exam --n 4,3", "--n 3: pbft tolerates no fault"),
        ("exam --protocol sync-hotstuff --n 2", "expected at least 3"),
        ("exam --n 100000", "expected 1 to 256 replicas"),
        ("exam --piece 3", "--piece would do nothing"),
        ("exam --code x", "--ledger"),
        ("exam --minutes 0", "above 0"),
        ("exam --short --piece 3", "--short"),
        ("twins --n 3", "--n 3: pbft tolerates no fault"),
        ("twins --n 0", "expected 1 to 256 replicas"),
        ("twins --sample 0", "--sample"),
        ("twins --views 0", "expected a number above 0"),
        ("twins --parts 0", "expected a number above 0"),
        ("twins --seed 3", "--sample"),
        ("twins --twin 1 --range 0..3 --trace", "--trace would do nothing"),
        ("twins --file x --views 3", "--views"),
        ("twins --file x --protocol optsync", "cut the network"),
        ("twins --scenario 3 --keep-going", "--keep-going"),
        ("twins --scenario 3 --minutes 4", "--minutes would do nothing"),
        ("twins --write x --keep-going", "--keep-going"),
        ("sim --seeds 0", "expected a number of seeds above 0 or a range like 100..200"),
        ("sim --n 3", "--n 3: pbft tolerates no fault"),
        ("sim --seeds 5 --html x", "--html would do nothing"),
        ("sim --seeds 5 --history x", "--history would do nothing"),
        ("sim --seeds 5 --trace", "--trace would do nothing"),
        ("sim --seeds 5 --from 3", "--from would do nothing"),
        ("sim --seed 5 --from 3s", "--from would do nothing"),
        ("sim --seed 5 --last 500ms", "--last would do nothing"),
        ("sim --seed 5 --keep-going", "--keep-going"),
        ("sim --seeds 5 --update", "--update would do nothing"),
        ("sim --figures --scenario liars", "--scenario"),
        ("sim --figures --html x", "--html would do nothing"),
        ("sim --faults --seed 3", "--faults"),
        ("demo --n 3", "--n 3: pbft tolerates no fault"),
        ("demo --seconds 4", "expected 5 to 3600"),
        ("demo --seconds 90m", "expected 5 to 3600"),
        ("demo --clients 0", "--clients 0: expected at least 1"),
        ("demo --in-flight 0", "--in-flight 0: expected at least 1"),
        ("torture --n 3", "--n 3: pbft tolerates no fault"),
        ("torture --minutes 0", "above 0"),
        ("torture --rate 1e9", "--rate 1000000000: expected a number of requests"),
        ("torture --keys 0", "--keys 0: expected at least 1"),
        ("status --wait soon", "a number alone is in seconds"),
        ("kv --timeout soon get a", "a number alone is in seconds"),
        ("load --seconds soon", "a number alone is in seconds"),
        ("torture --minutes soon", "a number alone is in minutes"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        quorate(&words).refuses(line, &[said]);
    }
}

/// With `--json` wrong usage, wrong files and failed runs are one JSON object.
#[test]
fn errors_are_json_objects_with_the_json_flag() {
    for line in [
        "sim --seeds 0 --json",
        "twins --n 3 --json",
        "status --cluster /no/such/file --json",
        "kv get --json",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = quorate(&words);
        let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
        assert_eq!((ran.code, &error["exit_code"], ran.out.as_str()), (Some(2), &2.into(), ""), "{line}");
        assert!(!error["error"].as_str().unwrap().is_empty(), "{line}");
    }
}

#[test]
fn cluster_option_accepts_the_folder() {
    let cluster = Cluster::new(&[]);
    let mut text = cluster.text("cluster.toml");
    for (listed, free) in (4_000..4_008).zip(quorate_node::ports::free(8).unwrap()) {
        text = text.replace(&format!("\"127.0.0.1:{listed}\""), &format!("\"127.0.0.1:{free}\""));
    }
    fs::write(cluster.path("cluster.toml"), text).unwrap();
    for named in ["", "cluster.toml"] {
        let path = cluster.path(named);
        for wait in ["200ms", "0.2", "0.2s"] {
            let ran = quorate(&[
                "status",
                "--cluster",
                path.to_str().unwrap(),
                "--wait",
                wait,
                "--json",
                "--ready",
            ]);
            let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
            assert_eq!((ran.code, &error["exit_code"]), (Some(1), &1.into()), "{}", ran.err);
        }
    }
}

/// A node whose output is read. It is killed at the end of the scope.
struct Node(Child);

impl Node {
    /// Starts the node and waits until it serves.
    fn serve(mut command: Command) -> Self {
        let mut node = Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(node.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), "ready");
        node
    }

    /// The id of the node's process, or of the one that it has started and waits for.
    fn pid(&self, is_inside: bool) -> Pid {
        let id = self.0.id();
        let children = || fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let id = if is_inside { children().trim().parse().unwrap() } else { i32::try_from(id).unwrap() };
        Pid::from_raw(id).unwrap()
    }

    fn end(mut self, is_inside: bool, signal: Signal) -> Ran {
        kill_process(self.pid(is_inside), signal).unwrap();
        let code = self.0.wait().unwrap().code();
        let err = std::io::read_to_string(self.0.stderr.take().unwrap()).unwrap();
        Ran { code, out: String::new(), err }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The node may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The node may be the first process of a container, whose default is to ignore the signal.
#[test]
fn stopped_node_ends_with_success() {
    let cluster = Cluster::new(&[]);
    let mut text = cluster.text(FILES[0]);
    for (listed, free) in [4_000, 4_001].iter().zip(quorate_node::ports::free(2).unwrap()) {
        text = text.replace(&format!("127.0.0.1:{listed}"), &format!("127.0.0.1:{free}"));
    }
    fs::write(cluster.path(FILES[0]), text).unwrap();
    let config = cluster.path(FILES[0]);
    let args = ["node", "--config", config.to_str().unwrap()];
    let container = || {
        let mut unshare = Command::new("unshare");
        unshare.args(["-Ur", "--pid", "--fork", "--kill-child"]);
        unshare
    };
    let has_containers = container().arg("true").output().is_ok_and(|ran| ran.status.success());
    for (is_inside, signal, name) in
        [(false, Signal::TERM, "SIGTERM"), (false, Signal::INT, "SIGINT"), (true, Signal::TERM, "SIGTERM")]
    {
        let command = match is_inside {
            // If the system allows no namespaces, the handler is the same.
            true if !has_containers => continue,
            true => {
                let mut container = container();
                container.arg(env!("CARGO_BIN_EXE_quorate")).args(args);
                container
            }
            false => command(&args),
        };
        let ran = Node::serve(command).end(is_inside, signal);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.err.trim_end().ends_with(&format!("stopped on {name}")), "{}", ran.err);
        let last: Vec<&str> = ran.err.lines().rev().take(2).collect();
        assert!(last.iter().all(|line| line.contains(" INFO ")), "{}", ran.err);
        assert!(last[1].contains("executed up to height 0; ") && last[1].contains("syncs "), "{}", ran.err);
    }
}
