//! The commands of every program that serves, and the `main` of a program that serves its own application.
//!
//! ```no_run
//! use quorate_node::Service;
//!
//! fn main() -> std::process::ExitCode {
//!     // Any `Application + Default`; `quorate` itself serves this one.
//!     quorate_node::main(Service::of::<quorate_app::Kv>())
//! }
//! ```
//!
//! All nodes of a cluster run the same program: genesis names the service, and a node with another service refuses to start.

use crate::commands::{backup, call, inspect, node, restore, status, stop, testnet, up};
use crate::exit::{self, Failure};
use crate::service::Service;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Commands that are the same for every service.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a cluster: keys, configuration, one formatted folder for each node
    Testnet(testnet::Args),
    /// Run one replica
    Node(node::Args),
    /// Run a local cluster until Ctrl-C, one process per replica
    Up(up::Args),
    /// Report the state of each replica of a cluster
    Status(status::StatusArgs),
    /// Stop all nodes of a cluster whose configuration allows it, for tests
    Stop(stop::Args),
    /// Report what a stopped node has on its disk, what is damaged, and which peers it needs
    Inspect(inspect::Args),
    /// Copy a checkpoint with its certificate from a node to a folder, and verify it
    Backup(backup::Args),
    /// Verify a backup, and make a new cluster that begins with its state
    Restore(restore::Args),
    /// Send one operation to the service and print its result
    Call(call::Args),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The failure of the command.
    pub fn run(&self, service: Service) -> Result<(), Failure> {
        match self {
            Self::Testnet(args) => testnet::run(args, service),
            Self::Node(args) => node::run(args, service),
            Self::Up(args) => up::run(args, service),
            Self::Status(args) => status::run(args),
            Self::Stop(args) => stop::run(args),
            Self::Inspect(args) => inspect::run(args, service),
            Self::Backup(args) => backup::run(args, service),
            Self::Restore(args) => restore::run(args, service),
            Self::Call(args) => call::run(args, service),
        }
    }
}

/// A replicated service that stays correct and available while up to f of its replicas fail or lie
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Reads the command line and runs the command, for a program that serves `service`.
#[must_use]
pub fn main(service: Service) -> ExitCode {
    exit::main(|cli: Cli| cli.command.run(service))
}
