//! The options of `quorate load`.

use crate::load::{KeyDistribution, LoadOptions, Mix, Pace, Spacing};
use clap::Args;
use quorate_client::Audience;
use quorate_node::commands::arguments::cluster_file;
use quorate_node::config::{choice, parse_seconds};
use quorate_node::exit::Failure;
use std::path::PathBuf;
use std::time::Duration;

/// Default prefix of keys.
const PREFIX: &str = "load/";
/// Requests in a second of a load without `--rate` and without `--in-flight`.
const RATE: f64 = 1_000.0;
/// The exponent of the benchmark YCSB.
const ZIPF_EXPONENT: f64 = 0.99;
/// The distributions of requests over keys.
const DISTRIBUTIONS: [KeyDistribution; 2] =
    [KeyDistribution::Uniform, KeyDistribution::Zipf { exponent: ZIPF_EXPONENT }];
/// Number of keys that clients share in a load with a history.
const SHARED_KEYS: u64 = 256;

/// Text after the options.
pub(super) const RULE: &str = "Without options the load is an open loop of 1,000 requests in a second. \
                    A load of a fixed rate is carried if 95 % of the requests due in the measured time had a good answer in \
                    it, or within 100 ms of being due, or if as many other requests had one. Otherwise, or if a request had no good answer, the exit code is 1. \
                    docs/load.md explains every figure.";

/// Options that the load of every service has.
#[derive(Args, Debug)]
pub struct OfferArgs {
    /// File of the cluster, or its folder.
    #[arg(long, default_value = "cluster.toml", value_parser = cluster_file)]
    pub(super) cluster: PathBuf,
    /// Key of the admin client; default: `clients/admin.key` next to the cluster's file.
    #[arg(long)]
    pub(super) admin_key: Option<PathBuf>,
    /// Open loop: requests in a second, independent of the answers, 0.001 to 10000000 [default: 1000]. The alternative is
    /// the closed loop of --in-flight.
    #[arg(long, conflicts_with = "in_flight", allow_negative_numbers = true)]
    pub(super) rate: Option<f64>,
    /// Open loop: the gaps between due times are equal (`constant`), or drawn from the exponential distribution by the seed
    /// (`poisson`) [default: constant].
    #[arg(long, conflicts_with = "in_flight", value_parser = choice(Spacing::ALL.map(|spacing| (spacing.name(), spacing)).to_vec()))]
    pub(super) arrivals: Option<Spacing>,
    /// Closed loop, in place of the open loop of --rate: requests without an answer, 1 to 1000000. Each answer makes room
    /// for the next request, so a slow cluster receives fewer requests.
    #[arg(long)]
    pub(super) in_flight: Option<u64>,
    /// Number of clients, 1 to 16383 and at most the number of sessions that the cluster keeps (`clients_max`). Clients take
    /// turns; each has a key and a session of its own.
    #[arg(long, default_value_t = 1)]
    pub(super) clients: u64,
    /// Requests in a bundle, 0 to 65536; 0: all pending requests at the time of sending.
    #[arg(long, default_value_t = 0)]
    pub(super) bundle: u64,
    /// Replicas that receive a bundle first: the leader (`leader`), one replica (its number, below n), or all (`all`). A
    /// bundle without an answer in time goes to all replicas.
    #[arg(long, default_value = "leader", value_name = "leader|all|N")]
    pub(super) send_to: Audience,
    /// Seconds of the measured time, 0.001 to 1000000; 500ms and 2m are valid too.
    #[arg(long, value_name = "DURATION", default_value = "10", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(super) seconds: Duration,
    /// Seconds of load before the measured time, 0 to 1000000; 500ms and 2m are valid too.
    #[arg(long, value_name = "DURATION", default_value = "3", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(super) warmup: Duration,
    /// Seconds after the end in which due requests may still be sent and answered, 0 to 1000000; 500ms and 2m are valid too.
    /// A request without an answer then is an error.
    #[arg(long, value_name = "DURATION", default_value = "30", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(super) drain: Duration,
    /// Report the course of the measured time in the JSON, in intervals of this length in seconds, 0.001 to 1000000; 100ms and
    /// 2m are valid too. The measured time has at most 10,000 intervals [default: no report].
    #[arg(long, value_name = "DURATION", requires = "json", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(super) timeline: Option<Duration>,
    /// Requests to build and sign before the run, 1 to 10000000 [default: none]. The run ends when they are used up.
    #[arg(long)]
    pub(super) presign: Option<u64>,
    /// Seed of the operations and of the gaps of `--arrivals poisson`; any number of 64 bits.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Print one JSON object at the end.
    #[arg(long)]
    pub(super) json: bool,
    /// Stop all nodes of the cluster after the run, as `quorate stop` does. Their node.toml has to allow it.
    #[arg(long)]
    pub(super) stop_cluster: bool,
}

impl OfferArgs {
    /// Returns the load to offer, which is not checked yet.
    pub(super) fn options(&self, mix: Mix, history: bool) -> LoadOptions {
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let bundle = u32::try_from(self.bundle).unwrap_or(u32::MAX);
        LoadOptions {
            clients: count(self.clients),
            seed: self.seed,
            bundle: (bundle > 0).then_some(bundle),
            pace: match self.in_flight {
                Some(in_flight) => Pace::Closed { in_flight: count(in_flight) },
                None => Pace::Open {
                    rate: self.rate.unwrap_or(RATE),
                    spacing: self.arrivals.unwrap_or(Spacing::Constant),
                },
            },
            mix,
            warmup: self.warmup,
            seconds: self.seconds,
            drain: self.drain,
            timeline: self.timeline,
            presign: count(self.presign.unwrap_or(0)),
            audience: self.send_to,
            history,
        }
    }
}

/// Arguments of `quorate load`.
#[derive(Args, Debug)]
#[command(after_help = RULE)]
pub struct LoadArgs {
    #[command(flatten)]
    pub(super) offer: OfferArgs,
    /// Bytes of one put, 9 to 1048576, and enough for its key.
    #[arg(long, default_value_t = 128)]
    pub(super) request_bytes: u64,
    /// Bytes of one reply, 0 to 1048576. Requests then change nothing and only echo.
    #[arg(long)]
    pub(super) reply_bytes: Option<u64>,
    /// Number of different keys, 1 to 1000000000 [default: 10000].
    #[arg(long)]
    pub(super) keys: Option<u64>,
    /// Distribution of requests over keys: all equally likely (`uniform`), or key k, from 0 on, with a probability
    /// proportional to (k + 1)^-exponent (`zipf`) [default: uniform].
    #[arg(long, value_parser = choice(DISTRIBUTIONS.map(|distribution| (distribution.name(), distribution)).to_vec()))]
    pub(super) key_distribution: Option<KeyDistribution>,
    /// Exponent of `--key-distribution zipf`, 0 to 10 [default: 0.99].
    #[arg(long, allow_negative_numbers = true)]
    pub(super) zipf_exponent: Option<f64>,
    /// Prefix of every key [default: load/]. With --history the name of the run follows. Such keys stay in the store;
    /// `docs/load.md` explains how to remove them.
    #[arg(long)]
    pub(super) prefix: Option<String>,
    /// Share of reads, 0 to 1 [default: 0].
    #[arg(long, allow_negative_numbers = true)]
    pub(super) read_share: Option<f64>,
    /// Write a JSON line for each operation to this file, for `quorate judge`. Operations are then puts and increments on
    /// keys of one client, and all kinds on keys that clients share. Every key is new, and is read at the end.
    #[arg(long)]
    pub(super) history: Option<PathBuf>,
}

impl LoadArgs {
    /// Refuses options that would be ignored, because the figures would be those of another load.
    pub(super) fn check_mix(&self) -> Result<(), Failure> {
        let keys = ("--keys", self.keys.is_some());
        let reads = ("--read-share", self.read_share.is_some());
        let distribution = ("--key-distribution", self.key_distribution.is_some());
        let exponent = ("--zipf-exponent", self.zipf_exponent.is_some());
        let history = [
            keys,
            reads,
            distribution,
            exponent,
            ("--reply-bytes", self.reply_bytes.is_some()),
            ("--presign", self.offer.presign.is_some()),
        ];
        let refuse = |options: &[(&str, bool)], why: &str| match options.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(Failure::usage(format!("{why}; leave out {name}"))),
            None => Ok(()),
        };
        if self.history.is_some() {
            refuse(&history, "--history has its own operations and keys, signed when they are sent")?;
        }
        if self.reply_bytes.is_some() {
            let prefix = ("--prefix", self.prefix.is_some());
            let ignored = [keys, reads, prefix, distribution, exponent];
            refuse(&ignored, "--reply-bytes makes requests that only echo")?;
        }
        if !matches!(self.key_distribution, Some(KeyDistribution::Zipf { .. })) {
            refuse(&[exponent], "only --key-distribution zipf has an exponent")?;
        }
        Ok(())
    }

    /// Returns the mixture of operations.
    pub(super) fn mix(&self) -> Result<Mix, Failure> {
        let request_bytes = usize::try_from(self.request_bytes).unwrap_or(usize::MAX);
        let prefix = self.prefix.clone().unwrap_or_else(|| PREFIX.to_owned());
        Ok(if self.history.is_some() {
            // The store may have keys of earlier runs, so each run has other keys.
            let run = getrandom::u32().map_err(Failure::run)?;
            Mix::Judged {
                prefix: format!("{prefix}{run:08x}/"),
                spread: 4_096,
                shared: SHARED_KEYS,
                request_bytes,
            }
        } else if let Some(reply_bytes) = self.reply_bytes {
            Mix::Echo { request_bytes, reply_bytes: u32::try_from(reply_bytes).unwrap_or(u32::MAX) }
        } else {
            Mix::Kv {
                prefix,
                keys: self.keys.unwrap_or(10_000),
                distribution: match (self.key_distribution, self.zipf_exponent) {
                    (Some(KeyDistribution::Zipf { .. }), Some(exponent)) => {
                        KeyDistribution::Zipf { exponent }
                    }
                    (given, _) => given.unwrap_or(KeyDistribution::Uniform),
                },
                request_bytes,
                reads_per_mille: per_mille(self.read_share.unwrap_or(0.0)),
            }
        })
    }
}

#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked: 0 to 1"
)]
fn per_mille(share: f64) -> u32 {
    (share * 1_000.0).round() as u32
}
