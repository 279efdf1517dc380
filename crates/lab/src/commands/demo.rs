//! `quorate demo`: a cluster under load, whose leader is killed and started again, and the result.

use super::load_bar::LoadBar;
use super::own_cluster::{OwnClusterArgs, print_verdict, short};
use super::run_folder::RunFolder;
use crate::history_file;
use crate::load::{LoadOptions, LoadSummary, Mix, Pace, Verdict};
use crate::trial::{self, Act, TrialOutcome, TrialPlan};
use clap::Args;
use quorate_node::config::parse_seconds;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::service::Service;
use quorate_types::ReplicaId;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Time in which replicas have to report the leader.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

const SECONDS_MIN: Duration = Duration::from_secs(5);
const SECONDS_MAX: Duration = Duration::from_secs(3_600);

/// Arguments of `quorate demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    #[command(flatten)]
    cluster: OwnClusterArgs,
    /// Seconds of load; 90s and 2m are valid too
    #[arg(long, value_name = "DURATION", default_value = "15", value_parser = parse_seconds)]
    seconds: Duration,
    /// Number of requests in flight over all clients
    #[arg(long, default_value_t = 512)]
    in_flight: usize,
    /// Seed of keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A view and its leader.
type ViewAndLeader = Option<(u64, ReplicaId)>;

/// Runs the demo.
///
/// # Errors
/// Fails when a request was lost, doubled, wrong or without an answer, or when states differ. It also fails when the process
/// was asked to stop: then no process is left, and without `--keep` no folder.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    if args.seconds < SECONDS_MIN || args.seconds > SECONDS_MAX {
        return Err(Failure::usage("--seconds: expected 5 to 3600"));
    }
    args.cluster.check(args.in_flight)?;
    let folder = RunFolder::new("demo", args.cluster.keep)?;
    let result = run_in(args, folder.path());
    if args.cluster.keep {
        eprintln!("the cluster's folder is {}", folder.path().display());
    }
    result
}

fn run_in(args: &DemoArgs, dir: &Path) -> Result<(), Failure> {
    let (mut nodes, mut testnet) = args.cluster.create(dir, Service::KV)?;
    let bar = LoadBar::new();
    let print = |text: &str| {
        if !args.cluster.json {
            bar.line(text);
        }
    };
    print(&format!(
        "starting {}: promises fsynced, links under mutual TLS, bundles signed",
        args.cluster.describe(&testnet)?
    ));
    testnet.start(&mut nodes)?;
    let info = testnet.cluster.client_info();
    let leader = || -> Result<ViewAndLeader, Failure> {
        let statuses = trial::statuses(&info, STATUS_PATIENCE)?;
        Ok(trial::leader(&statuses, info.f))
    };
    let before = leader()?;
    let plan = plan(args, victim(args, before));
    let mut is_down = false;
    let mut last_line = 0;
    let (outcome, history) = trial::run(dir, &testnet, &mut nodes, &plan, &mut |progress, act| {
        let at = progress.elapsed.as_secs_f32();
        match act {
            Some(Act::Kill(id)) => {
                is_down = true;
                let view = before.filter(|(_, leader)| *leader == id);
                let role =
                    view.map_or_else(|| "a backup".to_owned(), |(view, _)| format!("leader of view {view}"));
                print(&format!("{at:5.1} s  replica {id}, {role}, is killed (SIGKILL)"));
            }
            Some(Act::Start(id)) => {
                is_down = false;
                print(&format!("{at:5.1} s  replica {id} is started again"));
            }
            Some(Act::KillAll | Act::Wipe(_) | Act::Pause(_) | Act::Resume(_)) | None => {}
        }
        bar.show(progress, if is_down { "(a replica is down)" } else { "" });
        // Without a terminal for the bar there are plain lines.
        if bar.is_hidden() && progress.elapsed.as_secs() > last_line {
            last_line = progress.elapsed.as_secs();
            let (sent, done) = (progress.sent, progress.acknowledged);
            print(&format!("{at:5.1} s  {sent} sent, {done} acknowledged"));
        }
    })?;
    bar.finish();
    let after = leader()?;
    nodes.stop_all();
    if args.cluster.keep {
        history_file::save(&history, &dir.join("history.jsonl"))?;
    }
    report(args, &outcome, before, after)?;
    if outcome.is_good() { Ok(()) } else { Err(Failure::run(outcome.describe())) }
}

fn plan(args: &DemoArgs, victim: ReplicaId) -> TrialPlan {
    let third = args.seconds / 3;
    let pace = Pace::Closed { in_flight: args.in_flight };
    let clients = args.cluster.clients;
    TrialPlan {
        load: LoadOptions::alone(Mix::judged(0, 128), pace, clients, args.seed, args.seconds),
        acts: vec![(third, Act::Kill(victim)), (third * 2, Act::Start(victim))],
    }
}

/// Returns the replica to kill: the leader, unless the protocol cannot replace it.
fn victim(args: &DemoArgs, leader: ViewAndLeader) -> ReplicaId {
    match leader {
        Some((_, leader)) if args.cluster.protocol.spec.replaces_leader => leader,
        // Replica 0 leads view 0.
        _ => ReplicaId(args.cluster.n().saturating_sub(1)),
    }
}

/// The result as one JSON object.
#[derive(Serialize)]
struct DemoSummary<'a> {
    #[serde(flatten)]
    load: &'a LoadSummary,
    #[serde(flatten)]
    verdict: &'a Verdict,
    digests: &'a [String],
    views: [Option<u64>; 2],
}

fn report(
    args: &DemoArgs,
    outcome: &TrialOutcome,
    before: ViewAndLeader,
    after: ViewAndLeader,
) -> Result<(), Failure> {
    let (load, verdict, digests) = (&outcome.summary, &outcome.verdict, &outcome.states.digests);
    if args.cluster.json {
        let views = [before, after].map(|view| view.map(|(view, _)| view));
        return out::json(&DemoSummary { load, verdict, digests, views });
    }
    let ms = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e3;
    let latency = &load.timing.latency_ns;
    out::line(format_args!("requests sent            {}", load.counts.sent))?;
    out::line(format_args!("requests acknowledged    {}", load.counts.acknowledged))?;
    out::line(format_args!("without a good answer    {}", load.counts.errors_by_kind))?;
    print_verdict(verdict)?;
    out::line(format_args!(
        "longest gap              {:.1} ms without a good answer",
        load.timing.longest_gap_ms
    ))?;
    if let (Some((old, first)), Some((new, second))) = (before, after) {
        out::line(format_args!(
            "view                     {old}, led by replica {first}; at the end {new}, led by replica {second}"
        ))?;
    }
    out::line(format_args!("throughput               {:.0} requests/s", load.timing.goodput))?;
    out::line(format_args!(
        "latency                  p50 {:.2} ms  p99 {:.2} ms  max {:.2} ms (of {}, rank rounded up)",
        ms(latency.p50),
        ms(latency.p99),
        ms(latency.max),
        latency.samples
    ))?;
    for (id, (digest, height)) in digests.iter().zip(&outcome.states.executed).enumerate() {
        out::line(format_args!("replica {id} state digest   {} at height {height}", short(digest)))?;
    }
    out::line(format_args!(
        "{} operations judged by the reads of a fresh client: {}",
        verdict.judged,
        if outcome.is_good() { "nothing lost, nothing doubled, all replicas equal" } else { "NOT GOOD" }
    ))
}
