//! `quorate demo`: a cluster, a workload, its leader killed in the middle, and what came of it.

use super::load_bar::LoadBar;
use super::run_folder::RunFolder;
use crate::history_file;
use crate::load::Pace;
use crate::trial::{self, Act, Outcome, Plan, Requests};
use clap::Args;
use quorate_consensus::Entry;
use quorate_node::commands::arguments::tolerates_one;
use quorate_node::config::{Settings, parse_replicas, parse_seconds, replicas_or_default};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::processes::Processes;
use quorate_node::service::Service;
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// Time in which replicas have to report the leader.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

const SECONDS_MIN: Duration = Duration::from_secs(5);
const SECONDS_MAX: Duration = Duration::from_secs(3_600);

/// Arguments of `quorate demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Protocol
    #[arg(long, default_value = "pbft", value_parser = quorate_node::config::choice(quorate_node::config::protocol_names()))]
    protocol: &'static Entry,
    /// Replicas [default: as few as tolerate one fault]
    #[arg(long, value_parser = parse_replicas::<u16>)]
    n: Option<u16>,
    /// Seconds of load; 90s and 2m are as good
    #[arg(long, value_name = "DURATION", default_value = "15", value_parser = parse_seconds)]
    seconds: Duration,
    /// Clients
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Requests in flight over all clients
    #[arg(long, default_value_t = 512)]
    in_flight: usize,
    /// Decides keys and operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keeps the cluster's folder, with the history of all operations, and says where it is
    #[arg(long)]
    keep: bool,
    /// One JSON object at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: Settings,
}

impl DemoArgs {
    fn n(&self) -> u16 {
        replicas_or_default(self.n, self.protocol)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.seconds < SECONDS_MIN || self.seconds > SECONDS_MAX {
            return Err(Failure::usage("--seconds: expected 5 to 3600"));
        }
        for (name, value) in [("clients", self.clients), ("in-flight", self.in_flight)] {
            if value == 0 {
                return Err(Failure::usage(format!("--{name} 0: expected at least 1")));
            }
        }
        tolerates_one(self.protocol, usize::from(self.n()))
    }
}

/// Runs the demo.
///
/// # Errors
/// When it was asked to stop (no process and, without `--keep`, no folder is left then either), anything was lost, doubled, wrong or left without an answer, or the replicas' states differ.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    args.check()?;
    let folder = RunFolder::new("demo", args.keep)?;
    let result = show(args, folder.path());
    if args.keep {
        eprintln!("the cluster's folder is {}", folder.path().display());
    }
    result
}

fn show(args: &DemoArgs, dir: &Path) -> Result<(), Failure> {
    let say = |text: String| {
        if !args.json {
            let _ = out::line(text);
        }
    };
    let binary = std::env::current_exe().map_err(Failure::run)?;
    let n = args.n();
    let mut nodes = Processes::new(binary, dir, (0..n).map(ReplicaId), false);
    // Before anything is made: whoever is asked to stop from now on tidies up.
    nodes.watch_signals()?;
    let mut testnet = trial::make(dir, Service::KV, args.protocol, n, ClientAuth::Signature, &args.settings)?;
    let name = args.protocol.spec.name;
    let bound = testnet.bound()?.map_or(String::new(), |bound| format!(", {bound}"));
    say(format!(
        "starting {n} replicas of {name}: promises fsynced, links under mutual TLS, bundles signed{bound}"
    ));
    testnet.start(&mut nodes)?;
    let info = testnet.cluster.client_info();
    let look = || -> Result<Option<(u64, ReplicaId)>, Failure> {
        let statuses = trial::statuses(&info, STATUS_PATIENCE)?;
        Ok(trial::leader(&statuses, info.f))
    };
    let before = look()?;
    let victim = victim(args, before);
    let plan = plan(args, victim);
    let bar = LoadBar::new();
    let mut down = false;
    let mut last_line = 0;
    let (outcome, history) = trial::run(dir, &testnet, &mut nodes, &plan, &mut |progress, act| {
        let at = progress.elapsed.as_secs_f32();
        match act {
            Some(Act::Kill(id)) => {
                down = true;
                let role = before.filter(|(_, leader)| *leader == id);
                let role =
                    role.map_or_else(|| "a backup".to_owned(), |(view, _)| format!("leader of view {view}"));
                say_above(args, &bar, &format!("{at:5.1} s  replica {id}, {role}, is killed (SIGKILL)"));
            }
            Some(Act::Start(id)) => {
                down = false;
                say_above(args, &bar, &format!("{at:5.1} s  replica {id} is started again"));
            }
            Some(Act::KillAll | Act::Pause(_) | Act::Resume(_)) | None => {}
        }
        bar.show(progress, if down { "(a replica is down)" } else { "" });
        // Plain lines where there is no terminal to draw a bar on.
        if bar.is_hidden() && progress.elapsed.as_secs() > last_line {
            last_line = progress.elapsed.as_secs();
            let (sent, done) = (progress.sent, progress.acknowledged);
            say_above(args, &bar, &format!("{at:5.1} s  {sent} sent, {done} acknowledged"));
        }
    })?;
    bar.finish();
    let after = look()?;
    nodes.stop_all();
    if args.keep {
        let file = dir.join("history.jsonl");
        history_file::save(&history, &file)?;
    }
    report(args, &outcome, (before, after))?;
    if outcome.is_good() { Ok(()) } else { Err(Failure::run(outcome.complaint())) }
}

fn say_above(args: &DemoArgs, bar: &LoadBar, text: &str) {
    if !args.json {
        bar.line(text);
    }
}

fn plan(args: &DemoArgs, victim: ReplicaId) -> Plan {
    let third = args.seconds / 3;
    Plan {
        seconds: args.seconds,
        clients: args.clients,
        pace: Pace::Closed { in_flight: args.in_flight },
        bundle: None,
        requests: Requests::Judged { shared: 0, request_bytes: 128 },
        seed: args.seed,
        acts: vec![(third, Act::Kill(victim)), (third * 2, Act::Start(victim))],
    }
}

/// Chooses the replica to kill: the leader, unless the protocol stops without it.
fn victim(args: &DemoArgs, leads: Option<(u64, ReplicaId)>) -> ReplicaId {
    match leads {
        Some((_, leader)) if args.protocol.spec.replaces_leader => leader,
        // View 0 is led by replica 0.
        _ => ReplicaId(args.n().saturating_sub(1)),
    }
}

/// View and leader before and after.
type Views = (Option<(u64, ReplicaId)>, Option<(u64, ReplicaId)>);

fn report(args: &DemoArgs, outcome: &Outcome, (before, after): Views) -> Result<(), Failure> {
    let summary = &outcome.summary;
    if args.json {
        let value = serde_json::to_value(summary).map_err(Failure::run)?;
        let mut object: Map<String, Value> = value.as_object().cloned().unwrap_or_default();
        object.insert("lost".to_owned(), outcome.verdict.lost.into());
        object.insert("doubled".to_owned(), outcome.verdict.doubled.into());
        object.insert("wrong".to_owned(), outcome.verdict.wrong.into());
        object.insert("illegal".to_owned(), outcome.verdict.illegal.into());
        object.insert("undecided".to_owned(), outcome.verdict.undecided.into());
        object.insert("digests".to_owned(), json!(outcome.digests));
        let view = |leads: Option<(u64, ReplicaId)>| leads.map(|(view, _)| view);
        object.insert("views".to_owned(), json!([view(before), view(after)]));
        return out::json(&object);
    }
    let ms = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e3;
    let latency = &summary.timing.latency_ns;
    out::line(format_args!("requests sent            {}", summary.counts.sent))?;
    out::line(format_args!("requests acknowledged    {}", summary.counts.acknowledged))?;
    out::line(format_args!("lost                     {}", outcome.verdict.lost))?;
    out::line(format_args!("executed twice           {}", outcome.verdict.doubled))?;
    out::line(format_args!("without a good answer    {}", summary.counts.errors_by_kind))?;
    out::line(format_args!(
        "longest gap              {:.1} ms without any good answer",
        summary.timing.longest_gap_ms
    ))?;
    if let (Some((old, first)), Some((new, second))) = (before, after) {
        out::line(format_args!(
            "view                     {old}, led by replica {first}; at the end {new}, led by replica {second}"
        ))?;
    }
    out::line(format_args!("throughput               {:.0} requests/s", summary.timing.goodput))?;
    out::line(format_args!(
        "latency                  p50 {:.2} ms  p99 {:.2} ms  max {:.2} ms (of {}, rank rounded up)",
        ms(latency.p50),
        ms(latency.p99),
        ms(latency.max),
        latency.samples
    ))?;
    for (id, (digest, height)) in outcome.digests.iter().zip(&outcome.executed).enumerate() {
        let short: String = digest.chars().take(16).collect();
        out::line(format_args!("replica {id} state digest   {short} at height {height}"))?;
    }
    let judged = outcome.verdict.judged;
    out::line(format_args!(
        "{judged} operations judged by a fresh client's reads: {}",
        if outcome.is_good() { "nothing lost, nothing doubled, all replicas equal" } else { "NOT GOOD" }
    ))?;
    Ok(())
}
