//! The reference of the configuration: `docs/configuration.md` is made here (`UPDATE_EXPECT=1` writes it).
//!
//! * Names and meanings come from the tables of fields, and for parameters from the documentation of the protocols' types.
//! * Defaults come from the files of a new cluster.
//! * Expected values come from the errors about a value that cannot be right.

use super::super::node::NODE_FIELDS;
use super::*;
use expect_test::expect_file;
use quorate_client::config::fields::{BASE, CLUSTER_FIELDS, GENESIS_FIELDS, REPLICA_FIELDS};
use quorate_client::config::reader::{Change, Field};
use quorate_protocols::REGISTRY;

const INTRODUCTION: &str = "\
# Configuration

A cluster has two kinds of files. `cluster.toml` is equal at every node and every client. `node.toml` belongs to one node.
`quorate testnet` writes both, with a comment on every field ([operating a cluster](operating.md)).

A program makes this page from the code: `UPDATE_EXPECT=1 cargo test -p quorate-node --lib reference` writes it, and the
same test without the variable compares it.

* Every field outside `[protocol.NAME]` must be present, except `link_delay_ms`. An unknown field is an error.
* An error is one line with the file, the line, the field, the expected value, and a remedy.
* A size is a text with a unit: `\"256KiB\"`, `\"4MiB\"`, `\"1GiB\"`, `\"100B\"`.
* `--set NAME=VALUE` of `testnet`, `up`, `demo` and `torture` sets a limit of genesis, a limit of the disk, or a parameter
  of the protocol. `--link-delay` of the same commands sets `link_delay_ms`.
* \"Change\" is the way to another value in a cluster that exists:

| change | meaning |
|---|---|
| never | The value is part of the identity of the cluster or of the replica. Make a new cluster to have another value. |
| in all copies, while all nodes are stopped | Stop all nodes, change all copies of the file, and start all nodes. |
| at the next start | Change the file and start the node again. Clients read `cluster.toml` when they start. |
";

const PARAMETERS: &str = "
## Parameters of the protocol

Parameters stand in the table `[protocol.NAME]`, with the name of the protocol. Parameters that must be equal everywhere stand
in `cluster.toml`, all of them. The others stand in `node.toml`; a missing one has its default. The expected values of a
parameter hold while the other parameters have their defaults.
";

/// Fields whose values differ between clusters or nodes.
const MADE: [&str; 9] =
    ["admin", "clients", "salt", "id", "sign", "link", "peers", "listen_peers", "listen_clients"];

/// Sources of the types of parameters, with the protocols that have them.
const SOURCES: [(&[&str], &str); 5] = [
    (&["pbft", "pbft-signed"], include_str!("../../../../protocols/src/pbft/params.rs")),
    (&["hotstuff", "jolteon", "hotstuff2"], include_str!("../../../../protocols/src/chained/params.rs")),
    (&["hotstuff"], include_str!("../../../../protocols/src/chained/hotstuff.rs")),
    (
        &["sync-hotstuff", "optsync", "sync-hotstuff-rr", "apollo", "artemis"],
        include_str!("../../../../consensus/src/parts/synchrony.rs"),
    ),
    (&["echo"], include_str!("../../../../protocols/src/echo/mod.rs")),
];

/// Returns the text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// The lines of one table of a file, from its header to the next one; all lines before the first header for "".
fn table_of<'t>(text: &'t str, header: &str) -> Vec<&'t str> {
    let start = if header.is_empty() { Some(0) } else { text.lines().position(|line| line == header) };
    let rest = text.lines().skip(start.unwrap() + usize::from(!header.is_empty()));
    rest.take_while(|line| !line.starts_with('[')).collect()
}

/// Rows of the fields of one table. `error` reads a changed file and returns the problem.
fn rows(text: &str, header: &str, fields: &[&Field], error: impl Fn(&str) -> String) -> String {
    let lines = table_of(text, header);
    let names: Vec<&str> =
        lines.iter().filter_map(|line| line.split_once(" = ")).map(|pair| pair.0).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.starts_with('#')).collect();
    assert_eq!(names, fields.iter().map(|field| field.name).collect::<Vec<_>>(), "fields of {header}");
    let mut table = String::new();
    for field in fields {
        let start = format!("{} = ", field.name);
        let line = lines.iter().find(|line| line.starts_with(&start)).unwrap();
        let begin = if header.is_empty() { 0 } else { text.find(header).unwrap() };
        let (before, after) = text.split_at(begin);
        let problem = error(&format!("{before}{}", after.replacen(line, &format!("{start}{{}}"), 1)));
        let expected = between(&problem, "expected ", ", found").unwrap_or_else(|| panic!("{problem}"));
        let default = match line.strip_prefix(&start) {
            Some(value) if !MADE.contains(&field.name) && field.name != BASE.name => format!("`{value}`"),
            _ if field.name == BASE.name => "none; made by `restore`".to_owned(),
            _ => "made by `testnet`".to_owned(),
        };
        table += &row([&code(field.name), &default, expected, field.about, field.change.describe()]);
    }
    table
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn row(cells: [&str; 5]) -> String {
    format!("| {} |\n", cells.map(|cell| cell.replace('\n', " ")).join(" | "))
}

fn head(columns: [&str; 5]) -> String {
    format!("\n{}|---|---|---|---|---|\n", row(columns))
}

const COLUMNS: [&str; 5] = ["field", "default", "expected", "meaning", "change"];

/// The documentation of a public field in a source.
fn documented(source: &str, name: &str) -> Option<String> {
    let mut text = Vec::new();
    for line in source.lines().map(str::trim) {
        match line.strip_prefix("///") {
            Some(comment) => text.push(comment.trim()),
            None if line.starts_with(&format!("pub {name}:")) => return Some(text.join(" ")),
            None => text.clear(),
        }
    }
    None
}

fn meaning(protocol: &str, name: &str) -> String {
    let sources = SOURCES.iter().filter(|(protocols, _)| protocols.contains(&protocol));
    let found = sources.filter_map(|(_, source)| documented(source, name)).next();
    found.unwrap_or_else(|| panic!("the parameter {name} of {protocol} has no documentation in SOURCES"))
}

/// The values that a parameter may have: for a number the range that the protocol's own error names.
fn expected(entry: &Entry, name: &str, default: &toml::Value) -> String {
    if let Some(choice) = entry.choices.iter().find(|choice| choice.name == name) {
        return choice.values.iter().map(|value| format!("`\"{value}\"`")).collect::<Vec<_>>().join(", ");
    }
    if default.is_bool() {
        return "`true` or `false`".to_owned();
    }
    assert!(default.is_integer(), "{name}: no way to show its values");
    match testnet_with(entry.spec.name.as_str(), &[&format!("{name}={}", i64::MAX)]).1 {
        Ok(_) => "any whole number from 0".to_owned(),
        Err(problem) => {
            let problem = problem.to_string();
            let range = between(&problem, "expected ", ";").unwrap_or_else(|| panic!("{problem}"));
            format!("a whole number from {range}")
        }
    }
}

/// Rows of the parameters of a protocol.
fn parameters(entry: &Entry) -> String {
    let mut table = String::new();
    for (name, default) in params::defaults(entry) {
        let is_shared = entry.spec.shared_params.contains(&name.as_str());
        let (file, change) =
            if is_shared { ("cluster.toml", Change::Never) } else { ("node.toml", Change::AtStart) };
        let place = format!("`{file}`; {}", change.describe());
        let (expected, meaning) =
            (expected(entry, &name, &default), meaning(entry.spec.name.as_str(), &name));
        table += &row([&code(&name), &code(&default.to_string()), &expected, &meaning, &place]);
    }
    table
}

/// Sections of all protocols; those with equal parameters share one.
fn protocols() -> String {
    let mut sections: Vec<(Vec<&str>, String)> = Vec::new();
    for entry in REGISTRY {
        let table = parameters(entry);
        let name = entry.spec.name.as_str();
        match sections.iter_mut().find(|(_, other)| *other == table) {
            Some((names, _)) => names.push(name),
            None => sections.push((vec![name], table)),
        }
    }
    let head = head(["parameter", "default", "expected", "meaning", "file; change"]);
    let shown = sections.into_iter().map(|(names, table)| {
        let names: Vec<String> = names.into_iter().map(code).collect();
        format!("\n### {}\n{head}{table}", names.join(", "))
    });
    shown.collect()
}

#[test]
fn reference_of_the_configuration_has_every_field_and_parameter() {
    let (folder, testnet) = testnet();
    let mut restored = testnet.cluster.clone();
    restored.genesis.base = Some(quorate_types::Digest::ZERO);
    let cluster = restored.to_toml();
    let read_cluster = |text: &str| match ClusterConfig::read(&Source::of(CLUSTER_FILE, text)) {
        Ok(_) => panic!("a table is no value of any field"),
        Err(error) => error.problem,
    };
    let file = node_file(folder.path(), ReplicaId(0));
    let node = fs::read_to_string(&file).unwrap();
    let read_node = |text: &str| {
        fs::write(&file, text).unwrap();
        NodeConfig::load(&file).unwrap_err().problem
    };
    let head = head(COLUMNS);
    let page = [
        INTRODUCTION,
        "\n## cluster.toml\n\nThe field before all tables, and the fields of each `[[replicas]]`:\n",
        &head,
        &rows(&cluster, "", CLUSTER_FIELDS, read_cluster),
        &rows(&cluster, "[[replicas]]", REPLICA_FIELDS, read_cluster),
        "\nThe fields of `[genesis]`:\n",
        &head,
        &rows(&cluster, "[genesis]", GENESIS_FIELDS, read_cluster),
        "\n## node.toml\n",
        &head,
        &rows(&node, "", NODE_FIELDS, read_node),
        PARAMETERS,
        &protocols(),
    ];
    expect_file!["../../../../../docs/configuration.md"].assert_eq(&page.concat());
}
