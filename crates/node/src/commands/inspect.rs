//! `quorate inspect`: what a stopped node has on its disk, what is damaged, and which peers it needs. The node's folder is not
//! changed: the replica is opened as its node would open it, and whatever it writes stays in memory.

use super::diff;
use crate::config::NodeConfig;
use crate::exit::Failure;
use crate::layout::NODE_FILE;
use crate::out;
use crate::runtime;
use crate::serve::{failure, host_setup};
use crate::service::Service;
use quorate_host::{Host, HostSetup};
use quorate_storage::{FrozenDisk, folder};
use quorate_types::Incarnation;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The folder to inspect.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node's folder, or its configuration
    #[arg(value_name = "DIR")]
    config: PathBuf,
    /// Compare its state with another one, and name the first different key; exit code 3 if they differ. Both may be folders
    /// of stopped nodes, backups, and wrong states that a node has kept (data/diverged-HEIGHT)
    #[arg(long, value_name = "OTHER")]
    diff: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Returns the configuration of a node that is named by its folder or by that file.
pub(super) fn node_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(NODE_FILE) } else { path.to_owned() }
}

/// The part of a stopped replica that binds it.
#[derive(Debug, Serialize)]
struct Memory {
    /// Number of openings so far. A replica that has lost an earlier disk counts from a time in milliseconds.
    openings: u64,
    /// Whether it has lost an earlier disk, and is not back.
    amnesiac: bool,
    /// Statements that bind this replica.
    promises: usize,
    records: usize,
}

/// The snapshots of a stopped replica.
#[derive(Debug, Serialize)]
struct Snapshots {
    /// Height of the newest snapshot; 0 for none.
    snapshot: u64,
    snapshot_chunks: usize,
    /// Height of the newest snapshot that peers can receive, because a quorum has signed its state; 0 for none.
    proven_snapshot: u64,
}

/// The disk of a stopped replica, and its needs after a start.
#[derive(Debug, Serialize)]
struct Inspection {
    replica: u16,
    cluster: String,
    protocol: String,
    n: usize,
    f: usize,
    folder: PathBuf,
    /// Bytes of log and snapshots.
    disk_bytes: u64,
    disk_bytes_max: u64,
    #[serde(flatten)]
    memory: Memory,
    #[serde(flatten)]
    snapshots: Snapshots,
    /// The reason why log and snapshots give no state; `null` if they do.
    missing_state: Option<String>,
    /// The reason why the replica takes part no more; `null` if it does.
    excluded: Option<String>,
    /// First and last decided height whose block is in the log; the first is above the last if there is none.
    kept: (u64, u64),
    /// Height of the state after snapshot and log.
    executed: u64,
    state_digest: String,
    /// Height of the stable checkpoint.
    stable: u64,
    /// Blocks above the stable checkpoint, executed or not.
    blocks: usize,
    /// Peers that have to report what was decided since: one of them is honest.
    reports_needed: usize,
    /// Running replicas, this one included, that the cluster needs to serve clients.
    serving_needed: usize,
}

/// Runs the command.
///
/// # Errors
/// Fails when the configuration is wrong, when the node is running, and when its disk is damaged. The error says what to do.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    if let Some(other) = &args.diff {
        return diff::run(&args.config, other, service, args.json);
    }
    let config = NodeConfig::load(&node_file(&args.config))?;
    config.cluster.check_service(service)?;
    let identity = config.cluster.identity(config.id);
    let folder = folder::open(&config.data_dir, &identity);
    let folder = folder.map_err(|error| config.error("data_dir", error.to_string()))?;
    let amnesiac_from = folder.amnesiac_from().map(Incarnation);
    let disk = FrozenDisk::open(folder.path(), folder.salt()).map_err(Failure::run)?;
    let disk_bytes = disk.file_bytes().map_err(Failure::run)?;
    let setup = HostSetup { amnesiac_from, ..host_setup(&config, service, &config.keys()?)? };
    let host = runtime::open_alone(setup, Box::new(disk)).map_err(|fault| failure(&config, &fault))?;
    let excluded = folder.exclusion(host.replica().incarnation().0);
    let excluded = excluded.map_err(|error| config.error("data_dir", error.to_string()))?;
    let inspection = Inspection { excluded, ..inspect(&config, host, disk_bytes)? };
    if args.json { out::json(&inspection) } else { print(&inspection) }
}

fn inspect(config: &NodeConfig, mut host: Host, disk_bytes: u64) -> Result<Inspection, Failure> {
    let status = host.replica().status();
    let (first, last) = host.store().kept();
    let snapshot = host.store().newest_snapshot().map_err(Failure::run)?;
    let (n, f) = (config.cluster.n(), usize::from(config.genesis().f));
    Ok(Inspection {
        replica: config.id.0,
        cluster: config.cluster.cluster_id().to_string(),
        protocol: config.cluster.entry.spec.name.to_string(),
        n,
        f,
        folder: config.data_dir.clone(),
        disk_bytes,
        disk_bytes_max: config.disk.disk_bytes_max,
        memory: Memory {
            // This opening is not on the disk.
            openings: status.incarnation.0.saturating_sub(1),
            amnesiac: status.amnesia.is_some(),
            promises: status.outbox.guard_entries,
            records: status.outbox.records,
        },
        snapshots: Snapshots {
            snapshot: snapshot.as_ref().map_or(0, |snapshot| snapshot.height().0),
            snapshot_chunks: snapshot.map_or(0, |snapshot| snapshot.chunks()),
            proven_snapshot: host.store().newest_proven().unwrap_or_default().0,
        },
        missing_state: host.missing_state().map(str::to_owned),
        excluded: None,
        kept: (first.0, last.0),
        executed: host.executor().execution().height().0,
        state_digest: host.executor_mut().execution_mut().digest().to_string(),
        stable: status.stable.0,
        blocks: status.blocks,
        reports_needed: config.cluster.reports_needed(),
        serving_needed: config.cluster.serving_needed(),
    })
}

fn print(found: &Inspection) -> Result<(), Failure> {
    let Inspection { replica, protocol, n, f, executed, .. } = found;
    let (first, last) = found.kept;
    out::line(format_args!("replica {replica} of {n} ({protocol}, f = {f}), cluster {}", found.cluster))?;
    out::line(format_args!("data folder          {}", found.folder.display()))?;
    out::line(format_args!("disk                 {} of {} bytes", found.disk_bytes, found.disk_bytes_max))?;
    out::line(format_args!("openings             {}", found.memory.openings))?;
    let Snapshots { snapshot, snapshot_chunks: chunks, proven_snapshot } = found.snapshots;
    let snapshot = match snapshot {
        0 if chunks > 0 => format!("height 0, {chunks} chunks: the state that the cluster began with"),
        0 => "none: the state is the one of the log".to_owned(),
        height if height == proven_snapshot => {
            format!("height {height}, {chunks} chunks, with the signatures of a quorum")
        }
        height => format!("height {height}, {chunks} chunks"),
    };
    out::line(format_args!("snapshot             {snapshot}"))?;
    if first > last {
        out::line("decided in the log   none")?;
    } else {
        out::line(format_args!("decided in the log   heights {first} to {last}"))?;
    }
    out::line(format_args!("state                height {executed}, digest {}", found.state_digest))?;
    out::line(format_args!("stable checkpoint    height {}", found.stable))?;
    out::line(format_args!("blocks above it      {}", found.blocks))?;
    out::line(format_args!(
        "promises             {} statements, {} records",
        found.memory.promises, found.memory.records
    ))?;
    if found.memory.amnesiac {
        out::line(
            "amnesiac: the replica has lost an earlier disk. It makes no statement until its peers have shown it all that binds \
             it, and counts among the f faulty replicas until then.",
        )?;
    }
    if let Some(why) = &found.excluded {
        return out::line(runtime::excluded(why));
    }
    match &found.missing_state {
        Some(why) => out::line(format_args!(
            "promises undamaged, state lost: {why}. Start the node: it receives a state from its peers, keeps its promises, \
             and counts among the f faulty replicas until then. {} of {n} replicas have to run before clients are served.",
            found.serving_needed
        )),
        None => out::line(format_args!(
            "undamaged: its node continues after height {executed}. It believes later decisions that {} peers report. Where no \
             peer keeps height {} any more (`kept` in `quorate status --json`), it receives a state from them. {} of {n} \
             replicas have to run before clients are served.",
            found.reports_needed,
            executed.saturating_add(1),
            found.serving_needed
        )),
    }
}
