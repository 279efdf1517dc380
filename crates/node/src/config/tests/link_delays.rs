//! Emulated delays: `link_delay_ms` of `node.toml`, and `--link-delay` with its table and its files.

use super::*;

const MS: u64 = 1_000_000;

fn testnet_delayed(n: u16, delay: LinkDelay) -> (TempDir, Result<Testnet, Failure>) {
    let settings = Settings { link_delay: Some(delay), ..Settings::default() };
    testnet_from(n, "pbft", settings)
}

/// Returns the delays of each node's file.
fn delays(folder: &TempDir, n: u16) -> Vec<Vec<u64>> {
    let load = |id| NodeConfig::load(&node_file(folder.path(), ReplicaId(id))).unwrap().link_delays_ns;
    (0..n).map(load).collect()
}

/// Reads the file of replica 2 of four with this value of the field.
fn read(value: &str) -> Result<NodeConfig, ConfigError> {
    let (folder, testnet) = testnet();
    drop(testnet);
    let file = node_file(folder.path(), ReplicaId(2));
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("link_delay_ms = []").count(), 1);
    fs::write(&file, text.replace("link_delay_ms = []", value)).unwrap();
    NodeConfig::load(&file)
}

#[test]
fn links_have_the_delays_of_the_file() {
    for (value, expected) in [
        ("link_delay_ms = [1, 20.5, 0, 0.000001]", vec![MS, 20_500_000, 0, 1]),
        ("link_delay_ms = [ 2000, 1e2, 0.1, 1_0 ]", vec![2_000 * MS, 100 * MS, 100_000, 10 * MS]),
        ("link_delay_ms = []", vec![]),
        ("", vec![]),
    ] {
        let node = read(value).unwrap();
        assert_eq!(node.link_delays_ns, expected, "{value}");
        assert_eq!(node.as_read().unwrap().link_delays_ns, expected, "what was read is written in one way");
        assert!(node.insecure().is_none());
    }
}

#[test]
fn wrong_delays_are_refused_with_advice() {
    let list = "expected a list of milliseconds from 0 to 2000, one for each replica, or [], found";
    for (value, problem) in [
        (
            "[1, 2, 3]",
            "expected one number for each of the 4 replicas, or [] for no delay, found 3 numbers; correct it",
        ),
        ("[0, 0, 0, 0, 0]", "expected one number for each of the 4 replicas"),
        ("20", list),
        ("\"20ms\"", list),
        ("[0, 20, -1, 20]", list),
        ("[0, 20, 2000.1, 20]", list),
        ("[0, 20, inf, 20]", list),
        ("[0, 20, nan, 20]", list),
        ("[0, 20, \"20\", 20]", list),
        ("[0, 20, [20], 20]", list),
    ] {
        let error = read(&format!("link_delay_ms = {value}")).unwrap_err();
        assert_eq!(error.field, "link_delay_ms", "{value}");
        assert!(error.line.is_some() && error.problem.starts_with(problem), "{value}: {error}");
    }
    assert!(read("link_delay = 20").unwrap_err().problem.starts_with("unknown field"));
}

#[test]
fn option_is_a_duration_or_regions_or_a_file() {
    for (text, expected) in [
        ("100ms", LinkDelay::Constant(100 * MS)),
        ("0.5ms", LinkDelay::Constant(500_000)),
        ("0", LinkDelay::Constant(0)),
        ("2s", LinkDelay::Constant(2_000 * MS)),
        ("regions", LinkDelay::Regions),
        ("delays.csv", LinkDelay::File("delays.csv".into())),
    ] {
        let delay: LinkDelay = text.parse().unwrap();
        assert_eq!(delay, expected, "{text}");
        assert_eq!(delay.to_string().parse(), Ok(delay), "{text}");
    }
    for text in ["100", "2001ms"] {
        assert!(text.parse::<LinkDelay>().unwrap_err().starts_with("expected at most 2000ms"), "{text}");
    }
}

#[test]
fn constant_delay_holds_for_all_other_replicas() {
    let (folder, testnet) = testnet_delayed(4, LinkDelay::Constant(20_500_000));
    let testnet = testnet.unwrap();
    assert_eq!(testnet.delays().describe().unwrap(), "links emulate one-way delays of 20.5 ms");
    assert_eq!(testnet.delays().round_trip_max().as_micros(), 41_000);
    for (id, row) in delays(&folder, 4).iter().enumerate() {
        let expected: Vec<u64> = (0..4).map(|to| if to == id { 0 } else { 20_500_000 }).collect();
        assert_eq!(*row, expected);
    }
    let text = fs::read_to_string(node_file(folder.path(), ReplicaId(1))).unwrap();
    assert!(text.contains("\nlink_delay_ms = [20.5, 0, 20.5, 20.5]\n"), "{text}");
    let (folder, testnet) = testnet_delayed(4, LinkDelay::Constant(0));
    assert_eq!(testnet.unwrap().delays().describe(), None);
    assert_eq!(delays(&folder, 4), vec![Vec::<u64>::new(); 4]);
}

#[test]
fn replicas_belong_to_the_regions_in_turn() {
    let (folder, testnet) = testnet_delayed(7, LinkDelay::Regions);
    assert_eq!(
        testnet.unwrap().delays().describe().unwrap(),
        "links emulate one-way delays of 1 to 142.5 ms"
    );
    let rows = delays(&folder, 7);
    for (from, row) in rows.iter().enumerate() {
        for (to, delay) in row.iter().enumerate() {
            assert_eq!(*delay, rows[to][from], "the table is symmetric");
            assert_eq!(*delay == 0, from == to);
            assert_eq!(*delay == MS, from != to && from % 5 == to % 5, "{from} {to}");
        }
    }
    assert_eq!((rows[0][2], rows[5][2], rows[4][3]), (15_500_000, 15_500_000, 142_500_000));
}

fn from_file(name: &str, text: &str) -> (TempDir, Result<Testnet, Failure>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::write(&file, text).unwrap();
    testnet_delayed(3, LinkDelay::File(file))
}

#[test]
fn matrix_of_a_file_holds_by_sender() {
    let csv = "# from, to: 0, 1, 2\n9, 10, 20.5\n\n 11,9,21\n12,22,0\n";
    let toml = "delay_ms = [\n  [0, 10, 20.5],\n  [11, 0, 21],\n  [12, 22, 0],\n]\n";
    for (name, text) in [("m.csv", csv), ("m", csv), ("m.toml", toml)] {
        let (folder, testnet) = from_file(name, text);
        assert_eq!(testnet.unwrap().delays().round_trip_max().as_millis(), 43, "{name}");
        let expected = [[0, 10 * MS, 20_500_000], [11 * MS, 0, 21 * MS], [12 * MS, 22 * MS, 0]];
        assert_eq!(delays(&folder, 3), expected, "{name}");
    }
}

#[test]
fn wrong_matrix_is_refused_with_its_place_and_leaves_no_file() {
    let numbers = "expected 3 numbers of milliseconds from 0 to 2000, one for each replica, found";
    let rows = "expected 3 rows with 3 numbers of milliseconds from 0 to 2000, one for each replica, found";
    for (name, text, problem) in [
        ("m.csv", "0,1,2\n0,1,2\n", format!("{rows} 2 rows; correct the file")),
        ("m.csv", "", format!("{rows} 0 rows")),
        ("m.csv", "0,1,2\n#\n0,1\n0,1,2\n", format!("line 3: {numbers} 0, 1; correct it")),
        ("m.csv", "0,1,2\n0,1,2,3\n0,1,2\n", format!("line 2: {numbers} 0, 1, 2, 3")),
        ("m.csv", "0,1,2\n0,x,2\n0,1,2\n", format!("line 2: {numbers} 0, x, 2")),
        ("m.csv", "0,1,2\n0,-1,2\n0,1,2\n", format!("line 2: {numbers} 0, -1, 2")),
        ("m.csv", "0,1,2001\n0,1,2\n0,1,2\n", format!("line 1: {numbers} 0, 1, 2001")),
        (
            "m.toml",
            "delay_ms = [[0, 1, 2], [0, 1, 2], [0, \"1\", 2]]",
            format!("row 3 of delay_ms: {numbers}"),
        ),
        ("m.toml", "delay_ms = [1, 2, 3]", "expected delay_ms = [[0, 20, …], …] and nothing else".to_owned()),
        ("m.toml", "a = 1\ndelay_ms = []", "expected delay_ms = ".to_owned()),
        ("m.toml", "delay_ms = [", "not valid TOML: ".to_owned()),
    ] {
        let (folder, testnet) = from_file(name, text);
        let failure = testnet.unwrap_err();
        let said = failure.to_string();
        assert!(said.starts_with("--link-delay ") && said.contains(&format!("{name}: {problem}")), "{said}");
        assert_eq!((failure.code(), fs::read_dir(folder.path()).unwrap().count()), (2, 0));
    }
    let (_folder, testnet) = testnet_delayed(3, LinkDelay::File("no/such.csv".into()));
    let said = testnet.unwrap_err().to_string();
    assert!(
        said.contains("no/such.csv: cannot be read") && said.contains("or a file with a matrix"),
        "{said}"
    );
}
