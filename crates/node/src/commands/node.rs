//! `quorate node`: one replica.

use crate::config::{NodeConfig, choice};
use crate::disguise::MakeDisguise;
use crate::exit::Failure;
use crate::profile::{self, Profile, Profiler};
use crate::serve::{PreparedNode, serve_on_its_disk};
use crate::service::Service;
use crate::signals::StopRequest;
use quorate_app::{APPLICATION_PANIC, panic_text};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io::{IsTerminal, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// The node to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node's configuration
    #[arg(long)]
    config: PathBuf,
    /// Run although client or link authentication or durability is switched off
    #[arg(long)]
    insecure: bool,
    /// Begin anew after the loss of the data folder: the replica makes no statement until its promises no longer matter. The
    /// folder must be empty
    #[arg(long)]
    rejoin: bool,
    /// Write a profile to `profile.folded` beside the configuration at the end: "cpu" time or "alloc" for allocations
    #[arg(long, hide = !profile::IS_AVAILABLE, value_name = "KIND", value_parser = choice(Profile::NAMES.to_vec()))]
    profile: Option<Profile>,
    /// End together with this process
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,
}

/// Runs the command until a stop request.
///
/// # Errors
/// Fails when the configuration is wrong, a folder or an address is in use, or the node has a fault.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    run_node(args, service, None)
}

/// Runs a replica that lies, until a stop request. `disguise` makes its lies.
///
/// # Errors
/// Fails as [`run`] does.
pub fn run_liar(args: &Args, service: Service, disguise: MakeDisguise<'_>) -> Result<(), Failure> {
    run_node(args, service, Some(disguise))
}

fn run_node(args: &Args, service: Service, disguise: Option<MakeDisguise<'_>>) -> Result<(), Failure> {
    if let Some(parent) = args.parent {
        end_with(parent)?;
    }
    let config = NodeConfig::load(&args.config)?;
    config.cluster.check_service(service)?;
    if let Some(error) = config.insecure().filter(|_| !args.insecure) {
        return Err(error.into());
    }
    start_log(config.log);
    let profiler = args.profile.map(Profiler::start).transpose()?;
    // A node that opens has sent nothing yet, so a signal ends it at once.
    let stop =
        StopRequest::watch().map_err(|error| Failure::run(format!("cannot watch signals: {error}")))?;
    let node = PreparedNode::open(config, service, (args.parent.is_some(), args.rejoin))?;
    // The panic ends the replica with all its state: no half of a change remains in use.
    let ended = catch_unwind(AssertUnwindSafe(|| serve_on_its_disk(node, &stop, disguise)));
    ended.unwrap_or_else(|panic| Err(panicked(panic_text(&*panic))))?;
    profiler.map_or(Ok(()), |profiler| write_profile(profiler, &args.config))
}

/// Writes a profile beside the configuration of its node.
fn write_profile(profiler: Profiler, config: &Path) -> Result<(), Failure> {
    let path = config.with_file_name(profile::FILE);
    let text = profiler.finish()?;
    std::fs::write(&path, text).map_err(|error| Failure::run(format!("{}: {error}", path.display())))
}

/// Returns the failure of a node that has panicked. The panic has written its place in the code to the lines before.
fn panicked(text: &str) -> Failure {
    if text.starts_with(APPLICATION_PANIC) {
        let advice = "all replicas that execute this do the same; see docs/building-a-service.md for help";
        return Failure::run(format!("{text} ({advice})"));
    }
    Failure::run(format!("this program has panicked, which is a bug in it: {text}; report it"))
}

/// Lets the process end together with `parent`. The child makes the call, because only the child can check that the parent
/// still exists.
fn end_with(parent: i32) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::run)?;
    match getppid() {
        Some(pid) if pid.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Failure::run("the process that started this node is gone")),
    }
}

fn start_log(level: tracing::Level) {
    let log =
        tracing_subscriber::fmt().with_max_level(level).with_writer(stderr).with_ansi(stderr().is_terminal());
    // If the process has a logger, it keeps it.
    let _ = log.try_init();
}
