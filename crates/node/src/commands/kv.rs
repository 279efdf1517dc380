//! `quorate kv`: the client of the built-in key-value store. Each call is ordered by the cluster and believed
//! when f + 1 replicas agree on its result. Exit code 3 where it was answered and the answer is no.

mod action;
mod input;
mod show;

use super::arguments::cluster_file;
use crate::config::{ClusterConfig, parse_seconds};
use crate::exit::Failure;
use crate::layout::KV_KEY;
use crate::out;
use crate::service::Service;
use action::Action;
use input::Inputs;
use quorate_app::{KvError, KvOp, KvResult, SCAN_ENTRIES_MAX, prefix_end, successor};
use quorate_client::Fate;
use quorate_client::driver::{Client, ClientError, Options};
use quorate_client::keys;
use quorate_types::Wire as _;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which cluster, which key, and what to do.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cluster's shared configuration, or the folder that it is in
    #[arg(long, value_name = "FILE", default_value = "cluster.toml", value_parser = cluster_file, global = true)]
    cluster: PathBuf,
    /// Private key of a registered client; more than four programs at once with one key wait for each other's replies
    /// [default: clients/kv.key beside cluster.toml]
    #[arg(long = "key", value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// Time to wait for an answer: 30 (seconds), 500ms, 2m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_seconds, global = true)]
    timeout: Duration,
    /// One JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

/// Runs the command.
///
/// # Errors
/// When the configuration or the key is wrong, or the cluster gives no answer.
pub fn run(args: &Args) -> Result<(), Failure> {
    let cluster = ClusterConfig::load(&args.cluster)?;
    cluster.check_service(Service::KV)?;
    let limit = cluster.genesis.bodies.request_bytes_max;
    let inputs = Inputs::of(&args.action, limit, &mut std::io::stdin())?;
    let request = Request::of(&args.action, &inputs);
    let key = args.key_file.clone().unwrap_or_else(|| default_key(&args.cluster));
    let key = keys::read_private(&key).map_err(Failure::usage)?;
    let is_watched = std::io::stderr().is_terminal();
    let waiting: Option<fn(&str)> = if is_watched { Some(|text| eprintln!("{text}")) } else { None };
    let options = Options { timeout: args.timeout, waiting, ..Options::default() };
    let client = Client::connect(cluster.client_info(), key, options).map_err(Failure::run)?;
    let mut store = Store { client, reply_bytes_max: cluster.genesis.bodies.reply_bytes_max };
    match request {
        Request::One(op) => {
            let result = store.call(&op)?;
            if !args.json {
                return show::print(&op, &result, args.action.file());
            }
            out::json(&show::to_json(&op, &result))?;
            show::no(&op, &result)
        }
        Request::Scan(range) => {
            let entries = store.scan(range)?;
            if args.json { out::json(&show::scan_json(&entries)) } else { show::print_entries(&entries) }
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

/// The range that a scan reads.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Range {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    limit: u32,
}

impl<'a> Request<'a> {
    fn of(action: &'a Action, inputs: &'a Inputs) -> Self {
        let value = inputs.value.as_slice();
        Self::One(match action {
            Action::Get { key, .. } => KvOp::Get { key: key.as_bytes() },
            Action::Put { key, .. } => KvOp::Put { key: key.as_bytes(), value },
            Action::Del { key } => KvOp::Delete { key: key.as_bytes() },
            Action::Cas { key, .. } => {
                KvOp::CompareAndSwap { key: key.as_bytes(), expect: inputs.expect.as_deref(), value }
            }
            Action::Incr { key, by } => KvOp::Increment { key: key.as_bytes(), by: *by },
            Action::Scan { prefix, from, to, limit } => {
                let bytes = |text: &Option<OsString>| text.as_ref().map(|text| text.as_bytes().to_vec());
                return Self::Scan(match prefix {
                    Some(prefix) => Range {
                        from: prefix.as_bytes().to_vec(),
                        to: prefix_end(prefix.as_bytes()),
                        limit: *limit,
                    },
                    None => Range { from: bytes(from).unwrap_or_default(), to: bytes(to), limit: *limit },
                });
            }
        })
    }
}

/// Why there is no answer, and what that means for this operation.
fn without_answer(op: &KvOp<'_>, error: &ClientError) -> Failure {
    let is_unknown = match error {
        ClientError::Timeout { fate, .. } => *fate == Fate::Unknown,
        ClientError::Failed(why) => why.fate() == Fate::Unknown,
        _ => false,
    };
    match op {
        KvOp::Get { .. } | KvOp::Scan { .. } | KvOp::Echo { .. } if is_unknown => {
            Failure::run(format!("{error}; it only reads, so it is safe to ask again"))
        }
        _ if is_unknown => Failure::run(format!("{error}; read the key before you write again")),
        _ => Failure::run(error),
    }
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The store behind the cluster.
struct Store {
    client: Client,
    reply_bytes_max: u32,
}

impl Store {
    fn call(&mut self, op: &KvOp<'_>) -> Result<KvResult, Failure> {
        let bytes = self.client.call(&op.to_bytes()).map_err(|error| without_answer(op, &error))?;
        match KvResult::from_bytes(&bytes).map_err(Failure::run)? {
            KvResult::Error(KvError::NoRoom) => {
                let most = self.reply_bytes_max;
                Err(Failure::run(format!(
                    "the result exceeds reply_bytes_max of the cluster, which is {most} bytes"
                )))
            }
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

#[cfg(test)]
mod tests;
