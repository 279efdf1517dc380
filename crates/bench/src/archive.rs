//! The folder of a benchmark: everything that a report needs, also years later.
//!
//! ```text
//! <stamp>-<tag>/
//!     manifest.json                                  machine, commit, seed, the experiment as it was run
//!     summary.csv                                    min, median and max of each cell
//!     <protocol>-n<n>-f<f>/run-<r>/<cell>/cell.json  one run of one cell, with the load's whole result
//!                                         log.txt    the end of each process's log
//!                                         profile.folded, profile.svg    the profile of one replica, with `--profile`
//! ```

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The profile of one replica in the folder of a run: a line for each stack, with its weight.
pub const PROFILE: &str = "profile.folded";
/// The same as a flame graph.
pub const PROFILE_PICTURE: &str = "profile.svg";

/// The version of the archive's format.
pub const FORMAT: u32 = 1;

/// The machine of a benchmark.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// The name of the processor.
    pub processor: String,
    /// Processor cores that the benchmark may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The kernel's name and version.
    pub kernel: String,
    /// The file system of the data folders.
    pub file_system: String,
}

/// `manifest.json`: the conditions of a benchmark.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`FORMAT`].
    pub format: u32,
    /// The short name of the experiment.
    pub tag: String,
    /// The title of the experiment, for people.
    pub title: String,
    /// The time of the start in UTC, as in the folder's name.
    pub stamp: String,
    /// The machine.
    pub machine: Machine,
    /// The commit of the program, and whether the checkout had changes; `unknown` for a program without a checkout.
    pub commit: String,
    /// The seed of the order of cells, of keys and of operations.
    pub seed: u64,
    /// `short` or `full`.
    pub form: String,
    /// The result of `quorate machine --json` before the first cell.
    pub yardstick: Value,
    /// The kind of the profiles that were taken meanwhile: the figures are those of a slower replica. `None` without profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The studies as they were run, overrides included.
    pub studies: Vec<StudyFacts>,
}

/// A study in the manifest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StudyFacts {
    /// The name, unique in the experiment.
    pub name: String,
    /// The title, for people.
    pub title: String,
    /// Remarks for readers: conditions, and differences from the figure that it repeats.
    pub notes: Vec<String>,
    /// The settings of its cells; a list is an axis.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// The figures to draw.
    pub figures: Vec<Figure>,
    /// Figures that others have published, to be printed beside ours.
    pub published: Vec<Published>,
    /// Runs of each cell.
    pub repeats: u32,
}

/// A figure of a study.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The kind.
    pub kind: FigureKind,
    /// The title; empty: that of the study.
    #[serde(default)]
    pub title: String,
    /// The axis of the experiment along x, for `lines` and `bars`: `n`, `batch` and so on. `offered` is the load that was
    /// offered, in requests a second. For `bars` it may be `value`: the measured values themselves are the places, in one panel.
    #[serde(default)]
    pub x: String,
    /// The measured values along y, one panel for each.
    #[serde(default)]
    pub y: Vec<Quantity>,
    /// The axes whose values make a series each; empty: all axes with several values but `x`.
    #[serde(default)]
    pub series: Vec<String>,
    /// Restricts the figure to cells with these values of axes.
    #[serde(default)]
    pub only: BTreeMap<String, Value>,
}

/// The kind of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// Latency (median, and p99 as a fainter line) against goodput, a point for each offered load.
    LatencyThroughput,
    /// Measured values against an axis of the experiment.
    Lines,
    /// The median of the runs as a bar for each value of an axis, with their least and greatest value.
    Bars,
    /// Latency over time: a panel for each cell, the time of the request along x, its latency along y.
    HeatMap,
    /// The share of requests that were answered within a latency.
    Cumulative,
    /// Answers in each interval over time, with the injected faults.
    Timeline,
    /// The cost ledger for each request, as a table.
    Ledger,
    /// All measured values of all cells, as a table.
    Table,
}

/// A measured value for a figure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Quantity {
    /// A value that every load has.
    Measure(Measure),
    /// A number in the JSON object of a command, by its name.
    Field(String),
}

/// A measured value of a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Good answers in a second.
    Goodput,
    /// The same good answers, divided by the time from the first of them to the end of the measured time.
    GoodputFirstReply,
    /// Mean latency in milliseconds.
    LatencyMean,
    /// Median latency in milliseconds.
    LatencyP50,
    /// 99th percentile of the latency in milliseconds.
    LatencyP99,
    /// CPU microseconds of all replicas for a request.
    CpuPerRequest,
    /// The greatest resident memory of a replica in megabytes.
    Memory,
    /// The share of the leader's CPU time that checks of signatures take, in per cent.
    LeaderCheckShare,
}

/// A figure that others have published.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The system, and the protocol in it.
    pub system: String,
    /// The conditions: machine, n, authentication, durability.
    pub conditions: String,
    /// The figure.
    pub figure: String,
}

/// The outcome of a run of a cell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "reason")]
pub enum Outcome {
    /// The run has a result.
    Done,
    /// The run has no result, for this reason. It is no zero.
    Failed(String),
    /// The protocol or switch of the cell is not built yet: its name.
    NotBuilt(String),
}

/// A fault that was injected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Injected {
    /// Milliseconds from the start of the measured time.
    pub at_ms: u64,
    /// The fault, for people: `replica 2 killed`.
    pub what: String,
}

/// `cell.json`: one run of one cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellRun {
    /// The study.
    pub study: String,
    /// `quorate`, or the name of an external system.
    pub system: String,
    /// The protocol.
    pub protocol: String,
    /// Replicas.
    pub n: usize,
    /// Faulty replicas tolerated.
    pub f: usize,
    /// The value of each axis of the study, `protocol` and `n` included: `rate`, `batch`, `durability`, `fault`.
    pub axes: BTreeMap<String, Value>,
    /// The number of this run of the cell, from 1 on.
    pub run: u32,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Seconds that the run took in all.
    pub wall_seconds: f64,
    /// The JSON object that `quorate load --json` has printed; for an external system its own line. Null without a result.
    pub load: Value,
    /// Injected faults.
    pub faults: Vec<Injected>,
}

/// The reason why a folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file or folder cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file is not of the archive's format.
    #[error("{path}: {why}; a newer program may have written it")]
    Format {
        /// The file.
        path: PathBuf,
        /// The difference.
        why: String,
    },
}

impl ArchiveError {
    /// Returns an error about a file.
    #[must_use]
    pub fn file(path: &Path, source: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}

/// A benchmark that was read from its folder.
#[derive(Clone, PartialEq, Debug)]
pub struct Archive {
    /// The conditions.
    pub manifest: Manifest,
    /// All runs: by study, then cell, then number of the run.
    pub runs: Vec<CellRun>,
}

impl Archive {
    /// Reads a folder.
    ///
    /// # Errors
    /// Fails when the manifest is missing or of another format, or a run cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ArchiveError> {
        let manifest: Manifest = read_json(&folder.join("manifest.json"))?;
        if manifest.format != FORMAT {
            let why = format!("format {} instead of {FORMAT}", manifest.format);
            return Err(ArchiveError::Format { path: folder.join("manifest.json"), why });
        }
        let mut runs = Vec::new();
        for group in folders_in(folder)? {
            for run in folders_in(&group)? {
                for cell in folders_in(&run)? {
                    let path = cell.join("cell.json");
                    if path.is_file() {
                        runs.push(read_json::<CellRun>(&path)?);
                    }
                }
            }
        }
        let place = |run: &CellRun| {
            let study = manifest.studies.iter().position(|study| study.name == run.study);
            (study, run.system.clone(), cell_name(&run.study, &run.axes), run.run)
        };
        runs.sort_by_cached_key(place);
        Ok(Self { manifest, runs })
    }
}

/// Returns the folder of a run below that of the benchmark.
#[must_use]
pub fn run_folder(run: &CellRun) -> PathBuf {
    let system = if run.system == "quorate" { run.protocol.clone() } else { run.system.clone() };
    let group = file_name(&format!("{system}-n{}-f{}", run.n, run.f));
    Path::new(&group).join(format!("run-{}", run.run)).join(cell_name(&run.study, &run.axes))
}

/// Returns the name of a cell, for files and people: the study, and the values of its axes but protocol and n.
#[must_use]
pub fn cell_name(study: &str, axes: &BTreeMap<String, Value>) -> String {
    let mut name = study.to_owned();
    for (axis, value) in axes.iter().filter(|(axis, _)| !matches!(axis.as_str(), "protocol" | "n")) {
        name.push(',');
        name.push_str(axis);
        name.push('=');
        name.push_str(&axis_text(value));
    }
    file_name(&name)
}

/// Returns a name that is one file's on each system.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || ",=-.".contains(c) { c } else { '_' }).collect()
}

/// Returns the value of an axis for people.
#[must_use]
pub fn axis_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Reads a JSON file.
///
/// # Errors
/// Fails when the file cannot be read or holds something else.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, ArchiveError> {
    let text = std::fs::read_to_string(path).map_err(|source| ArchiveError::file(path, source))?;
    let format =
        |why: serde_json::Error| ArchiveError::Format { path: path.to_owned(), why: why.to_string() };
    serde_json::from_str(&text).map_err(format)
}

/// Writes a JSON file. A reader sees the whole file or none.
///
/// # Errors
/// Fails when the file cannot be written.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), ArchiveError> {
    let partial = path.with_extension("partial");
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    let written = std::fs::write(&partial, text + "\n").and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|source| ArchiveError::file(path, source))
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let entries = std::fs::read_dir(folder).map_err(|source| ArchiveError::file(folder, source))?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}
