//! `quorate kv`: the client of the built-in key-value store. Each call is ordered by the cluster and believed
//! when f + 1 replicas agree on its result.

use super::cluster_file;
use crate::config::{ClusterConfig, parse_seconds};
use crate::exit::Failure;
use crate::keys;
use crate::out;
use crate::service::Service;
use crate::testnet::KV_KEY;
use clap::Subcommand;
use quorate_app::{KvOp, KvResult, SCAN_ENTRIES_MAX, prefix_end, successor};
use quorate_client::driver::{Client, Options};
use quorate_types::Wire as _;
use quorate_types::digest::hex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which cluster, which key, and what to do.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cluster's shared configuration, or the folder that it is in
    #[arg(long, value_name = "FILE", default_value = "cluster.toml", value_parser = cluster_file, global = true)]
    cluster: PathBuf,
    /// Private key of a registered client [default: clients/kv.key beside cluster.toml]
    #[arg(long = "key", value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// How long to wait for an answer: 30 (seconds), 500ms, 2m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_seconds, global = true)]
    timeout: Duration,
    /// One JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Print the value of a key
    Get { key: String },
    /// Give a key a value
    Put { key: String, value: String },
    /// Remove a key
    Del { key: String },
    /// Give a key a value if it has the expected one
    Cas {
        key: String,
        /// The expected value, then the new one; with --absent only the new one
        #[arg(required = true, num_args = 1..=2, value_names = ["EXPECT", "VALUE"])]
        values: Vec<String>,
        /// Expect that the key has no value
        #[arg(long)]
        absent: bool,
    },
    /// Add to the number that a key holds; a key without a value holds 0
    Incr {
        key: String,
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
    },
    /// Print keys and values in order. More than 1,000 are read in several steps, between which the store may change
    Scan {
        /// Only keys that begin so
        #[arg(long, conflicts_with_all = ["from", "to"])]
        prefix: Option<String>,
        /// The first key
        #[arg(long)]
        from: Option<String>,
        /// The first key that is not wanted any more
        #[arg(long)]
        to: Option<String>,
        /// Entries at most
        #[arg(long, default_value_t = 1_000)]
        limit: u32,
    },
}

/// Runs the command.
///
/// # Errors
/// When the configuration or the key is wrong, or the cluster gives no answer.
pub fn run(args: &Args) -> Result<(), Failure> {
    let request = Request::of(&args.action)?;
    let cluster = ClusterConfig::load(&args.cluster)?;
    cluster.check_service(Service::KV)?;
    let key = args.key_file.clone().unwrap_or_else(|| default_key(&args.cluster));
    let key = keys::read_private(&key).map_err(Failure::usage)?;
    let options = Options { timeout: args.timeout, ..Options::default() };
    let client = Client::connect(cluster.client_info(), key, options).map_err(Failure::run)?;
    let mut store = Store { client };
    match request {
        Request::One(op) => {
            let result = store.call(&op)?;
            if args.json { out::json(&to_json(&op, &result)) } else { print(&result) }
        }
        Request::Scan(range) => {
            let entries = store.scan(range)?;
            if args.json { out::json(&scan_json(&entries)) } else { print_entries(&entries) }
        }
    }
}

fn default_key(cluster: &Path) -> PathBuf {
    cluster.parent().unwrap_or(Path::new("")).join(KV_KEY)
}

/// A request in the application's words.
#[derive(Debug)]
enum Request<'a> {
    One(KvOp<'a>),
    Scan(Range),
}

/// What a scan is to read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    limit: u32,
}

impl<'a> Request<'a> {
    fn of(action: &'a Action) -> Result<Self, Failure> {
        Ok(Self::One(match action {
            Action::Get { key } => KvOp::Get { key: key.as_bytes() },
            Action::Put { key, value } => KvOp::Put { key: key.as_bytes(), value: value.as_bytes() },
            Action::Del { key } => KvOp::Delete { key: key.as_bytes() },
            Action::Cas { key, values, absent } => {
                let (expect, value) = match (values.as_slice(), absent) {
                    ([value], true) => (None, value),
                    ([expect, value], false) => (Some(expect.as_bytes()), value),
                    _ => return Err(Failure::usage("cas: expected KEY EXPECT VALUE, or --absent KEY VALUE")),
                };
                KvOp::CompareAndSwap { key: key.as_bytes(), expect, value: value.as_bytes() }
            }
            Action::Incr { key, by } => KvOp::Increment { key: key.as_bytes(), by: *by },
            Action::Scan { prefix, from, to, limit } => {
                let bytes = |text: &Option<String>| text.as_ref().map(|text| text.clone().into_bytes());
                return Ok(Self::Scan(match prefix {
                    Some(prefix) => Range {
                        from: prefix.clone().into_bytes(),
                        to: prefix_end(prefix.as_bytes()),
                        limit: *limit,
                    },
                    None => Range { from: bytes(from).unwrap_or_default(), to: bytes(to), limit: *limit },
                }));
            }
        }))
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The store behind the cluster.
struct Store {
    client: Client,
}

impl Store {
    fn call(&mut self, op: &KvOp<'_>) -> Result<KvResult, Failure> {
        let bytes = self.client.call(&op.to_bytes()).map_err(Failure::run)?;
        match KvResult::from_bytes(&bytes).map_err(Failure::run)? {
            KvResult::Error(error) => Err(Failure::run(error)),
            result => Ok(result),
        }
    }

    /// Reads page after page, because one reply holds a bounded number of entries.
    fn scan(&mut self, mut range: Range) -> Result<Entries, Failure> {
        let mut all = Entries::new();
        loop {
            let left = range.limit.saturating_sub(u32::try_from(all.len()).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(all);
            }
            let op =
                KvOp::Scan { from: &range.from, to: range.to.as_deref(), limit: left.min(SCAN_ENTRIES_MAX) };
            let KvResult::Entries { entries, more } = self.call(&op)? else {
                return Err(Failure::run("the cluster answers a scan with something else"));
            };
            let next = entries.last().map(|(key, _)| successor(key));
            all.extend(entries);
            match next {
                Some(next) if more => range.from = next,
                _ => return Ok(all),
            }
        }
    }
}

fn print(result: &KvResult) -> Result<(), Failure> {
    match result {
        KvResult::Done => out::line("ok"),
        KvResult::Value(value) => out::bytes(&[value, b"\n".as_slice()].concat()),
        KvResult::Absent => out::line("(no value)"),
        KvResult::Mismatch => out::line("no"),
        KvResult::Number(number) => out::line(number),
        KvResult::Entries { entries, .. } => print_entries(entries),
        KvResult::Padding(_) | KvResult::Error(_) => out::line(format_args!("{result:?}")),
    }
}

fn print_entries(entries: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
    let mut text = Vec::new();
    for (key, value) in entries {
        text.extend_from_slice(&[key, b"\t".as_slice(), value, b"\n"].concat());
    }
    out::bytes(&text)
}

/// Text where the bytes are text, else their hexadecimal digits in an object.
fn text(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).map_or_else(|_| json!({ "hex": hex(bytes) }), Value::from)
}

/// `{"kind", "key", "result"}`: `get` and `incr` result in the value or null, `put` and `del` in "ok", `cas` in
/// "ok" or "no".
fn to_json(op: &KvOp<'_>, result: &KvResult) -> Value {
    let (kind, key) = match op {
        KvOp::Put { key, .. } => ("put", *key),
        KvOp::Get { key } => ("get", *key),
        KvOp::Delete { key } => ("del", *key),
        KvOp::CompareAndSwap { key, .. } => ("cas", *key),
        KvOp::Increment { key, .. } => ("incr", *key),
        KvOp::Scan { from, .. } => ("scan", *from),
        KvOp::Echo { padding, .. } => ("echo", *padding),
    };
    let result = match (op, result) {
        (KvOp::Delete { .. }, KvResult::Absent) | (_, KvResult::Done) => Value::from("ok"),
        (_, KvResult::Value(value)) => text(value),
        (_, KvResult::Mismatch) => Value::from("no"),
        (_, KvResult::Number(number)) => Value::from(number.to_string()),
        (_, KvResult::Entries { entries, .. }) => scan_json(entries),
        (_, KvResult::Absent | KvResult::Padding(_) | KvResult::Error(_)) => Value::Null,
    };
    json!({ "kind": kind, "key": text(key), "result": result })
}

/// `{"kind": "scan", "entries": [{"key", "value"}]}`.
fn scan_json(entries: &[(Vec<u8>, Vec<u8>)]) -> Value {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| json!({ "key": text(key), "value": text(value) })).collect();
    json!({ "kind": "scan", "entries": entries })
}

#[cfg(test)]
mod tests;
