//! `quorate stop`: stops all nodes of a cluster, where their configuration allows it.

use super::arguments::cluster_file;
use crate::config::{ClusterConfig, parse_seconds};
use crate::exit::Failure;
use crate::layout::ADMIN_KEY;
use crate::out;
use quorate_client::LinkState;
use quorate_client::cluster::ClusterInfo;
use quorate_client::driver::{ClientPool, PoolEvent};
use quorate_client::keys;
use quorate_crypto::SigningKey;
use quorate_types::wire::StopAnswer;
use quorate_types::{Incarnation, ReplicaId};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time that nodes have to stop, unless the command line has another one.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The help text after the options.
const RULE: &str = "A node stops only if its node.toml has `allow_stop = true`; `quorate testnet` and `quorate up` write that with \
                    --allow-stop. A stopped node ends as on SIGTERM, with exit code 0. The exit code of this command is 1 \
                    unless all nodes have stopped.";

/// The cluster to stop.
#[derive(Debug, clap::Args)]
#[command(after_help = RULE)]
pub struct Args {
    /// The cluster's file, or its folder.
    #[arg(long, value_name = "FILE", default_value = "cluster.toml", value_parser = cluster_file)]
    cluster: PathBuf,
    /// Key of the admin client; default: `clients/admin.key` next to the cluster's file.
    #[arg(long, value_name = "FILE")]
    admin_key: Option<PathBuf>,
    /// Time to wait for the end of the nodes: 10 (seconds), 500ms, 2m.
    #[arg(long, value_name = "DURATION", default_value = "10", value_parser = parse_seconds)]
    wait: Duration,
}

/// Stops the nodes, and prints a line for each that has stopped.
///
/// # Errors
/// Fails when the cluster's file or the key is wrong, or a node has not stopped in time.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = ClusterConfig::load(&args.cluster)?;
    let admin = read_admin_key(&args.cluster, args.admin_key.as_deref())?;
    let ends = request_stops(config.client_info(), &admin, args.wait)?;
    for (id, end) in &ends {
        if end.is_ok() {
            out::line(format_args!("replica {id} has stopped"))?;
        }
    }
    check(&ends)
}

/// Stops all nodes of a cluster.
///
/// # Errors
/// Fails when a node has not stopped in time, or this machine refuses.
pub fn stop_all(cluster: ClusterInfo, admin: &SigningKey, patience: Duration) -> Result<(), Failure> {
    check(&request_stops(cluster, admin, patience)?)
}

/// Reads the key of the admin client: by default the one in the folder of the cluster's file.
///
/// # Errors
/// Fails when the file cannot be read, is readable by others, or has no key.
pub fn read_admin_key(cluster_file: &Path, file: Option<&Path>) -> Result<SigningKey, Failure> {
    let beside = || cluster_file.parent().unwrap_or(Path::new("")).join(ADMIN_KEY);
    let file = file.map_or_else(beside, Path::to_path_buf);
    keys::read_private(&file).map_err(Failure::usage)
}

/// The end of a replica, or the reason why it has not ended.
type NodeEnd = Result<(), String>;

fn check(ends: &[(ReplicaId, NodeEnd)]) -> Result<(), Failure> {
    let reasons: Vec<String> = ends
        .iter()
        .filter_map(|(id, end)| end.as_ref().err().map(|why| format!("replica {id}: {why}")))
        .collect();
    if reasons.is_empty() {
        return Ok(());
    }
    let (left, all) = (reasons.len(), ends.len());
    Err(Failure::run(format!("{left} of {all} replicas have not stopped: {}", reasons.join("; "))))
}

/// The progress with one replica.
#[derive(Clone, PartialEq, Debug)]
enum Progress {
    /// There is no connection yet.
    Connects,
    /// The replica was asked for its status, which has the incarnation.
    AskedStatus,
    /// The replica was asked to stop.
    AskedStop,
    /// The replica has accepted, and its connection is still there.
    Stops,
    /// The replica has ended, or will not.
    Over(NodeEnd),
}

impl Progress {
    /// Takes in the state of the connection. Returns true if the replica has to be asked for its status.
    fn update(&mut self, link: Option<LinkState>, trouble: impl FnOnce() -> String) -> bool {
        match (&self, link) {
            (Self::Connects, Some(LinkState::Up)) => return true,
            (Self::Connects, Some(LinkState::Down)) => *self = Self::Over(Err(trouble())),
            (Self::AskedStatus | Self::AskedStop, Some(LinkState::Down)) => {
                let why = format!("the connection has ended before an answer: {}", trouble());
                *self = Self::Over(Err(why));
            }
            (Self::Stops, Some(LinkState::Down)) => *self = Self::Over(Ok(())),
            _ => {}
        }
        false
    }

    /// Returns the result when the time is over.
    fn late(self) -> NodeEnd {
        match self {
            Self::Over(end) => end,
            Self::Stops => Err("it has accepted, and has not ended in time".to_owned()),
            Self::Connects | Self::AskedStatus | Self::AskedStop => Err("no answer in time".to_owned()),
        }
    }
}

/// Asks every replica to stop, and waits until all have ended or refused, or until the time is over.
fn request_stops(
    cluster: ClusterInfo,
    admin: &SigningKey,
    patience: Duration,
) -> Result<Vec<(ReplicaId, NodeEnd)>, Failure> {
    let mut replicas: Vec<(ReplicaId, Progress)> = cluster.ids().map(|id| (id, Progress::Connects)).collect();
    let mut pool = ClientPool::new(cluster).map_err(Failure::run)?;
    let (start, mut events) = (Instant::now(), Vec::new());
    while replicas.iter().any(|(_, progress)| !matches!(progress, Progress::Over(_))) {
        let left = patience.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        pool.poll(left, &mut events).map_err(Failure::run)?;
        for event in events.drain(..) {
            handle(&mut pool, admin, &mut replicas, event);
        }
        for (id, progress) in &mut replicas {
            if progress.update(pool.link(*id), || pool.trouble_with(*id)) && pool.ask_status(*id) {
                *progress = Progress::AskedStatus;
            }
        }
    }
    Ok(replicas.into_iter().map(|(id, progress)| (id, progress.late())).collect())
}

fn handle(
    pool: &mut ClientPool,
    admin: &SigningKey,
    replicas: &mut [(ReplicaId, Progress)],
    event: PoolEvent,
) {
    let (PoolEvent::Status(from, _) | PoolEvent::Stop(from, _)) = &event else { return };
    let from = *from;
    let Some((_, progress)) = replicas.get_mut(from.index()) else { return };
    *progress = match (event, &progress) {
        (PoolEvent::Status(_, status), Progress::AskedStatus) => match incarnation(&status) {
            Some(incarnation) if pool.ask_stop(from, incarnation, admin) => Progress::AskedStop,
            Some(_) => Progress::Over(Err("the connection has ended before an answer".to_owned())),
            None => Progress::Over(Err("its status has no incarnation".to_owned())),
        },
        (PoolEvent::Stop(_, StopAnswer::Accepted), Progress::AskedStop) => Progress::Stops,
        (PoolEvent::Stop(_, refused), Progress::AskedStop) => Progress::Over(Err(refused.text().to_owned())),
        _ => return,
    };
}

/// Returns the incarnation in a status.
fn incarnation(status: &str) -> Option<Incarnation> {
    let status: Value = serde_json::from_str(status).ok()?;
    status.get("incarnation")?.as_u64().map(Incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_liar_has_no_incarnation() {
        assert_eq!(incarnation(r#"{"incarnation": 7}"#), Some(Incarnation(7)));
        for status in ["", "{", "[]", "{}", r#"{"incarnation": -1}"#, r#"{"incarnation": "7"}"#] {
            assert_eq!(incarnation(status), None, "{status}");
        }
    }

    #[test]
    fn only_an_accepted_request_and_an_ended_connection_are_a_stop() {
        let after = |mut progress: Progress, link| {
            let asks = progress.update(link, || "refused".to_owned());
            (progress, asks)
        };
        let (up, down) = (Some(LinkState::Up), Some(LinkState::Down));
        assert_eq!(after(Progress::Connects, None), (Progress::Connects, false));
        assert_eq!(after(Progress::Connects, up), (Progress::Connects, true));
        let refused = Progress::Over(Err("refused".to_owned()));
        assert_eq!(after(Progress::Connects, down), (refused, false));
        for early in [Progress::AskedStatus, Progress::AskedStop] {
            let (progress, _) = after(early, down);
            assert!(matches!(&progress, Progress::Over(Err(why)) if why.contains("before an answer")));
        }
        assert_eq!(after(Progress::Stops, up), (Progress::Stops, false));
        assert_eq!(after(Progress::Stops, down), (Progress::Over(Ok(())), false));
        assert!(Progress::Stops.late().is_err() && Progress::AskedStop.late().is_err());
        let ends = [(ReplicaId(0), Ok(())), (ReplicaId(1), Err("no answer in time".to_owned()))];
        let failure = check(&ends).unwrap_err();
        assert_eq!(failure.code(), 1);
        let text = "1 of 2 replicas have not stopped: replica 1: no answer in time";
        assert_eq!(failure.to_string(), text);
        assert!(check(&ends[..1]).is_ok());
    }
}
