//! Nodes as child processes: their start, readiness, end and restart.
//!
//! * A child prints `ready` on its output stream when it serves. Its error stream goes to `node.log` in its folder.
//! * The system kills a child when the thread that started it ends: the child itself makes that call. So the thread must
//!   live as long as the cluster. Each child is a process group, so Ctrl-C reaches only the parent, which stops them in order.
//! * A dropped [`Processes`] leaves no child behind.

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

/// The length above which a log is renamed when its node starts.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// The time after a stop request before a node is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// An event of a node, or of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A node serves.
    Ready(ReplicaId),
    /// A node found this address in use, and ends.
    Taken(ReplicaId, String),
    /// A node has ended without a request to do so.
    Gone(Gone),
    /// A stop request to this process.
    Stop,
}

/// A node that has ended without a request to do so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gone {
    /// The id of the replica.
    pub id: ReplicaId,
    /// The exit code; `None` if a signal has ended the node.
    pub code: Option<i32>,
    /// One line about the end, with the reason as far as the log of this process has it.
    pub line: String,
}

/// A report of a thread that reads the output of a child, or of a signal.
enum ChildReport {
    /// A line of the child's output stream.
    Line(ReplicaId, u64, String),
    /// The child's output stream has ended, so the child has ended or soon will.
    End(ReplicaId, u64),
    Stop,
}

/// One node and its process.
struct NodeProcess {
    id: ReplicaId,
    folder: PathBuf,
    config: PathBuf,
    child: Option<Child>,
    /// Whether its data folder was lost: it begins anew.
    rejoins: bool,
    /// The subcommand, with options of its own, in place of `node`.
    words: Vec<String>,
    /// The number of the start: reports of an earlier start do not count.
    start: u64,
    ready: bool,
    /// The length of the log at the start: the lines before it are of an earlier process.
    log_start: u64,
}

/// The nodes of one cluster on this machine.
pub struct Processes {
    binary: PathBuf,
    insecure: bool,
    nodes: Vec<NodeProcess>,
    reports: Receiver<ChildReport>,
    reporter: Sender<ChildReport>,
    stopping: bool,
}

/// The reason why nodes do not serve.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotReady {
    /// A node found this address in use.
    #[error("{0} is taken by another program")]
    Taken(String),
    /// Another failure.
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
    /// Returns the nodes of the cluster in `dir`, before their start. `binary` is the program `quorate`.
    #[must_use]
    pub fn new(
        binary: PathBuf,
        dir: &Path,
        ids: impl IntoIterator<Item = ReplicaId>,
        insecure: bool,
    ) -> Self {
        let (reporter, reports) = channel();
        let nodes = ids.into_iter().map(|id| NodeProcess {
            id,
            folder: node_folder(dir, id),
            config: node_file(dir, id),
            child: None,
            rejoins: false,
            words: vec!["node".to_owned()],
            start: 0,
            ready: false,
            log_start: 0,
        });
        Self { binary, insecure, nodes: nodes.collect(), reports, reporter, stopping: false }
    }

    /// Makes a stop request to this process an [`Event::Stop`].
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn watch_signals(&self) -> Result<(), Failure> {
        let reporter = self.reporter.clone();
        crate::signals::on_stop(move || {
            // Without a receiver no node is left.
            let _ = reporter.send(ChildReport::Stop);
        })
        .map_err(|error| Failure::run(format!("cannot watch signals: {error}")))
    }

    /// Sets the subcommand that starts a node, with options of its own, in place of `node`.
    ///
    /// # Errors
    /// Fails when there is no such node.
    pub fn start_with(&mut self, id: ReplicaId, words: Vec<String>) -> Result<(), Failure> {
        self.node(id)?.words = words;
        Ok(())
    }

    /// Starts a node that does not run.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn start(&mut self, id: ReplicaId) -> Result<(), Failure> {
        let (binary, insecure, reporter) = (self.binary.clone(), self.insecure, self.reporter.clone());
        let node = self.node(id)?;
        if node.child.is_some() {
            return Ok(());
        }
        node.spawn(&binary, insecure, reporter)
            .map_err(|error| Failure::run(format!("cannot start node {id} ({}): {error}", binary.display())))
    }

    /// Kills a node and removes its data folder. Its next start begins anew.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn wipe(&mut self, id: ReplicaId) -> Result<(), Failure> {
        self.kill(id)?;
        let node = self.node(id)?;
        node.rejoins = true;
        let data = node.folder.join("data");
        fs::remove_dir_all(&data)
            .map_err(|error| Failure::run(format!("cannot remove {}: {error}", data.display())))
    }

    /// Starts all nodes that do not run.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn start_all(&mut self) -> Result<(), Failure> {
        self.ids().into_iter().try_for_each(|id| self.start(id))
    }

    /// Returns all nodes, by id.
    #[must_use]
    pub fn ids(&self) -> Vec<ReplicaId> {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// Returns the process of a running node.
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

    /// Returns the number of running nodes.
    #[must_use]
    pub fn running(&self) -> usize {
        self.nodes.iter().filter(|node| node.child.is_some()).count()
    }

    /// Waits for the next event until `deadline`; returns `None` if there is none. Without a deadline it waits without limit.
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

    /// Handles all events so far. Returns whether there ever was a stop request to this process.
    pub fn is_stopping(&mut self) -> bool {
        while self.next_event(Some(Instant::now())).is_some() {}
        self.stopping
    }

    /// Waits until these nodes serve.
    ///
    /// # Errors
    /// Fails when any node ends or finds its address in use, after a stop request to this process, or when the time is over.
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
    /// Fails when the system refuses.
    pub fn kill(&mut self, id: ReplicaId) -> Result<(), Failure> {
        let node = self.node(id)?;
        node.end_now().map_err(|error| Failure::run(format!("cannot kill node {id}: {error}")))
    }

    /// Stops a node (SIGSTOP) until [`Self::resume`]. A node that does not run stays as it is.
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn pause(&mut self, id: ReplicaId) -> Result<(), Failure> {
        self.signal(id, Signal::STOP)
    }

    /// Continues a node (SIGCONT) after [`Self::pause`].
    ///
    /// # Errors
    /// Fails when the system refuses.
    pub fn resume(&mut self, id: ReplicaId) -> Result<(), Failure> {
        self.signal(id, Signal::CONT)
    }

    fn signal(&mut self, id: ReplicaId, signal: Signal) -> Result<(), Failure> {
        match self.node(id)?.child.as_ref().and_then(pid_of) {
            Some(pid) => kill_process(pid, signal)
                .map_err(|error| Failure::run(format!("cannot signal node {id}: {error}"))),
            None => Ok(()),
        }
    }

    /// Requests all nodes to stop, and kills those that run after some seconds.
    pub fn stop_all(&mut self) {
        self.stop_all_within(STOP_PATIENCE);
    }

    /// Requests all nodes to stop, and kills those that run after `patience`.
    pub fn stop_all_within(&mut self, patience: Duration) {
        for node in &self.nodes {
            if let Some(pid) = node.child.as_ref().and_then(pid_of) {
                // A child that has ended needs no signal.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now().checked_add(patience);
        while self.running() > 0 && self.next_event(deadline).is_some() {}
        self.kill_all();
    }

    fn kill_all(&mut self) {
        for node in &mut self.nodes {
            // A child that cannot be killed has no remedy.
            let _ = node.end_now();
        }
    }

    fn node(&mut self, id: ReplicaId) -> Result<&mut NodeProcess, Failure> {
        let node = self.nodes.iter_mut().find(|node| node.id == id);
        node.ok_or_else(|| Failure::usage(format!("there is no node {id}")))
    }

    fn current(&mut self, id: ReplicaId, start: u64) -> Option<&mut NodeProcess> {
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

impl NodeProcess {
    fn spawn(&mut self, binary: &Path, insecure: bool, reporter: Sender<ChildReport>) -> io::Result<()> {
        let log = open_log(&self.folder)?;
        self.log_start = log.metadata()?.len();
        let mut command = Command::new(binary);
        command.args(&self.words).arg("--config").arg(&self.config);
        command.arg("--parent").arg(std::process::id().to_string());
        if insecure {
            command.arg("--insecure");
        }
        if self.rejoins {
            command.arg("--rejoin");
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
    // Without a receiver the report is not needed.
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
