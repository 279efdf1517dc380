//! A trial: a cluster of processes, load from real clients over real sockets, faults at chosen times, and a verdict on the
//! answers of clients and on the reads of a fresh client afterwards. `quorate demo` is a trial, and so are the kill tests.
//! `quorate torture` repeats a trial's stretch of load against one cluster.

use crate::load::{Generator, LoadOptions, LoadSummary, Next, Progress, Verdict, Watch, judge, judge_alone};
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
use quorate_types::{ClientAuth, ReplicaId, quorum};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time in which replicas have to reach one height after the end of the load.
const HEIGHT_PATIENCE: Duration = Duration::from_secs(20);
/// Time in which each request of the fresh client has to be answered. A silent leader delays it by several views.
const READ_PATIENCE: Duration = Duration::from_secs(90);
/// Time in which a replica has to report its status.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// An act on the cluster while load runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Kills a replica: SIGKILL.
    Kill(ReplicaId),
    /// Kills a replica and removes its data folder. Its next start begins anew.
    Wipe(ReplicaId),
    /// Starts a replica again, on the same folder.
    Start(ReplicaId),
    /// Kills all replicas at nearly the same time, and starts all of them. The machine keeps running, and with it the data
    /// that the operating system has not written yet.
    KillAll,
    /// Pauses a replica: SIGSTOP.
    Pause(ReplicaId),
    /// Resumes a replica: SIGCONT.
    Resume(ReplicaId),
}

impl Act {
    /// Performs the act.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn run(self, nodes: &mut Processes) -> Result<(), Failure> {
        match self {
            Self::Kill(id) => nodes.kill(id),
            Self::Wipe(id) => nodes.wipe(id),
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

/// The plan of a trial.
#[derive(Clone, Debug)]
pub struct TrialPlan {
    /// The load.
    pub load: LoadOptions,
    /// The acts, each with its time after the beginning of the load.
    pub acts: Vec<(Duration, Act)>,
}

impl TrialPlan {
    /// Whether the acts leave a replica killed at the end.
    fn leaves_killed(&self, id: ReplicaId) -> bool {
        let on_it = |act: &&Act| [Act::Kill(id), Act::Start(id), Act::KillAll].contains(act);
        self.acts.iter().map(|(_, act)| act).rfind(on_it) == Some(&Act::Kill(id))
    }
}

/// The result of a trial.
#[derive(Clone, Debug)]
pub struct TrialOutcome {
    /// Figures of the load.
    pub summary: LoadSummary,
    /// The verdict, which includes the reads of a fresh client.
    pub verdict: Verdict,
    /// The states of the replicas at the end.
    pub states: FinalStates,
}

impl TrialOutcome {
    /// Whether no request was lost, doubled or left without an answer, and all replicas agree.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.verdict.is_clean()
            && self.states.are_equal()
            && self.summary.counts.errors == 0
            && self.summary.counts.acknowledged > 0
    }

    /// Describes the result on one line.
    #[must_use]
    pub fn describe(&self) -> String {
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
            if self.states.are_equal() { "equal" } else { "differ" },
            verdict.findings.join("; ")
        )
    }
}

/// The states of replicas at the end of a trial, by id.
#[derive(Clone, Debug)]
pub struct FinalStates {
    /// State digests; empty for a replica that reported none.
    pub digests: Vec<String>,
    /// The last height that each replica has executed.
    pub executed: Vec<u64>,
}

impl FinalStates {
    /// Whether all digests are known and equal.
    #[must_use]
    pub fn are_equal(&self) -> bool {
        let first = self.digests.first().filter(|digest| !digest.is_empty());
        first.is_some_and(|first| self.digests.iter().all(|digest| digest == first))
    }
}

/// The result of a stretch of load.
#[derive(Debug)]
pub struct StretchResult {
    /// Figures.
    pub summary: LoadSummary,
    /// The verdict.
    pub verdict: Verdict,
    /// The operations of the clients, and at the end the reads of a fresh client.
    pub history: History,
    /// The reason why a fresh client could not read. The verdict then does not cover lost and doubled requests.
    pub unread: Option<Failure>,
}

/// Clients of a cluster, their load, and the known values of their keys.
pub struct Load {
    generator: Generator,
    info: ClusterInfo,
    clients: usize,
    /// Whether a history is recorded and judged.
    is_judged: bool,
    /// The file with the key of the client that reads.
    key: PathBuf,
    /// The values that a fresh client has read at the end of the last stretch.
    held: BTreeMap<String, String>,
}

impl Load {
    /// Connects to the running cluster in `dir` and opens sessions.
    ///
    /// # Errors
    /// Fails when the cluster does not answer in time, or this machine refuses.
    pub fn connect(dir: &Path, testnet: &Testnet, options: LoadOptions) -> Result<Self, Failure> {
        let info = testnet.cluster.client_info();
        let admin = keys::read_private(&dir.join(ADMIN_KEY)).map_err(Failure::run)?;
        let pool = ClientPool::new(info.clone()).map_err(Failure::run)?;
        let (clients, is_judged) = (options.clients, options.history);
        let generator = Generator::connect(pool, admin, options).map_err(Failure::run)?;
        let held = BTreeMap::new();
        Ok(Self { generator, info, clients, is_judged, key: dir.join(KV_KEY), held })
    }

    /// Offers load until the planned end or the end that `watch` decides, reads every key with a fresh client, and judges.
    ///
    /// # Errors
    /// Fails when the cluster does not answer in time, or `watch` stops the load.
    pub fn run_stretch(&mut self, watch: &mut Watch<'_>) -> Result<StretchResult, Failure> {
        let summary = self.generator.run(watch).map_err(Failure::run)?;
        let mut history = self.generator.take_history().after(self.held.clone());
        if !self.is_judged {
            return Ok(StretchResult { summary, verdict: Verdict::default(), history, unread: None });
        }
        let reads = match self.read_back(&history) {
            Ok(reads) => reads,
            Err(why) => {
                let verdict = judge_alone(&history);
                return Ok(StretchResult { summary, verdict, history, unread: Some(why) });
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
        Ok(StretchResult { summary, verdict, history, unread: None })
    }

    /// Reads every key of a history with a fresh client.
    fn read_back(&self, history: &History) -> Result<Vec<Record>, Failure> {
        let key = keys::read_private(&self.key).map_err(Failure::run)?;
        let options = Options { timeout: READ_PATIENCE, ..Options::default() };
        let mut client = Client::connect(self.info.clone(), key, options).map_err(Failure::run)?;
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

/// Runs a trial against the running cluster in `dir`. `report` receives the progress, and each act before it happens.
///
/// # Errors
/// Fails when the cluster does not answer in time, or this machine refuses.
pub fn run(
    dir: &Path,
    testnet: &Testnet,
    nodes: &mut Processes,
    plan: &TrialPlan,
    report: &mut dyn FnMut(&Progress, Option<Act>),
) -> Result<(TrialOutcome, History), Failure> {
    let mut load = Load::connect(dir, testnet, plan.load.clone())?;
    // A replica that ends by itself has to be running at the end. One that the plan leaves killed has not.
    let has_to_run = |id: &ReplicaId| nodes.pid(*id).is_some() && !plan.leaves_killed(*id);
    let ids: Vec<ReplicaId> = nodes.ids().into_iter().filter(has_to_run).collect();
    let (mut acts, mut failed) = (plan.acts.clone(), None);
    let ran = load.run_stretch(&mut |progress| {
        let is_due = |(at, _): &mut (Duration, Act)| *at <= progress.elapsed;
        for (_, act) in acts.extract_if(.., is_due) {
            report(progress, Some(act));
            if let Err(failure) = act.run(nodes) {
                failed.get_or_insert(failure);
            }
        }
        report(progress, None);
        if failed.is_none() && !nodes.is_stopping() { Next::Go } else { Next::Stop }
    });
    if let Some(failure) = failed {
        return Err(failure);
    }
    let StretchResult { summary, verdict, history, unread } = ran?;
    if let Some(why) = unread {
        return Err(why);
    }
    let states = final_states(&testnet.cluster.client_info(), nodes, &ids)?;
    let states = states.ok_or_else(|| Failure::run("stopped"))?;
    Ok((TrialOutcome { summary, verdict, states }, history))
}

/// Creates the files of a cluster on free ports of this machine.
///
/// # Errors
/// Fails when there are no free ports or the folder cannot be created.
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
        allow_stop: false,
        settings: settings.clone(),
    };
    Testnet::create(dir, &plan)
}

/// Returns the status of each replica; `Null` for a replica that does not answer in time.
///
/// # Errors
/// Fails when this machine refuses.
pub fn statuses(info: &ClusterInfo, patience: Duration) -> Result<Vec<Value>, Failure> {
    let answers = driver::status(info.clone(), patience).map_err(Failure::run)?;
    let parsed =
        |answer: Result<String, String>| answer.ok().and_then(|text| serde_json::from_str(&text).ok());
    Ok(answers.into_iter().map(|answer| parsed(answer).unwrap_or(Value::Null)).collect())
}

/// Returns the newest view that more than `f` replicas report, and its leader. At least one of these replicas is correct.
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
    let ((view, leader), _) = counts.into_iter().rfind(|(_, count)| *count >= quorum::weak(f))?;
    Some((view, ReplicaId(u16::try_from(leader).ok()?)))
}

/// Waits until these replicas have executed the same height, or the time is over, and returns their states; `None` when the
/// process is asked to stop.
pub(crate) fn final_states(
    info: &ClusterInfo,
    nodes: &mut Processes,
    ids: &[ReplicaId],
) -> Result<Option<FinalStates>, Failure> {
    let deadline = Instant::now().checked_add(HEIGHT_PATIENCE);
    loop {
        if nodes.is_stopping() {
            return Ok(None);
        }
        let all = statuses(info, STATUS_PATIENCE)?;
        let mut states = FinalStates { digests: Vec::new(), executed: Vec::new() };
        for status in ids.iter().map(|id| all.get(id.index()).unwrap_or(&Value::Null)) {
            let digest = status.get("state_digest").and_then(Value::as_str);
            states.digests.push(digest.unwrap_or_default().to_owned());
            states.executed.push(status.get("executed").and_then(Value::as_u64).unwrap_or(0));
        }
        let have_one_height = states.executed.windows(2).all(|pair| pair.first() == pair.last());
        let are_known = states.digests.iter().all(|digest| !digest.is_empty());
        if (have_one_height && are_known) || deadline.is_none_or(|at| Instant::now() >= at) {
            return Ok(Some(states));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_is_the_one_that_f_plus_1_replicas_report() {
        let report = |view: u64| serde_json::json!({"view": view, "leader": view % 6});
        assert_eq!(leader(&[report(3), report(4), Value::Null], 1), None, "one may lie");
        let two = [report(9), report(3), report(4), report(4)];
        assert_eq!(leader(&two, 1), Some((4, ReplicaId(4))));
        assert_eq!(leader(&two, 2), None);
    }
}
