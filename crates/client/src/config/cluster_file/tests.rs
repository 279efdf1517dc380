use super::*;
use quorate_crypto::{Scheme, SigningKey};

fn key(seed: u8) -> PublicKey {
    SigningKey::from_seed(Scheme::Ed25519, [seed; 32]).public()
}

/// A file of four replicas, with a table of parameters.
fn text(protocol: &str, params: &str) -> String {
    let mut text = format!(
        "link_auth = \"tls\"\n\
         [genesis]\n\
         protocol = \"{protocol}\"\n\
         f = 1\n\
         client_auth = \"signature\"\n\
         request_bytes_max = \"256KiB\"\n\
         bundle_requests_max = 4096\n\
         bundle_bytes_max = \"1MiB\"\n\
         block_bundles_max = 256\n\
         block_requests_max = 1048576\n\
         block_bytes_max = \"4MiB\"\n\
         reply_bytes_max = \"1MiB\"\n\
         client_window = 16384\n\
         clients_max = 4096\n\
         checkpoint_every = 128\n\
         window = 256\n\
         application = \"locks 1\"\n\
         admin = \"{}\"\n\
         clients = [\"{}\"]\n\
         salt = \"{}\"\n\
         {params}\n",
        key(100),
        key(101),
        "07".repeat(32),
    );
    for id in 0..4u8 {
        text.push_str(&format!(
            "[[replicas]]\nid = {id}\nsign = \"{}\"\nlink = \"{}\"\npeers = \"10.0.0.{id}:4000\"\nclients = \"10.0.0.{id}:4001\"\n",
            key(id),
            key(50 + id),
        ));
    }
    text
}

fn read(text: &str) -> Result<ClusterFile, ConfigError> {
    ClusterFile::read(&Source::of("a/cluster.toml", text), &UnregisteredProtocols).map(|(file, _)| file)
}

#[test]
fn file_of_an_unknown_protocol_is_read() {
    let file = read(&text("new-protocol", "[protocol.new-protocol]\nsecond = 2\nfirst = \"x\"")).unwrap();
    assert_eq!(file.genesis.params, "first = \"x\"\nsecond = 2\n");
    assert_eq!((file.genesis.protocol, file.genesis.f), (ProtocolId::new("new-protocol"), 1));
    let info = file.info();
    assert_eq!(
        (info.cluster, info.f, info.n(), info.links),
        (file.genesis.cluster_id(), 1, 4, LinkMode::Tls)
    );
    assert_eq!(
        (info.replicas[3].link, info.replicas[3].address),
        (key(53), "10.0.0.3:4001".parse().unwrap())
    );
    assert_eq!(info.ask_again, None);
}

#[test]
fn parameters_are_part_of_the_identity_whatever_their_order() {
    let id = |params: &str| read(&text("p", params)).unwrap().genesis.cluster_id();
    let one = id("[protocol.p]\na = 1\nb = 2");
    assert_eq!(one, id("[protocol.p]\nb = 2\na = 1"));
    assert_ne!(one, id("[protocol.p]\na = 1\nb = 3"));
    assert_ne!(one, id(""));
}

#[test]
fn first_mistake_is_named_with_line_and_field() {
    let good = text("pbft", "[protocol.pbft]\na = 1");
    for (from, to, expected) in [
        (
            "f = 1\n",
            "f = 300\n",
            "a/cluster.toml:4: genesis.f: expected a whole number from 0 to 255, found 300",
        ),
        ("f = 1\n", "", "genesis.f: missing"),
        ("window = 256\n", "window = 256\nmore = 1\n", "genesis.more: unknown field"),
        ("\"pbft\"", "\"a-name-that-is-too-long\"", "genesis.protocol: expected the name of a protocol"),
        ("[protocol.pbft]", "[protocol.a]\n[protocol.b]", "protocol.b: expected one table of parameters"),
        (
            "10.0.0.3:4001",
            "10.0.0.2:4001",
            "replicas[3].clients: 10.0.0.2:4001 is replicas[2].clients already",
        ),
        ("10.0.0.3:4001", "0.0.0.0:4001", "replicas[3].clients: expected an IP address"),
        ("window = 256\n", "window = 300\n", "genesis.window: expected"),
    ] {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good, "{from}");
        let error = read(&changed).unwrap_err().to_string();
        assert!(error.contains(expected), "{from} to {to}: {error}");
    }
    let twice = good.replacen(&key(53).to_string(), &key(52).to_string(), 1);
    let error = read(&twice).unwrap_err().to_string();
    assert!(error.contains("replicas[3].link: this key is at another place"), "{error}");
}

#[test]
fn cluster_is_named_by_its_file_or_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let missing = ClusterInfo::read(folder.path()).unwrap_err().to_string();
    assert!(missing.contains("cluster.toml: (file): cannot be read"), "{missing}");
    let file = folder.path().join(CLUSTER_FILE);
    std::fs::write(&file, text("pbft", "")).unwrap();
    assert_eq!(ClusterInfo::read(folder.path()).unwrap(), ClusterInfo::read(&file).unwrap());
}
