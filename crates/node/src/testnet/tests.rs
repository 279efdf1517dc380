//! The creation of a cluster refuses every configuration that a node refuses.

use super::*;
use quorate_protocols::REGISTRY;
use std::net::SocketAddr;

fn plan(entry: &'static Entry, set: &[String]) -> Plan {
    let n = crate::config::replicas_or_default(None, entry);
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let addresses =
        (0..n).map(|i| ReplicaAddresses { peers: address(4_000 + i), clients: address(5_000 + i) });
    Plan {
        service: Service::KV,
        entry,
        addresses: addresses.collect(),
        client_auth: ClientAuth::Signature,
        links: LinkMode::Tls,
        durability: Durability::Fsync,
        allow_stop: false,
        settings: Settings {
            set: set.iter().map(|text| text.parse().unwrap()).collect(),
            ..Settings::default()
        },
    }
}

/// Checks the files of this cluster as a node does before it opens its data.
fn node_starts(draft: &ClusterDraft, dir: &Path) -> Result<(), String> {
    let Applied { cluster, local_params, disk, delays } = &draft.applied;
    fs::write(dir.join(CLUSTER_FILE), cluster.to_toml()).unwrap();
    let ids = [0, cluster.n() - 1];
    for (id, listen) in cluster.ids().zip(&cluster.replicas).filter(|(id, _)| ids.contains(&id.index())) {
        let choices = (draft.durability, draft.allow_stop);
        let node = node_config(cluster, (id, *listen), choices, (local_params, *disk, delays));
        let file = node_file(dir, id);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, node.to_toml()).unwrap();
        let node = NodeConfig::load(&file).map_err(|error| error.to_string())?;
        node.cluster.check_service(draft.service).map_err(|error| error.to_string())?;
        rehearse(&node, draft.service, &draft.keys[id.index()]).map_err(|why| format!("{why:?}"))?;
    }
    Ok(())
}

/// Returns values near the default of a field, and the ends of its type, of its range and of other ranges.
fn values(default: &toml::Value) -> Vec<String> {
    match default {
        toml::Value::Integer(number) => {
            let ends = [i64::MIN, 0, 1, 2, 9, 10, 60_000, 60_001, i64::MAX];
            let near = [number.saturating_sub(1), number.saturating_add(1)];
            ends.into_iter().chain(near).map(|number| number.to_string()).collect()
        }
        toml::Value::Boolean(_) => vec!["true".to_owned(), "false".to_owned()],
        _ => vec!["\"\"".to_owned(), "\"1B\"".to_owned(), "\"16MiB\"".to_owned(), "\"64KiB\"".to_owned()],
    }
}

/// Returns the fields that `--set` accepts for a protocol, each with values to try.
fn all(entry: &'static Entry) -> Vec<(String, Vec<String>)> {
    let draft = ClusterDraft::new(&plan(entry, &[]), None).unwrap();
    let tables = [draft.applied.cluster.to_toml(), ClusterDraft::node_text(&draft)];
    let mut all = Vec::new();
    for table in &tables {
        let root: toml::Table = table.parse().unwrap();
        let genesis = root.get("genesis").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        for (name, default) in root.iter().chain(&genesis) {
            if format!("{name}=1").parse::<crate::config::Setting>().is_ok() && is_settable(name) {
                all.push((name.clone(), values(default)));
            }
        }
    }
    let defaults = (entry.params)().unwrap();
    let params = defaults.iter().filter(|(name, _)| !entry.exam_only.contains(&name.as_str()));
    all.extend(params.map(|(name, default)| (name.clone(), values(default))));
    all
}

/// Whether `--set` accepts a field.
fn is_settable(name: &str) -> bool {
    let fixed = ["window", "checkpoint_every", "client_window"];
    name.ends_with("_max") || name == "keep_bytes" || fixed.contains(&name)
}

impl ClusterDraft {
    fn node_text(&self) -> String {
        let Applied { cluster, local_params, disk, delays } = &self.applied;
        let listen = cluster.replicas[0];
        let choices = (self.durability, self.allow_stop);
        node_config(cluster, (ReplicaId(0), listen), choices, (local_params, *disk, delays)).to_toml()
    }
}

/// The test tries each value of each field alone, and combinations that a seed decides.
#[test]
fn every_cluster_that_is_made_starts() {
    std::thread::scope(|scope| {
        for (seed, entry) in (41..).zip(REGISTRY) {
            scope.spawn(move || every_cluster_of_a_protocol_starts(entry, seed));
        }
    });
}

fn every_cluster_of_a_protocol_starts(entry: &'static Entry, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut state = seed;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let name = entry.spec.name;
    let all = all(entry);
    assert!(all.iter().any(|(name, _)| name == "keep_bytes"), "{name}");
    let mut tries: Vec<Vec<String>> = all
        .iter()
        .flat_map(|(name, values)| values.iter().map(move |value| vec![format!("{name}={value}")]))
        .collect();
    for _ in 0..30 {
        let mut chosen: Vec<&(String, Vec<String>)> = Vec::new();
        for _ in 0..=draw(3) {
            let field = &all[draw(all.len())];
            chosen.retain(|other| other.0 != field.0);
            chosen.push(field);
        }
        let setting = |field: &(String, Vec<String>)| format!("{}={}", field.0, field.1[draw(field.1.len())]);
        tries.push(chosen.into_iter().map(setting).collect());
    }
    let (mut made, mut refused) = (0, 0);
    for set in tries {
        match ClusterDraft::new(&plan(entry, &set), None) {
            Ok(draft) => {
                let started = node_starts(&draft, folder.path());
                assert!(started.is_ok(), "{name} with {set:?} is made and does not start: {started:?}");
                made += 1;
            }
            Err(failure) => {
                let text = failure.to_string();
                assert!(failure.code() == 2 && text.contains("expected"), "{name} with {set:?}: {text}");
                refused += 1;
            }
        }
    }
    assert!(made > 10 && refused > 10, "{name}: {made} made, {refused} refused");
}

#[test]
fn error_names_the_range_that_only_the_protocol_knows() {
    for (protocol, set, said) in [
        ("sync-hotstuff", "delta_ms=0", "--set: protocol.sync-hotstuff.delta_ms: expected 1 to"),
        ("pbft", "t0_ms=0", "--set: protocol.pbft.t0_ms: expected 10 to 60000"),
        ("pbft", "keep_bytes=1B", "--set: keep_bytes: expected a size from \"16MiB\""),
        ("pbft", "keep_bytes=5", "--set: keep_bytes: expected a size such as 64MiB, found 5"),
        (
            "pbft",
            "keep_bytes=8GiB",
            "--set: disk_bytes_max: expected at least the sum of keep_bytes and 256MiB",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let entry = quorate_protocols::find(protocol).unwrap();
        let failure = Testnet::create(folder.path(), &plan(entry, &[set.to_owned()])).unwrap_err();
        assert!(failure.to_string().starts_with(said), "{set}: {failure}");
        assert_eq!((failure.code(), fs::read_dir(folder.path()).unwrap().count()), (2, 0));
    }
}

#[test]
fn node_has_the_disk_limits_of_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let entry = quorate_protocols::find("pbft").unwrap();
    let set = ["keep_bytes=64MiB".to_owned(), "disk_bytes_max=\"1GiB\"".to_owned()];
    Testnet::create(folder.path(), &plan(entry, &set)).unwrap();
    let node = NodeConfig::load(&node_file(folder.path(), ReplicaId(3))).unwrap();
    assert_eq!(node.disk, DiskLimits { disk_bytes_max: 1 << 30, keep_bytes: 64 << 20 });
}

#[test]
fn conflicting_addresses_are_refused() {
    let entry = quorate_protocols::find("pbft").unwrap();
    for (peers, clients, said) in [
        (
            "127.0.0.1:4000",
            "127.0.0.1:9",
            "--addresses: replicas[1].peers: 127.0.0.1:4000 is replicas[0].peers already",
        ),
        (
            "127.0.0.1:9",
            "127.0.0.1:9",
            "--addresses: replicas[1].clients: 127.0.0.1:9 is replicas[1].peers already",
        ),
        ("0.0.0.0:9", "127.0.0.1:8", "--addresses: replicas[1].peers: expected an IP address"),
        ("[ff02::1]:9", "127.0.0.1:8", "--addresses: replicas[1].peers: expected an IP address"),
    ] {
        let mut plan = plan(entry, &[]);
        plan.addresses[1] =
            ReplicaAddresses { peers: peers.parse().unwrap(), clients: clients.parse().unwrap() };
        let failure = ClusterDraft::new(&plan, None).err().unwrap();
        assert!(failure.to_string().starts_with(said), "{failure}");
    }
}

#[test]
fn cluster_that_tolerates_no_fault_has_a_warning() {
    for (protocol, n, warns) in [
        ("pbft", 3, true),
        ("pbft", 4, false),
        ("sync-hotstuff", 2, true),
        ("sync-hotstuff", 3, false),
        ("hotstuff", 1, true),
    ] {
        let mut plan = plan(quorate_protocols::find(protocol).unwrap(), &[]);
        plan.addresses.truncate(n);
        let folder = tempfile::tempdir().unwrap();
        let warning = Testnet::create(folder.path(), &plan).unwrap().warning();
        assert_eq!(warning.is_some(), warns, "{protocol} {n}: {warning:?}");
        assert!(!warns || warning.unwrap().contains("tolerates no faulty replica"));
    }
}
