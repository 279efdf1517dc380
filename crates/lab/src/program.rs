//! The `main` of a program that serves and tests an application of its own.

use crate::commands::{lie, load, service_sim, torture};
use crate::service_load::ServiceLoad;
use clap::{Parser, Subcommand};
use quorate_node::service::Service;
use quorate_node::{exit, program};
use std::process::ExitCode;

/// A replicated service that stays correct and available while up to f of its replicas fail or lie
#[derive(Parser)]
#[command(arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Node(program::Command),
    /// Offer load to a running cluster and measure
    Load(load::OfferArgs),
    /// Kill, pause and wipe replicas under load, also all at once, and compare their states
    Torture(torture::TortureArgs),
    /// Run a replica that lies, to test a cluster
    Lie(lie::LieArgs),
    /// Run the service inside simulated replicas and check that it is deterministic
    Sim(service_sim::Args),
}

/// Reads the command line and runs the command of a program that serves `service`. The program has the commands of
/// [`quorate_node::main`], and `load`, `torture`, `lie` and `sim`, whose operations come from
/// `load`.
#[must_use]
pub fn main(service: Service, load: &'static dyn ServiceLoad) -> ExitCode {
    exit::main(|cli: Cli| match cli.command {
        Command::Node(command) => command.run(service),
        Command::Load(args) => load::run_service(&args, service, load),
        Command::Torture(args) => torture::run_service(&args, service, load),
        Command::Lie(args) => lie::run(&args, service),
        Command::Sim(args) => service_sim::run(&args, service, load),
    })
}
