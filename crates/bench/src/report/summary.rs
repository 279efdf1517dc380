//! The summary of a benchmark: a row for each cell. The rows come from the runs, or else from `summary.csv`.

use super::ReportError;
use super::cells::{Cell, OURS, Spread, cells};
use super::csv;
use super::reading::MEASURES;
use crate::archive::{Archive, Manifest, Measure, axis_text, read_json};
use std::collections::BTreeMap;
use std::path::Path;

/// The file of the rows.
const FILE: &str = "summary.csv";
/// The file of the conditions.
const MANIFEST: &str = "manifest.json";

/// The identity of a row, the same in two summaries: study, system, protocol, n, f and the other axes.
pub(super) type Key = (String, String, String, usize, usize, BTreeMap<String, String>);

/// A cell in numbers.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Row {
    /// The study.
    pub(super) study: String,
    /// The system.
    pub(super) system: String,
    /// The protocol.
    pub(super) protocol: String,
    /// Replicas.
    pub(super) n: usize,
    /// Faulty replicas tolerated.
    pub(super) f: usize,
    /// The value of each axis but protocol and n, as text.
    pub(super) axes: BTreeMap<String, String>,
    /// Runs with a result.
    pub(super) runs: usize,
    /// Runs without a result.
    pub(super) failed: usize,
    /// The part that is not built yet; empty: none.
    pub(super) not_built: String,
    /// Whether the cluster did not carry the offered load.
    pub(super) is_saturated: bool,
    /// Settings of the runs, by field. Different values of different runs are one text.
    pub(super) settings: BTreeMap<String, String>,
    /// The measured values.
    pub(super) values: BTreeMap<Measure, Spread>,
    /// Counters of the cost ledger for one request, all replicas together: the medians of the runs.
    pub(super) counted: BTreeMap<String, f64>,
}

impl Row {
    /// Returns the row of a cell.
    pub(super) fn of(cell: &Cell) -> Self {
        let is_other = |axis: &str| !matches!(axis, "system" | "protocol" | "n" | "f");
        let axes = cell.axes.iter().filter(|(axis, _)| is_other(axis));
        let value = |measure: Measure| Some((measure, cell.spread(measure)?));
        let counted = |name: &str| Some((name.to_owned(), cell.counted(name)?.median));
        Self {
            study: cell.study.clone(),
            system: cell.system.clone(),
            protocol: cell.protocol.clone(),
            n: cell.n,
            f: cell.f,
            axes: axes.map(|(axis, value)| (axis.clone(), axis_text(value))).collect(),
            runs: cell.readings.len(),
            failed: cell.failed.len(),
            not_built: cell.not_built.clone().unwrap_or_default(),
            is_saturated: cell.is_saturated(),
            settings: settings(cell),
            values: MEASURES.into_iter().filter_map(value).collect(),
            counted: cell.counters().into_iter().filter_map(counted).collect(),
        }
    }

    /// Returns the identity of the row.
    pub(super) fn key(&self) -> Key {
        let texts = (self.study.clone(), self.system.clone(), self.protocol.clone());
        (texts.0, texts.1, texts.2, self.n, self.f, self.axes.clone())
    }

    /// Returns the name within the study, for people.
    pub(super) fn label(&self) -> String {
        let system = if self.system == OURS { String::new() } else { format!("{} ", self.system) };
        let mut label = format!("{system}{} n={}", self.protocol, self.n);
        for (axis, value) in &self.axes {
            label.push_str(&format!(", {axis} {value}"));
        }
        label
    }

    /// Returns the median of a measure.
    pub(super) fn median(&self, measure: Measure) -> Option<f64> {
        self.values.get(&measure).map(|spread| spread.median)
    }
}

fn settings(cell: &Cell) -> BTreeMap<String, String> {
    let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (field, value) in cell.readings.iter().flat_map(|reading| &reading.conditions) {
        let values = settings.entry((*field).to_owned()).or_default();
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    settings.into_iter().map(|(field, values)| (field, values.join("; "))).collect()
}

/// The rows of a benchmark, with its conditions.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Summary {
    /// The conditions.
    pub(super) manifest: Manifest,
    /// The rows, in the order of the experiment.
    pub(super) rows: Vec<Row>,
}

impl Summary {
    /// Returns the summary of an archive.
    pub(super) fn of(archive: &Archive) -> Self {
        Self { manifest: archive.manifest.clone(), rows: cells(archive).iter().map(Row::of).collect() }
    }

    /// Reads a folder: its runs, or `summary.csv` where it has none.
    ///
    /// # Errors
    /// Fails when the manifest is missing, when there are neither runs nor a summary, or when a file is wrong.
    pub(super) fn read(folder: &Path) -> Result<Self, ReportError> {
        let missing = |what: &str| ReportError::Missing { folder: folder.to_owned(), what: what.to_owned() };
        let path = folder.join(MANIFEST);
        if !path.is_file() {
            return Err(missing(
                "no manifest.json. A comparison needs manifest.json, and the runs or summary.csv",
            ));
        }
        let archive = Archive::read(folder)?;
        if !archive.runs.is_empty() {
            return Ok(Self::of(&archive));
        }
        let manifest = read_json(&path)?;
        let path = folder.join(FILE);
        if !path.is_file() {
            return Err(missing(
                "neither runs nor summary.csv. `quorate bench` writes both, and one suffices",
            ));
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|source| crate::archive::ArchiveError::file(&path, source))?;
        let rows = csv::parse(&text).map_err(|why| ReportError::Summary { path, why })?;
        Ok(Self { manifest, rows })
    }
}
