//! The cells of a benchmark: the runs with the same study, system and axes.

use super::numbers::exact;
use super::reading::Reading;
use crate::archive::{Archive, CellRun, Injected, Measure, Outcome, Quantity, axis_text, cell_name};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The name of our own system in an archive.
pub(super) const OURS: &str = "quorate";

/// The least, the middle and the greatest value of the runs of a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spread {
    /// The least value.
    pub(super) min: f64,
    /// The median: of an even number of values, the mean of the two in the middle.
    pub(super) median: f64,
    /// The greatest value.
    pub(super) max: f64,
}

impl Spread {
    /// Returns the spread of values; `None` without any.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
        Some(Self { min, median: (lower + upper) / 2.0, max })
    }

    /// Returns the median, and the range where the runs differ.
    pub(super) fn text(&self) -> String {
        let median = exact(self.median);
        if self.min == self.max {
            return median;
        }
        format!("{median} ({} to {})", exact(self.min), exact(self.max))
    }
}

/// A cell: all its runs.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Cell {
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
    /// The value of each axis.
    pub(super) axes: BTreeMap<String, Value>,
    /// The results of runs that have one.
    pub(super) readings: Vec<Reading>,
    /// Runs without a result: the number of the run, and the reason.
    pub(super) failed: Vec<(u32, String)>,
    /// The part that is not built yet.
    pub(super) not_built: Option<String>,
    /// The faults that were injected in the first run with a result.
    pub(super) faults: Vec<Injected>,
}

/// The identity of a cell, the same in two archives.
pub(super) type Key = (String, String, String, usize, usize, String);

/// Returns the cells of an archive, in the order of its runs.
pub(super) fn cells(archive: &Archive) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    for run in &archive.runs {
        let next = cells.len();
        let place = *places.entry(key_of(run)).or_insert(next);
        if place == next {
            cells.push(Cell::new(run));
        }
        if let Some(cell) = cells.get_mut(place) {
            cell.add(run);
        }
    }
    let order = |cell: &Cell| archive.manifest.studies.iter().position(|study| study.name == cell.study);
    // Archives sort cells by the text of their axes, where 1000 comes before 500.
    cells.sort_by_cached_key(|cell| {
        (order(cell).is_none(), order(cell), cell.study.clone(), cell.system != OURS)
    });
    let mut sorted: Vec<Cell> = Vec::with_capacity(cells.len());
    for study in studies(&cells) {
        let mut own: Vec<Cell> = cells.iter().filter(|cell| cell.study == study).cloned().collect();
        own.sort_by(|a, b| a.compare(b));
        sorted.append(&mut own);
    }
    sorted
}

/// Returns the names of the studies that have cells, in the order of the cells.
pub(super) fn studies(cells: &[Cell]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for cell in cells {
        if !names.contains(&cell.study) {
            names.push(cell.study.clone());
        }
    }
    names
}

fn key_of(run: &CellRun) -> Key {
    let name = cell_name(&run.study, &run.axes);
    (run.study.clone(), run.system.clone(), run.protocol.clone(), run.n, run.f, name)
}

impl Cell {
    fn new(run: &CellRun) -> Self {
        Self {
            study: run.study.clone(),
            system: run.system.clone(),
            protocol: run.protocol.clone(),
            n: run.n,
            f: run.f,
            axes: run.axes.clone(),
            readings: Vec::new(),
            failed: Vec::new(),
            not_built: None,
            faults: Vec::new(),
        }
    }

    fn add(&mut self, run: &CellRun) {
        match &run.outcome {
            Outcome::Done => {
                if self.readings.is_empty() {
                    self.faults.clone_from(&run.faults);
                }
                self.readings.push(Reading::of(run));
            }
            Outcome::Failed(reason) => self.failed.push((run.run, reason.clone())),
            Outcome::NotBuilt(part) => self.not_built = Some(part.clone()),
        }
    }

    /// Returns the identity of the cell.
    pub(super) fn key(&self) -> Key {
        let name = cell_name(&self.study, &self.axes);
        (self.study.clone(), self.system.clone(), self.protocol.clone(), self.n, self.f, name)
    }

    /// Orders cells as people read them: our own system first, then by protocol and axes, numbers by value.
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let head =
            |cell: &Self| (cell.system != OURS, cell.system.clone(), cell.protocol.clone(), cell.n, cell.f);
        let axes = |cell: &Self| cell.axes.keys().cloned().collect::<BTreeSet<String>>();
        let names: BTreeSet<String> = axes(self).union(&axes(other)).cloned().collect();
        let by_axis = names.iter().map(|name| compare_values(self.axes.get(name), other.axes.get(name)));
        head(self)
            .cmp(&head(other))
            .then_with(|| by_axis.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then))
    }

    /// Returns the value of an axis. System, protocol, n and f are axes of every cell.
    pub(super) fn axis(&self, name: &str) -> Option<Value> {
        let own = match name {
            "system" => Some(Value::from(self.system.clone())),
            "protocol" => Some(Value::from(self.protocol.clone())),
            "n" => Some(Value::from(self.n)),
            "f" => Some(Value::from(self.f)),
            _ => None,
        };
        own.or_else(|| self.axes.get(name).cloned())
    }

    /// Returns the values of a quantity over the runs; `None` where no run has recorded it.
    pub(super) fn spread_of(&self, quantity: &Quantity) -> Option<Spread> {
        match quantity {
            Quantity::Measure(measure) => self.spread(*measure),
            Quantity::Field(name) => {
                Spread::of(self.readings.iter().filter_map(|reading| reading.others.get(name).copied()))
            }
        }
    }

    /// Returns the values of a measure over the runs; `None` where no run has recorded it.
    pub(super) fn spread(&self, measure: Measure) -> Option<Spread> {
        Spread::of(self.readings.iter().filter_map(|reading| reading.values.get(&measure).copied()))
    }

    /// Whether at least half of the runs did not carry the offered load.
    pub(super) fn is_saturated(&self) -> bool {
        let saturated = self.readings.iter().filter(|reading| reading.is_saturated).count();
        saturated > 0 && saturated.saturating_mul(2) >= self.readings.len()
    }

    /// Returns the system, the protocol and the size, for people.
    pub(super) fn head(&self) -> String {
        let system = if self.system == OURS { String::new() } else { format!("{} ", self.system) };
        format!("{system}{} n={}", self.protocol, self.n)
    }

    /// Returns the name within the study, for people.
    pub(super) fn label(&self) -> String {
        let mut label = self.head();
        for (axis, value) in self.axes.iter().filter(|(axis, _)| !is_in_head(axis)) {
            label.push_str(&format!(", {axis} {}", axis_text(value)));
        }
        label
    }
}

/// Whether the head of a label shows the value of this axis.
pub(super) fn is_in_head(axis: &str) -> bool {
    matches!(axis, "system" | "protocol" | "n" | "f")
}

/// Returns the number of an axis' value; a text such as `500` counts.
pub(super) fn axis_number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).filter(|number: &f64| number.is_finite())
}

/// Orders values of an axis: numbers by value, before texts.
pub(super) fn compare_values(a: Option<&Value>, b: Option<&Value>) -> std::cmp::Ordering {
    let key = |value: Option<&Value>| {
        let number = value.and_then(axis_number);
        (number.is_none(), number.unwrap_or(0.0), value.map(axis_text).unwrap_or_default())
    };
    let ((no_a, number_a, text_a), (no_b, number_b, text_b)) = (key(a), key(b));
    no_a.cmp(&no_b).then(number_a.total_cmp(&number_b)).then(text_a.cmp(&text_b))
}

/// Returns the names of all axes of cells, without those in the heads of labels.
pub(super) fn axes(cells: &[&Cell]) -> BTreeSet<String> {
    cells.iter().flat_map(|cell| cell.axes.keys()).filter(|axis| !is_in_head(axis)).cloned().collect()
}
