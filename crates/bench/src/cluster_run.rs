//! One run of one cell: its cluster, load and faults.

use crate::archive::{ArchiveError, Injected};
use crate::cell::{Cell, CellFault, DownCount};
use crate::pinning::{Group, Pinned};
use quorate_node::exit::Failure;
use quorate_node::layout::{LOG_FILE, node_folder};
use quorate_node::ports::free;
use quorate_node::processes::Processes;
use quorate_node::profile::{self, Profile};
use quorate_types::ReplicaId;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time for nodes to serve.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// The time that a load may take beyond its planned time.
const LOAD_PATIENCE: Duration = Duration::from_secs(120);
/// The time for nodes to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// The same where one of them looks up the names of functions for its profile.
const PROFILE_PATIENCE: Duration = Duration::from_secs(120);
/// Lines of each log that the archive keeps.
const LOG_LINES: usize = 60;
/// Free ports beyond those that are needed, so that some are in a row.
const SPARE_PORTS: usize = 24;
/// The pause between two looks at a running load.
const LOOK: Duration = Duration::from_millis(5);

/// The reason why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// This process was asked to stop.
    #[error("stopped")]
    Stopped,
    /// The run has failed, and others may succeed.
    #[error("{0}")]
    Failed(String),
    /// The archive cannot be written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl From<Failure> for RunError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.to_string())
    }
}

impl From<std::io::Error> for RunError {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The result of a run.
#[derive(Debug)]
pub struct RunResult {
    /// The JSON object of the load.
    pub load: Value,
    /// Injected faults.
    pub faults: Vec<Injected>,
}

/// The pace of a load, in place of that of the cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum PaceOf {
    /// Requests in a second of an open loop.
    Rate(f64),
    /// The closed loop of the cell.
    Closed,
    /// A closed loop that saturates the cluster, for a few seconds.
    Saturating,
}

/// Options of the load that finds the saturation, in place of those of the cell.
const SATURATING: [(&str, &str); 3] = [("in-flight", "4000"), ("seconds", "4"), ("warmup", "2")];
/// Options of the cell that this load has as well.
const KEPT: [&str; 8] = [
    "request-bytes",
    "reply-bytes",
    "keys",
    "key-distribution",
    "read-share",
    "clients",
    "bundle",
    "send-to",
];

/// A cluster in a folder of its own.
pub struct ClusterRun<'a> {
    exe: &'a Path,
    dir: PathBuf,
    cell: &'a Cell,
    nodes: Processes,
    profile: Option<Profile>,
}

/// The replica that is profiled: the first leader, where the protocol has one.
const PROFILED: ReplicaId = ReplicaId(0);

/// The files that a cluster leaves.
#[derive(Debug, Default)]
pub struct Remains {
    /// The last lines of all logs.
    pub log: String,
    /// The profile of one replica, in the folded form; `None` without a profiler.
    pub profile: Option<String>,
}

impl<'a> ClusterRun<'a> {
    /// Creates the cluster's files in `dir`, which must not exist.
    ///
    /// # Errors
    /// Fails with the advice of `quorate testnet`.
    pub fn create(exe: &'a Path, dir: &Path, cell: &'a Cell) -> Result<Self, RunError> {
        let ports = free(cell.n.saturating_mul(2).saturating_add(SPARE_PORTS))?;
        let base =
            base_port(&ports, cell.n).ok_or_else(|| RunError::Failed("no free ports in a row".to_owned()))?;
        let mut command = Command::new(exe);
        command.args(["testnet", "--protocol", &cell.settings.protocol, "--n", &cell.n.to_string()]);
        command.arg("--out").arg(dir).args(["--base-port", &base.to_string()]);
        for (option, value) in &cell.settings.cluster {
            command.arg(format!("--{option}")).arg(value);
        }
        for set in &cell.settings.set {
            command.args(["--set", set]);
        }
        if let CellFault::SlowLeader(delay_ms) = cell.settings.fault {
            fs::create_dir_all(dir.parent().unwrap_or(dir))?;
            let matrix = dir.with_extension("delays.csv");
            fs::write(&matrix, slow_leader(cell.n, delay_ms))?;
            command.arg("--link-delay").arg(&matrix);
        }
        finished(&mut command)?;
        let insecure = cell.settings.cluster.iter().any(|(option, value)| {
            matches!(
                (option.as_str(), value.as_str()),
                ("durability" | "client-auth", "none") | ("link-auth", "plain")
            )
        });
        let ids: Vec<ReplicaId> =
            (0..cell.n).filter_map(|id| u16::try_from(id).ok()).map(ReplicaId).collect();
        let nodes = Processes::new(exe.to_owned(), dir, ids, insecure);
        Ok(Self { exe, dir: dir.to_owned(), cell, nodes, profile: None })
    }

    /// Takes a profile of the first leader, which must not have started. A leader that lies or is killed leaves none.
    ///
    /// # Errors
    /// Fails when there is no such replica.
    pub fn take_profile(&mut self, profile: Profile) -> Result<(), RunError> {
        if matches!(
            self.cell.settings.fault,
            CellFault::LyingLeader(_) | CellFault::Kill { leader: true, .. }
        ) {
            return Ok(());
        }
        let words = ["node", "--profile", profile.name()].map(str::to_owned).to_vec();
        self.nodes.start_with(PROFILED, words)?;
        self.profile = Some(profile);
        Ok(())
    }

    /// Starts the replicas that run, and waits until they serve.
    ///
    /// # Errors
    /// Fails when a node does not serve in time.
    pub fn start(&mut self) -> Result<(), RunError> {
        let _pinned = self.cell.settings.pin.then(|| Pinned::to(Group::Cluster)).transpose()?;
        let ids = self.nodes.ids();
        let down = match self.cell.settings.fault {
            CellFault::Down(DownCount::One) => 1,
            CellFault::Down(DownCount::All) => self.cell.f,
            _ => 0,
        };
        let (running, _) = ids.split_at(ids.len().saturating_sub(down));
        let liars: Vec<(ReplicaId, &str)> = match &self.cell.settings.fault {
            CellFault::Lie(host) => {
                ids.iter().rev().take(self.cell.f).map(|id| (*id, host.as_str())).collect()
            }
            CellFault::LyingLeader(host) => ids.first().map(|id| (*id, host.as_str())).into_iter().collect(),
            _ => Vec::new(),
        };
        for (id, host) in liars {
            let words = ["lie", "--host", host, "--seed", "1"].map(str::to_owned).to_vec();
            self.nodes.start_with(id, words)?;
        }
        for id in running {
            self.nodes.start(*id)?;
        }
        self.nodes.wait_ready(running, START_PATIENCE).map_err(|why| RunError::Failed(why.to_string()))?;
        Ok(())
    }

    /// Offers the load, and injects the faults meanwhile.
    ///
    /// # Errors
    /// Fails when the load prints no result, or this process is asked to stop.
    pub fn load(&mut self, pace: PaceOf, seed: u64) -> Result<RunResult, RunError> {
        let victim = self.victim()?;
        let begun = Instant::now();
        let (stdout, stderr) = (self.dir.join("load.out"), self.dir.join("load.err"));
        let mut command = Command::new(self.exe);
        command.arg("load").arg("--cluster").arg(&self.dir).args(["--json", "--seed", &seed.to_string()]);
        for (option, value) in self.options(pace) {
            command.arg(format!("--{option}")).arg(value);
        }
        command.stdin(Stdio::null()).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        let pinned = self.cell.settings.pin.then(|| Pinned::to(Group::Load)).transpose()?;
        let mut child = Guarded(command.spawn()?);
        drop(pinned);
        let limit = self.cell.estimate().saturating_add(LOAD_PATIENCE);
        let mut faults = Vec::new();
        let mut pending = victim;
        while child.0.try_wait()?.is_none() {
            if self.nodes.is_stopping() {
                return Err(RunError::Stopped);
            }
            if begun.elapsed() > limit {
                return Err(RunError::Failed(format!("the load has not ended after {} s", limit.as_secs())));
            }
            if let Some((id, at)) = pending.filter(|(_, at)| begun.elapsed() >= *at) {
                pending = None;
                self.nodes.kill(id)?;
                faults.push(self.injected(at, format!("replica {id} killed")));
            }
            std::thread::sleep(LOOK);
        }
        let printed = fs::read_to_string(&stdout)?;
        let result = printed.lines().last().and_then(|line| serde_json::from_str(line).ok());
        // The exit code is 1 as well where the load was not carried. That is a result.
        match result.filter(|value: &Value| value.get("goodput").is_some()) {
            Some(load) if load.get("goodput").and_then(Value::as_f64) == Some(0.0) => {
                let why = first_error(&fs::read_to_string(&stderr)?);
                Err(RunError::Failed(format!("no request was answered in the measured time: {why}")))
            }
            Some(load) => Ok(RunResult { load, faults }),
            None => Err(RunError::Failed(first_error(&fs::read_to_string(&stderr)?))),
        }
    }

    fn injected(&self, at: Duration, what: String) -> Injected {
        let measured = at.saturating_sub(self.warmup());
        Injected { at_ms: u64::try_from(measured.as_millis()).unwrap_or(u64::MAX), what }
    }

    fn warmup(&self) -> Duration {
        let value = self.cell.settings.load.iter().find(|(option, _)| option == "warmup");
        value.and_then(|(_, value)| crate::cell::read_time(value)).unwrap_or(Duration::from_secs(3))
    }

    /// Returns the replica to kill, and the time since the start of the load.
    fn victim(&self) -> Result<Option<(ReplicaId, Duration)>, RunError> {
        let CellFault::Kill { leader, at } = self.cell.settings.fault else { return Ok(None) };
        let first = self.leader()?;
        let last = ReplicaId(u16::try_from(self.cell.n.saturating_sub(1)).unwrap_or(0));
        let other = if first == last { ReplicaId(0) } else { last };
        Ok(Some((if leader { first } else { other }, at.saturating_add(self.warmup()))))
    }

    /// Returns the leader that the first replica reports.
    fn leader(&self) -> Result<ReplicaId, RunError> {
        let mut command = Command::new(self.exe);
        command.arg("status").arg("--cluster").arg(&self.dir).arg("--json");
        let statuses: Value = serde_json::from_str(&finished(&mut command)?).unwrap_or(Value::Null);
        let leader = statuses.get(0).and_then(|status| status.get("leader")).and_then(Value::as_u64);
        Ok(ReplicaId(leader.and_then(|leader| u16::try_from(leader).ok()).unwrap_or(0)))
    }

    /// Returns the options of the load.
    fn options(&self, pace: PaceOf) -> Vec<(String, String)> {
        let pair = |(option, value): (&str, &str)| (option.to_owned(), value.to_owned());
        let own = self.cell.settings.load.clone();
        match pace {
            PaceOf::Rate(rate) => {
                own.into_iter().chain([("rate".to_owned(), format!("{rate:.3}"))]).collect()
            }
            PaceOf::Closed => own,
            PaceOf::Saturating => {
                let own = own.into_iter().filter(|(option, _)| KEPT.contains(&option.as_str()));
                own.chain(SATURATING.map(pair)).collect()
            }
        }
    }

    /// Stops the cluster, and returns the last lines of all logs and the profile.
    pub fn end(mut self) -> Remains {
        self.nodes.stop_all_within(if self.profile.is_some() { PROFILE_PATIENCE } else { STOP_PATIENCE });
        let mut all = String::new();
        for id in self.nodes.ids() {
            let log = fs::read_to_string(node_folder(&self.dir, id).join(LOG_FILE)).unwrap_or_default();
            let _ = writeln!(all, "== replica {id}\n{}", last_lines(&log));
        }
        let load = fs::read_to_string(self.dir.join("load.err")).unwrap_or_default();
        let _ = writeln!(all, "== load\n{}", last_lines(&load));
        let folded = node_folder(&self.dir, PROFILED).join(profile::FILE);
        let profile = self.profile.and_then(|_| fs::read_to_string(folded).ok());
        Remains { log: all, profile }
    }
}

/// A child that is killed when its owner gives it up.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // It has ended already in most cases.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the first of 2n free ports in a row.
fn base_port(free: &[u16], n: usize) -> Option<u16> {
    let mut sorted = free.to_vec();
    sorted.sort_unstable();
    let needed = n.saturating_mul(2);
    let rows = sorted.windows(needed);
    let is_row = |row: &&[u16]| match (row.first(), row.last()) {
        (Some(first), Some(last)) => usize::from(last.saturating_sub(*first)) == needed.saturating_sub(1),
        _ => false,
    };
    rows.into_iter().find(is_row).and_then(|row| row.first().copied())
}

/// Returns a matrix of one-way delays in milliseconds, in which the frames of replica 0 are late.
fn slow_leader(n: usize, delay_ms: u64) -> String {
    let row = |from: usize| -> String {
        let cells: Vec<String> =
            (0..n).map(|to| if from == 0 && to != 0 { delay_ms } else { 0 }.to_string()).collect();
        cells.join(",") + "\n"
    };
    (0..n).map(row).collect()
}

/// Runs a command to its end. Returns its output.
pub(crate) fn finished(command: &mut Command) -> Result<String, RunError> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(RunError::Failed(first_error(&String::from_utf8_lossy(&output.stderr))))
}

/// Runs a command to its end, at most for a time. Returns its output.
pub(crate) fn finished_in(command: &mut Command, patience: Duration) -> Result<String, RunError> {
    let begun = Instant::now();
    let mut child =
        Guarded(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?);
    let output = child.0.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.map(|mut output| output.read_to_string(&mut text));
        text
    });
    while child.0.try_wait()?.is_none() {
        if begun.elapsed() > patience {
            return Err(RunError::Failed(format!("no end after {} s", patience.as_secs())));
        }
        std::thread::sleep(LOOK);
    }
    Ok(reader.join().unwrap_or_default())
}

/// Returns the first line about an error, or the last line. With `--json` it is the error of the object.
fn first_error(text: &str) -> String {
    let error = text.lines().find(|line| line.contains("error"));
    let line = error.or(text.lines().last()).unwrap_or("it ended without a word");
    let object: Option<Value> = serde_json::from_str(line).ok();
    let said = object.as_ref().and_then(|object| object.get("error")).and_then(Value::as_str);
    said.unwrap_or(line).trim_start_matches("error: ").to_owned()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).copied().collect::<Vec<_>>().join("\n")
}
