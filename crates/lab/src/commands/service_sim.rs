//! `sim` of a program with an application of its own: the service inside simulated replicas, for each seed.

use crate::commands::seeds::Seeds;
use crate::service_load::ServiceLoad;
use crate::service_sim::{self, ServiceWork};
use quorate_consensus::Entry;
use quorate_node::config::{choice, protocol_names};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::service::Service;
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Protocol of the replicas
    #[arg(long, default_value = "pbft", value_parser = choice(protocol_names()))]
    protocol: &'static Entry,
    /// A number of seeds from 0 on, or a range of them: 1000, 5000..6000
    #[arg(long, default_value = "20", conflicts_with = "seed")]
    seeds: Seeds,
    /// One seed
    #[arg(long)]
    seed: Option<u64>,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the seeds until one fails.
///
/// # Errors
/// Fails when the service is not deterministic, when a snapshot differs from its state, or when an oracle fires.
pub fn run(args: &Args, service: Service, load: &'static dyn ServiceLoad) -> Result<(), Failure> {
    let seeds = match args.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => args.seeds.0.clone(),
    };
    let count = seeds.end.saturating_sub(seeds.start);
    let mut total = ServiceWork::default();
    for seed in seeds {
        let run = || service_sim::run(args.protocol, service, load, seed);
        // The panic has printed its place.
        let ran =
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err("the service panics".to_owned()));
        total.add(ran.map_err(|finding| Failure::run(format!("seed {seed}: {finding}")))?);
    }
    let ServiceWork { operations, snapshots, restarts } = total;
    if args.json {
        return out::json(&json!({
            "seeds": count, "operations": operations, "snapshots": snapshots, "restarts": restarts
        }));
    }
    out::line(format!(
        "{count} seeds: {operations} operations applied twice, {snapshots} snapshots restored and compared, {restarts} \
         restarts from a snapshot: all equal"
    ))
}
