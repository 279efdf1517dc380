//! A trial: a cluster of processes, load from real clients over real sockets, faults at chosen moments, and a
//! verdict over what a fresh client reads afterwards. `quorate demo` is one; the kill tests are others.

use crate::commands::cluster_info;
use crate::commands::up::free_addresses;
use crate::exit::Failure;
use crate::keys;
use crate::load::{
    Entry, Generator, History, LoadOptions, Mix, Pace, Progress, Summary, Verdict, Watch, judge, value_of,
};
use crate::processes::{NotReady, Processes};
use crate::testnet::{ADMIN_KEY, KV_KEY, Testnet};
use quorate_app::{KvOp, KvResult};
use quorate_client::cluster::ClusterInfo;
use quorate_client::driver::{self, Client, ClientPool, Options};
use quorate_types::ReplicaId;
use quorate_types::codec::Wire as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long nodes may take until they serve.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How often new ports are chosen at the start.
const MOVES_MAX: u32 = 10;
/// How long replicas may take to come together after the load has ended.
const MEET_PATIENCE: Duration = Duration::from_secs(20);
/// Operations of one client until it uses a key again: more than one client has in flight.
const SPREAD: u64 = 512;

/// Something that is done to the cluster while load runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// SIGKILL.
    Kill(ReplicaId),
    /// Start again, on the same folder.
    Start(ReplicaId),
    /// SIGKILL to all, as near to the same moment as can be, and a cold start of all.
    PowerCut,
}

/// What a trial does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Load after the sessions are open.
    pub seconds: Duration,
    /// Clients.
    pub clients: usize,
    /// Requests in flight over all clients.
    pub in_flight: usize,
    /// Requests in a bundle; `None`: whatever waits.
    pub bundle: Option<u32>,
    /// Bytes of one put.
    pub request_bytes: usize,
    /// Decides keys and operations.
    pub seed: u64,
    /// What is done when, after the load has begun.
    pub acts: Vec<(Duration, Act)>,
}

/// What came of a trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Figures of the load.
    pub summary: Summary,
    /// What a fresh client found.
    pub verdict: Verdict,
    /// State digest of each replica, by id; empty where one gave none.
    pub digests: Vec<String>,
    /// Last height that each replica has executed.
    pub executed: Vec<u64>,
}

impl Outcome {
    /// Whether all replicas hold the same state.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        let first = self.digests.first().filter(|digest| !digest.is_empty());
        first.is_some_and(|first| self.digests.iter().all(|digest| digest == first))
    }

    /// Whether nothing was lost, doubled or left without an answer, and all replicas agree.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.verdict.is_clean()
            && self.is_equal()
            && self.summary.errors == 0
            && self.summary.acknowledged > 0
    }

    /// What is wrong, on one line.
    #[must_use]
    pub fn complaint(&self) -> String {
        let verdict = &self.verdict;
        format!(
            "lost {}, executed twice {}, wrong {}, without an answer {}, state digests {}; {}",
            verdict.lost,
            verdict.doubled,
            verdict.wrong,
            self.summary.errors,
            if self.is_equal() { "equal" } else { "differ" },
            verdict.findings.join("; ")
        )
    }
}

/// Does the acts when their time has come, and passes progress on.
struct Director<'a> {
    nodes: &'a mut Processes,
    acts: Vec<(Duration, Act)>,
    tell: &'a mut dyn FnMut(&Progress, Option<Act>),
    failed: Option<Failure>,
}

impl Director<'_> {
    fn act(&mut self, act: Act) -> Result<(), Failure> {
        match act {
            Act::Kill(id) => self.nodes.kill(id),
            Act::Start(id) => self.nodes.start(id),
            Act::PowerCut => {
                let ids = self.nodes.ids();
                ids.iter().try_for_each(|id| self.nodes.kill(*id))?;
                self.nodes.start_all()
            }
        }
    }
}

impl Watch for Director<'_> {
    fn look(&mut self, progress: &Progress) -> bool {
        let due: Vec<Act> =
            self.acts.iter().filter(|(at, _)| *at <= progress.elapsed).map(|(_, act)| *act).collect();
        self.acts.retain(|(at, _)| *at > progress.elapsed);
        for act in &due {
            (self.tell)(progress, Some(*act));
            if let Err(failure) = self.act(*act) {
                self.failed.get_or_insert(failure);
            }
        }
        (self.tell)(progress, None);
        self.failed.is_none() && !self.nodes.is_stopping()
    }
}

/// Runs a trial against a cluster whose nodes serve, in `dir`. `tell` hears of progress and acts.
///
/// # Errors
/// When the cluster does not do its part in time, or this machine refuses.
pub fn run(
    dir: &Path,
    testnet: &Testnet,
    nodes: &mut Processes,
    plan: &Plan,
    tell: &mut dyn FnMut(&Progress, Option<Act>),
) -> Result<(Outcome, History), Failure> {
    let info = cluster_info(&testnet.cluster)?;
    let admin = keys::read_private(&dir.join(ADMIN_KEY)).map_err(Failure::run)?;
    let pool = ClientPool::new(info.clone()).map_err(Failure::run)?;
    let options = LoadOptions {
        clients: plan.clients,
        seed: plan.seed,
        bundle: plan.bundle,
        pace: Pace::Closed { in_flight: plan.in_flight },
        mix: Mix::Judged { spread: SPREAD, request_bytes: plan.request_bytes },
        warmup: Duration::ZERO,
        seconds: plan.seconds,
        presign: 0,
        history: true,
    };
    let mut generator = Generator::connect(pool, admin, options).map_err(Failure::run)?;
    let mut director = Director { nodes, acts: plan.acts.clone(), tell, failed: None };
    let ran = generator.run(&mut director);
    if let Some(failure) = director.failed {
        return Err(failure);
    }
    let summary = ran.map_err(Failure::run)?;
    generator.read_back().map_err(Failure::run)?;
    let history = generator.into_history();
    let key = dir.join(KV_KEY);
    let finals = read_back(&info, &key, &history)?;
    let verdict = judge(&history, &finals);
    let (digests, executed) = meet(&info, nodes)?;
    Ok((Outcome { summary, verdict, digests, executed }, history))
}

/// Starts all nodes of a cluster that was just made, and waits until they serve. Its ports were free when they
/// were chosen; where one was taken since, the cluster gets others.
///
/// # Errors
/// When a node does not serve, or ports are taken again and again.
pub fn start(nodes: &mut Processes, testnet: &mut Testnet) -> Result<(), Failure> {
    let ids = nodes.ids();
    let mut moves = 0;
    loop {
        nodes.start_all()?;
        match nodes.wait_ready(&ids, START_PATIENCE) {
            Ok(()) => return Ok(()),
            Err(NotReady::Taken(_)) if moves < MOVES_MAX => {
                moves += 1;
                nodes.stop_all();
                testnet.move_to(free_addresses(ids.len())?)?;
            }
            Err(why) => return Err(why.into()),
        }
    }
}

/// What a fresh client reads for every key of a history.
fn read_back(info: &ClusterInfo, key: &Path, history: &History) -> Result<BTreeMap<String, String>, Failure> {
    let key = keys::read_private(key).map_err(Failure::run)?;
    let mut client = Client::connect(info.clone(), key, Options::default()).map_err(Failure::run)?;
    let of = |entry: &Entry| entry.operation.key.clone();
    let names: Vec<String> = history.entries().iter().map(of).collect::<BTreeSet<_>>().into_iter().collect();
    let gets: Vec<Vec<u8>> = names.iter().map(|name| KvOp::Get { key: name.as_bytes() }.to_bytes()).collect();
    let results = client.call_many(gets.iter().map(Vec::as_slice)).map_err(Failure::run)?;
    let mut finals = BTreeMap::new();
    for (name, result) in names.into_iter().zip(results) {
        match KvResult::from_bytes(&result) {
            Ok(KvResult::Value(value)) => {
                let value = value_of(&name, &value);
                finals.insert(name, value);
            }
            Ok(KvResult::Absent) => {}
            other => return Err(Failure::run(format!("reading {name} back gave {other:?}"))),
        }
    }
    Ok(finals)
}

/// Waits until all replicas have executed the same height, and gives their digests and heights.
fn meet(info: &ClusterInfo, nodes: &mut Processes) -> Result<(Vec<String>, Vec<u64>), Failure> {
    let deadline = Instant::now().checked_add(MEET_PATIENCE);
    loop {
        if nodes.is_stopping() {
            return Err(Failure::run("stopped"));
        }
        let answers = driver::status(info.clone(), Duration::from_secs(2)).map_err(Failure::run)?;
        let statuses: Vec<Value> = answers
            .into_iter()
            .map(|answer| {
                answer.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null)
            })
            .collect();
        let digest = |status: &Value| {
            status.pointer("/state_digest").and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let digests: Vec<String> = statuses.iter().map(digest).collect();
        let executed: Vec<u64> = statuses
            .iter()
            .map(|status| status.get("executed").and_then(Value::as_u64).unwrap_or(0))
            .collect();
        let together = executed.iter().all(|height| executed.first() == Some(height));
        let known = digests.iter().all(|digest| !digest.is_empty());
        if (together && known) || deadline.is_none_or(|at| Instant::now() >= at) {
            return Ok((digests, executed));
        }
    }
}
