//! A trial: a cluster of processes, load from real clients over real sockets, faults at chosen moments, and a
//! verdict over what clients were told and what a fresh one reads afterwards. `quorate demo` is one, the kill tests
//! are others, and `quorate torture` is a row of them against one cluster.

use crate::load::{
    Generator, LoadOptions, Mix, Next, Pace, Progress, Summary, Verdict, Watch, judge, judge_alone,
};
use crate::service_load::ServiceMix;
use quorate_app::{KvOp, KvResult};
use quorate_client::cluster::ClusterInfo;
use quorate_client::cluster::LinkMode;
use quorate_client::driver::{self, Client, ClientPool, Options};
use quorate_client::keys;
use quorate_consensus::Entry;
use quorate_history::{History, Op, Record};
use quorate_node::config::{Durability, Settings};
use quorate_node::exit::Failure;
use quorate_node::layout::{ADMIN_KEY, KV_KEY};
use quorate_node::ports::free_addresses;
use quorate_node::processes::Processes;
use quorate_node::service::Service;
use quorate_node::testnet::{self, Testnet};
use quorate_types::codec::Wire as _;
use quorate_types::{ClientAuth, ReplicaId};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time in which replicas have to reach one height after the load has ended.
const MEET_PATIENCE: Duration = Duration::from_secs(20);
/// Time in which a replica has to report its status.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// Operations of one client until it uses a key again: mostly more than it has in flight.
const SPREAD: u64 = 512;

/// Something that is done to the cluster while load runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// SIGKILL.
    Kill(ReplicaId),
    /// Start again, on the same folder.
    Start(ReplicaId),
    /// SIGKILL to all, as near to the same moment as can be, and a cold start of all. The machine lives on, and with it
    /// what the operating system had not written yet.
    KillAll,
    /// SIGSTOP: it is there and does nothing.
    Pause(ReplicaId),
    /// SIGCONT.
    Resume(ReplicaId),
}

impl Act {
    /// Does it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn run(self, nodes: &mut Processes) -> Result<(), Failure> {
        match self {
            Self::Kill(id) => nodes.kill(id),
            Self::Start(id) => nodes.start(id),
            Self::Pause(id) => nodes.pause(id),
            Self::Resume(id) => nodes.resume(id),
            Self::KillAll => {
                nodes.ids().into_iter().try_for_each(|id| nodes.kill(id))?;
                nodes.start_all()
            }
        }
    }
}

/// The requests of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Requests {
    /// Operations of the key-value store that are judged.
    Judged {
        /// Keys that clients share; half of all operations are on them. 0: there are none.
        shared: u64,
        /// Bytes of one put.
        request_bytes: usize,
    },
    /// Operations of a service of its own. No history is judged, because the service's rules are not known here: errors,
    /// missing answers and differing states are found all the same.
    Service(ServiceMix),
}

impl Requests {
    fn mix(self) -> Mix {
        match self {
            // The cluster belongs to the trial alone, and the values of its keys are known.
            Self::Judged { shared, request_bytes } => {
                Mix::Judged { prefix: String::new(), spread: SPREAD, shared, request_bytes }
            }
            Self::Service(mix) => Mix::Service(mix),
        }
    }

    fn are_judged(self) -> bool {
        matches!(self, Self::Judged { .. })
    }
}

/// The course of a trial.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Load after the sessions are open.
    pub seconds: Duration,
    /// Clients.
    pub clients: usize,
    /// The way in which load is offered.
    pub pace: Pace,
    /// Requests in a bundle; `None`: whatever waits.
    pub bundle: Option<u32>,
    /// The requests.
    pub requests: Requests,
    /// Decides keys and operations.
    pub seed: u64,
    /// The acts, each with its time after the load has begun.
    pub acts: Vec<(Duration, Act)>,
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Figures of the load.
    pub summary: Summary,
    /// The verdict, with what a fresh client has read.
    pub verdict: Verdict,
    /// State digest of each replica that ran when it began, by id; empty where one gave none.
    pub digests: Vec<String>,
    /// Last height that each of them has executed.
    pub executed: Vec<u64>,
}

impl Outcome {
    /// Whether all replicas hold the same state.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        are_equal(&self.digests)
    }

    /// Whether nothing was lost, doubled or left without an answer, and all replicas agree.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.verdict.is_clean()
            && self.is_equal()
            && self.summary.counts.errors == 0
            && self.summary.counts.acknowledged > 0
    }

    /// Describes the result on one line.
    #[must_use]
    pub fn complaint(&self) -> String {
        let verdict = &self.verdict;
        format!(
            "lost {}, executed twice {}, wrong {}, keys not linearizable {}, keys too hard to judge {}, \
             without a good answer: {}, state digests {}; {}",
            verdict.lost,
            verdict.doubled,
            verdict.wrong,
            verdict.illegal,
            verdict.undecided,
            self.summary.counts.errors_by_kind,
            if self.is_equal() { "equal" } else { "differ" },
            verdict.findings.join("; ")
        )
    }
}

/// Whether these digests are known and all the same.
pub(crate) fn are_equal(digests: &[String]) -> bool {
    let first = digests.first().filter(|digest| !digest.is_empty());
    first.is_some_and(|first| digests.iter().all(|digest| digest == first))
}

/// Does the acts when their time has come, and passes progress on.
struct Director<'a> {
    nodes: &'a mut Processes,
    acts: Vec<(Duration, Act)>,
    tell: &'a mut dyn FnMut(&Progress, Option<Act>),
    failed: Option<Failure>,
}

impl Watch for Director<'_> {
    fn look(&mut self, progress: &Progress) -> Next {
        let due: Vec<Act> =
            self.acts.iter().filter(|(at, _)| *at <= progress.elapsed).map(|(_, act)| *act).collect();
        self.acts.retain(|(at, _)| *at > progress.elapsed);
        for act in &due {
            (self.tell)(progress, Some(*act));
            if let Err(failure) = act.run(self.nodes) {
                self.failed.get_or_insert(failure);
            }
        }
        (self.tell)(progress, None);
        if self.failed.is_none() && !self.nodes.is_stopping() { Next::Go } else { Next::Stop }
    }
}

/// The result of a stretch of load.
#[derive(Debug)]
pub struct Judged {
    /// Figures.
    pub summary: Summary,
    /// The verdict.
    pub verdict: Verdict,
    /// The operations of the clients, and at its end the reads of a fresh one.
    pub history: History,
    /// Why a fresh client could not read; the verdict then knows nothing of lost and doubled requests.
    pub unread: Option<Failure>,
}

/// Clients of a cluster, the load that they offer, and what is known of the keys that they use.
pub struct Load {
    generator: Generator,
    info: ClusterInfo,
    clients: usize,
    /// Whether there is a history to judge.
    is_judged: bool,
    /// The key of the client that reads.
    key: PathBuf,
    /// Values that a fresh client has read at the end of the last stretch.
    held: BTreeMap<String, String>,
}

impl Load {
    /// Connects to the cluster in `dir`, whose nodes serve, and opens sessions.
    ///
    /// # Errors
    /// When the cluster does not do its part in time, or this machine refuses.
    pub fn connect(dir: &Path, testnet: &Testnet, plan: &Plan) -> Result<Self, Failure> {
        let info = testnet.cluster.client_info();
        let admin = keys::read_private(&dir.join(ADMIN_KEY)).map_err(Failure::run)?;
        let pool = ClientPool::new(info.clone()).map_err(Failure::run)?;
        let options = LoadOptions {
            clients: plan.clients,
            seed: plan.seed,
            bundle: plan.bundle,
            pace: plan.pace,
            mix: plan.requests.mix(),
            warmup: Duration::ZERO,
            seconds: plan.seconds,
            presign: 0,
            history: plan.requests.are_judged(),
            audience: quorate_client::Audience::Leader,
        };
        let generator = Generator::connect(pool, admin, options).map_err(Failure::run)?;
        let held = BTreeMap::new();
        let is_judged = plan.requests.are_judged();
        Ok(Self { generator, info, clients: plan.clients, is_judged, key: dir.join(KV_KEY), held })
    }

    /// Offers load for as long as was planned or `watch` says, has a fresh client read every key, and judges.
    ///
    /// # Errors
    /// When the cluster does not do its part in time, or `watch` wants no result.
    pub fn stretch(&mut self, watch: &mut dyn Watch) -> Result<Judged, Failure> {
        let summary = self.generator.run(watch).map_err(Failure::run)?;
        let mut history = self.generator.take_history().after(self.held.clone());
        if !self.is_judged {
            return Ok(Judged { summary, verdict: Verdict::default(), history, unread: None });
        }
        let reads = match self.read_back(&history) {
            Ok(reads) => reads,
            Err(why) => {
                let verdict = judge_alone(&history);
                return Ok(Judged { summary, verdict, history, unread: Some(why) });
            }
        };
        let mut finals = self.held.clone();
        for read in &reads {
            let key = read.op.key().to_owned();
            match &read.result {
                Some(KvResult::Value(value)) => {
                    finals.insert(key, String::from_utf8_lossy(value).into_owned());
                }
                _ => {
                    finals.remove(&key);
                }
            }
        }
        history.extend(reads);
        let verdict = judge(&history, &finals);
        self.held = finals;
        Ok(Judged { summary, verdict, history, unread: None })
    }

    /// Reads every key of a history by a fresh client.
    fn read_back(&self, history: &History) -> Result<Vec<Record>, Failure> {
        let key = keys::read_private(&self.key).map_err(Failure::run)?;
        let mut client = Client::connect(self.info.clone(), key, Options::default()).map_err(Failure::run)?;
        let names: BTreeSet<&str> = history.records().iter().map(|record| record.op.key()).collect();
        let gets: Vec<Vec<u8>> =
            names.iter().map(|name| KvOp::Get { key: name.as_bytes() }.to_bytes()).collect();
        let call = self.generator.now();
        let results = client.call_many(gets.iter().map(Vec::as_slice)).map_err(Failure::run)?;
        let answered = Some(self.generator.now());
        let read = |(name, result): (&str, Vec<u8>)| match KvResult::from_bytes(&result) {
            Ok(result @ (KvResult::Value(_) | KvResult::Absent)) => {
                let op = Op::Get { key: name.to_owned() };
                Ok(Record { client: self.clients, op, call, answered, result: Some(result) })
            }
            other => Err(Failure::run(format!("reading {name} back gave {other:?}"))),
        };
        names.into_iter().zip(results).map(read).collect()
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
    let mut load = Load::connect(dir, testnet, plan)?;
    // Who does not run is meant not to; who ends meanwhile has to be back.
    let ids: Vec<ReplicaId> = nodes.ids().into_iter().filter(|id| nodes.pid(*id).is_some()).collect();
    let mut director = Director { nodes, acts: plan.acts.clone(), tell, failed: None };
    let ran = load.stretch(&mut director);
    if let Some(failure) = director.failed {
        return Err(failure);
    }
    let Judged { summary, verdict, history, unread } = ran?;
    if let Some(why) = unread {
        return Err(why);
    }
    let met = meet(&testnet.cluster.client_info(), nodes, &ids)?;
    let Met { digests, executed } = met.ok_or_else(|| Failure::run("stopped"))?;
    Ok((Outcome { summary, verdict, digests, executed }, history))
}

/// Makes a cluster of a service on free ports of this machine.
///
/// # Errors
/// When there are no ports or the folder cannot be made.
pub fn make(
    dir: &Path,
    service: Service,
    entry: &'static Entry,
    n: u16,
    client_auth: ClientAuth,
    settings: &Settings,
) -> Result<Testnet, Failure> {
    let plan = testnet::Plan {
        service,
        entry,
        addresses: free_addresses(usize::from(n))?,
        client_auth,
        links: LinkMode::Tls,
        durability: Durability::Fsync,
        settings: settings.clone(),
    };
    Testnet::create(dir, &plan)
}

/// Returns the status of each replica; `Null` for a replica that does not answer in time.
///
/// # Errors
/// When this machine refuses.
pub fn statuses(info: &ClusterInfo, patience: Duration) -> Result<Vec<Value>, Failure> {
    let answers = driver::status(info.clone(), patience).map_err(Failure::run)?;
    let parsed =
        |answer: Result<String, String>| answer.ok().and_then(|text| serde_json::from_str(&text).ok());
    Ok(answers.into_iter().map(|answer| parsed(answer).unwrap_or(Value::Null)).collect())
}

/// The newest view that more than `f` replicas are in, and who leads it: one at least of them is honest.
#[must_use]
pub fn leader(statuses: &[Value], f: usize) -> Option<(u64, ReplicaId)> {
    let mut counts: BTreeMap<(u64, u64), usize> = BTreeMap::new();
    for status in statuses {
        let number = |name: &str| status.get(name).and_then(Value::as_u64);
        if let (Some(view), Some(leader)) = (number("view"), number("leader")) {
            let count = counts.entry((view, leader)).or_default();
            *count = count.saturating_add(1);
        }
    }
    let ((view, leader), _) = counts.into_iter().rfind(|(_, count)| *count > f)?;
    Some((view, ReplicaId(u16::try_from(leader).ok()?)))
}

/// The states of replicas at the end.
pub(crate) struct Met {
    /// State digests, empty where one gave none.
    pub(crate) digests: Vec<String>,
    /// Heights that they had executed.
    pub(crate) executed: Vec<u64>,
}

/// Waits until these replicas have executed the same height, and says where they stand; `None` when somebody asks to
/// stop meanwhile.
pub(crate) fn meet(
    info: &ClusterInfo,
    nodes: &mut Processes,
    ids: &[ReplicaId],
) -> Result<Option<Met>, Failure> {
    let deadline = Instant::now().checked_add(MEET_PATIENCE);
    loop {
        if nodes.is_stopping() {
            return Ok(None);
        }
        let all = statuses(info, STATUS_PATIENCE)?;
        let statuses: Vec<&Value> =
            ids.iter().map(|id| all.get(id.index()).unwrap_or(&Value::Null)).collect();
        let digest = |status: &Value| {
            status.pointer("/state_digest").and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let digests: Vec<String> = statuses.iter().copied().map(digest).collect();
        let executed: Vec<u64> = statuses
            .iter()
            .map(|status| status.get("executed").and_then(Value::as_u64).unwrap_or(0))
            .collect();
        let together = executed.iter().all(|height| executed.first() == Some(height));
        let known = digests.iter().all(|digest| !digest.is_empty());
        if (together && known) || deadline.is_none_or(|at| Instant::now() >= at) {
            return Ok(Some(Met { digests, executed }));
        }
    }
}
