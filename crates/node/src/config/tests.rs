use super::params::{self, ParamsKind};
use super::*;
use crate::exit::Failure;
use crate::layout::node_file;
use crate::service::Service;
use crate::testnet::{Plan, Testnet};
use quorate_client::cluster::ClusterInfo;
use quorate_client::cluster::LinkMode;
use quorate_client::config::reader::Source;
use quorate_client::config::{CLUSTER_FILE, ConfigError, ReplicaAddresses};
use quorate_consensus::Entry;
use quorate_types::{ClientAuth, ReplicaId};
use std::fs;
use std::net::SocketAddr;
use tempfile::TempDir;

mod link_delays;
mod reference;

fn testnet() -> (TempDir, Testnet) {
    let (folder, testnet) = testnet_with("pbft", &[]);
    (folder, testnet.unwrap())
}

fn testnet_with(protocol: &str, set: &[&str]) -> (TempDir, Result<Testnet, Failure>) {
    testnet_of(4, protocol, set)
}

fn testnet_of(n: u16, protocol: &str, set: &[&str]) -> (TempDir, Result<Testnet, Failure>) {
    let set = set.iter().map(|text| text.parse().unwrap()).collect();
    testnet_from(n, protocol, Settings { set, ..Settings::default() })
}

fn testnet_from(n: u16, protocol: &str, settings: Settings) -> (TempDir, Result<Testnet, Failure>) {
    let folder = tempfile::tempdir().unwrap();
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let addresses =
        (0..n).map(|i| ReplicaAddresses { peers: address(4_000 + i), clients: address(5_000 + i) });
    let plan = Plan {
        service: Service::KV,
        entry: quorate_protocols::find(protocol).unwrap(),
        addresses: addresses.collect(),
        client_auth: ClientAuth::Signature,
        links: LinkMode::Tls,
        durability: Durability::Fsync,
        allow_stop: false,
        settings,
    };
    let testnet = Testnet::create(folder.path(), &plan);
    (folder, testnet)
}

/// Among six replicas with f = 1, f + 1 = 2, the quorum is 4, n - f = 5. With f = 2 only a bound on delays suffices.
#[test]
fn f_and_the_numbers_that_operators_read_follow_from_the_protocol() {
    let (folder, testnet) = testnet_of(6, "pbft", &[]);
    let cluster = testnet.unwrap().cluster;
    assert_eq!((cluster.reports_needed(), cluster.serving_needed()), (2, 4));
    let file = folder.path().join("cluster.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nf = 1\n"), "{text}");
    fs::write(&file, text.replace("\nf = 1\n", "\nf = 2\n")).unwrap();
    assert_eq!(ClusterConfig::load(&file).unwrap_err().field, "genesis.f");
    let (_folder, testnet) = testnet_of(6, "optsync", &[]);
    let cluster = testnet.unwrap().cluster;
    assert_eq!((cluster.genesis.f, cluster.reports_needed(), cluster.serving_needed()), (2, 3, 4));
}

/// Limits and parameters of either file have their names in it. They are in the files and in the identity.
#[test]
fn cluster_is_made_with_its_settings() {
    let set =
        ["leader_policy = round-robin", "block_requests_max=400", "d0_ms=700", "block_bytes_max=\"1MiB\""];
    let (folder, testnet) = testnet_with("hotstuff", &set);
    let testnet = testnet.unwrap();
    let node = NodeConfig::load(&node_file(folder.path(), ReplicaId(2))).unwrap();
    assert_eq!(node.cluster.cluster_id(), testnet.cluster.cluster_id());
    assert_eq!(node.params()["leader_policy"].as_str(), Some("round-robin"));
    assert_eq!(node.params()["d0_ms"].as_integer(), Some(700));
    let bodies = node.genesis().bodies;
    assert_eq!((bodies.block_requests_max, bodies.block_bytes_max), (400, 1 << 20));
    assert!(node.genesis().params.contains("round-robin"));
    let data = folder.path().join("node2/data");
    assert!(quorate_storage::folder::open(&data, &node.cluster.identity(ReplicaId(2))).is_ok());
}

/// The default leader policy avoids an absent leader, and a cluster keeps the settings that it was made with.
#[test]
fn new_clusters_avoid_absent_leaders() {
    for entry in quorate_protocols::REGISTRY.iter().filter(|entry| entry.spec.rotates_leaders) {
        let has_policy = (entry.params)().unwrap().contains_key("leader_policy");
        let (folder, testnet) = testnet_with(entry.spec.name.as_str(), &[]);
        let made = testnet.unwrap().cluster;
        let policy = made.params.get("leader_policy").and_then(toml::Value::as_str);
        assert_eq!(policy, has_policy.then_some("avoiding"), "{}", entry.spec.name);
        if !has_policy {
            continue;
        }
        let file = folder.path().join("cluster.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("\"avoiding\"", "\"round-robin\"")).unwrap();
        let old = ClusterConfig::load(&file).unwrap();
        assert_eq!(old.params["leader_policy"].as_str(), Some("round-robin"));
        assert_ne!(old.cluster_id(), made.cluster_id(), "the policy is part of genesis");
        // A cluster file without it is refused: no version of the program adds its default.
        let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("leader_policy")).collect();
        fs::write(&file, without.join("\n")).unwrap();
        let error = ClusterConfig::load(&file).unwrap_err().to_string();
        assert!(error.contains("missing in") && error.contains("leader_policy"), "{error}");
    }
}

/// A long name has the same meaning as the signed one, and errors about parameters name their line for both.
#[test]
fn cluster_has_the_same_identity_for_each_name_of_its_protocol() {
    let (folder, testnet) = testnet_with("sync-hotstuff-rotating", &["delta_ms=70"]);
    let testnet = testnet.unwrap();
    assert_eq!(testnet.cluster.genesis.protocol.as_str(), "sync-hotstuff-rr");
    let (file, node) = (folder.path().join("cluster.toml"), node_file(folder.path(), ReplicaId(1)));
    let text = fs::read_to_string(&file).unwrap();
    let (field, table) = ("protocol = \"sync-hotstuff-rr\"", "[protocol.sync-hotstuff-rr]");
    let line = text.lines().position(|line| line == "delta_ms = 70").unwrap() + 1;
    for long in [&[field][..], &[table], &[field, table]] {
        let renamed = long.iter().fold(text.clone(), |text, part| {
            assert_eq!(text.matches(part).count(), 1, "{part}");
            text.replace(part, &part.replace("-rr", "-rotating"))
        });
        fs::write(&file, &renamed).unwrap();
        let cluster = ClusterConfig::load(&file).unwrap();
        assert_eq!(cluster.genesis, testnet.cluster.genesis);
        assert_eq!(cluster.cluster_id(), testnet.cluster.cluster_id());
        assert_eq!(cluster.to_toml(), text, "the file has the signed name");
        let error = NodeConfig::load(&node).unwrap().params_error("delta_ms", "less");
        let named = (error.line, error.field.as_str());
        assert_eq!(named, (Some(line), "protocol.sync-hotstuff-rr.delta_ms"), "{error}");
    }
    let both = text.replace(table, "[protocol.sync-hotstuff-rotating]\n\n[protocol.sync-hotstuff-rr]");
    fs::write(&file, both).unwrap();
    let error = ClusterConfig::load(&file).unwrap_err();
    assert_eq!(error.field, "protocol.sync-hotstuff-rr");
    assert!(error.problem.contains("move its fields to [protocol.sync-hotstuff-rotating]"), "{error}");
}

/// The file of a protocol that rests on a bound names the page about it.
#[test]
fn parameters_of_a_bound_are_explained() {
    for (protocol, is_explained) in
        [("sync-hotstuff", true), ("optsync", true), ("sync-hotstuff-rr", true), ("hotstuff", false)]
    {
        let (folder, testnet) = testnet_with(protocol, &[]);
        testnet.unwrap();
        let text = fs::read_to_string(folder.path().join("cluster.toml")).unwrap();
        assert!(text.contains(&format!("[protocol.{protocol}]")), "{protocol}");
        assert_eq!(text.contains("docs/bound.md"), is_explained, "{protocol}");
    }
}

#[test]
fn wrong_setting_is_refused_and_leaves_no_file() {
    for (set, problem) in [
        ("leader_polcy=avoiding", "--set leader_polcy: unknown; hotstuff has request_bytes_max"),
        (
            "leader_policy=best",
            "--set: protocol.hotstuff.leader_policy: expected a text that the protocol can use",
        ),
        ("d0_ms=soon", "--set: protocol.hotstuff.d0_ms: expected a whole number"),
        ("block_requests_max=0", "--set: genesis.block_requests_max"),
        ("f=0", "--set f: unknown"),
        ("leaders=[1]", "--set leaders: unknown"),
    ] {
        let (folder, made) = testnet_with("hotstuff", &[set]);
        let error = made.unwrap_err().to_string();
        assert!(error.starts_with(problem), "{set}: {error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
    }
    assert!("leader_policy".parse::<Setting>().is_err());
    assert!("=3".parse::<Setting>().is_err());
}

#[test]
fn written_configuration_is_read_again() {
    let (folder, testnet) = testnet();
    let cluster = ClusterConfig::load(&folder.path().join("cluster.toml")).unwrap();
    assert_eq!(cluster.genesis, testnet.cluster.genesis);
    assert_eq!(cluster.cluster_id(), testnet.cluster.cluster_id());
    assert_eq!(cluster.replicas, testnet.cluster.replicas);
    assert_eq!(cluster.to_toml(), testnet.cluster.to_toml());
    for id in cluster.ids() {
        let node = NodeConfig::load(&node_file(folder.path(), id)).unwrap();
        assert_eq!((node.id, node.cluster.cluster_id()), (id, cluster.cluster_id()));
        assert_eq!(node.listen_peers, cluster.replicas[id.index()].peers);
        assert!(node.insecure().is_none());
        let keys = node.keys().unwrap();
        assert_eq!(keys.replica.public(), cluster.genesis.members[id.index()].sign);
        assert_eq!(keys.link.public(), cluster.genesis.members[id.index()].link);
    }
}

/// A client knows no protocol, and reads the same cluster from the same file.
#[test]
fn client_reads_the_cluster_that_a_node_reads() {
    for entry in quorate_protocols::REGISTRY {
        let name = entry.spec.name.as_str();
        let (folder, testnet) = testnet_with(name, &["checkpoint_every=64"]);
        let expected = ClusterInfo { ask_again: None, ..testnet.unwrap().cluster.client_info() };
        assert_eq!(ClusterInfo::read(folder.path()).unwrap(), expected, "{name}");
        // The table of parameters may have a longer name of the protocol.
        let file = folder.path().join(CLUSTER_FILE);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("[protocol.sync-hotstuff-rr]", "[protocol.sync-hotstuff-rotating]"))
            .unwrap();
        assert_eq!(ClusterInfo::read(&file).unwrap(), expected, "{name}");
    }
}

#[test]
fn identity_does_not_depend_on_addresses_and_layout_of_the_file() {
    let (folder, testnet) = testnet();
    let file = folder.path().join("cluster.toml");
    let text = fs::read_to_string(&file).unwrap();
    let bare: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let spaced = bare.join("\n").replace(" = ", "=").replace("\"256KiB\"", "\"262144B\"");
    let moved = spaced.replace("127.0.0.1:4000", "10.0.0.1:4000");
    fs::write(&file, moved).unwrap();
    let cluster = ClusterConfig::load(&file).unwrap();
    assert_eq!(cluster.cluster_id(), testnet.cluster.cluster_id(), "addresses and layout are no part of it");
}

/// The error message of a table has the names of its fields, so that users need not search for them.
#[test]
fn error_about_an_unknown_field_names_the_known_ones() {
    let (folder, _) = testnet();
    let file = node_file(folder.path(), ReplicaId(2));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("speed = 9\n{text}")).unwrap();
    let error = NodeConfig::load(&file).unwrap_err();
    assert_eq!((error.line, error.field.as_str()), (Some(1), "speed"));
    for line in text.lines().take_while(|line| !line.starts_with('[')) {
        if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            assert!(error.problem.contains(name), "{name}: {error}");
        }
    }
}

#[test]
fn insecure_settings_are_named() {
    let (folder, _) = testnet();
    let cluster = folder.path().join("cluster.toml");
    let node = node_file(folder.path(), ReplicaId(0));
    for (file, from, to, field) in [
        (&cluster, "client_auth = \"signature\"", "client_auth = \"none\"", "genesis.client_auth"),
        (&cluster, "link_auth = \"tls\"", "link_auth = \"plain\"", "link_auth"),
        (&node, "durability = \"fsync\"", "durability = \"none\"", "durability"),
    ] {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(from));
        fs::write(file, text.replace(from, to)).unwrap();
        let error = NodeConfig::load(&node).unwrap().insecure().unwrap();
        assert_eq!((error.field.as_str(), &error.file.ends_with(file.file_name().unwrap())), (field, &true));
        assert!(error.problem.contains("--insecure"), "{error}");
        fs::write(file, text).unwrap();
    }
    let text = fs::read_to_string(&node).unwrap();
    fs::write(&node, text.replace("durability = \"fsync\"", "durability = \"os\"")).unwrap();
    assert!(NodeConfig::load(&node).unwrap().insecure().is_none());
}

/// A protocol with one shared parameter, as later ones have.
fn with_shared() -> Entry {
    let mut entry = *quorate_protocols::find("pbft").unwrap();
    entry.spec.shared_params = &["blocks_in_flight"];
    entry
}

fn read_params(text: &str, kind: ParamsKind) -> Result<toml::Table, ConfigError> {
    let source = Source::of("f.toml", text);
    let mut root = source.parse().unwrap();
    params::read(&source, &mut root, &with_shared(), kind).map(|(params, _)| params)
}

#[test]
fn shared_parameters_belong_to_the_cluster_file_alone() {
    let good = "[protocol.pbft]\nblocks_in_flight = 3\n";
    assert_eq!(read_params(good, ParamsKind::Shared).unwrap().to_string(), "blocks_in_flight = 3\n");
    for (text, kind, line, field, problem) in [
        (
            "",
            ParamsKind::Shared,
            1,
            "protocol",
            "missing in [protocol.pbft]; expected a whole number; add, for example, blocks_in_flight = 8",
        ),
        ("[protocol.pbft]\n", ParamsKind::Shared, 1, "protocol", "missing in [protocol.pbft]"),
        (good, ParamsKind::Local, 2, "protocol.pbft.blocks_in_flight", "must be equal at all nodes"),
        (
            "[protocol.pbft]\nstatus_ms = 5\n",
            ParamsKind::Shared,
            2,
            "protocol.pbft.status_ms",
            "a value of each node",
        ),
        (
            "[protocol.pbft]\n\nspeed = 5\n",
            ParamsKind::Local,
            3,
            "protocol.pbft.speed",
            "unknown field; expected one of cap_ms, idle_status_ms, status_ms, t0_ms, treq_ms",
        ),
        (
            "[protocol.pbft]\nleaders = [0, 1]\n",
            ParamsKind::Local,
            2,
            "protocol.pbft.leaders",
            "only the simulator may set this; remove it",
        ),
        (
            "[protocol.pbft]\nleaders = []\n",
            ParamsKind::Shared,
            2,
            "protocol.pbft.leaders",
            "only the simulator may set this; remove it",
        ),
        (
            "[protocol.pbft]\nblocks_in_flight = \"3\"\n",
            ParamsKind::Shared,
            2,
            "protocol.pbft.blocks_in_flight",
            "expected a whole number",
        ),
        (
            "[protocol.echo]\nx = 1\n",
            ParamsKind::Local,
            1,
            "protocol.echo",
            "another protocol; this cluster runs pbft",
        ),
        ("protocol = 3\n", ParamsKind::Local, 1, "protocol", "expected a table, found 3"),
    ] {
        let error = read_params(text, kind).unwrap_err();
        assert_eq!((error.line, error.field.as_str()), (Some(line), field), "{text}");
        assert!(error.problem.contains(problem), "{text}: {error}");
    }
    assert_eq!(
        read_params("[protocol.pbft]\nstatus_ms = 50\n", ParamsKind::Local).unwrap().to_string(),
        "status_ms = 50\n"
    );
}
