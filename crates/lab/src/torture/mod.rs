//! Torture: real processes under load, killed, paused and all killed at once for as long as asked, and judged.
//!
//! A run is a row of stretches against one cluster. In each stretch clients offer load without a break while events
//! happen one after the other: the cluster is waited for until it is whole again, then the next one comes. Then the
//! load ends, a fresh client reads every key, and everything that clients were told is judged. What one stretch leaves
//! is where the next begins, so memory is bounded by a stretch.
//!
//! A run that is asked to stop reports its findings: the stretch ends, and is judged as far as it went.
//!
//! Nothing here sleeps: it waits for what processes, replicas and clients say, with a deadline. A cluster that is
//! not whole again in time is a failure like a lost request.

mod pulse;
mod schedule;

pub use pulse::{Goodput, Pulse};
pub use schedule::{Event, Fault, Schedule};

use crate::history_file;
use crate::load::{Next, Pace, Progress, Verdict, Watch};
use crate::trial::{self, Act, Judged, Load, Met, Plan, Requests};
use quorate_client::cluster::ClusterInfo;
use quorate_consensus::Synchrony;
use quorate_node::exit::Failure;
use quorate_node::processes::{self, Processes};
use quorate_node::testnet::Testnet;
use quorate_types::ReplicaId;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time in which a cluster has to be whole again after an event, and a node has to serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which goodput is waited for once all replicas follow again.
const BACK_PATIENCE: Duration = Duration::from_secs(10);
/// Time in which a replica has to report its status.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);
/// Pause without news of the load after which a waiting director looks at other things.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A stretch ends after so many answers: all that clients were told is kept until it is judged.
const ANSWERS_MAX: u64 = 500_000;
/// A stretch never lasts so long.
const STRETCH_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides events, keys and operations.
    pub seed: u64,
    /// The faults, in the shares that they have among all.
    pub only: Vec<Fault>,
    /// After so long no event begins any more.
    pub span: Duration,
    /// Clients.
    pub clients: usize,
    /// The way in which load is offered.
    pub pace: Pace,
    /// The requests.
    pub requests: Requests,
}

/// An event and its effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Counted from 1.
    pub number: u64,
    /// Counted from 1.
    pub stretch: u64,
    /// Since the run began.
    pub at_ms: u64,
    /// The fault.
    pub fault: Fault,
    /// To whom; `None`: to all.
    pub victim: Option<u16>,
    /// From the kill to the start, or from the pause to its end.
    pub down_ms: u64,
    /// Answers in a second before it.
    pub goodput: u64,
    /// Longest time without an answer.
    pub gap_ms: u64,
    /// Time until answers came as often as before again, but for a tenth; `None`: not within the time of waiting. The
    /// machine may have become slower meanwhile, so this alone is no failure.
    pub back_ms: Option<u64>,
    /// Time until all replicas followed again.
    pub whole_ms: u64,
    /// The view before it, and when all replicas followed again.
    pub views: (u64, u64),
}

/// Why a run is not good.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Why {
    /// Somebody asked to stop; nothing wrong was found until then.
    #[error("stopped")]
    Stopped,
    /// For people.
    #[error("{0}")]
    Wrong(String),
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The bound on delays that the protocol assumes.
    pub bound: Option<Synchrony>,
    /// All events, in order.
    pub events: Vec<Report>,
    /// Stretches that were judged.
    pub stretches: u64,
    /// Requests that were answered.
    pub acknowledged: u64,
    /// Requests without an answer.
    pub errors: u64,
    /// The verdict.
    pub verdict: Verdict,
    /// State digest of each replica at the end of the last stretch, if it was not stopped.
    pub digests: Vec<String>,
    /// Why all is not well, or cannot be said to be.
    pub failure: Option<Why>,
    /// The file of the last stretch's history, if anything is wrong with it.
    pub history: Option<PathBuf>,
}

impl Outcome {
    /// A run that was stopped before it began.
    #[must_use]
    pub fn stopped() -> Self {
        Self { failure: Some(Why::Stopped), ..Self::default() }
    }

    /// Whether everything was as it should be, to the end.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failure.is_none() && self.stretches > 0 && self.errors == 0 && self.verdict.is_clean()
    }

    /// Whether there is something to look into.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        !self.is_good() && self.failure != Some(Why::Stopped)
    }

    /// The first thing that is wrong counts.
    fn wrong(&mut self, why: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(Why::Wrong(why()));
        }
    }

    /// Makes a failure of wrong or missing answers.
    fn complain(&mut self) {
        let undecided = self.verdict.undecided;
        if self.verdict.is_wrong() {
            self.wrong(|| "clients were told what cannot be".to_owned());
        } else if self.errors > 0 {
            let errors = self.errors;
            self.wrong(|| format!("{errors} requests have no answer"));
        } else if undecided > 0 {
            self.wrong(|| {
                format!(
                    "{undecided} keys could not be judged: too many operations on one key overlap; have less in flight, \
                     or more --keys"
                )
            });
        }
    }
}

/// News of a run while it lasts.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// The load has come so far, in this stretch.
    Progress(u64, &'a Progress),
    /// An event begins.
    Begins(&'a Event, Option<ReplicaId>),
    /// An event is over.
    Over(&'a Report),
    /// A stretch is over: which, what was judged, and whether all was well.
    Judged(u64, &'a Verdict, bool),
}

/// Runs it against a cluster whose nodes serve, in `dir`. What is wrong with the cluster is in the outcome.
///
/// # Errors
/// When this machine refuses.
pub fn run(
    dir: &Path,
    testnet: &Testnet,
    nodes: &mut Processes,
    options: &Options,
    tell: &mut dyn FnMut(News<'_>),
) -> Result<Outcome, Failure> {
    let info = testnet.cluster.client_info();
    let mut load = Load::connect(dir, testnet, &plan(options))?;
    let n = u16::try_from(nodes.ids().len()).unwrap_or(u16::MAX);
    let mut schedule = Schedule::new(options.seed, n, &options.only);
    let begun = Instant::now();
    let f = usize::from(testnet.cluster.genesis.f);
    let mut outcome = Outcome::default();
    while outcome.failure.is_none() && (outcome.stretches == 0 || begun.elapsed() < options.span) {
        let events = schedule.stretch();
        let stretch = outcome.stretches.saturating_add(1);
        let mut director = Director {
            info: &info,
            f,
            nodes,
            stretch,
            begun,
            span: options.span,
            pulse: Pulse::default(),
            tell,
        };
        let ended = director.stretch(&mut load, events, &mut outcome.events);
        finish(dir, &info, nodes, ended, &mut outcome)?;
        tell(News::Judged(stretch, &outcome.verdict, !outcome.is_suspect()));
    }
    Ok(outcome)
}

fn plan(options: &Options) -> Plan {
    Plan {
        seconds: STRETCH_MAX,
        clients: options.clients,
        pace: options.pace,
        bundle: None,
        requests: options.requests,
        seed: options.seed,
        acts: Vec::new(),
    }
}

/// Adds a stretch to the outcome.
fn finish(
    dir: &Path,
    info: &ClusterInfo,
    nodes: &mut Processes,
    ended: Ended,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    if let Some(why) = ended.failure {
        outcome.wrong(|| why);
    }
    let Judged { summary, verdict, history, unread } = match ended.judged {
        Ok(judged) => judged,
        Err(why) => {
            outcome.wrong(|| why.to_string());
            return Ok(());
        }
    };
    outcome.stretches = outcome.stretches.saturating_add(1);
    outcome.acknowledged = outcome.acknowledged.saturating_add(summary.counts.acknowledged);
    outcome.errors = outcome.errors.saturating_add(summary.counts.errors);
    outcome.verdict.add(verdict);
    if let Some(why) = unread {
        outcome.wrong(|| why.to_string());
    }
    // A run that was stopped may have ended in the middle of an event: then not all replicas are there to be compared.
    if !nodes.is_stopping()
        && let Some(Met { digests, executed }) = trial::meet(info, nodes, &nodes.ids())?
    {
        if !trial::are_equal(&digests) {
            let digests = digests.join(" ");
            outcome.wrong(|| format!("state digests differ: {digests} at heights {executed:?}"));
        }
        outcome.digests = digests;
    }
    outcome.complain();
    if nodes.is_stopping() {
        outcome.failure.get_or_insert(Why::Stopped);
    }
    if outcome.is_suspect() && !history.records().is_empty() {
        let file = dir.join(format!("history-{}.jsonl", outcome.stretches));
        history_file::save(&history, &file)?;
        outcome.history = Some(file);
    }
    Ok(())
}

/// The end of a stretch.
struct Ended {
    /// A failure of the cluster.
    failure: Option<String>,
    judged: Result<Judged, Failure>,
}

/// Hands progress to who directs, and hears when to end.
struct Watcher<'a> {
    tell: Sender<Progress>,
    end: &'a AtomicBool,
}

impl Watch for Watcher<'_> {
    fn look(&mut self, progress: &Progress) -> Next {
        // Who directs may have ended already; then the flag says so.
        let _ = self.tell.send(*progress);
        if self.end.load(Ordering::Relaxed) { Next::End } else { Next::Go }
    }
}

/// Makes things happen in a stretch, on the thread that the nodes were started from: they die with it.
struct Director<'a> {
    info: &'a ClusterInfo,
    f: usize,
    nodes: &'a mut Processes,
    stretch: u64,
    begun: Instant,
    span: Duration,
    pulse: Pulse,
    tell: &'a mut dyn FnMut(News<'_>),
}

impl Director<'_> {
    fn stretch(&mut self, load: &mut Load, events: Vec<Event>, reports: &mut Vec<Report>) -> Ended {
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            let (tell, hear) = channel();
            let mut watcher = Watcher { tell, end: &end };
            let running = scope.spawn(move || load.stretch(&mut watcher));
            let mut failure = None;
            for event in events {
                let is_over = !reports.is_empty() && self.begun.elapsed() >= self.span;
                if is_over || self.pulse.acknowledged() >= ANSWERS_MAX {
                    break;
                }
                match self.event(&event, &hear) {
                    Ok(report) => {
                        (self.tell)(News::Over(&report));
                        reports.push(report);
                    }
                    Err(_) if self.nodes.is_stopping() => break,
                    Err(why) => {
                        failure = Some(format!("event {}, {}: {why}", event.number, event.fault));
                        break;
                    }
                }
            }
            end.store(true, Ordering::Relaxed);
            let judged = running.join().unwrap_or_else(|_| Err(Failure::run("the load has panicked")));
            Ended { failure, judged }
        })
    }

    fn event(&mut self, event: &Event, hear: &Receiver<Progress>) -> Result<Report, Failure> {
        let (_, statuses) = self.until_whole(hear)?;
        let (view, leader) =
            trial::leader(&statuses, self.f).ok_or_else(|| Failure::run("no view has f + 1 replicas"))?;
        self.pulse.begin();
        self.pass(event.calm, hear)?;
        let before = self.pulse.begin();
        let n = u16::try_from(self.nodes.ids().len()).unwrap_or(u16::MAX);
        let victim = event.victim(leader, n);
        (self.tell)(News::Begins(event, victim));
        let (at, begun) = (self.begun.elapsed(), Instant::now());
        match (event.fault, victim) {
            (Fault::KillLeader | Fault::KillBackup, Some(id)) => {
                Act::Kill(id).run(self.nodes)?;
                self.pass(event.down, hear)?;
                Act::Start(id).run(self.nodes)?;
            }
            (Fault::PauseLeader | Fault::PauseBackup, Some(id)) => {
                Act::Pause(id).run(self.nodes)?;
                self.pass(event.down, hear)?;
                Act::Resume(id).run(self.nodes)?;
            }
            (Fault::KillAll, _) | (_, None) => Act::KillAll.run(self.nodes)?,
        }
        let ids = self.nodes.ids();
        self.nodes.wait_ready(&ids, PATIENCE)?;
        let (whole, statuses) = self.until_whole(hear)?;
        let back = self.until_back(&before, hear)?;
        let view_after = trial::leader(&statuses, self.f).map_or(view, |(view, _)| view);
        Ok(Report {
            number: event.number,
            stretch: self.stretch,
            at_ms: ms(at),
            fault: event.fault,
            victim: victim.map(|id| id.0),
            down_ms: ms(event.down),
            goodput: before.per_second(),
            gap_ms: ms(self.pulse.gap()),
            back_ms: back.map(ms),
            whole_ms: ms(whole.saturating_duration_since(begun)),
            views: (view, view_after),
        })
    }

    /// Takes in what the load and the processes say, for a moment.
    fn listen(&mut self, hear: &Receiver<Progress>) -> Result<(), Failure> {
        match hear.recv_timeout(LOOK_EVERY) {
            Ok(progress) => {
                self.pulse.note(&progress);
                (self.tell)(News::Progress(self.stretch, &progress));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::run("the load has ended")),
        }
        hear.try_iter().for_each(|progress| self.pulse.note(&progress));
        while let Some(event) = self.nodes.next_event(Some(Instant::now())) {
            match event {
                processes::Event::Gone(gone) => return Err(Failure::run(gone.line)),
                processes::Event::Stop => return Err(Failure::run("stopped")),
                processes::Event::Ready(_) | processes::Event::Taken(..) => {}
            }
        }
        Ok(())
    }

    /// So much time passes, of the load's.
    fn pass(&mut self, span: Duration, hear: &Receiver<Progress>) -> Result<(), Failure> {
        let until = Instant::now().checked_add(span);
        while until.is_some_and(|until| Instant::now() < until) {
            self.listen(hear)?;
        }
        Ok(())
    }

    /// Waits until all replicas are at work in one view, and none is behind where another was a moment ago.
    fn until_whole(&mut self, hear: &Receiver<Progress>) -> Result<(Instant, Vec<Value>), Failure> {
        let deadline = Instant::now().checked_add(PATIENCE);
        let mut foremost = u64::MAX;
        loop {
            let statuses = trial::statuses(self.info, STATUS_PATIENCE)?;
            if is_whole(&statuses, foremost) {
                return Ok((Instant::now(), statuses));
            }
            if deadline.is_none_or(|at| Instant::now() >= at) {
                let how = statuses.iter().map(brief).collect::<Vec<_>>().join(", ");
                return Err(Failure::run(format!("the replicas are not together after {PATIENCE:?}: {how}")));
            }
            foremost = statuses.iter().filter_map(executed).max().unwrap_or(u64::MAX);
            self.listen(hear)?;
        }
    }

    fn until_back(
        &mut self,
        before: &Goodput,
        hear: &Receiver<Progress>,
    ) -> Result<Option<Duration>, Failure> {
        let deadline = Instant::now().checked_add(BACK_PATIENCE);
        loop {
            let back = self.pulse.back(before);
            if back.is_some() || deadline.is_none_or(|at| Instant::now() >= at) {
                return Ok(back);
            }
            self.listen(hear)?;
        }
    }
}

fn executed(status: &Value) -> Option<u64> {
    status.get("executed")?.as_u64()
}

/// Whether all replicas are at work in one view and have executed what the foremost had.
fn is_whole(statuses: &[Value], foremost: u64) -> bool {
    let view = statuses.first().and_then(|status| status.get("view"));
    statuses.iter().all(|status| {
        let is = |name: &str| status.get(name).and_then(Value::as_bool) == Some(true);
        is("normal")
            && is("progress")
            && status.get("view") == view
            && executed(status).is_some_and(|height| height >= foremost)
    })
}

fn brief(status: &Value) -> String {
    let text = |name: &str| status.get(name).map_or_else(|| "?".to_owned(), Value::to_string);
    match status.get("id") {
        Some(id) => format!("replica {id} in view {} executed {}", text("view"), text("executed")),
        None => "one says nothing".to_owned(),
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
    fn a_cluster_is_whole_when_all_follow() {
        let status = |view: u64, executed: u64| json!({"id": 0, "view": view, "executed": executed, "normal": true, "progress": true});
        let all = |statuses: &[Value]| is_whole(statuses, 100);
        assert!(all(&[status(3, 100), status(3, 120), status(3, 101), status(3, 100)]));
        assert!(!all(&[status(3, 100), status(3, 99)]), "one is behind");
        assert!(!all(&[status(3, 100), status(4, 100)]), "views");
        assert!(!all(&[status(3, 100), Value::Null]), "silent");
        for name in ["normal", "progress"] {
            let mut other = status(3, 100);
            other[name] = json!(false);
            assert!(!all(&[status(3, 100), other]), "{name}");
        }
        assert!(!is_whole(&[status(3, 100)], u64::MAX), "nobody knows where the foremost was");
        assert_eq!(brief(&Value::Null), "one says nothing");
        assert_eq!(brief(&status(3, 9)), "replica 0 in view 3 executed 9");
    }
}
