//! The program `quorate`.

use clap::{Parser, Subcommand};
use quorate_node::alloc::Counting;
use quorate_node::commands::{demo, exam, judge, kv, load, machine, sim, torture, twins};
use quorate_node::exit;
use quorate_node::service::{self, Service};
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
    #[command(flatten)]
    Service(service::Command),
    /// Read and write the replicated key-value store
    Kv(kv::Args),
    /// Offer load to a running cluster and measure
    Load(load::LoadArgs),
    /// Look for an order of operations that explains what clients saw
    Judge(judge::Args),
    /// Measure what this machine can do
    Machine(machine::Args),
    /// Run a protocol in the simulator, under random faults that a seed decides
    Sim(sim::Args),
    /// Examine a protocol: all scenarios, several sizes, many seeds; long exams go on where they stopped
    Exam(exam::Args),
    /// Run a protocol in the simulator, systematically under attack by twins
    Twins(twins::Args),
    /// Kill and pause replicas, and kill all at once, under load for as long as asked, and judge
    Torture(torture::TortureArgs),
}

fn main() -> ExitCode {
    exit::main(|cli: Cli| match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Service(command) => command.run(Service::KV),
        Command::Kv(args) => kv::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Machine(args) => machine::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Exam(args) => exam::run(&args),
        Command::Twins(args) => twins::run(&args),
        Command::Torture(args) => torture::run(&args),
    })
}
