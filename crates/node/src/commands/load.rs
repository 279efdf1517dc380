//! `quorate load`: the load generator against a running cluster.

use super::{cluster_file, cluster_info, open_cluster};
use crate::config::parse_seconds;
use crate::exit::Failure;
use crate::keys;
use crate::load::{Generator, LoadOptions, Mix, Next, Pace, Progress, Summary, Watch};
use crate::out;
use crate::service::Service;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use quorate_client::Audience;
use quorate_client::driver::ClientPool;
use std::path::PathBuf;
use std::time::Duration;

/// Keys that clients share where a history is written.
const SHARED_KEYS: u64 = 256;

/// Arguments of `quorate load`.
#[derive(Args, Debug)]
pub struct LoadArgs {
    /// The cluster's file, or its folder.
    #[arg(long, default_value = "cluster.toml", value_parser = cluster_file)]
    cluster: PathBuf,
    /// The admin client's key; default: `clients/admin.key` beside the cluster's file.
    #[arg(long)]
    admin_key: Option<PathBuf>,
    /// Open loop: requests in a second, whatever the answers do.
    #[arg(long, conflicts_with = "in_flight")]
    rate: Option<f64>,
    /// Closed loop: requests without an answer.
    #[arg(long)]
    in_flight: Option<usize>,
    /// Clients, each with a key and session of its own, that take turns.
    #[arg(long, default_value_t = 1)]
    clients: usize,
    /// Requests in a bundle; 0: whatever waits when one can be sent.
    #[arg(long, default_value_t = 0)]
    bundle: u32,
    /// Who is sent a bundle at first: whoever leads (`leader`), one replica (its number), or `all`. What has no answer in
    /// time goes to all in any case.
    #[arg(long, default_value = "leader", value_name = "leader|all|N")]
    send_to: Audience,
    /// Bytes of one request.
    #[arg(long, default_value_t = 128)]
    request_bytes: usize,
    /// Bytes of one reply; makes requests that change nothing and only echo.
    #[arg(long)]
    reply_bytes: Option<u32>,
    /// Different keys [default: 10000].
    #[arg(long)]
    keys: Option<u64>,
    /// Share of reads, 0 to 1 [default: 0].
    #[arg(long)]
    read_share: Option<f64>,
    /// Seconds that count; 500ms and 2m are as good.
    #[arg(long, value_name = "DURATION", default_value = "10", value_parser = parse_seconds)]
    seconds: Duration,
    /// Seconds before that; 500ms and 2m are as good.
    #[arg(long, value_name = "DURATION", default_value = "3", value_parser = parse_seconds)]
    warmup: Duration,
    /// Requests to build and sign before the run, which ends when they are used up [default: none].
    #[arg(long)]
    presign: Option<usize>,
    /// Decides keys and operations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes a JSON line per operation to this file, for `quorate judge`; operations are then puts and increments
    /// on keys that belong to one client each, and all kinds on keys that they share. Every key is new, and read at
    /// the end.
    #[arg(long)]
    history: Option<PathBuf>,
    /// One JSON object at the end.
    #[arg(long)]
    json: bool,
}

impl LoadArgs {
    /// What an option would be ignored for is an error: nobody shall believe in figures of something else.
    fn check_mix(&self) -> Result<(), Failure> {
        let keys = ("--keys", self.keys.is_some());
        let reads = ("--read-share", self.read_share.is_some());
        let history = [
            keys,
            reads,
            ("--reply-bytes", self.reply_bytes.is_some()),
            ("--presign", self.presign.is_some()),
        ];
        let refuse = |options: &[(&str, bool)], why: &str| match options.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(Failure::usage(format!("{why}; leave out {name}"))),
            None => Ok(()),
        };
        if self.history.is_some() {
            refuse(&history, "--history has operations and keys of its own, signed as they are called")?;
        }
        if self.reply_bytes.is_some() {
            refuse(&[keys, reads], "--reply-bytes makes requests that only echo")?;
        }
        Ok(())
    }

    fn options(&self) -> Result<LoadOptions, Failure> {
        if self.clients == 0 {
            return Err(Failure::usage("--clients: expected at least 1"));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate < 1e9)) {
            return Err(Failure::usage("--rate: expected a number of requests in a second above 0"));
        }
        self.check_mix()?;
        let read_share = self.read_share.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&read_share) {
            return Err(Failure::usage("--read-share: expected 0 to 1"));
        }
        let mix = if self.history.is_some() {
            // What earlier runs have left in the store is not known, so the keys are others each time.
            let run = getrandom::u32().map_err(Failure::run)?;
            Mix::Judged { run, spread: 4_096, shared: SHARED_KEYS, request_bytes: self.request_bytes }
        } else if let Some(reply_bytes) = self.reply_bytes {
            Mix::Echo { request_bytes: self.request_bytes, reply_bytes }
        } else {
            Mix::Kv {
                keys: self.keys.unwrap_or(10_000),
                request_bytes: self.request_bytes,
                reads_per_mille: per_mille(read_share),
            }
        };
        Ok(LoadOptions {
            clients: self.clients,
            seed: self.seed,
            bundle: (self.bundle > 0).then_some(self.bundle),
            pace: match self.rate {
                Some(rate) => Pace::Open { rate },
                None => Pace::Closed { in_flight: self.in_flight.unwrap_or(1) },
            },
            mix,
            warmup: self.warmup,
            seconds: self.seconds,
            presign: self.presign.unwrap_or(0),
            audience: self.send_to,
            history: self.history.is_some(),
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

/// Offers the load and prints what came of it.
///
/// # Errors
/// When the arguments are wrong, the cluster does not answer, or requests have no answer at the end.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let config = open_cluster(&args.cluster)?;
    config.check_service(Service::KV)?;
    let folder = args.cluster.parent().map(PathBuf::from).unwrap_or_default();
    let admin = args.admin_key.clone().unwrap_or_else(|| folder.join("clients").join("admin.key"));
    let admin = keys::read_private(&admin).map_err(Failure::usage)?;
    let pool = ClientPool::new(cluster_info(&config)?).map_err(Failure::run)?;
    let mut generator = Generator::connect(pool, admin, options).map_err(Failure::run)?;
    let mut bar = Bar::new();
    let summary = generator.run(&mut bar).map_err(Failure::run)?;
    bar.finish();
    if let Some(file) = &args.history {
        generator.read_back().map_err(Failure::run)?;
        let written = generator.take_history().save(file);
        written.map_err(|error| Failure::run(format!("{}: {error}", file.display())))?;
    }
    show(&summary, args.json)?;
    if summary.acknowledged == 0 {
        return Err(Failure::run("no request was answered"));
    }
    if summary.errors > 0 {
        return Err(Failure::run(format!("{} requests have no answer", summary.errors)));
    }
    Ok(())
}

fn show(summary: &Summary, json: bool) -> Result<(), Failure> {
    if json { out::json(summary) } else { out::bytes(summary.to_string().as_bytes()) }
}

/// A progress bar on a terminal, nothing elsewhere.
pub struct Bar {
    bar: ProgressBar,
}

impl Bar {
    /// A bar that has not begun.
    #[must_use]
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} {bar:40} {msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Shows where a run stands, with a remark.
    pub fn show(&self, progress: &Progress, remark: &str) {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.bar.set_length(millis(progress.planned));
        self.bar.set_position(millis(progress.elapsed).min(millis(progress.planned)));
        let (sent, done) = (progress.sent, progress.acknowledged);
        self.bar.set_message(format!("{sent} sent, {done} acknowledged {remark}"));
    }

    /// Prints a line above the bar.
    pub fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            let _ = out::line(text);
        } else {
            self.bar.println(text);
        }
    }

    /// Whether there is no terminal to draw on.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.bar.is_hidden()
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Watch for Bar {
    fn look(&mut self, progress: &Progress) -> Next {
        self.show(progress, "");
        Next::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn options(line: &str) -> Result<LoadOptions, Failure> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().args.options()
    }

    #[test]
    fn an_option_that_would_be_ignored_is_an_error() {
        for ignored in ["--keys 10000", "--read-share 0", "--reply-bytes 1", "--presign 0"] {
            let failure = options(&format!("--history x {ignored}")).unwrap_err();
            assert_eq!(failure.code(), 2);
            let name = ignored.split_whitespace().next().unwrap();
            let text = failure.to_string();
            assert!(text.contains("--history") && text.ends_with(&format!("leave out {name}")), "{text}");
        }
        assert!(options("--reply-bytes 1 --keys 7").is_err());
        assert!(options("--history x --request-bytes 64 --clients 3 --bundle 4 --rate 100").is_ok());
        assert!(options("--reply-bytes 1 --presign 7").is_ok());
        let plain = options("").unwrap();
        assert_eq!(plain.mix, Mix::Kv { keys: 10_000, request_bytes: 128, reads_per_mille: 0 });
    }
}
