//! Torture: real processes under load, killed, paused and all killed at once for a chosen time, and judged.
//!
//! A torture is a sequence of stretches against one cluster. In each stretch clients offer load without a break while events
//! happen one after the other: the next event waits until all replicas work in one view again. Then the load ends, a fresh
//! client reads every key, and all answers are judged. The next stretch begins with the values of the last one, so one
//! stretch bounds the memory.
//!
//! A torture that is asked to stop reports its findings: the stretch ends and is judged.
//!
//! Nothing here sleeps: each wait is for a report of processes, replicas or clients, with a deadline. A cluster that is not
//! whole again in time is a failure like a lost request.

mod answer_rate;
mod schedule;

pub use answer_rate::{AnswerRate, Goodput};
pub use schedule::{PlannedEvent, ProcessFault, Schedule};

use crate::history_file;
use crate::load::{LoadOptions, Next, Progress, Verdict};
use crate::trial::{self, Act, FinalStates, Load, StretchResult};
use quorate_client::cluster::ClusterInfo;
use quorate_consensus::Synchrony;
use quorate_history::History;
use quorate_node::exit::Failure;
use quorate_node::processes::{self, Processes};
use quorate_node::testnet::Testnet;
use quorate_types::ReplicaId;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time in which a cluster has to be whole again after an event, and a node has to serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which a recovery of goodput is awaited once the cluster is whole again.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a replica has to report its status.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for a report of the load before the director checks the processes again.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Answers after which a stretch ends. All answers are kept until they are judged.
const ANSWERS_MAX: u64 = 500_000;
/// Upper bound on the time of a stretch.
pub(crate) const STRETCH_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The options of a torture.
#[derive(Clone, Debug)]
pub struct TortureOptions {
    /// The kinds of faults.
    pub only: Vec<ProcessFault>,
    /// The time after which no event begins.
    pub span: Duration,
    /// The load. Its seed decides the events too.
    pub load: LoadOptions,
    /// The replica that lies from the beginning, where one does.
    pub liar: Option<ReplicaId>,
}

/// An event and its effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EventReport {
    /// Number of the event, from 1 on.
    pub number: u64,
    /// Number of the stretch, from 1 on.
    pub stretch: u64,
    /// Time since the torture began.
    pub at_ms: u64,
    /// The fault.
    pub fault: ProcessFault,
    /// The replica that was killed or paused; `None`: all replicas.
    pub victim: Option<u16>,
    /// Time from the kill to the start, or from the pause to its end.
    pub down_ms: u64,
    /// Answers in a second before the event.
    pub goodput: u64,
    /// Longest time without an answer.
    pub gap_ms: u64,
    /// Time until goodput reached 90 % of its earlier value; `None`: it did not in time. The machine may have become slower
    /// meanwhile, so this alone is no failure.
    pub back_ms: Option<u64>,
    /// Time until the cluster was whole again.
    pub whole_ms: u64,
    /// The view before the event, and the one in which the cluster was whole again.
    pub views: (u64, u64),
}

/// The reason why a torture is not good.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TortureFailure {
    /// The process was asked to stop; nothing wrong was found until then.
    #[error("stopped")]
    Stopped,
    /// A finding.
    #[error("{0}")]
    Wrong(String),
}

/// The result of a torture.
#[derive(Clone, Debug, Default)]
pub struct TortureOutcome {
    /// The bound on delays that the protocol assumes.
    pub bound: Option<Synchrony>,
    /// All events, in order.
    pub events: Vec<EventReport>,
    /// Number of judged stretches.
    pub stretches: u64,
    /// Requests that were answered.
    pub acknowledged: u64,
    /// Requests without an answer.
    pub errors: u64,
    /// The verdict.
    pub verdict: Verdict,
    /// State digest of each replica at the end of the last stretch; empty if the torture was stopped.
    pub digests: Vec<String>,
    /// The first failure, or the reason why the run is incomplete.
    pub failure: Option<TortureFailure>,
    /// The file with the history of the last stretch, if something is wrong.
    pub history: Option<PathBuf>,
}

impl TortureOutcome {
    /// Returns the outcome of a torture that was stopped before it began.
    #[must_use]
    pub fn stopped() -> Self {
        Self { failure: Some(TortureFailure::Stopped), ..Self::default() }
    }

    /// Whether the torture was complete and found nothing wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failure.is_none() && self.stretches > 0 && self.errors == 0 && self.verdict.is_clean()
    }

    /// Whether something has to be examined.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        !self.is_good() && self.failure != Some(TortureFailure::Stopped)
    }

    /// Adds a failure. The first failure is kept.
    fn fail(&mut self, reason: impl ToString) {
        self.failure.get_or_insert_with(|| TortureFailure::Wrong(reason.to_string()));
    }

    /// Adds a failure for wrong or missing answers.
    fn fail_by_verdict(&mut self) {
        let (errors, undecided) = (self.errors, self.verdict.undecided);
        if self.verdict.is_wrong() {
            self.fail("clients received impossible answers");
        } else if errors > 0 {
            self.fail(format_args!("{errors} requests have no answer"));
        } else if undecided > 0 {
            self.fail(format_args!(
                "{undecided} keys could not be judged: too many operations on one key overlap; use a lower --in-flight, or \
                 more --keys"
            ));
        }
    }
}

/// A report of a torture while it runs.
#[derive(Clone, Copy, Debug)]
pub enum TortureReport<'a> {
    /// The progress of the load in this stretch.
    Progress(u64, &'a Progress),
    /// An event begins; the victim is one replica or all.
    Begins(&'a PlannedEvent, Option<ReplicaId>),
    /// An event is over.
    Over(&'a EventReport),
    /// A stretch is over: the answers that clients received in it.
    Recorded(&'a History),
    /// A stretch is over: its number, the verdict, and whether all was good.
    Judged(u64, &'a Verdict, bool),
}

/// Tortures the running cluster in `dir`. The outcome has the failures of the cluster.
///
/// # Errors
/// Fails when this machine refuses.
pub fn run(
    dir: &Path,
    testnet: &Testnet,
    nodes: &mut Processes,
    options: &TortureOptions,
    report: &mut dyn FnMut(TortureReport<'_>),
) -> Result<TortureOutcome, Failure> {
    let info = testnet.cluster.client_info();
    let mut load = Load::connect(dir, testnet, options.load.clone())?;
    let n = u16::try_from(nodes.ids().len()).unwrap_or(u16::MAX);
    let mut schedule = Schedule::new(options.load.seed, n, &options.only);
    let begun = Instant::now();
    let f = usize::from(testnet.cluster.genesis.f);
    let mut outcome = TortureOutcome::default();
    while outcome.failure.is_none() && (outcome.stretches == 0 || begun.elapsed() < options.span) {
        let events = schedule.next_stretch();
        let stretch = outcome.stretches.saturating_add(1);
        let (span, rate) = (options.span, AnswerRate::default());
        let liar = options.liar;
        let mut director = Director { info: &info, f, nodes, stretch, begun, span, rate, report, liar };
        let result = director.run_stretch(&mut load, events, &mut outcome);
        if let Ok(StretchResult { history, .. }) = &result {
            report(TortureReport::Recorded(history));
        }
        finish((dir, &info), nodes, result, liar, &mut outcome)?;
        report(TortureReport::Judged(stretch, &outcome.verdict, !outcome.is_suspect()));
    }
    Ok(outcome)
}

/// Adds the result of a stretch to the outcome.
fn finish(
    (dir, info): (&Path, &ClusterInfo),
    nodes: &mut Processes,
    result: Result<StretchResult, Failure>,
    liar: Option<ReplicaId>,
    outcome: &mut TortureOutcome,
) -> Result<(), Failure> {
    let StretchResult { summary, verdict, history, unread } = match result {
        Ok(result) => result,
        Err(why) => {
            outcome.fail(why);
            return Ok(());
        }
    };
    outcome.stretches = outcome.stretches.saturating_add(1);
    outcome.acknowledged = outcome.acknowledged.saturating_add(summary.counts.acknowledged);
    outcome.errors = outcome.errors.saturating_add(summary.counts.errors);
    outcome.verdict.add(verdict);
    if let Some(why) = unread {
        outcome.fail(why);
    }
    // A stopped torture may have ended in the middle of an event, so not all replicas can be compared.
    let honest: Vec<ReplicaId> = nodes.ids().into_iter().filter(|id| Some(*id) != liar).collect();
    if !nodes.is_stopping()
        && let Some(states) = trial::final_states(info, nodes, &honest)?
    {
        let is_equal = states.are_equal();
        let FinalStates { digests, executed } = states;
        if !is_equal {
            outcome.fail(format_args!("state digests differ: {} at heights {executed:?}", digests.join(" ")));
        }
        outcome.digests = digests;
    }
    outcome.fail_by_verdict();
    if nodes.is_stopping() {
        outcome.failure.get_or_insert(TortureFailure::Stopped);
    }
    if outcome.is_suspect() && !history.records().is_empty() {
        let file = dir.join(format!("history-{}.jsonl", outcome.stretches));
        history_file::save(&history, &file)?;
        outcome.history = Some(file);
    }
    Ok(())
}

/// The director of a stretch, on the thread that has started the nodes: they end with it.
struct Director<'a> {
    info: &'a ClusterInfo,
    f: usize,
    nodes: &'a mut Processes,
    stretch: u64,
    begun: Instant,
    span: Duration,
    rate: AnswerRate,
    report: &'a mut dyn FnMut(TortureReport<'_>),
    liar: Option<ReplicaId>,
}

impl Director<'_> {
    /// Makes the events happen while another thread offers the load.
    fn run_stretch(
        &mut self,
        load: &mut Load,
        events: Vec<PlannedEvent>,
        outcome: &mut TortureOutcome,
    ) -> Result<StretchResult, Failure> {
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            let (sender, progress) = channel();
            let end = &end;
            let running = scope.spawn(move || {
                load.run_stretch(&mut |progress| {
                    // A director that has ended receives nothing any more; then the flag is set.
                    let _ = sender.send(*progress);
                    if end.load(Ordering::Relaxed) { Next::End } else { Next::Go }
                })
            });
            for event in events {
                let is_over = !outcome.events.is_empty() && self.begun.elapsed() >= self.span;
                if is_over || self.rate.acknowledged() >= ANSWERS_MAX {
                    break;
                }
                match self.run_event(&event, &progress) {
                    Ok(report) => {
                        (self.report)(TortureReport::Over(&report));
                        outcome.events.push(report);
                    }
                    Err(_) if self.nodes.is_stopping() => break,
                    Err(why) => {
                        outcome.fail(format_args!("event {}, {}: {why}", event.number, event.fault));
                        break;
                    }
                }
            }
            end.store(true, Ordering::Relaxed);
            running.join().unwrap_or_else(|_| Err(Failure::run("the load has panicked")))
        })
    }

    fn run_event(
        &mut self,
        event: &PlannedEvent,
        progress: &Receiver<Progress>,
    ) -> Result<EventReport, Failure> {
        let (_, statuses) = self.wait_until_whole(progress)?;
        let (view, leader) =
            trial::leader(&statuses, self.f).ok_or_else(|| Failure::run("no view has f + 1 replicas"))?;
        self.rate.begin();
        self.wait_for(event.calm, progress)?;
        let before = self.rate.begin();
        let n = u16::try_from(self.nodes.ids().len()).unwrap_or(u16::MAX);
        let victim = event.victim(leader, n, self.liar);
        (self.report)(TortureReport::Begins(event, victim));
        let (at, begun) = (self.begun.elapsed(), Instant::now());
        let acts = match (event.fault, victim) {
            (ProcessFault::KillLeader | ProcessFault::KillBackup, Some(id)) => {
                Some((Act::Kill(id), Act::Start(id)))
            }
            (ProcessFault::PauseLeader | ProcessFault::PauseBackup, Some(id)) => {
                Some((Act::Pause(id), Act::Resume(id)))
            }
            (ProcessFault::WipeBackup, Some(id)) => Some((Act::Wipe(id), Act::Start(id))),
            (ProcessFault::KillAll, _) | (_, None) => None,
        };
        match acts {
            Some((first, last)) => {
                first.run(self.nodes)?;
                self.wait_for(event.down, progress)?;
                last.run(self.nodes)?;
            }
            None => Act::KillAll.run(self.nodes)?,
        }
        let ids = self.nodes.ids();
        self.nodes.wait_ready(&ids, PATIENCE)?;
        let (whole, statuses) = self.wait_until_whole(progress)?;
        let recovered = self.wait_for_recovery(&before, progress)?;
        let view_after = trial::leader(&statuses, self.f).map_or(view, |(view, _)| view);
        Ok(EventReport {
            number: event.number,
            stretch: self.stretch,
            at_ms: ms(at),
            fault: event.fault,
            victim: victim.map(|id| id.0),
            down_ms: ms(event.down),
            goodput: before.per_second(),
            gap_ms: ms(self.rate.gap()),
            back_ms: recovered.map(ms),
            whole_ms: ms(whole.saturating_duration_since(begun)),
            views: (view, view_after),
        })
    }

    /// Handles reports of the load and of the processes; waits shortly for one.
    fn poll(&mut self, progress: &Receiver<Progress>) -> Result<(), Failure> {
        match progress.recv_timeout(POLL_EVERY) {
            Ok(progress) => {
                self.rate.add(&progress);
                (self.report)(TortureReport::Progress(self.stretch, &progress));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::run("the load has ended")),
        }
        progress.try_iter().for_each(|progress| self.rate.add(&progress));
        while let Some(event) = self.nodes.next_event(Some(Instant::now())) {
            match event {
                processes::Event::Gone(gone) => return Err(Failure::run(gone.line)),
                processes::Event::Stop => return Err(Failure::run("stopped")),
                processes::Event::Ready(_) | processes::Event::Taken(..) => {}
            }
        }
        Ok(())
    }

    /// Waits for a span of time.
    fn wait_for(&mut self, span: Duration, progress: &Receiver<Progress>) -> Result<(), Failure> {
        let until = Instant::now().checked_add(span);
        while until.is_some_and(|until| Instant::now() < until) {
            self.poll(progress)?;
        }
        Ok(())
    }

    /// Returns the status of each replica that does not lie; `Null` for one that does not answer in time.
    fn statuses(&self) -> Result<Vec<Value>, Failure> {
        let mut statuses = trial::statuses(self.info, STATUS_PATIENCE)?;
        if let Some(liar) = self.liar.filter(|liar| liar.index() < statuses.len()) {
            statuses.remove(liar.index());
        }
        Ok(statuses)
    }

    /// Waits until all replicas work in one view, and each has executed the greatest height of a moment ago.
    fn wait_until_whole(&mut self, progress: &Receiver<Progress>) -> Result<(Instant, Vec<Value>), Failure> {
        let deadline = Instant::now().checked_add(PATIENCE);
        let mut greatest = u64::MAX;
        loop {
            let statuses = self.statuses()?;
            if is_whole(&statuses, greatest) {
                return Ok((Instant::now(), statuses));
            }
            if deadline.is_none_or(|at| Instant::now() >= at) {
                let states = statuses.iter().map(describe).collect::<Vec<_>>().join(", ");
                return Err(Failure::run(format!(
                    "the replicas do not work in one view after {PATIENCE:?}: {states}"
                )));
            }
            greatest = statuses.iter().filter_map(executed).max().unwrap_or(u64::MAX);
            self.poll(progress)?;
        }
    }

    fn wait_for_recovery(
        &mut self,
        before: &Goodput,
        progress: &Receiver<Progress>,
    ) -> Result<Option<Duration>, Failure> {
        let deadline = Instant::now().checked_add(RECOVERY_PATIENCE);
        loop {
            let recovered = self.rate.recovered_after(before);
            if recovered.is_some() || deadline.is_none_or(|at| Instant::now() >= at) {
                return Ok(recovered);
            }
            self.poll(progress)?;
        }
    }
}

fn executed(status: &Value) -> Option<u64> {
    status.get("executed")?.as_u64()
}

/// Whether all replicas work in one view and have executed height `greatest`.
fn is_whole(statuses: &[Value], greatest: u64) -> bool {
    let view = statuses.first().and_then(|status| status.get("view"));
    statuses.iter().all(|status| {
        let is = |name: &str| status.get(name).and_then(Value::as_bool) == Some(true);
        is("normal")
            && is("progress")
            && status.get("view") == view
            && executed(status).is_some_and(|height| height >= greatest)
    })
}

fn describe(status: &Value) -> String {
    let text = |name: &str| status.get(name).map_or_else(|| "?".to_owned(), Value::to_string);
    match status.get("id") {
        Some(id) => format!("replica {id} in view {} executed {}", text("view"), text("executed")),
        None => "a replica without a status".to_owned(),
    }
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cluster_is_whole_with_all_replicas_in_one_view() {
        let status = |view: u64, executed: u64| json!({"id": 0, "view": view, "executed": executed, "normal": true, "progress": true});
        let all = |statuses: &[Value]| is_whole(statuses, 100);
        assert!(all(&[status(3, 100), status(3, 120), status(3, 101), status(3, 100)]));
        assert!(!all(&[status(3, 100), status(3, 99)]), "one is behind");
        assert!(!all(&[status(3, 100), status(4, 100)]), "views");
        assert!(!all(&[status(3, 100), Value::Null]), "no status");
        for name in ["normal", "progress"] {
            let mut other = status(3, 100);
            other[name] = json!(false);
            assert!(!all(&[status(3, 100), other]), "{name}");
        }
        assert!(!is_whole(&[status(3, 100)], u64::MAX), "the greatest height is unknown");
        assert_eq!(describe(&Value::Null), "a replica without a status");
        assert_eq!(describe(&status(3, 9)), "replica 0 in view 3 executed 9");
    }
}
