//! `quorate torture`: a cluster whose replicas are killed, paused and all killed at once for as long as asked.

use super::load_bar::LoadBar;
use super::run_folder::RunFolder;
use crate::load::{Pace, Progress};
use crate::service_load::ServiceMix;
use crate::torture::{self, Fault, News, Options, Outcome, Report, Why};
use crate::trial::{self, Requests};
use clap::Args;
use quorate_consensus::Entry;
use quorate_node::commands::arguments::tolerates_one;
use quorate_node::config::{Settings, parse_minutes, parse_replicas, replicas_or_default};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::processes::Processes;
use quorate_node::service::Service;
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// Nobody tortures for longer.
const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Arguments of `quorate torture`.
#[derive(Args, Debug)]
pub struct StoreTortureArgs {
    #[command(flatten)]
    torture: TortureArgs,
    /// Keys that the clients share; each has others of its own
    #[arg(long, default_value_t = 300)]
    keys: u64,
}

/// Options that the torture of every service has.
#[derive(Args, Debug)]
pub struct TortureArgs {
    /// No event begins after so many minutes, or 90s, or 2h
    #[arg(long, value_name = "DURATION", default_value = "10", value_parser = parse_minutes)]
    minutes: Duration,
    /// Decides events, keys and operations [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Protocol
    #[arg(long, default_value = "pbft", value_parser = quorate_node::config::choice(quorate_node::config::protocol_names()))]
    protocol: &'static Entry,
    /// Replicas [default: as few as tolerate one fault]
    #[arg(long, value_parser = parse_replicas::<u16>)]
    n: Option<u16>,
    /// Clients
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Requests in flight over all clients
    #[arg(long, default_value_t = 64, conflicts_with = "rate")]
    in_flight: usize,
    /// Requests in a second instead, whatever the answers do
    #[arg(long)]
    rate: Option<f64>,
    /// Only these faults, several divided by commas [default: all]
    #[arg(long, value_delimiter = ',', value_parser = quorate_node::config::choice(Fault::ALL.map(|fault| (fault.name(), fault)).to_vec()))]
    only: Vec<Fault>,
    /// Keeps the cluster's folder also when nothing wrong is found
    #[arg(long)]
    keep: bool,
    /// One JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

impl TortureArgs {
    fn n(&self) -> u16 {
        replicas_or_default(self.n, self.protocol)
    }

    fn options(&self, seed: u64, requests: Requests) -> Result<Options, Failure> {
        tolerates_one(self.protocol, usize::from(self.n()))?;
        let span = self.minutes;
        if span.is_zero() || span > SPAN_MAX {
            return Err(Failure::usage("--minutes: expected a duration above 0, at most 30 days"));
        }
        for (name, is_zero) in [("clients", self.clients == 0), ("in-flight", self.in_flight == 0)] {
            if is_zero {
                return Err(Failure::usage(format!("--{name} 0: expected at least 1")));
            }
        }
        let pace = match self.rate {
            Some(rate) if rate > 0.0 && rate < 1e9 => Pace::Open { rate },
            Some(rate) => {
                return Err(Failure::usage(format!(
                    "--rate {rate}: expected a number of requests in a second above 0 and below 1000000000"
                )));
            }
            None => Pace::Closed { in_flight: self.in_flight },
        };
        let only = if self.only.is_empty() { Fault::ALL.to_vec() } else { self.only.clone() };
        Ok(Options { seed, only, span, clients: self.clients, pace, requests })
    }

    fn minutes(&self) -> f64 {
        self.minutes.as_secs_f64() / 60.0
    }

    /// The command that repeats the run.
    fn again(&self, seed: u64, subject: &Subject) -> String {
        let mut line = format!("{} torture --minutes {} --seed {seed}", subject.program, self.minutes());
        let name = self.protocol.spec.name.as_str();
        for (given, text) in [
            (name != "pbft", format!(" --protocol {name}")),
            (self.n.is_some(), format!(" --n {}", self.n())),
            (self.clients != 16, format!(" --clients {}", self.clients)),
            (self.in_flight != 64, format!(" --in-flight {}", self.in_flight)),
            (self.rate.is_some(), format!(" --rate {}", self.rate.unwrap_or(0.0))),
            (!subject.more.is_empty(), format!(" {}", subject.more)),
            (
                !self.only.is_empty(),
                format!(
                    " --only {}",
                    self.only.iter().map(|fault| fault.name()).collect::<Vec<_>>().join(",")
                ),
            ),
        ] {
            if given {
                line.push_str(&text);
            }
        }
        line.extend(self.settings.set.iter().map(|setting| format!(" --set '{setting}'")));
        line
    }
}

/// The service that is tortured.
struct Subject {
    service: Service,
    requests: Requests,
    /// The program that repeats the run.
    program: String,
    /// Options of this service's torture, for the command that repeats it.
    more: String,
}

/// Tortures a cluster of the key-value store.
///
/// # Errors
/// When anything was lost, doubled, wrong, without an answer or not linearizable, states differ, the cluster did not
/// recover, or the process was asked to stop: then the findings until then are reported first.
pub fn run(args: &StoreTortureArgs) -> Result<(), Failure> {
    torture(&args.torture, &store(args.keys)?)
}

fn store(keys: u64) -> Result<Subject, Failure> {
    if keys == 0 {
        return Err(Failure::usage("--keys 0: expected at least 1"));
    }
    Ok(Subject {
        service: Service::KV,
        requests: Requests::Judged { shared: keys, request_bytes: 128 },
        program: "cargo xtask".to_owned(),
        more: if keys == 300 { String::new() } else { format!("--keys {keys}") },
    })
}

/// Tortures a cluster of a service of its own. Errors, missing answers and differing states are found; whether answers are
/// right, only the service knows.
///
/// # Errors
/// As [`run`].
pub fn run_service(args: &TortureArgs, service: Service, mix: ServiceMix) -> Result<(), Failure> {
    let program = std::env::args().next().unwrap_or_default();
    let subject = Subject { service, requests: Requests::Service(mix), program, more: String::new() };
    torture(args, &subject)
}

fn torture(args: &TortureArgs, subject: &Subject) -> Result<(), Failure> {
    let seed = match args.seed {
        Some(seed) => seed,
        // Short enough to be typed again.
        None => getrandom::u32().map(u64::from).map_err(Failure::run)?,
    };
    let options = args.options(seed, subject.requests)?;
    let mut folder = RunFolder::new("torture", args.keep)?;
    let again = args.again(seed, subject);
    let result = run_in(args, subject.service, &options, (folder.path(), &again));
    let is_kept = args.keep || result.as_ref().map_or(true, Outcome::is_suspect);
    if is_kept && folder.path().exists() {
        folder.keep();
        eprintln!("the cluster's folder is {}", folder.path().display());
    }
    let outcome = result?;
    report(args, &options, &outcome, &again)?;
    match &outcome.failure {
        None => Ok(()),
        Some(why) => Err(Failure::run(format!("{why}; again: {again}"))),
    }
}

fn run_in(
    args: &TortureArgs,
    service: Service,
    options: &Options,
    (dir, again): (&Path, &str),
) -> Result<Outcome, Failure> {
    let binary = std::env::current_exe().map_err(Failure::run)?;
    let n = args.n();
    let mut nodes = Processes::new(binary, dir, (0..n).map(ReplicaId), false);
    nodes.watch_signals()?;
    let mut testnet = trial::make(dir, service, args.protocol, n, ClientAuth::Signature, &args.settings)?;
    let mut told = Told {
        bar: LoadBar::new(),
        quiet: args.json,
        begun: Instant::now(),
        span: options.span,
        doing: String::new(),
    };
    let name = args.protocol.spec.name;
    let bound = testnet.bound()?.map_or(String::new(), |bound| format!(", {bound}"));
    told.line(&format!("{n} replicas of {name}{bound}, seed {}: {again}", options.seed));
    match testnet.start(&mut nodes) {
        Err(_) if nodes.is_stopping() => return Ok(Outcome::stopped()),
        started => started?,
    }
    told.begun = Instant::now();
    let outcome = torture::run(dir, &testnet, &mut nodes, options, &mut |news| told.hear(&news));
    told.bar.finish();
    nodes.stop_all();
    Ok(Outcome { bound: testnet.bound()?, ..outcome? })
}

/// The output of a run while it lasts.
struct Told {
    bar: LoadBar,
    quiet: bool,
    begun: Instant,
    span: Duration,
    doing: String,
}

impl Told {
    fn line(&self, text: &str) {
        if !self.quiet {
            self.bar.line(text);
        }
    }

    fn hear(&mut self, news: &News<'_>) {
        let elapsed = self.begun.elapsed();
        let at = elapsed.as_secs_f32();
        match news {
            News::Progress(stretch, progress) => {
                let doing = format!("in stretch {stretch} {}", self.doing);
                if !self.quiet {
                    self.bar.show(&Progress { elapsed, planned: self.span, ..**progress }, &doing);
                }
            }
            News::Begins(event, victim) => {
                let who = victim.map_or_else(String::new, |id| format!(" (replica {id})"));
                self.doing = format!("#{} {}{who}", event.number, event.fault);
                self.line(&format!("{at:7.1} s  {}", self.doing));
            }
            News::Over(report) => self.line(&format!("{at:7.1} s  {}", over(report))),
            News::Judged(stretch, verdict, is_good) => {
                let good = if *is_good { "all well" } else { "NOT GOOD" };
                self.line(&format!(
                    "{at:7.1} s  stretch {stretch}: {} operations judged so far, {good}",
                    verdict.judged
                ));
            }
        }
    }
}

fn over(report: &Report) -> String {
    let (before, after) = report.views;
    let view = if before == after { format!("view {after}") } else { format!("view {before} to {after}") };
    let back =
        report.back_ms.map_or("not yet back to 90 %".to_owned(), |ms| format!("back to 90 % after {ms} ms"));
    format!(
        "#{} longest time without an answer {} ms, {} answers/s {back}, all replicas together after {} ms, {view}",
        report.number, report.gap_ms, report.goodput, report.whole_ms
    )
}

fn report(args: &TortureArgs, options: &Options, outcome: &Outcome, again: &str) -> Result<(), Failure> {
    let verdict = &outcome.verdict;
    if args.json {
        return out::json(&json!({
            "good": outcome.is_good(), "failure": outcome.failure.as_ref().map(Why::to_string), "again": again, "seed": options.seed,
            "bound": outcome.bound.map(|bound| bound.to_string()), "minutes": args.minutes(), "protocol": args.protocol.spec.name.as_str(), "n": args.n(),
            "stretches": outcome.stretches, "acknowledged": outcome.acknowledged, "errors": outcome.errors,
            "judged": verdict.judged, "lost": verdict.lost, "doubled": verdict.doubled, "wrong": verdict.wrong,
            "illegal": verdict.illegal, "undecided": verdict.undecided, "findings": verdict.findings,
            "digests": outcome.digests, "history": outcome.history, "events": outcome.events,
        }));
    }
    for fault in Fault::ALL {
        let of: Vec<&Report> = outcome.events.iter().filter(|report| report.fault == fault).collect();
        if !of.is_empty() {
            let gaps = spread(of.iter().map(|report| report.gap_ms));
            let back = spread(of.iter().filter_map(|report| report.back_ms));
            let never = of.iter().filter(|report| report.back_ms.is_none()).count();
            let never = if never > 0 { format!(", {never} times not") } else { String::new() };
            let (fault, times) = (fault.to_string(), of.len());
            out::line(format!(
                "{fault:<14} {times:>4} times   ms without an answer {gaps}   back to 90 % after ms {back}{never}"
            ))?;
        }
    }
    for finding in &verdict.findings {
        out::line(finding)?;
    }
    out::line(format!("requests answered        {}", outcome.acknowledged))?;
    out::line(format!("without a good answer    {}", outcome.errors))?;
    out::line(format!("lost                     {}", verdict.lost))?;
    out::line(format!("executed twice           {}", verdict.doubled))?;
    out::line(format!("wrong                    {}", verdict.wrong))?;
    out::line(format!("keys not linearizable    {}", verdict.illegal))?;
    out::line(format!("keys too hard to judge   {}", verdict.undecided))?;
    for (id, digest) in outcome.digests.iter().enumerate() {
        out::line(format!("replica {id} state digest   {}", digest.chars().take(16).collect::<String>()))?;
    }
    if let Some(file) = &outcome.history {
        out::line(format!("what clients saw         {}", file.display()))?;
    }
    let good = match outcome.failure {
        Some(Why::Stopped) => "stopped, nothing wrong until then",
        None if outcome.is_good() => "all well",
        _ => "NOT GOOD",
    };
    let (events, stretches) = (outcome.events.len(), outcome.stretches);
    let many = if stretches == 1 { "stretch" } else { "stretches" };
    out::line(format!("{events} events in {stretches} {many}, {} operations judged: {good}", verdict.judged))
}

/// Least, median and greatest.
fn spread(values: impl Iterator<Item = u64>) -> String {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    match (values.first(), values.get(values.len() / 2), values.last()) {
        (Some(least), Some(median), Some(most)) => format!("{least} / {median} / {most}"),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: StoreTortureArgs,
    }

    fn args(line: &str) -> StoreTortureArgs {
        CommandLine::try_parse_from(std::iter::once("torture").chain(line.split_whitespace())).unwrap().args
    }

    #[test]
    fn printed_command_repeats_the_run() {
        let begin = "cargo xtask torture ";
        for line in [
            "--minutes 0.5 --seed 7",
            "--minutes 3 --seed 1 --n 7 --clients 4 --in-flight 9 --keys 5",
            "--minutes 10 --seed 0 --protocol echo --rate 250.5",
        ] {
            let StoreTortureArgs { torture, keys } = args(line);
            let again = torture.again(torture.seed.unwrap(), &store(keys).unwrap());
            let again = again.strip_prefix(begin).unwrap();
            assert_eq!(format!("{:?}", args(line)), format!("{:?}", args(again)), "{again}");
        }
    }

    /// These are no durations and no sizes.
    const REFUSED_BY_CLAP: [&str; 5] =
        ["--minutes=-1", "--minutes nan", "--minutes 1e9", "--n 0", "--n 1000"];

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "--minutes 0",
            "--minutes=-1",
            "--minutes nan",
            "--minutes 1e9",
            "--clients 0",
            "--in-flight 0",
            "--keys 0",
            "--rate 0",
            "--rate 1e9",
            "--n 3",
            "--n 0",
            "--n 1000",
        ] {
            let words = std::iter::once("torture").chain(line.split_whitespace());
            let failure = CommandLine::try_parse_from(words).map(|line| {
                let StoreTortureArgs { torture, keys } = line.args;
                store(keys).and_then(|subject| torture.options(1, subject.requests)).unwrap_err()
            });
            assert!(
                failure.is_ok_and(|failure| failure.code() == 2) || REFUSED_BY_CLAP.contains(&line),
                "{line}"
            );
        }
    }

    #[test]
    fn least_median_and_greatest() {
        assert_eq!(spread([5, 1, 9].into_iter()), "1 / 5 / 9");
        assert_eq!(spread(std::iter::empty()), "-");
    }
}
