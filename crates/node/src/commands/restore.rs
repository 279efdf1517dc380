//! `quorate restore`: verifies a backup, and makes a new cluster that begins with its state.

use super::testnet::{ClusterArgs, report};
use crate::exit::Failure;
use crate::out;
use crate::saved_state::SavedState;
use crate::service::Service;
use crate::testnet::Testnet;
use std::path::PathBuf;

/// The backup, and the cluster to make.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder that `quorate backup` has made
    backup: PathBuf,
    /// Folder of the new cluster; it must not exist, or be empty. Without it the backup is only verified
    #[arg(long)]
    out: Option<PathBuf>,
    /// Identity of the cluster that the backup must come from, as `quorate backup` prints it
    #[arg(long, value_name = "ID")]
    from_cluster: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
///
/// # Errors
/// Fails when the backup does not hold, or the folder cannot be made.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    let saved = SavedState::open(&args.backup)?;
    let id = saved.manifest.genesis.cluster_id().to_string();
    if let Some(expected) = args.from_cluster.as_ref().filter(|expected| **expected != id) {
        return Err(Failure::usage(format!(
            "{}: it is a backup of cluster {id}, not of {expected}; choose the right backup",
            args.backup.display()
        )));
    }
    let (state, verified) = saved.verify(service)?;
    let (n, signers) = (saved.manifest.genesis.members.len(), verified.signers);
    out::line(format_args!(
        "backup of cluster {id} at height {}, state {}: signed by {signers} of {n} replicas; verified",
        verified.height, verified.state
    ))?;
    let Some(out) = &args.out else { return Ok(()) };
    let plan = args.cluster.plan(service)?;
    let testnet = Testnet::create_with(out, &plan, Some(state))?;
    out::line(
        "The new cluster has new keys for replicas and clients. Registered clients keep their keys, and open new sessions.",
    )?;
    report(&testnet, out, plan.is_insecure())
}
