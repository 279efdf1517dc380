//! `quorate load`: the load generator against a running cluster.

mod arguments;
mod ranges;
#[cfg(test)]
mod tests;

pub use arguments::{LoadArgs, OfferArgs};

use super::load_bar::LoadBar;
use crate::history_file::HistoryOutput;
use crate::load::{Generator, LoadOptions, LoadSummary, Mix, Next, Progress};
use crate::service_load::ServiceLoad;
use quorate_client::driver::ClientPool;
use quorate_node::commands::stop;
use quorate_node::config::ClusterConfig;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::service::Service;
use quorate_types::Genesis;
use std::path::Path;

/// Offers the load of the key-value store and prints the result.
///
/// # Errors
/// Fails when the arguments are wrong, when a file cannot be written, when the cluster does not answer, when requests have no
/// good answer at the end, when the load was not carried, or when a node does not stop after the run.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    offer(&args.offer, Service::KV, options(args)?, args.history.as_deref())
}

/// Offers the load of another service and prints the result.
///
/// # Errors
/// Fails as [`run`] does.
pub fn run_service(
    args: &OfferArgs,
    service: Service,
    load: &'static dyn ServiceLoad,
) -> Result<(), Failure> {
    ranges::check_offer(args)?;
    let options = args.options(Mix::Service(load), false);
    ranges::check_together(&options)?;
    offer(args, service, options, None)
}

/// Returns the load to offer. All options are checked, alone and together.
fn options(args: &LoadArgs) -> Result<LoadOptions, Failure> {
    args.check_mix()?;
    ranges::check_each(args)?;
    let options = args.offer.options(args.mix()?, args.history.is_some());
    ranges::check_together(&options)?;
    Ok(options)
}

fn offer(
    args: &OfferArgs,
    service: Service,
    options: LoadOptions,
    history: Option<&Path>,
) -> Result<(), Failure> {
    let config = ClusterConfig::load(&args.cluster)?;
    config.check_service(service)?;
    ranges::check_cluster(&options, &config)?;
    let clients_max = config.genesis.clients_max;
    ranges::check_sessions(options.clients, clients_max)?;
    let admin = stop::read_admin_key(&args.cluster, args.admin_key.as_deref())?;
    let output = history.map(HistoryOutput::open).transpose()?;
    let pool = ClientPool::new(config.client_info()).map_err(Failure::run)?;
    let mut generator = Generator::connect(pool, admin.clone(), options).map_err(Failure::run)?;
    let bar = LoadBar::new();
    let show_progress = &mut |progress: &Progress| {
        bar.show(progress, "");
        Next::Go
    };
    let summary = generator.run(show_progress).map_err(Failure::run)?;
    bar.finish();
    // The figures are printed even if the history cannot be written.
    let kept = output.map_or(Ok(()), |mut output| {
        let read = generator.read_back().map_err(Failure::run);
        output.append(&generator.take_history()).and(read)
    });
    show(&summary, args.json)?;
    let is_good = check(&summary, &config.genesis, generator.unanswered());
    drop(generator);
    let stopped =
        if args.stop_cluster { stop::stop_all(config.client_info(), &admin, stop::PATIENCE) } else { Ok(()) };
    kept.and(is_good).and(stopped)
}

/// Checks that all requests have good answers and that the load was carried.
fn check(summary: &LoadSummary, genesis: &Genesis, unanswered: Option<&str>) -> Result<(), Failure> {
    if summary.counts.errors > 0 {
        let all = summary.counts.acknowledged.saturating_add(summary.counts.errors);
        let kinds = &summary.counts.errors_by_kind;
        let mut text = format!("{} of {all} requests have no good answer: {kinds}", summary.counts.errors);
        if summary.counts.sessions_lost > 0 || kinds.of("SessionLost") > 0 {
            text.push_str(&format!(
                "; sessions were lost: the cluster keeps clients_max = {} sessions of all clients, and a further session \
                 displaces another one",
                genesis.clients_max
            ));
        }
        if kinds.of("NoRoom") > 0 || kinds.of("TooLarge") > 0 {
            text.push_str(&format!(
                "; the results of one bundle may have reply_bytes_max = {} bytes; --bundle 1 gives each request a bundle",
                genesis.bodies.reply_bytes_max
            ));
        }
        if let Some(unanswered) = unanswered {
            text.push_str(&format!("; without an answer: {unanswered}"));
        }
        return Err(Failure::run(text));
    }
    if summary.counts.acknowledged == 0 {
        return Err(Failure::run("no request was answered"));
    }
    if !summary.is_carried() {
        return Err(Failure::run(format!("the load was not carried: {}", summary.carried_text())));
    }
    Ok(())
}

fn show(summary: &LoadSummary, json: bool) -> Result<(), Failure> {
    if json { out::json(summary) } else { out::bytes(summary.to_string().as_bytes()) }
}
