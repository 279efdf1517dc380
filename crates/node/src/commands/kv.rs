//! `quorate kv`: the client of the built-in key-value store. The cluster orders each call. The client accepts a result that
//! f + 1 replicas report. Exit code 3 means that the cluster has answered, and the answer is no.

mod action;
mod input;
mod show;

use super::client::ClientArgs;
use crate::exit::Failure;
use crate::out;
use crate::service::Service;
use action::Action;
use input::Inputs;
use quorate_app::{KvError, KvOp, KvResult, SCAN_ENTRIES_MAX, prefix_end, successor};
use quorate_client::driver::{Client, ClientError, Ordered};
use quorate_types::Wire as _;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

/// The cluster, the key, and the operation.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    client: ClientArgs,
    /// One JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Print the place of a put, del, cas or incr in the cluster's order, and no result: one replica proves the place, and one
    /// suffices. Only `apollo` and `artemis` have such proofs
    #[arg(long, global = true)]
    order: bool,
    #[command(subcommand)]
    action: Action,
}

/// Runs the command.
///
/// # Errors
/// Fails when the configuration or the key is wrong, or the cluster gives no answer.
pub fn run(args: &Args) -> Result<(), Failure> {
    let cluster = args.client.cluster(Service::KV)?;
    let limit = cluster.genesis.bodies.request_bytes_max;
    let inputs = Inputs::of(&args.action, limit, &mut std::io::stdin())?;
    let request = Request::of(&args.action, &inputs);
    if args.order && request.is_read() {
        return Err(Failure::usage("a read has a result and no other effect; omit --order"));
    }
    let client = args.client.connect(&cluster, Service::KV)?;
    let mut store = ReplicatedStore { client, reply_bytes_max: cluster.genesis.bodies.reply_bytes_max };
    match request {
        Request::Single(op) if args.order => {
            let ordered = store.order(&op)?;
            if args.json { out::json(&show::order_json(&ordered)) } else { out::line(show::order(&ordered)) }
        }
        Request::Single(op) => {
            let result = store.call(&op)?;
            if !args.json {
                return show::print(&op, &result, args.action.file());
            }
            out::json(&show::to_json(&op, &result))?;
            show::check_yes(&op, &result)
        }
        Request::Scan(range) => {
            let entries = store.scan(range)?;
            if args.json { out::json(&show::scan_json(&entries)) } else { show::print_entries(&entries) }
        }
    }
}

/// A request to the store.
#[derive(Debug)]
enum Request<'a> {
    Single(KvOp<'a>),
    Scan(KeyRange),
}

/// The range that a scan reads.
#[derive(Clone, PartialEq, Eq, Debug)]
struct KeyRange {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    limit: u32,
}

impl<'a> Request<'a> {
    /// Whether the request only reads.
    fn is_read(&self) -> bool {
        match self {
            Self::Single(op) => is_read(op),
            Self::Scan(_) => true,
        }
    }

    fn of(action: &'a Action, inputs: &'a Inputs) -> Self {
        let value = inputs.value.as_slice();
        Self::Single(match action {
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
                    Some(prefix) => KeyRange {
                        from: prefix.as_bytes().to_vec(),
                        to: prefix_end(prefix.as_bytes()),
                        limit: *limit,
                    },
                    None => KeyRange { from: bytes(from).unwrap_or_default(), to: bytes(to), limit: *limit },
                });
            }
        })
    }
}

fn is_read(op: &KvOp<'_>) -> bool {
    matches!(op, KvOp::Get { .. } | KvOp::Scan { .. } | KvOp::Echo { .. })
}

/// Returns the reason why there is no answer, and its meaning for this operation.
fn without_answer(op: &KvOp<'_>, error: &ClientError) -> Failure {
    if !error.is_fate_unknown() {
        return Failure::run(error);
    }
    let advice = match is_read(op) {
        true => "it only reads, so it is safe to ask again",
        false => "read the key before you write again",
    };
    Failure::run(format!("{error}; {advice}"))
}

type KvEntries = Vec<(Vec<u8>, Vec<u8>)>;

/// The store that the cluster replicates.
struct ReplicatedStore {
    client: Client,
    reply_bytes_max: u32,
}

impl ReplicatedStore {
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

    fn order(&mut self, op: &KvOp<'_>) -> Result<Ordered, Failure> {
        self.client.order(&op.to_bytes()).map_err(|error| without_answer(op, &error))
    }

    /// Scans in several steps, because one reply has a bounded number of entries.
    fn scan(&mut self, mut range: KeyRange) -> Result<KvEntries, Failure> {
        let mut all = KvEntries::new();
        loop {
            let left = range.limit.saturating_sub(u32::try_from(all.len()).unwrap_or(u32::MAX));
            if left == 0 {
                return Ok(all);
            }
            let op =
                KvOp::Scan { from: &range.from, to: range.to.as_deref(), limit: left.min(SCAN_ENTRIES_MAX) };
            let KvResult::Entries { entries, more } = self.call(&op)? else {
                return Err(Failure::run(
                    "the cluster answered a scan with another result; expected entries: run the same version of quorate at the nodes",
                ));
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
