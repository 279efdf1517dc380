//! The cells of a benchmark: the runs with the same study, system and axes.

use super::numbers::exact;
use super::reading::Reading;
use crate::archive::{
    Archive, CellRun, Injected, Manifest, Measure, Outcome, Quantity, axis_text, cell_name,
};
use serde_json::Value;
use std::cmp::Ordering;
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
    /// The place of each value in the list of the experiment; absent where the experiment has no such list.
    places: BTreeMap<String, usize>,
    /// The results of runs that have one.
    pub(super) readings: Vec<Reading>,
    /// Runs without a result: the number of the run, and the reason.
    pub(super) failed: Vec<(u32, String)>,
    /// The part that is not built yet.
    pub(super) not_built: Option<String>,
    /// The faults that were injected in the first run with a result.
    pub(super) faults: Vec<Injected>,
}

/// The identity of a cell in an archive.
type Key = (String, String, String, usize, usize, String);

/// Returns the cells of an archive. Studies, protocols and values have the order of the experiment.
pub(super) fn cells(archive: &Archive) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut known: BTreeMap<Key, usize> = BTreeMap::new();
    for run in &archive.runs {
        let next = cells.len();
        let place = *known.entry(key_of(run)).or_insert(next);
        if place == next {
            cells.push(Cell::new(run, places_of(run, &archive.manifest)));
        }
        if let Some(cell) = cells.get_mut(place) {
            cell.add(run);
        }
    }
    let order = |cell: &Cell| archive.manifest.studies.iter().position(|study| study.name == cell.study);
    let study = |cell: &Cell| (order(cell).is_none(), order(cell), cell.study.clone());
    cells.sort_by(|a, b| study(a).cmp(&study(b)).then_with(|| a.compare(b)));
    cells
}

/// Returns the place of each value of a run's axes in the lists of its study.
fn places_of(run: &CellRun, manifest: &Manifest) -> BTreeMap<String, usize> {
    let study = manifest.studies.iter().find(|study| study.name == run.study);
    let lists = study.into_iter().flat_map(|study| &study.settings);
    let place = |(axis, list): (&String, &Value)| {
        let own = if axis == "protocol" { run.protocol.clone() } else { axis_text(run.axes.get(axis)?) };
        Some((axis.clone(), list.as_array()?.iter().position(|value| axis_text(value) == own)?))
    };
    lists.filter_map(place).collect()
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
    fn new(run: &CellRun, places: BTreeMap<String, usize>) -> Self {
        Self {
            places,
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

    /// Orders cells: our own system first, then by protocol, n and the other axes.
    fn compare(&self, other: &Self) -> Ordering {
        let axes = |cell: &Self| cell.axes.keys().cloned().collect::<BTreeSet<String>>();
        let names: BTreeSet<String> = axes(self).union(&axes(other)).cloned().collect();
        let heads = ["system", "protocol", "n", "f"].into_iter();
        let by_axis =
            heads.chain(names.iter().map(String::as_str)).map(|axis| self.compare_axis(other, axis));
        by_axis.fold(Ordering::Equal, Ordering::then)
    }

    /// Orders cells by an axis: numbers by their value, then other values in the order of the experiment. A value that the
    /// experiment does not list follows, by its leading number and its text.
    pub(super) fn compare_axis(&self, other: &Self, axis: &str) -> Ordering {
        let key = |cell: &Self| {
            let value = cell.axis(axis);
            let number = value.as_ref().and_then(axis_number);
            let place = cell.places.get(axis).copied().filter(|_| number.is_none());
            let text = value.as_ref().map(axis_text).unwrap_or_default();
            let is_foreign = axis == "system" && cell.system != OURS;
            ((is_foreign, number.is_none(), place.is_none(), place), number.or_else(|| leading(&text)), text)
        };
        let ((head_a, number_a, text_a), (head_b, number_b, text_b)) = (key(self), key(other));
        let of = |number: Option<f64>| number.unwrap_or(f64::INFINITY);
        head_a.cmp(&head_b).then(of(number_a).total_cmp(&of(number_b))).then(text_a.cmp(&text_b))
    }

    /// Returns the value of an axis. System, protocol, n and f are axes of every cell, and the offered load is one of every
    /// cell with an open loop.
    pub(super) fn axis(&self, name: &str) -> Option<Value> {
        let own = match name {
            "offered" => self.offered().map(|rate| Value::from(rate.median)),
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

    /// Returns the requests in a second that were offered to the runs; `None` in a closed loop.
    pub(super) fn offered(&self) -> Option<Spread> {
        Spread::of(self.readings.iter().filter_map(|reading| reading.offered))
    }

    /// Returns the values of a counter of the ledger for one request, over the runs.
    pub(super) fn counted(&self, counter: &str) -> Option<Spread> {
        Spread::of(self.readings.iter().filter_map(|reading| reading.ledger.get(counter).copied()))
    }

    /// Returns the names of all counters that a run has recorded.
    pub(super) fn counters(&self) -> BTreeSet<&str> {
        self.readings.iter().flat_map(|reading| reading.ledger.keys().map(String::as_str)).collect()
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

/// Returns the name of an axis with its unit, for these values.
pub(super) fn axis_title(axis: &str, values: &[Value]) -> String {
    let unit = match axis {
        "rate" if !values.iter().all(|value| axis_number(value).is_some()) => "share of saturation",
        "n" => "replicas",
        "f" => "faulty replicas tolerated",
        "offered" | "rate" => "requests/s",
        "batch" => "requests in a block",
        "bundle" => "requests in a bundle",
        "in_flight" => "requests",
        "request_bytes" | "reply_bytes" => "bytes",
        "read_share" => "reads among all requests",
        _ => "",
    };
    let name = if axis == "offered" { "offered load".to_owned() } else { axis.replace('_', " ") };
    if unit.is_empty() { name } else { format!("{name} ({unit})") }
}

/// Whether two values of an axis are the same: as numbers, or else as texts.
pub(super) fn is_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    match (a.and_then(axis_number), b.and_then(axis_number)) {
        (Some(a), Some(b)) => a.total_cmp(&b).is_eq(),
        (None, None) => a.map(axis_text) == b.map(axis_text),
        _ => false,
    }
}

/// Returns the number at the start of a text: 50 of `50%`.
fn leading(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// Returns the names of all axes of cells, without those in the heads of labels.
pub(super) fn axes(cells: &[&Cell]) -> BTreeSet<String> {
    cells.iter().flat_map(|cell| cell.axes.keys()).filter(|axis| !is_in_head(axis)).cloned().collect()
}
