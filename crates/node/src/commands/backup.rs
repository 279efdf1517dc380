//! `quorate backup`: copies a checkpoint with its certificate from a node to a folder.

use super::inspect::node_file;
use crate::config::NodeConfig;
use crate::exit::Failure;
use crate::out;
use crate::saved_state::{self, Manifest, SavedState};
use crate::service::Service;
use quorate_consensus::CheckpointProof;
use quorate_host::{StateAt, read_state};
use quorate_storage::folder::{self, FolderError};
use quorate_storage::{Fault, FrozenDisk, SnapshotReader};
use quorate_types::Wire as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The number of times that a backup begins again, because the running node has deleted the snapshot.
const ATTEMPTS: usize = 5;

/// The node to back up.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node's folder, or its configuration; the node may run
    #[arg(value_name = "DIR")]
    config: PathBuf,
    /// Folder to make; it must not exist, or be empty
    #[arg(long)]
    out: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// Fails when the node has no checkpoint yet, its disk is damaged, or the folder cannot be written.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    let config = NodeConfig::load(&node_file(&args.config))?;
    config.cluster.check_service(service)?;
    let identity = config.cluster.identity(config.id);
    let refused = |error: FolderError| Failure::from(config.error("data_dir", error.to_string()));
    let runs = match folder::open(&config.data_dir, &identity) {
        Ok(folder) => {
            let disk = FrozenDisk::open(folder.path(), folder.salt()).map_err(Failure::run)?;
            from_stopped(&config, service, disk, &args.out)?;
            false
        }
        Err(FolderError::InUse(_)) => {
            folder::identify(&config.data_dir, &identity).map_err(refused)?;
            from_running(&config, &args.out)?;
            true
        }
        Err(error) => return Err(refused(error)),
    };
    // The backup is read as a restore reads it.
    let saved = SavedState::open(&args.out)?;
    let (_, verified) = saved.verify(service)?;
    let (height, bytes) = (verified.height, saved.manifest.bytes());
    out::line(format_args!("cluster    {}", config.cluster.cluster_id()))?;
    out::line(format_args!("height     {height}, state {}", verified.state))?;
    out::line(format_args!("size       {bytes} bytes in {} chunks", saved.manifest.ids.len()))?;
    out::line(format_args!("signed by  {} of {} replicas; verified", verified.signers, config.cluster.n()))?;
    if runs {
        out::line(
            "The node runs, so this is its newest snapshot on disk. A stopped node gives its last checkpoint, which is newer.",
        )?;
    }
    let dir = args.out.display();
    out::line(format_args!("make a cluster of it: quorate restore {dir} --out NEW-FOLDER"))
}

fn no_checkpoint(more: &str) -> Failure {
    Failure::run(format!("the node has no checkpoint that a quorum has signed: {more}"))
}

/// Takes the state of the stable checkpoint from snapshots and log.
fn from_stopped(config: &NodeConfig, service: Service, disk: FrozenDisk, out: &Path) -> Result<(), Failure> {
    let genesis = config.genesis();
    let (mut execution, proof) =
        read_state(genesis, service.open(), Box::new(disk), StateAt::Stable).map_err(Failure::run)?;
    if proof.is_genesis() {
        let every = genesis.checkpoint_every;
        return Err(no_checkpoint(&format!(
            "a checkpoint follows every {every} blocks; start the node, and back up later"
        )));
    }
    let state = execution.snapshot();
    let (header, ids) = (state.header().to_vec(), state.ids().to_vec());
    let manifest = Manifest { genesis: genesis.clone(), proof: Some(proof), header, ids };
    saved_state::write(out, &manifest, &mut |index| {
        let mut chunk = Vec::new();
        state.encode(index, &mut chunk);
        Ok(chunk)
    })
}

/// Copies the newest snapshot of a running node whose state a quorum has signed.
fn from_running(config: &NodeConfig, out: &Path) -> Result<(), Failure> {
    let existed = out.exists();
    let mut attempt = 1;
    loop {
        match copy_newest(config, out) {
            // The node has replaced the snapshot meanwhile.
            Err(CopyError::Gone(_)) if attempt < ATTEMPTS => {
                attempt += 1;
                discard(out, existed)?;
            }
            Err(CopyError::Gone(fault)) => return Err(Failure::run(fault)),
            Err(CopyError::Failed(failure)) => return Err(failure),
            Ok(()) => return Ok(()),
        }
    }
}

enum CopyError {
    /// A file of the snapshot cannot be read, perhaps because the node has deleted it.
    Gone(Fault),
    Failed(Failure),
}

fn copy_newest(config: &NodeConfig, out: &Path) -> Result<(), CopyError> {
    let failed = |failure| CopyError::Failed(failure);
    let reader = SnapshotReader::open(&config.data_dir).map_err(CopyError::Gone)?;
    let snapshot = reader.newest_proven().map_err(CopyError::Gone)?.ok_or_else(|| {
        let more = "it writes a snapshot after 48 MiB of log at the latest, or when a peer needs one; stop the node, and a backup \
            takes its last checkpoint from the log";
        failed(no_checkpoint(more))
    })?;
    let proof = CheckpointProof::from_bytes(snapshot.proof())
        .map_err(|error| failed(Failure::run(format!("the snapshot's proof is damaged: {error}"))))?;
    let (header, ids) = (snapshot.header().to_vec(), snapshot.ids().collect());
    let manifest = Manifest { genesis: config.genesis().clone(), proof: Some(proof), header, ids };
    let mut gone = None;
    let written = saved_state::write(out, &manifest, &mut |index| {
        reader.chunk(&snapshot, index).map_err(|fault| {
            let failure = Failure::run(&fault);
            gone = Some(fault);
            failure
        })
    });
    match (gone, written) {
        (Some(fault), _) => Err(CopyError::Gone(fault)),
        (None, written) => written.map_err(failed),
    }
}

/// Removes the files of an attempt.
fn discard(out: &Path, existed: bool) -> Result<(), Failure> {
    let failed = |error| Failure::run(format!("{}: {error}", out.display()));
    fs::remove_dir_all(out).map_err(failed)?;
    if existed { fs::create_dir(out).map_err(failed) } else { Ok(()) }
}
