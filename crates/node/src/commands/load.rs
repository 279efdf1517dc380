//! `quorate load`: the load generator against a running cluster.

mod ranges;
#[cfg(test)]
mod tests;

use super::{cluster_file, cluster_info, open_cluster};
use crate::config::parse_seconds;
use crate::exit::Failure;
use crate::keys;
use crate::load::{Generator, History, LoadOptions, Mix, Next, Pace, Progress, Summary, Watch};
use crate::out;
use crate::service::Service;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use quorate_client::Audience;
use quorate_client::driver::ClientPool;
use quorate_types::Genesis;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What keys begin with unless asked otherwise.
const PREFIX: &str = "load/";
/// Keys that clients share where a history is written.
const SHARED_KEYS: u64 = 256;

/// What is said after the options.
const RULE: &str = "A load of a fixed rate is carried where 95 % of the requests due in the measured time had a good answer \
                    in it, or within 100 ms of being due. Where it was not, or a request had no good answer, the exit code \
                    is 1. docs/load.md says what every figure means.";

/// Arguments of `quorate load`.
#[derive(Args, Debug)]
#[command(after_help = RULE)]
pub struct LoadArgs {
    /// The cluster's file, or its folder.
    #[arg(long, default_value = "cluster.toml", value_parser = cluster_file)]
    cluster: PathBuf,
    /// The admin client's key; default: `clients/admin.key` beside the cluster's file.
    #[arg(long)]
    admin_key: Option<PathBuf>,
    /// Open loop: requests in a second, whatever the answers do, 0.001 to 10000000.
    #[arg(long, conflicts_with = "in_flight", allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Closed loop: requests without an answer, 1 to 1000000 [default: 1].
    #[arg(long)]
    in_flight: Option<u64>,
    /// Clients, each with a key and session of its own, that take turns: 1 to 16383, and no more than the cluster keeps
    /// sessions (`clients_max`).
    #[arg(long, default_value_t = 1)]
    clients: u64,
    /// Requests in a bundle, 0 to 65536; 0: whatever waits when one can be sent.
    #[arg(long, default_value_t = 0)]
    bundle: u64,
    /// Who is sent a bundle at first: whoever leads (`leader`), one replica (its number, below n), or `all`. What has no
    /// answer in time goes to all in any case.
    #[arg(long, default_value = "leader", value_name = "leader|all|N")]
    send_to: Audience,
    /// Bytes of one request that writes, 9 to 1048576, and enough for its key.
    #[arg(long, default_value_t = 128)]
    request_bytes: u64,
    /// Bytes of one reply, 0 to 1048576; makes requests that change nothing and only echo.
    #[arg(long)]
    reply_bytes: Option<u64>,
    /// Different keys, 1 to 1000000000 [default: 10000].
    #[arg(long)]
    keys: Option<u64>,
    /// What every key begins with [default: load/]. With --history the name of the run follows. Such keys stay in the
    /// store; `docs/load.md` says how they are removed.
    #[arg(long)]
    prefix: Option<String>,
    /// Share of reads, 0 to 1 [default: 0].
    #[arg(long, allow_negative_numbers = true)]
    read_share: Option<f64>,
    /// Seconds that count, 0.001 to 1000000; 500ms and 2m are as good.
    #[arg(long, value_name = "DURATION", default_value = "10", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Duration,
    /// Seconds before that, 0 to 1000000; 500ms and 2m are as good.
    #[arg(long, value_name = "DURATION", default_value = "3", value_parser = parse_seconds, allow_negative_numbers = true)]
    warmup: Duration,
    /// Requests to build and sign before the run, which ends when they are used up, 1 to 10000000 [default: none].
    #[arg(long)]
    presign: Option<u64>,
    /// Decides keys and operations; any number of 64 bits.
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
            let prefix = ("--prefix", self.prefix.is_some());
            refuse(&[keys, reads, prefix], "--reply-bytes makes requests that only echo")?;
        }
        Ok(())
    }

    /// What to offer, all options checked by themselves and together.
    fn options(&self) -> Result<LoadOptions, Failure> {
        self.check_mix()?;
        ranges::check_each(self)?;
        let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        let bundle = u32::try_from(self.bundle).unwrap_or(u32::MAX);
        let options = LoadOptions {
            clients: count(self.clients),
            seed: self.seed,
            bundle: (bundle > 0).then_some(bundle),
            pace: match self.rate {
                Some(rate) => Pace::Open { rate },
                None => Pace::Closed { in_flight: count(self.in_flight.unwrap_or(1)) },
            },
            mix: self.mix()?,
            warmup: self.warmup,
            seconds: self.seconds,
            presign: count(self.presign.unwrap_or(0)),
            audience: self.send_to,
            history: self.history.is_some(),
        };
        ranges::check_together(&options)?;
        Ok(options)
    }

    fn mix(&self) -> Result<Mix, Failure> {
        let request_bytes = usize::try_from(self.request_bytes).unwrap_or(usize::MAX);
        let prefix = self.prefix.clone().unwrap_or_else(|| PREFIX.to_owned());
        Ok(if self.history.is_some() {
            // What earlier runs have left in the store is not known, so the keys are others each time.
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

/// Offers the load and prints what came of it.
///
/// # Errors
/// When the arguments are wrong, a file cannot be written, the cluster does not answer, requests have no good answer at the
/// end, or the load was not carried.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let config = open_cluster(&args.cluster)?;
    config.check_service(Service::KV)?;
    ranges::check_cluster(&options, &config)?;
    let clients_max = config.genesis.clients_max;
    ranges::check_sessions(options.clients, clients_max)?;
    let folder = args.cluster.parent().map(PathBuf::from).unwrap_or_default();
    let admin = args.admin_key.clone().unwrap_or_else(|| folder.join("clients").join("admin.key"));
    let admin = keys::read_private(&admin).map_err(Failure::usage)?;
    let output = args.history.as_deref().map(Output::open).transpose()?;
    let pool = ClientPool::new(cluster_info(&config)?).map_err(Failure::run)?;
    let mut generator = Generator::connect(pool, admin, options).map_err(Failure::run)?;
    let mut bar = Bar::new();
    let summary = generator.run(&mut bar).map_err(Failure::run)?;
    bar.finish();
    // Whatever becomes of the history, what was measured is said.
    let kept = output.map_or(Ok(()), |output| {
        let read = generator.read_back().map_err(Failure::run);
        output.save(&generator.take_history()).and(read)
    });
    show(&summary, args.json)?;
    kept?;
    check(&summary, &config.genesis, generator.unanswered())
}

/// Whether a run came to what was asked of it.
fn check(summary: &Summary, genesis: &Genesis, unanswered: Option<&str>) -> Result<(), Failure> {
    if summary.errors > 0 {
        let all = summary.acknowledged.saturating_add(summary.errors);
        let kinds = &summary.errors_by_kind;
        let mut text = format!("{} of {all} requests have no good answer: {kinds}", summary.errors);
        if summary.sessions_lost > 0 || kinds.of("SessionLost") > 0 {
            text.push_str(&format!(
                "; sessions were lost: the cluster keeps clients_max = {} of them, those of all clients, and one more \
                 displaces another",
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
    if summary.acknowledged == 0 {
        return Err(Failure::run("no request was answered"));
    }
    if !summary.is_carried() {
        return Err(Failure::run(format!("the load was not carried: {}", summary.carried_text())));
    }
    Ok(())
}

/// A file that is to be written at the end. It is opened before anything starts, and keeps what it holds until then.
struct Output {
    name: PathBuf,
    file: File,
}

impl Output {
    fn open(name: &Path) -> Result<Self, Failure> {
        let file = File::options().create(true).write(true).truncate(false).open(name);
        let file = file.map_err(|error| Failure::usage(format!("{}: {error}", name.display())))?;
        Ok(Self { name: name.to_owned(), file })
    }

    fn save(self, history: &History) -> Result<(), Failure> {
        let mut out = BufWriter::new(&self.file);
        // What cannot be cut, a pipe for example, holds nothing yet.
        let _ = self.file.set_len(0);
        let written = history.write(&mut out).and_then(|()| out.flush());
        written.map_err(|error| Failure::run(format!("{}: {error}", self.name.display())))
    }
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
