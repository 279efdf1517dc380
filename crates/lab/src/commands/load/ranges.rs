//! The valid numbers of the options of `load`: of each option, of options together, and with this cluster. All checks happen
//! before the load starts.

use super::arguments::{LoadArgs, OfferArgs};
use crate::load::numbers::float;
use crate::load::{INTERVALS_MAX, LoadOptions, Mix, Pace};
use quorate_app::KEY_BYTES_MAX;
use quorate_client::Audience;
use quorate_node::config::ClusterConfig;
use quorate_node::exit::Failure;
use quorate_types::ReplicaId;
use quorate_types::bundle::BUNDLE_HEADER_BYTES;
use std::fmt;

/// The valid numbers of an option, both ends included. The help has the same numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionRange {
    pub(super) name: &'static str,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl fmt::Display for OptionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.least, self.most)
    }
}

const fn range(name: &'static str, least: f64, most: f64) -> OptionRange {
    OptionRange { name, least, most }
}

const RATE: OptionRange = range("--rate", 0.001, 10_000_000.0);
const IN_FLIGHT: OptionRange = range("--in-flight", 1.0, 1_000_000.0);
/// One less than the clients of a connection: the admin client counts too.
const CLIENTS: OptionRange = range("--clients", 1.0, 16_383.0);
const BUNDLE: OptionRange = range("--bundle", 0.0, 65_536.0);
const REQUEST_BYTES: OptionRange = range("--request-bytes", 9.0, 1_048_576.0);
const REPLY_BYTES: OptionRange = range("--reply-bytes", 0.0, 1_048_576.0);
const KEYS: OptionRange = range("--keys", 1.0, 1_000_000_000.0);
const READ_SHARE: OptionRange = range("--read-share", 0.0, 1.0);
const ZIPF_EXPONENT: OptionRange = range("--zipf-exponent", 0.0, 10.0);
const SECONDS: OptionRange = range("--seconds", 0.001, 1_000_000.0);
const WARMUP: OptionRange = range("--warmup", 0.0, 1_000_000.0);
const DRAIN: OptionRange = range("--drain", 0.0, 1_000_000.0);
const TIMELINE: OptionRange = range("--timeline", 0.001, 1_000_000.0);
const PRESIGN: OptionRange = range("--presign", 1.0, 10_000_000.0);

/// All options with a range. `--seed` takes any number, `--send-to` a replica of the cluster.
#[cfg(test)]
pub(super) const ALL: [OptionRange; 14] = [
    RATE,
    IN_FLIGHT,
    CLIENTS,
    BUNDLE,
    REQUEST_BYTES,
    REPLY_BYTES,
    KEYS,
    READ_SHARE,
    ZIPF_EXPONENT,
    SECONDS,
    WARMUP,
    DRAIN,
    TIMELINE,
    PRESIGN,
];

fn within(range: OptionRange, value: Option<f64>) -> Result<(), Failure> {
    match value {
        Some(value) if !(range.least..=range.most).contains(&value) => {
            Err(Failure::usage(format!("{} {value}: expected {range}", range.name)))
        }
        _ => Ok(()),
    }
}

/// Checks each option that every load has.
pub(super) fn check_offer(args: &OfferArgs) -> Result<(), Failure> {
    for (range, value) in [
        (IN_FLIGHT, args.in_flight),
        (CLIENTS, Some(args.clients)),
        (BUNDLE, Some(args.bundle)),
        (PRESIGN, args.presign),
    ] {
        within(range, value.map(float))?;
    }
    for (range, value) in [
        (RATE, args.rate),
        (SECONDS, Some(args.seconds.as_secs_f64())),
        (WARMUP, Some(args.warmup.as_secs_f64())),
        (DRAIN, Some(args.drain.as_secs_f64())),
        (TIMELINE, args.timeline.map(|interval| interval.as_secs_f64())),
    ] {
        within(range, value)?;
    }
    Ok(())
}

/// Checks each option of the store's load.
pub(super) fn check_each(args: &LoadArgs) -> Result<(), Failure> {
    check_offer(&args.offer)?;
    for (range, value) in
        [(REQUEST_BYTES, Some(args.request_bytes)), (REPLY_BYTES, args.reply_bytes), (KEYS, args.keys)]
    {
        within(range, value.map(float))?;
    }
    within(READ_SHARE, args.read_share)?;
    within(ZIPF_EXPONENT, args.zipf_exponent)?;
    if args.prefix.as_ref().is_some_and(|prefix| prefix.chars().any(char::is_control)) {
        return Err(Failure::usage("--prefix: expected no control characters"));
    }
    Ok(())
}

/// Checks the options together.
pub(super) fn check_together(options: &LoadOptions) -> Result<(), Failure> {
    let bundle = options.bundle.unwrap_or(1);
    if let Pace::Closed { in_flight } = options.pace
        && in_flight < usize::try_from(bundle).unwrap_or(usize::MAX)
    {
        return Err(Failure::usage(format!(
            "--bundle {bundle}: only {in_flight} requests may be in flight, so no bundle would be full; expected \
             --in-flight {bundle} or more"
        )));
    }
    let key_bytes = options.mix.key_bytes_max(options.clients);
    if key_bytes > KEY_BYTES_MAX {
        return Err(Failure::usage(format!(
            "--prefix: keys would have {key_bytes} bytes; the store takes at most {KEY_BYTES_MAX}"
        )));
    }
    let (bytes, least) = (options.mix.request_bytes(), options.mix.request_bytes_min(options.clients));
    if bytes < least {
        return Err(Failure::usage(format!(
            "--request-bytes {bytes}: a request with such a key has at least {least} bytes"
        )));
    }
    check_timeline(options)?;
    check_due(options)
}

/// Checks that the measured time has not too many intervals.
fn check_timeline(options: &LoadOptions) -> Result<(), Failure> {
    let Some(interval) = options.timeline else { return Ok(()) };
    let (seconds, most) = (options.seconds.as_nanos(), u128::from(INTERVALS_MAX));
    let count = seconds.div_ceil(interval.as_nanos().max(1));
    if count <= most {
        return Ok(());
    }
    let least = u64::try_from(seconds.div_ceil(most).div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Err(Failure::usage(format!(
        "--timeline {interval:?}: the measured time of {:?} has {count} such intervals, and a run reports at most {most}; \
         expected --timeline {least}ms or longer, or fewer --seconds",
        options.seconds
    )))
}

/// Checks that requests of an open loop are due in the measured time.
fn check_due(options: &LoadOptions) -> Result<(), Failure> {
    let Pace::Open { rate, .. } = options.pace else { return Ok(()) };
    if options.is_any_due() {
        return Ok(());
    }
    let presign = options.presign;
    Err(Failure::usage(if presign > 0 {
        format!("--presign {presign}: all requests are due in the warm-up, and none in the measured time")
    } else {
        format!(
            "--rate {rate}: no request is due in the measured time, from {} s to {} s",
            options.warmup.as_secs_f64(),
            options.warmup.saturating_add(options.seconds).as_secs_f64()
        )
    }))
}

/// Checks the options against the limits of the cluster.
pub(super) fn check_cluster(options: &LoadOptions, config: &ClusterConfig) -> Result<(), Failure> {
    let genesis = &config.genesis;
    let limits = &genesis.bodies;
    let n = genesis.members.len();
    if let Audience::One(ReplicaId(id)) = options.audience
        && usize::from(id) >= n
    {
        let last = n.saturating_sub(1);
        return Err(Failure::usage(format!("--send-to {id}: expected leader, all, or 0 to {last}")));
    }
    let bytes = float(u64::try_from(options.mix.request_bytes()).unwrap_or(u64::MAX));
    let bundle = f64::from(options.bundle.unwrap_or(1));
    let in_bundle = bundle * (bytes + 4.0) + float(u64::try_from(BUNDLE_HEADER_BYTES).unwrap_or(u64::MAX));
    let reply = match options.mix {
        Mix::Echo { reply_bytes, .. } => f64::from(reply_bytes),
        Mix::Kv { .. } | Mix::Judged { .. } | Mix::Service(_) => 0.0,
    };
    let bundle_text = format!("--bundle {bundle}: ");
    let bundle_name = if options.bundle.is_some() { bundle_text.as_str() } else { "" };
    for (option, value, name, limit) in [
        ("--request-bytes: a request of".to_owned(), bytes, "request_bytes_max", limits.request_bytes_max),
        (
            format!("{bundle_name}requests in a bundle:"),
            bundle,
            "bundle_requests_max",
            limits.bundle_requests_max,
        ),
        (format!("{bundle_name}bytes of a bundle:"), in_bundle, "bundle_bytes_max", limits.bundle_bytes_max),
        (
            format!("--reply-bytes: {bundle_name}bytes of results of a bundle:"),
            reply * bundle,
            "reply_bytes_max",
            limits.reply_bytes_max,
        ),
    ] {
        if value > f64::from(limit) {
            return Err(Failure::usage(format!(
                "{option} {value}; the limit of the cluster is {name} = {limit}"
            )));
        }
    }
    check_window(options, genesis.client_window)
}

/// Checks that the windows of the clients have room for the requests in flight.
fn check_window(options: &LoadOptions, window: u32) -> Result<(), Failure> {
    let (Pace::Closed { in_flight }, Some(bundle)) = (options.pace, options.bundle) else {
        return Ok(());
    };
    let clients = u64::try_from(options.clients).unwrap_or(u64::MAX);
    let most = clients.saturating_mul(u64::from(window)).saturating_mul(u64::from(bundle));
    if u64::try_from(in_flight).unwrap_or(u64::MAX) > most {
        return Err(Failure::usage(format!(
            "--in-flight {in_flight}: {clients} clients have at most {most} requests in flight, client_window = {window} \
             bundles of {bundle} each; expected fewer, or more --clients"
        )));
    }
    Ok(())
}

/// Checks that every client keeps its session. A failure is no usage error, because another cluster accepts the same options.
pub(super) fn check_sessions(clients: usize, clients_max: u32) -> Result<(), Failure> {
    if clients <= usize::try_from(clients_max).unwrap_or(usize::MAX) {
        return Ok(());
    }
    Err(Failure::run(format!(
        "--clients {clients}: the cluster keeps clients_max = {clients_max} sessions, and each further session would displace \
         another; expected --clients {clients_max} or fewer, or a cluster made with a larger clients_max"
    )))
}
