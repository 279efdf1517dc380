//! The run of an experiment: its cells in random order, with an archive that grows, so that an interrupted run resumes.

use crate::archive::{
    Archive, ArchiveError, CellRun, FORMAT, Manifest, Outcome, PROFILE, PROFILE_PICTURE, read_json,
    run_folder, write_json,
};
use crate::cell::{Cell, Rate};
use crate::cluster_run::{ClusterRun, PaceOf, Remains, RunError, RunResult, finished, finished_in};
use crate::experiment::{AxisValues, Experiment, ExperimentError, Form, Study, Work};
use crate::{flame, machine};
use quorate_node::profile::Profile;
use quorate_types::rng::Rng;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

/// The saturations that were found, by cell.
const SATURATIONS: &str = "saturations.json";

/// The orders of a user.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The experiment.
    pub experiment: Experiment,
    /// The form.
    pub form: Form,
    /// Restrictions to some cells.
    pub only: Vec<AxisValues>,
    /// Other values of axes.
    pub changes: Vec<AxisValues>,
    /// The folder of the archive. An archive of the same experiment in it is resumed.
    pub out: PathBuf,
    /// The seed.
    pub seed: u64,
    /// The profile to take of one replica in each run of a cluster.
    pub profile: Option<Profile>,
}

impl Orders {
    /// Returns the experiment in the form and with the values of these orders.
    fn experiment(&self) -> Experiment {
        self.experiment.clone().in_form(self.form, &self.changes)
    }

    /// Returns the cells to run, with the systems of others.
    ///
    /// # Errors
    /// Fails when a setting is unknown or wrong, or when a restriction leaves no cell.
    pub fn cells(&self) -> Result<Vec<Cell>, ExperimentError> {
        let experiment = self.experiment();
        let cells = experiment.cells(&self.only)?;
        let mut checked = BTreeSet::new();
        for cell in &cells {
            let settings = &cell.settings;
            if checked.insert((&settings.protocol, cell.n, &settings.set, &settings.cluster)) {
                let wrong = |why| ExperimentError::Study { study: cell.study.clone(), why };
                cell.check().map_err(|why| wrong(format!("{}: {why}", cell.name())))?;
            }
        }
        Ok(with_external(&experiment, cells))
    }
}

/// The reason why an experiment has ended early.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The experiment is wrong.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The archive cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The folder has the archive of another experiment.
    #[error("{0} has the archive of another experiment, form, seed or profile; choose another --out")]
    Other(PathBuf),
    /// This process was asked to stop.
    #[error("stopped; the same command with --out {0} goes on")]
    Stopped(PathBuf),
    /// The machine refuses.
    #[error("{0}")]
    Machine(String),
}

/// The progress of an experiment.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Runs that are done.
    pub done: usize,
    /// All runs.
    pub all: usize,
    /// The time that the other runs take, about.
    pub left: Duration,
    /// The present run, or the one that has just ended.
    pub cell: &'a Cell,
    /// Its result, once it has ended.
    pub ended: Option<&'a CellRun>,
}

/// Returns the time that all runs take, about.
#[must_use]
pub fn estimate(cells: &[Cell]) -> Duration {
    let probes: BTreeMap<String, u32> =
        cells.iter().filter_map(|cell| Some((probe_key(cell)?, cell.saturating_loads))).collect();
    let probe =
        |loads: u32| Duration::from_secs(7).saturating_mul(loads).saturating_add(Duration::from_secs(2));
    let probes = probes.into_values().fold(Duration::ZERO, |sum, loads| sum.saturating_add(probe(loads)));
    cells.iter().fold(probes, |sum, cell| sum.saturating_add(cell.estimate().saturating_mul(cell.repeats)))
}

/// Returns the median: of an even number of values, the mean of the two in the middle.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some((lower + upper) / 2.0)
}

/// Returns the name under which the saturation of a cell is kept; `None` where the cell needs none.
fn probe_key(cell: &Cell) -> Option<String> {
    let needs = matches!(cell.settings.rate, Some(Rate::OfSaturation(_)));
    (needs && cell.external.is_none()).then(|| {
        let mut other = cell.clone();
        other.axes.remove("rate");
        other.name()
    })
}

/// Returns the default folder of an archive: `<stamp>-<tag>` below `results`.
#[must_use]
pub fn default_folder(tag: &str) -> PathBuf {
    Path::new("results").join(format!("{}-{tag}", stamp()))
}

/// Returns the present time in UTC: `20260131T235959Z`.
fn stamp() -> String {
    let text = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    text.chars().filter(|c| !"-:".contains(*c)).collect()
}

/// Runs an experiment. `watch` sees its progress.
///
/// # Errors
/// Fails when the experiment is wrong, the archive cannot be used, or this process is asked to stop. A cell that fails is a
/// failed run in the archive, and no error.
pub fn run(orders: &Orders, watch: &mut dyn FnMut(Progress<'_>)) -> Result<Archive, BenchError> {
    let exe = std::env::current_exe().map_err(|error| BenchError::Machine(error.to_string()))?;
    let experiment = orders.experiment();
    let cells = orders.cells()?;
    begin(orders, &experiment, &exe)?;
    let mut runs: Vec<(u32, &Cell)> =
        cells.iter().flat_map(|cell| (1..=cell.repeats).map(move |run| (run, cell))).collect();
    Rng::new(orders.seed).shuffle(&mut runs);
    let mut left = estimate(&cells);
    let saturations = read_json(&orders.out.join(SATURATIONS)).unwrap_or_default();
    let mut bench = Bench { exe, orders, saturations };
    for (done, (run, cell)) in runs.iter().enumerate() {
        watch(Progress { done, all: runs.len(), left, cell, ended: None });
        let ended = match bench.kept(cell, *run) {
            Some(kept) => kept,
            None => bench.run_cell(cell, *run)?,
        };
        left = left.saturating_sub(cell.estimate());
        watch(Progress { done: done.saturating_add(1), all: runs.len(), left, cell, ended: Some(&ended) });
    }
    Ok(Archive::read(&orders.out)?)
}

/// Adds the systems of others, once for each n of their study.
fn with_external(experiment: &Experiment, mut cells: Vec<Cell>) -> Vec<Cell> {
    let mut more = Vec::new();
    for study in &experiment.studies {
        let of_study: BTreeMap<usize, &Cell> =
            cells.iter().filter(|cell| cell.study == study.name).map(|cell| (cell.n, cell)).collect();
        for external in &study.external {
            for cell in of_study.values() {
                let mut cell = (*cell).clone();
                cell.axes = BTreeMap::from([("n".to_owned(), Value::from(cell.n))]);
                cell.external = Some(external.clone());
                more.push(cell);
            }
        }
    }
    cells.append(&mut more);
    cells
}

/// Makes the folder with its manifest, or checks that it is of this experiment.
fn begin(orders: &Orders, experiment: &Experiment, exe: &Path) -> Result<(), BenchError> {
    let path = orders.out.join("manifest.json");
    let studies = experiment.facts();
    let profile = orders.profile.map(|profile| profile.name().to_owned());
    if path.is_file() {
        let before: Manifest = read_json(&path)?;
        let is_same = before.studies == studies
            && before.form == orders.form.name()
            && before.seed == orders.seed
            && before.profile == profile;
        return if is_same { Ok(()) } else { Err(BenchError::Other(orders.out.clone())) };
    }
    fs::create_dir_all(&orders.out).map_err(|error| ArchiveError::file(&orders.out, error))?;
    let yardstick = finished(Command::new(exe).args(["machine", "--json"]));
    let yardstick = yardstick.ok().and_then(|text| serde_json::from_str(text.trim()).ok());
    let manifest = Manifest {
        format: FORMAT,
        tag: experiment.tag.clone(),
        title: experiment.title.clone(),
        stamp: stamp(),
        machine: machine::facts(&std::env::temp_dir()),
        commit: machine::commit(exe),
        seed: orders.seed,
        form: orders.form.name().to_owned(),
        yardstick: yardstick.unwrap_or(Value::Null),
        profile,
        studies,
    };
    write_json(&path, &manifest)?;
    experiment.studies.iter().try_for_each(|study| note_not_built(orders, study))
}

/// Records the variants of a study that are not built.
fn note_not_built(orders: &Orders, study: &Study) -> Result<(), BenchError> {
    for variant in &study.not_built {
        let record = CellRun {
            study: study.name.clone(),
            system: "quorate".to_owned(),
            protocol: "variant".to_owned(),
            n: 0,
            f: 0,
            axes: BTreeMap::from([("variant".to_owned(), Value::String(variant.clone()))]),
            run: 1,
            outcome: Outcome::NotBuilt(variant.clone()),
            wall_seconds: 0.0,
            load: Value::Null,
            faults: Vec::new(),
        };
        let folder = orders.out.join(run_folder(&record));
        fs::create_dir_all(&folder).map_err(|error| ArchiveError::file(&folder, error))?;
        write_json(&folder.join("cell.json"), &record)?;
    }
    Ok(())
}

struct Bench<'a> {
    exe: PathBuf,
    orders: &'a Orders,
    /// Goodputs of the saturating loads in a row, by cell.
    saturations: BTreeMap<String, Vec<f64>>,
}

impl Bench<'_> {
    /// Returns the run of an earlier attempt, if it has a result.
    fn kept(&self, cell: &Cell, run: u32) -> Option<CellRun> {
        let path = self.orders.out.join(run_folder(&blank(cell, run))).join("cell.json");
        let kept: CellRun = read_json(&path).ok()?;
        (!matches!(kept.outcome, Outcome::Failed(_))).then_some(kept)
    }

    fn run_cell(&mut self, cell: &Cell, run: u32) -> Result<CellRun, BenchError> {
        let begun = Instant::now();
        let mut record = blank(cell, run);
        let folder = self.orders.out.join(run_folder(&record));
        fs::create_dir_all(&folder).map_err(|error| ArchiveError::file(&folder, error))?;
        let mut remains = Remains::default();
        let result = match (&cell.external, cell.work) {
            (Some(_), _) => self.external(cell),
            (None, _) if cell.lacks_protocol() => {
                record.outcome = Outcome::NotBuilt(format!("protocol {}", cell.settings.protocol));
                write_json(&folder.join("cell.json"), &record)?;
                return Ok(record);
            }
            (None, Work::Command) => self.command(cell),
            (None, Work::Load) => self.cluster(cell, run, &mut remains),
        };
        record.wall_seconds = begun.elapsed().as_secs_f64();
        record.outcome = match result {
            Ok(result) => {
                (record.load, record.faults) = (result.load, result.faults);
                let own =
                    record.load.get("protocol").and_then(Value::as_str).filter(|_| cell.external.is_some());
                record.protocol = own.map_or(record.protocol, str::to_owned);
                Outcome::Done
            }
            Err(RunError::Stopped) => return Err(BenchError::Stopped(self.orders.out.clone())),
            Err(RunError::Archive(error)) => return Err(error.into()),
            Err(RunError::Failed(why)) => Outcome::Failed(why),
        };
        self.keep(&folder, &cell.name(), &remains).map_err(|error| ArchiveError::file(&folder, error))?;
        write_json(&folder.join("cell.json"), &record)?;
        Ok(record)
    }

    /// Runs a cluster under load in a temporary folder. The result names the saturations that a share refers to.
    fn cluster(&mut self, cell: &Cell, run: u32, remains: &mut Remains) -> Result<RunResult, RunError> {
        let mut saturations = Vec::new();
        let pace = match cell.settings.rate {
            None => PaceOf::Closed,
            Some(Rate::Fixed(rate)) => PaceOf::Rate(rate),
            Some(Rate::OfSaturation(percent)) => {
                saturations = self.saturations_of(cell)?;
                PaceOf::Rate(median(&saturations).unwrap_or(0.0) * percent / 100.0)
            }
        };
        let seed = self.orders.seed.wrapping_add(u64::from(run));
        let mut results = self.loads(cell, pace, (seed, 1), remains, self.orders.profile)?;
        let mut result = results.pop().ok_or_else(|| RunError::Failed("no load was run".to_owned()))?;
        if let Some(load) = result.load.as_object_mut().filter(|_| !saturations.is_empty()) {
            load.insert("saturations".to_owned(), saturations.into());
        }
        Ok(result)
    }

    /// Runs a cluster under some loads with the same seed in a row.
    fn loads(
        &self,
        cell: &Cell,
        pace: PaceOf,
        (seed, count): (u64, u32),
        remains: &mut Remains,
        profile: Option<Profile>,
    ) -> Result<Vec<RunResult>, RunError> {
        let temporary = Temporary::new()?;
        let mut cluster = ClusterRun::create(&self.exe, &temporary.0.join("cluster"), cell)?;
        if let Some(profile) = profile {
            cluster.take_profile(profile)?;
        }
        let results = cluster.start().and_then(|()| (0..count).map(|_| cluster.load(pace, seed)).collect());
        *remains = cluster.end();
        results
    }

    /// Writes what a cluster has left into the folder of its run.
    fn keep(&self, folder: &Path, name: &str, remains: &Remains) -> std::io::Result<()> {
        fs::write(folder.join("log.txt"), &remains.log)?;
        let (Some(folded), Some(profile)) = (&remains.profile, self.orders.profile) else { return Ok(()) };
        let picture = flame::graph(folded, &format!("replica 0 of {name}"), profile.unit());
        fs::write(folder.join(PROFILE), folded)?;
        fs::write(folder.join(PROFILE_PICTURE), picture)
    }

    /// Returns the goodputs at saturation of a cell without its fault, measured once.
    fn saturations_of(&mut self, cell: &Cell) -> Result<Vec<f64>, RunError> {
        let key = probe_key(cell).unwrap_or_default();
        if let Some(known) = self.saturations.get(&key).filter(|known| !known.is_empty()) {
            return Ok(known.clone());
        }
        let mut well = cell.clone();
        well.settings.fault = crate::cell::CellFault::None;
        let orders = (self.orders.seed, cell.saturating_loads);
        let results = self.loads(&well, PaceOf::Saturating, orders, &mut Remains::default(), None)?;
        let goodput = |result: &RunResult| {
            let goodput = result.load.get("goodput").and_then(Value::as_f64).filter(|goodput| *goodput > 0.0);
            goodput.ok_or_else(|| RunError::Failed("the saturating load had no answer".to_owned()))
        };
        let goodputs = results.iter().map(goodput).collect::<Result<Vec<f64>, RunError>>()?;
        self.saturations.insert(key, goodputs.clone());
        write_json(&self.orders.out.join(SATURATIONS), &self.saturations)?;
        Ok(goodputs)
    }

    /// Runs a command of this program that prints one JSON object.
    fn command(&self, cell: &Cell) -> Result<RunResult, RunError> {
        let text = finished(Command::new(&self.exe).args(&cell.command))?;
        json_line(&text)
    }

    /// Runs a system of others.
    fn external(&self, cell: &Cell) -> Result<RunResult, RunError> {
        let Some(external) = &cell.external else { return Err(RunError::Failed("no command".to_owned())) };
        let (program, words) = external
            .command
            .split_first()
            .ok_or_else(|| RunError::Failed("the command is empty".to_owned()))?;
        let fill = |word: &String| word.replace("{n}", &cell.n.to_string());
        let mut command = Command::new(program);
        command.args(words.iter().map(fill));
        let mut result = json_line(&finished_in(&mut command, Duration::from_secs(external.patience))?)?;
        // The file knows these. The command prints only figures.
        for (name, text) in [
            ("authentication", &external.authentication),
            ("durability", &external.durability),
            ("service", &external.service),
        ] {
            if let Some(line) = result.load.as_object_mut() {
                line.insert(name.to_owned(), Value::String(text.clone()));
            }
        }
        Ok(result)
    }
}

fn json_line(text: &str) -> Result<RunResult, RunError> {
    let load =
        text.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok().filter(Value::is_object));
    let load = load.ok_or_else(|| RunError::Failed("the command has printed no JSON object".to_owned()))?;
    Ok(RunResult { load, faults: Vec::new() })
}

/// Returns the record of a run without a result.
fn blank(cell: &Cell, run: u32) -> CellRun {
    let system = cell.external.as_ref().map_or("quorate", |external| external.system.as_str());
    CellRun {
        study: cell.study.clone(),
        system: system.to_owned(),
        protocol: cell.settings.protocol.clone(),
        n: cell.n,
        f: cell.f,
        axes: cell.axes.clone(),
        run,
        outcome: Outcome::Failed("not run".to_owned()),
        wall_seconds: 0.0,
        load: Value::Null,
        faults: Vec::new(),
    }
}

/// A folder that is removed at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Self, RunError> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| RunError::Failed(error.to_string()))?;
        let name = format!("quorate-bench-{:016x}", u64::from_le_bytes(bytes));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // The system cleans its temporary folder where this fails.
        let _ = fs::remove_dir_all(&self.0);
    }
}
