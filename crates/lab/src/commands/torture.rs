//! `quorate torture`: a cluster whose replicas are killed, paused, wiped and all killed at once for a chosen time.

use super::lie::hosts;
use super::load_bar::LoadBar;
use super::own_cluster::{CLIENTS, OwnClusterArgs, print_verdict, short};
use super::run_folder::RunFolder;
use crate::history_file::HistoryOutput;
use crate::load::{LoadOptions, Mix, Pace, Progress, Verdict};
use crate::service_load::ServiceLoad;
use crate::torture::{
    self, EventReport, ProcessFault, TortureFailure, TortureOptions, TortureOutcome, TortureReport,
};
use clap::Args;
use quorate_history::History;
use quorate_node::config::{choice, parse_minutes};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::service::Service;
use quorate_sim::Byzantine;
use quorate_types::ReplicaId;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest torture.
const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Number of requests in flight by default.
const IN_FLIGHT: usize = 64;
/// Number of shared keys by default.
const KEYS: u64 = 300;

/// Arguments of `quorate torture`.
#[derive(Args, Debug)]
pub struct StoreTortureArgs {
    #[command(flatten)]
    torture: TortureArgs,
    /// Write a JSON line for each operation to this file, for `quorate judge`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Number of keys that the clients share; each client has further keys of its own
    #[arg(long, default_value_t = KEYS)]
    keys: u64,
}

/// Options that the torture of every service has.
#[derive(Args, Debug)]
pub struct TortureArgs {
    /// Time after which no event begins: a number of minutes, or 90s, or 2h
    #[arg(long, value_name = "DURATION", default_value = "10", value_parser = parse_minutes)]
    minutes: Duration,
    /// Seed of events, keys and operations [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    #[command(flatten)]
    cluster: OwnClusterArgs,
    /// Number of requests in flight over all clients
    #[arg(long, default_value_t = IN_FLIGHT, conflicts_with = "rate")]
    in_flight: usize,
    /// Send a fixed number of requests in a second instead, independent of the answers
    #[arg(long)]
    rate: Option<f64>,
    /// Restrict the faults to these, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_parser = choice(ProcessFault::ALL.map(|fault| (fault.name(), fault)).to_vec()))]
    only: Vec<ProcessFault>,
    /// Let the last replica lie from the beginning; `quorate sim --faults` explains the ways. It counts as one of the f
    /// faulty replicas, so n must tolerate two
    #[arg(long, value_name = "HOST", value_parser = choice(hosts()))]
    liar: Option<Byzantine>,
}

impl TortureArgs {
    fn options(&self, seed: u64, mix: Mix) -> Result<TortureOptions, Failure> {
        self.cluster.check(self.in_flight)?;
        let span = self.minutes;
        if span.is_zero() || span > SPAN_MAX {
            return Err(Failure::usage("--minutes: expected a duration above 0, at most 30 days"));
        }
        let pace = match self.rate {
            Some(rate) if rate > 0.0 && rate < 1e9 => Pace::constant(rate),
            Some(rate) => {
                return Err(Failure::usage(format!(
                    "--rate {rate}: expected a number of requests in a second above 0 and below 1000000000"
                )));
            }
            None => Pace::Closed { in_flight: self.in_flight },
        };
        let mut only = if self.only.is_empty() { ProcessFault::ALL.to_vec() } else { self.only.clone() };
        if self.only.is_empty() && !self.cluster.protocol.spec.replaces_leader {
            // The teaching protocol has no way back for a replica without its disk.
            only.retain(|fault| *fault != ProcessFault::WipeBackup);
        }
        let load = LoadOptions::alone(mix, pace, self.cluster.clients, seed, torture::STRETCH_MAX);
        Ok(TortureOptions { only, span, load, liar: self.liar()? })
    }

    /// Returns the replica that lies.
    fn liar(&self) -> Result<Option<ReplicaId>, Failure> {
        let n = self.cluster.n();
        let f = (self.cluster.protocol.spec.faults)(usize::from(n));
        if self.liar.is_some() && f < 2 {
            let smallest = self.cluster.protocol.smallest(2);
            return Err(Failure::usage(format!(
                "--liar needs a cluster that tolerates 2 faults, and {n} replicas tolerate {f}: use --n {smallest}"
            )));
        }
        Ok(self.liar.map(|_| ReplicaId(n.saturating_sub(1))))
    }

    fn minutes(&self) -> f64 {
        self.minutes.as_secs_f64() / 60.0
    }

    /// Returns the command that repeats the run.
    fn again(&self, seed: u64, subject: &Subject) -> String {
        let OwnClusterArgs { protocol, n, clients, settings, .. } = &self.cluster;
        let mut line = format!("{} torture --minutes {} --seed {seed}", subject.program, self.minutes());
        let mut add = |is_given: bool, name: &str, value: &dyn ToString| {
            if is_given {
                line.push_str(&format!(" --{name} {}", value.to_string()));
            }
        };
        let name = protocol.spec.name.as_str();
        add(name != "pbft", "protocol", &name);
        add(n.is_some(), "n", &self.cluster.n());
        add(*clients != CLIENTS, "clients", clients);
        add(self.in_flight != IN_FLIGHT, "in-flight", &self.in_flight);
        add(self.rate.is_some(), "rate", &self.rate.unwrap_or(0.0));
        add(subject.keys != KEYS, "keys", &subject.keys);
        let liar = self.liar.map(|liar| liar.name());
        add(liar.is_some(), "liar", &liar.unwrap_or_default());
        let only: Vec<&str> = self.only.iter().map(|fault| fault.name()).collect();
        add(!only.is_empty(), "only", &only.join(","));
        settings.set.iter().for_each(|setting| add(true, "set", &format!("'{setting}'")));
        settings.link_delay.iter().for_each(|delay| add(true, "link-delay", &format!("'{delay}'")));
        line
    }
}

/// The service that is tortured.
struct Subject {
    service: Service,
    mix: Mix,
    /// The program that repeats the run.
    program: String,
    /// Number of keys that clients of the store share; the default for another service.
    keys: u64,
}

/// Tortures a cluster of the key-value store.
///
/// # Errors
/// Fails when a request was lost, doubled, wrong or without an answer, when the history is not linearizable, when states
/// differ, when the cluster did not recover, or when the process was asked to stop. The findings are printed first.
pub fn run(args: &StoreTortureArgs) -> Result<(), Failure> {
    torture(&args.torture, &store(args.keys)?, args.history.as_deref())
}

fn store(keys: u64) -> Result<Subject, Failure> {
    if keys == 0 {
        return Err(Failure::usage("--keys 0: expected at least 1"));
    }
    Ok(Subject { service: Service::KV, mix: Mix::judged(keys, 128), program: "cargo xtask".to_owned(), keys })
}

/// Tortures a cluster of another service. It finds errors, missing answers and differing states. Wrong answers are not found,
/// because only the service knows its rules.
///
/// # Errors
/// Fails as [`run`] does.
pub fn run_service(
    args: &TortureArgs,
    service: Service,
    load: &'static dyn ServiceLoad,
) -> Result<(), Failure> {
    let program = std::env::args().next().unwrap_or_default();
    torture(args, &Subject { service, mix: Mix::Service(load), program, keys: KEYS }, None)
}

fn torture(args: &TortureArgs, subject: &Subject, history: Option<&Path>) -> Result<(), Failure> {
    let seed = match args.seed {
        Some(seed) => seed,
        // A short number is easy to type.
        None => getrandom::u32().map(u64::from).map_err(Failure::run)?,
    };
    let options = args.options(seed, subject.mix.clone())?;
    let history = history.map(HistoryOutput::open).transpose()?;
    let keep = args.cluster.keep;
    let mut folder = RunFolder::new("torture", keep)?;
    let again = args.again(seed, subject);
    let mut output = TortureOutput::new(args.cluster.json, options.span, history);
    let result = run_in(args, subject.service, &options, (folder.path(), &again), &mut output);
    let is_kept = keep || result.as_ref().map_or(true, TortureOutcome::is_suspect);
    if is_kept && folder.path().exists() {
        folder.keep();
        eprintln!("the cluster's folder is {}", folder.path().display());
    }
    let outcome = result?;
    report(args, &options, &outcome, &again)?;
    output.unwritten.map_or(Ok(()), Err)?;
    match &outcome.failure {
        None => Ok(()),
        Some(why) => Err(Failure::run(format!("{why}; again: {again}"))),
    }
}

fn run_in(
    args: &TortureArgs,
    service: Service,
    options: &TortureOptions,
    (dir, again): (&Path, &str),
    output: &mut TortureOutput,
) -> Result<TortureOutcome, Failure> {
    let (mut nodes, mut testnet) = args.cluster.create(dir, service)?;
    output.line(&format!("{}, seed {}: {again}", args.cluster.describe(&testnet)?, options.load.seed));
    if let (Some(id), Some(host)) = (options.liar, args.liar) {
        let seed = options.load.seed.to_string();
        nodes.start_with(id, ["lie", "--host", host.name(), "--seed", &seed].map(str::to_owned).to_vec())?;
        output.line(&format!("replica {id} lies: {host}"));
    }
    match testnet.start(&mut nodes) {
        Err(_) if nodes.is_stopping() => return Ok(TortureOutcome::stopped()),
        started => started?,
    }
    output.begun = Instant::now();
    let outcome = torture::run(dir, &testnet, &mut nodes, options, &mut |report| output.show(&report));
    output.bar.finish();
    nodes.stop_all();
    Ok(TortureOutcome { bound: testnet.bound()?, ..outcome? })
}

/// The output of a torture while it runs.
struct TortureOutput {
    bar: LoadBar,
    quiet: bool,
    begun: Instant,
    span: Duration,
    /// The current event.
    event: String,
    /// The file that receives the history.
    history: Option<HistoryOutput>,
    /// The reason why a part of the history is not in the file.
    unwritten: Option<Failure>,
}

impl TortureOutput {
    fn new(quiet: bool, span: Duration, history: Option<HistoryOutput>) -> Self {
        let (bar, begun, event) = (LoadBar::new(), Instant::now(), String::new());
        Self { bar, quiet, begun, span, event, history, unwritten: None }
    }

    /// Writes the history of a stretch. The torture goes on even if the file cannot be written.
    fn record(&mut self, history: &History) {
        let written = self.history.as_mut().map_or(Ok(()), |output| output.append(history));
        self.unwritten = self.unwritten.take().or(written.err());
    }

    fn line(&self, text: &str) {
        if !self.quiet {
            self.bar.line(text);
        }
    }

    fn show(&mut self, report: &TortureReport<'_>) {
        let elapsed = self.begun.elapsed();
        let at = elapsed.as_secs_f32();
        match report {
            TortureReport::Progress(stretch, progress) => {
                let remark = format!("in stretch {stretch} {}", self.event);
                if !self.quiet {
                    self.bar.show(&Progress { elapsed, planned: self.span, ..**progress }, &remark);
                }
            }
            TortureReport::Begins(event, victim) => {
                let victim = victim.map_or_else(String::new, |id| format!(" (replica {id})"));
                self.event = format!("#{} {}{victim}", event.number, event.fault);
                self.line(&format!("{at:7.1} s  {}", self.event));
            }
            TortureReport::Recorded(history) => self.record(history),
            TortureReport::Over(report) => self.line(&format!("{at:7.1} s  {}", describe(report))),
            TortureReport::Judged(stretch, verdict, is_good) => {
                let good = if *is_good { "all well" } else { "NOT GOOD" };
                self.line(&format!(
                    "{at:7.1} s  stretch {stretch}: {} operations judged so far, {good}",
                    verdict.judged
                ));
            }
        }
    }
}

fn describe(report: &EventReport) -> String {
    let (before, after) = report.views;
    let view = if before == after { format!("view {after}") } else { format!("view {before} to {after}") };
    let back =
        report.back_ms.map_or("not yet back to 90 %".to_owned(), |ms| format!("back to 90 % after {ms} ms"));
    format!(
        "#{} longest time without an answer {} ms, {} answers/s {back}, all replicas in one view after {} ms, {view}",
        report.number, report.gap_ms, report.goodput, report.whole_ms
    )
}

/// The result as one JSON object.
#[derive(Serialize)]
struct TortureSummary<'a> {
    good: bool,
    failure: Option<String>,
    again: &'a str,
    seed: u64,
    bound: Option<String>,
    minutes: f64,
    protocol: &'a str,
    n: u16,
    stretches: u64,
    acknowledged: u64,
    errors: u64,
    #[serde(flatten)]
    verdict: &'a Verdict,
    digests: &'a [String],
    history: &'a Option<PathBuf>,
    events: &'a [EventReport],
}

fn report(
    args: &TortureArgs,
    options: &TortureOptions,
    outcome: &TortureOutcome,
    again: &str,
) -> Result<(), Failure> {
    let verdict = &outcome.verdict;
    if args.cluster.json {
        return out::json(&TortureSummary {
            good: outcome.is_good(),
            failure: outcome.failure.as_ref().map(TortureFailure::to_string),
            again,
            seed: options.load.seed,
            bound: outcome.bound.map(|bound| bound.to_string()),
            minutes: args.minutes(),
            protocol: args.cluster.protocol.spec.name.as_str(),
            n: args.cluster.n(),
            stretches: outcome.stretches,
            acknowledged: outcome.acknowledged,
            errors: outcome.errors,
            verdict,
            digests: &outcome.digests,
            history: &outcome.history,
            events: &outcome.events,
        });
    }
    for fault in ProcessFault::ALL {
        let reports: Vec<&EventReport> =
            outcome.events.iter().filter(|report| report.fault == fault).collect();
        if !reports.is_empty() {
            let gaps = spread(reports.iter().map(|report| report.gap_ms));
            let back = spread(reports.iter().filter_map(|report| report.back_ms));
            let never = reports.iter().filter(|report| report.back_ms.is_none()).count();
            let never = if never > 0 { format!(", {never} times not") } else { String::new() };
            let (fault, times) = (fault.to_string(), reports.len());
            out::line(format!(
                "{fault:<14} {times:>4} times   ms without an answer {gaps}   back to 90 % after ms {back}{never}"
            ))?;
        }
    }
    out::line(format!("requests answered        {}", outcome.acknowledged))?;
    out::line(format!("without a good answer    {}", outcome.errors))?;
    print_verdict(verdict)?;
    for (id, digest) in outcome.digests.iter().enumerate() {
        out::line(format!("replica {id} state digest   {}", short(digest)))?;
    }
    if let Some(file) = &outcome.history {
        out::line(format!("history of the clients   {}", file.display()))?;
    }
    let good = match outcome.failure {
        Some(TortureFailure::Stopped) => "stopped, nothing wrong until then",
        None if outcome.is_good() => "all well",
        _ => "NOT GOOD",
    };
    let (events, stretches) = (outcome.events.len(), outcome.stretches);
    let many = if stretches == 1 { "stretch" } else { "stretches" };
    out::line(format!("{events} events in {stretches} {many}, {} operations judged: {good}", verdict.judged))
}

/// Returns the least value, the median and the greatest value.
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
            "--minutes 10 --seed 0 --n 7 --liar catch-up --only kill-all",
        ] {
            let StoreTortureArgs { torture, keys, .. } = args(line);
            let again = torture.again(torture.seed.unwrap(), &store(keys).unwrap());
            let again = again.strip_prefix(begin).unwrap();
            assert_eq!(format!("{:?}", args(line)), format!("{:?}", args(again)), "{again}");
        }
    }

    /// These are no durations and no sizes.
    const REFUSED_BY_CLAP: [&str; 6] =
        ["--minutes=-1", "--minutes nan", "--minutes 1e9", "--liar twin", "--n 0", "--n 1000"];

    #[test]
    fn invalid_options_are_refused() {
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
            "--n 6 --liar mute",
            "--liar twin",
            "--n 0",
            "--n 1000",
        ] {
            let words = std::iter::once("torture").chain(line.split_whitespace());
            let failure = CommandLine::try_parse_from(words).map(|line| {
                let StoreTortureArgs { torture, keys, .. } = line.args;
                store(keys).and_then(|subject| torture.options(1, subject.mix)).unwrap_err()
            });
            assert!(
                failure.is_ok_and(|failure| failure.code() == 2) || REFUSED_BY_CLAP.contains(&line),
                "{line}"
            );
        }
    }

    #[test]
    fn spread_is_least_median_and_greatest() {
        assert_eq!(spread([5, 1, 9].into_iter()), "1 / 5 / 9");
        assert_eq!(spread(std::iter::empty()), "-");
    }
}
