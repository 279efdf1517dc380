//! `quorate node`: one replica.

use crate::config::NodeConfig;
use crate::exit::Failure;
use crate::serve::{Prepared, serve_on_its_disk};
use crate::service::Service;
use crate::signals::StopRequest;
use quorate_app::{APPLICATION_PANIC, panic_text};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io::{IsTerminal, stderr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Which node to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The node's configuration
    #[arg(long)]
    config: PathBuf,
    /// Run although client or link authentication or durability is switched off
    #[arg(long)]
    insecure: bool,
    /// End together with this process
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,
}

/// Runs the command: returns when the node must stop.
///
/// # Errors
/// Wrong configuration, a folder or an address of somebody else, or why the node stopped.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    if let Some(parent) = args.parent {
        end_with(parent)?;
    }
    let config = NodeConfig::load(&args.config)?;
    config.cluster.check_service(service)?;
    if let Some(error) = config.insecure().filter(|_| !args.insecure) {
        return Err(error.into());
    }
    start_log(config.log);
    // A node that opens has said nothing yet: a signal ends it at once.
    let stop =
        StopRequest::watch().map_err(|error| Failure::run(format!("cannot watch signals: {error}")))?;
    let node = Prepared::open(config, service, args.parent.is_some())?;
    // The replica and all that it holds end with the panic: nothing goes on with half of a change.
    let ended = catch_unwind(AssertUnwindSafe(|| serve_on_its_disk(node, &stop)));
    ended.unwrap_or_else(|panic| Err(panicked(panic_text(&*panic))))
}

/// Why a node has panicked. Where that was in the code stands in the lines before, which the panic itself has written.
fn panicked(text: &str) -> Failure {
    if text.starts_with(APPLICATION_PANIC) {
        let advice =
            "all replicas that execute this do the same; docs/building-a-service.md says what can be done";
        return Failure::run(format!("{text} ({advice})"));
    }
    Failure::run(format!("this program has panicked, which is a bug of it: {text}"))
}

/// The process ends when `parent` does. The call is made by the child, because only then can it see that the
/// parent was gone before.
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
    // A second logger in one process is the first one.
    let _ = log.try_init();
}
