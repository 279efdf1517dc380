//! The program `quorate`.

use clap::{Parser, Subcommand};
use quorate_node::alloc::Counting;
use quorate_node::commands::{demo, kv, load, machine, node, sim, status, testnet, up};
use quorate_node::exit::report;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Byzantine-fault-tolerant state machine replication
#[derive(Parser)]
#[command(name = "quorate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show it: a cluster, a workload, a replica killed in the middle, and what came of it
    Demo(demo::DemoArgs),
    /// Make a cluster: keys, configuration, one formatted folder for each node
    Testnet(testnet::Args),
    /// Run one replica
    Node(node::Args),
    /// Run a local cluster until Ctrl-C, one process per replica
    Up(up::Args),
    /// Read and write the replicated key-value store
    Kv(kv::Args),
    /// Offer load to a running cluster and measure
    Load(load::LoadArgs),
    /// Say what the replicas of a cluster are doing
    Status(status::StatusArgs),
    /// Measure what this machine can do
    Machine(machine::Args),
    /// Run a protocol in the simulator, under random faults that a seed decides
    Sim(sim::Args),
}

fn main() -> ExitCode {
    report(match Cli::parse().command {
        Command::Demo(args) => demo::run(&args),
        Command::Testnet(args) => testnet::run(&args),
        Command::Node(args) => node::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Kv(args) => kv::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Machine(args) => machine::run(&args),
        Command::Sim(args) => sim::run(&args),
    })
}
