//! The program `quorate`.

use clap::{Parser, Subcommand};
use quorate_lab::commands::{
    bench, demo, exam, judge, lie, load, machine, relay, report, sim, torture, twins,
};
use quorate_node::alloc::Counting;
use quorate_node::commands::kv;
use quorate_node::exit;
use quorate_node::program;
use quorate_node::service::Service;
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
    /// Run a cluster under load, kill its leader and start it again, and report the result
    Demo(demo::DemoArgs),
    #[command(flatten)]
    Service(program::Command),
    /// Read and write the replicated key-value store
    Kv(kv::Args),
    /// Offer load to a running cluster and measure
    Load(load::LoadArgs),
    /// Run an experiment: clusters on this machine, under load, with faults; without a file the canonical workload
    Bench(bench::BenchArgs),
    /// Make the report of a benchmark from its archive, or compare two archives
    Report(report::ReportArgs),
    /// Check a recorded history for linearizability
    Judge(judge::Args),
    /// Measure the speed of this machine
    Machine(machine::Args),
    /// Measure the network: a leader broadcasts to processes on loopback, and waits for all answers
    Relay(relay::RelayArgs),
    /// Run a protocol in the simulator under random faults that a seed decides
    Sim(sim::Args),
    /// Examine a protocol: all scenarios, several sizes, many seeds; long exams can be resumed
    Exam(exam::Args),
    /// Run a protocol in the simulator under systematic attacks by twins
    Twins(twins::Args),
    /// Kill, pause and wipe replicas under load, also all at once, and judge the history
    Torture(torture::StoreTortureArgs),
    /// Run a replica that lies, to test a cluster
    Lie(lie::LieArgs),
}

fn main() -> ExitCode {
    exit::main(|cli: Cli| match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Service(command) => command.run(Service::KV),
        Command::Kv(args) => kv::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Machine(args) => machine::run(&args),
        Command::Relay(args) => relay::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Exam(args) => exam::run(&args),
        Command::Twins(args) => twins::run(&args),
        Command::Torture(args) => torture::run(&args),
        Command::Lie(args) => lie::run(&args, Service::KV),
    })
}
