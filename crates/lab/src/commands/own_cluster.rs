//! Options, start and output of the commands that run a cluster of their own: `demo` and `torture`.

use crate::load::Verdict;
use crate::trial;
use clap::Args;
use quorate_consensus::Entry;
use quorate_node::commands::arguments::tolerates_one;
use quorate_node::config::{Settings, choice, parse_replicas, protocol_names, replicas_or_default};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::processes::Processes;
use quorate_node::service::Service;
use quorate_node::testnet::Testnet;
use quorate_types::{ClientAuth, ReplicaId};
use std::path::Path;

/// Number of clients by default.
pub(super) const CLIENTS: usize = 16;
/// Digits of a state digest that are printed.
const DIGEST_DIGITS: usize = 16;

/// Options of a cluster that exists for one run.
#[derive(Args, Debug)]
pub(super) struct OwnClusterArgs {
    /// Protocol
    #[arg(long, default_value = "pbft", value_parser = choice(protocol_names()))]
    pub(super) protocol: &'static Entry,
    /// Number of replicas [default: the smallest number that tolerates one fault]
    #[arg(long, value_parser = parse_replicas::<u16>)]
    pub(super) n: Option<u16>,
    /// Number of clients
    #[arg(long, default_value_t = CLIENTS)]
    pub(super) clients: usize,
    /// Keep the cluster's folder, and print its path
    #[arg(long)]
    pub(super) keep: bool,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) settings: Settings,
}

impl OwnClusterArgs {
    pub(super) fn n(&self) -> u16 {
        replicas_or_default(self.n, self.protocol)
    }

    /// Checks the numbers of replicas, clients and requests in flight.
    pub(super) fn check(&self, in_flight: usize) -> Result<(), Failure> {
        for (name, value) in [("clients", self.clients), ("in-flight", in_flight)] {
            if value == 0 {
                return Err(Failure::usage(format!("--{name} 0: expected at least 1")));
            }
        }
        tolerates_one(self.protocol, usize::from(self.n()))
    }

    /// Creates the cluster's files in `dir`. From the beginning of this function on, a signal stops the nodes and leaves no
    /// files.
    pub(super) fn create(&self, dir: &Path, service: Service) -> Result<(Processes, Testnet), Failure> {
        let binary = std::env::current_exe().map_err(Failure::run)?;
        let n = self.n();
        let nodes = Processes::new(binary, dir, (0..n).map(ReplicaId), false);
        nodes.watch_signals()?;
        let auth = ClientAuth::Signature;
        let testnet = trial::make(dir, service, self.protocol, n, auth, &self.settings)?;
        Ok((nodes, testnet))
    }

    /// Describes the replicas, and the bound on delays that the protocol assumes.
    pub(super) fn describe(&self, testnet: &Testnet) -> Result<String, Failure> {
        let bound = testnet.bound()?.map_or_else(String::new, |bound| format!(", {bound}"));
        Ok(format!("{} replicas of {}{bound}", self.n(), self.protocol.spec.name))
    }
}

/// Prints the findings and the counts of a verdict.
pub(super) fn print_verdict(verdict: &Verdict) -> Result<(), Failure> {
    verdict.findings.iter().try_for_each(out::line)?;
    for (name, count) in [
        ("lost", verdict.lost),
        ("executed twice", verdict.doubled),
        ("wrong", verdict.wrong),
        ("keys not linearizable", verdict.illegal),
        ("keys too hard to judge", verdict.undecided),
    ] {
        out::line(format!("{name:<24} {count}"))?;
    }
    Ok(())
}

/// Returns the printed beginning of a state digest.
pub(super) fn short(digest: &str) -> String {
    digest.chars().take(DIGEST_DIGITS).collect()
}
