//! Nodes as child processes: they are started, awaited, killed, started again and stopped.
//!
//! * A child prints `ready` on its output stream when it serves; its error stream goes to `node.log` in its folder.
//! * Children die with the thread that started them, by a call that the child itself makes: start them from a
//!   thread that lives as long as the cluster. They are process groups of their own, so Ctrl-C reaches the
//!   parent alone, which then stops them in order.
//! * Dropping [`Processes`] leaves no child behind.

mod cause;

use crate::exit::Failure;
use crate::layout::{LOG_FILE, node_file, node_folder};
use quorate_types::ReplicaId;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The line that a child prints when it serves.
pub const READY: &str = "ready";
/// The word that a child prints before an address in use.
pub const TAKEN: &str = "taken";

/// A longer log is put aside when its node starts.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// Time that a node has to stop before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// An event of a node, or of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A node serves.
    Ready(ReplicaId),
    /// A node found an address in use, and ends.
    Taken(ReplicaId, String),
    /// A node has ended without a request to do so.
    Gone(Gone),
    /// This process was asked to stop.
    Stop,
}

/// A node that has ended without a request to do so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gone {
    /// Id of the replica.
    pub id: ReplicaId,
    /// Its exit code; `None` when a signal has ended it.
    pub code: Option<i32>,
    /// Its end and the reason for it, as far as this very process has reported it, as one line.
    pub line: String,
}

/// A report of the threads that listen to children.
enum ChildReport {
    /// A line of the child's output stream.
    Line(ReplicaId, u64, String),
    /// The child's output stream has ended, so the child has or is about to.
    End(ReplicaId, u64),
    Stop,
}

struct Slot {
    id: ReplicaId,
    folder: PathBuf,
    config: PathBuf,
    child: Option<Child>,
    /// Number of this start: reports of an earlier one do not count.
    start: u64,
    ready: bool,
    /// Length of the log at the start: an earlier process has written what stands before that.
    log_start: u64,
}

/// The nodes of one cluster on this machine.
pub struct Processes {
    binary: PathBuf,
    insecure: bool,
    nodes: Vec<Slot>,
    reports: Receiver<ChildReport>,
    reporter: Sender<ChildReport>,
    stopping: bool,
}

/// Reasons why nodes do not serve.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReady {
    /// A node found this address in use.
    #[error("{0} is taken by another program")]
    Taken(String),
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl From<NotReady> for Failure {
    fn from(why: NotReady) -> Self {
        match why {
            NotReady::Taken(_) => Self::run(why),
            NotReady::Failed(failure) => failure,
        }
    }
}

impl Processes {
    /// The nodes of the cluster in `dir`, none of them started. `binary` is the program `quorate`.
    #[must_use]
    pub fn new(
        binary: PathBuf,
        dir: &Path,
        ids: impl IntoIterator<Item = ReplicaId>,
        insecure: bool,
    ) -> Self {
        let (reporter, reports) = channel();
        let nodes = ids.into_iter().map(|id| Slot {
            id,
            folder: node_folder(dir, id),
            config: node_file(dir, id),
            child: None,
            start: 0,
            ready: false,
            log_start: 0,
        });
        Self { binary, insecure, nodes: nodes.collect(), reports, reporter, stopping: false }
    }

    /// Reports it as [`Event::Stop`] when this process is asked to stop.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn watch_signals(&self) -> Result<(), Failure> {
        let reporter = self.reporter.clone();
        crate::signals::on_stop(move || {
            // Without a listener nothing is left to stop either.
            let _ = reporter.send(ChildReport::Stop);
        })
        .map_err(|error| Failure::run(format!("cannot watch signals: {error}")))
    }

    /// Starts a node that does not run.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(&mut self, id: ReplicaId) -> Result<(), Failure> {
        let (binary, insecure, reporter) = (self.binary.clone(), self.insecure, self.reporter.clone());
        let node = self.slot(id)?;
        if node.child.is_some() {
            return Ok(());
        }
        node.spawn(&binary, insecure, reporter)
            .map_err(|error| Failure::run(format!("cannot start node {id} ({}): {error}", binary.display())))
    }

    /// Starts all nodes that do not run.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start_all(&mut self) -> Result<(), Failure> {
        self.ids().into_iter().try_for_each(|id| self.start(id))
    }

    /// All nodes, by id.
    #[must_use]
    pub fn ids(&self) -> Vec<ReplicaId> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// The process of a node that runs.
    #[must_use]
    pub fn pid(&self, id: ReplicaId) -> Option<u32> {
        let node = self.nodes.iter().find(|node| node.id == id)?;
        node.child.as_ref().map(Child::id)
    }

    /// Whether all nodes serve.
    #[must_use]
    pub fn all_ready(&self) -> bool {
        self.nodes.iter().all(|node| node.ready)
    }

    /// Whether a node serves.
    #[must_use]
    pub fn is_ready(&self, id: ReplicaId) -> bool {
        self.nodes.iter().any(|node| node.id == id && node.ready)
    }

    /// Number of nodes that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.nodes.iter().filter(|node| node.child.is_some()).count()
    }

    /// Waits for the next event until `deadline`; `None` when there is none. Without a deadline it waits for as long as it
    /// takes.
    pub fn next_event(&mut self, deadline: Option<Instant>) -> Option<Event> {
        loop {
            let report = match deadline {
                None => self.reports.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.reports.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            let event = match report.ok()? {
                ChildReport::Stop => {
                    self.stopping = true;
                    Some(Event::Stop)
                }
                ChildReport::Line(id, start, line) => self.on_line(id, start, &line),
                ChildReport::End(id, start) => self.on_end(id, start),
            };
            if event.is_some() {
                return event;
            }
        }
    }

    /// Takes in all events so far. Returns whether this process was ever asked to stop.
    pub fn is_stopping(&mut self) -> bool {
        while self.next_event(Some(Instant::now())).is_some() {}
        self.stopping
    }

    /// Waits until these nodes serve.
    ///
    /// # Errors
    /// When one of all nodes ends or finds its address taken, this process is asked to stop, or the time is up:
    /// says which.
    pub fn wait_ready(&mut self, ids: &[ReplicaId], patience: Duration) -> Result<(), NotReady> {
        let failed = |why: String| Err(NotReady::Failed(Failure::run(why)));
        let deadline = Instant::now().checked_add(patience);
        loop {
            let waiting = self.nodes.iter().find(|node| ids.contains(&node.id) && !node.ready);
            let Some(id) = waiting.map(|node| node.id) else { return Ok(()) };
            match self.next_event(deadline) {
                Some(Event::Ready(_)) => {}
                Some(Event::Taken(_, address)) => return Err(NotReady::Taken(address)),
                Some(Event::Gone(gone)) => return failed(gone.line),
                Some(Event::Stop) => return failed("stopped".to_owned()),
                None => return failed(format!("node {id} does not serve after {patience:?}")),
            }
        }
    }

    /// Kills a node (SIGKILL) and waits for its end, which is not reported.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self, id: ReplicaId) -> Result<(), Failure> {
        let node = self.slot(id)?;
        node.end_now().map_err(|error| Failure::run(format!("cannot kill node {id}: {error}")))
    }

    /// Stops a node (SIGSTOP) until [`Self::resume`]. A node that does not run stays as it is.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn pause(&mut self, id: ReplicaId) -> Result<(), Failure> {
        self.signal(id, Signal::STOP)
    }

    /// Continues a node (SIGCONT) after [`Self::pause`].
    ///
    /// # Errors
    /// When the system refuses.
    pub fn resume(&mut self, id: ReplicaId) -> Result<(), Failure> {
        self.signal(id, Signal::CONT)
    }

    fn signal(&mut self, id: ReplicaId, signal: Signal) -> Result<(), Failure> {
        match self.slot(id)?.child.as_ref().and_then(pid_of) {
            Some(pid) => kill_process(pid, signal)
                .map_err(|error| Failure::run(format!("cannot signal node {id}: {error}"))),
            None => Ok(()),
        }
    }

    /// Asks all nodes to stop, and kills those that have not after some seconds.
    pub fn stop_all(&mut self) {
        for node in &self.nodes {
            if let Some(pid) = node.child.as_ref().and_then(pid_of) {
                // One that has ended already needs no asking.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now().checked_add(STOP_PATIENCE);
        while self.running() > 0 && self.next_event(deadline).is_some() {}
        self.kill_all();
    }

    fn kill_all(&mut self) {
        for node in &mut self.nodes {
            // Nothing better can be done about a child that cannot be killed.
            let _ = node.end_now();
        }
    }

    fn slot(&mut self, id: ReplicaId) -> Result<&mut Slot, Failure> {
        let slot = self.nodes.iter_mut().find(|node| node.id == id);
        slot.ok_or_else(|| Failure::usage(format!("there is no node {id}")))
    }

    fn current(&mut self, id: ReplicaId, start: u64) -> Option<&mut Slot> {
        self.nodes.iter_mut().find(|node| node.id == id && node.start == start && node.child.is_some())
    }

    fn on_line(&mut self, id: ReplicaId, start: u64, line: &str) -> Option<Event> {
        let node = self.current(id, start)?;
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some(READY), None) if !node.ready => {
                node.ready = true;
                Some(Event::Ready(id))
            }
            (Some(TAKEN), Some(address)) => Some(Event::Taken(id, address.to_owned())),
            _ => None,
        }
    }

    fn on_end(&mut self, id: ReplicaId, start: u64) -> Option<Event> {
        let node = self.current(id, start)?;
        let status = node.child.take().and_then(|mut child| child.wait().ok());
        node.ready = false;
        let cause = cause::of(status, &node.folder.join(LOG_FILE), node.log_start);
        let line = format!("node {id} has ended {cause}");
        Some(Event::Gone(Gone { id, code: status.and_then(|status| status.code()), line }))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.kill_all();
    }
}

impl Slot {
    fn spawn(&mut self, binary: &Path, insecure: bool, reporter: Sender<ChildReport>) -> io::Result<()> {
        let log = open_log(&self.folder)?;
        self.log_start = log.metadata()?.len();
        let mut command = Command::new(binary);
        command.arg("node").arg("--config").arg(&self.config);
        command.arg("--parent").arg(std::process::id().to_string());
        if insecure {
            command.arg("--insecure");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take();
        self.start = self.start.saturating_add(1);
        self.ready = false;
        self.child = Some(child);
        let (id, start) = (self.id, self.start);
        thread::Builder::new()
            .name(format!("node {id}"))
            .spawn(move || listen(id, start, stdout, &reporter))?;
        Ok(())
    }

    fn end_now(&mut self) -> io::Result<()> {
        self.ready = false;
        match self.child.take() {
            Some(mut child) => child.kill().and_then(|()| child.wait().map(drop)),
            None => Ok(()),
        }
    }
}

fn listen(id: ReplicaId, start: u64, stdout: Option<ChildStdout>, reporter: &Sender<ChildReport>) {
    let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok);
    for line in lines {
        if reporter.send(ChildReport::Line(id, start, line)).is_err() {
            return;
        }
    }
    // Without a listener the report is not needed.
    let _ = reporter.send(ChildReport::End(id, start));
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

fn open_log(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOG_FILE);
    if fs::metadata(&path).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
        fs::rename(&path, folder.join(format!("{LOG_FILE}.old")))?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
pub(crate) mod tests;
