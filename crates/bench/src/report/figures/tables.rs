//! Tables: the cost ledger, and all measured values.

use super::super::cells::{Cell, Spread};
use super::super::noise;
use super::super::numbers::{exact, float_of};
use super::super::reading::{MEASURES, is_optional, name};
use crate::archive::Measure;
use serde::Serialize;
use std::collections::BTreeSet;

/// The text of a value that an archive does not have.
pub(in crate::report) const NOT_RECORDED: &str = "not recorded";

/// A table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(in crate::report) struct Table {
    /// The title.
    pub(in crate::report) title: String,
    /// A sentence for readers.
    pub(in crate::report) note: String,
    /// The names of columns. The first column has names, the others have numbers.
    pub(in crate::report) columns: Vec<String>,
    /// Rows, as long as the columns.
    pub(in crate::report) rows: Vec<Vec<String>>,
}

/// Returns the cost ledger: a row for each counter, a column for each cell.
pub(in crate::report) fn ledger(title: &str, cells: &[&Cell]) -> Table {
    let has = |cell: &&Cell| cell.readings.iter().any(|reading| !reading.ledger.is_empty());
    let (with, without): (Vec<&Cell>, Vec<&Cell>) = cells.iter().copied().partition(has);
    let names: BTreeSet<&str> = with.iter().flat_map(|cell| cell.counters()).collect();
    let value = |cell: &Cell, name: &str| {
        cell.counted(name).map_or_else(|| NOT_RECORDED.to_owned(), |spread| exact(spread.median))
    };
    let row = |name: &&str| {
        std::iter::once((*name).to_owned()).chain(with.iter().map(|cell| value(cell, name))).collect()
    };
    let mut note = "All replicas together, for one request. Each value is the median of the runs.".to_owned();
    if let Some(remark) = super::remark(" Not recorded", &without) {
        note.push_str(&remark);
    }
    Table {
        title: title.to_owned(),
        note,
        columns: std::iter::once("counter".to_owned()).chain(with.iter().map(|cell| cell.label())).collect(),
        rows: if with.is_empty() { Vec::new() } else { names.iter().map(row).collect() },
    }
}

/// Returns all measured values: a row for each cell, those without a result included.
pub(in crate::report) fn everything(title: &str, cells: &[&Cell]) -> Table {
    let others: BTreeSet<&String> =
        cells.iter().flat_map(|cell| &cell.readings).flat_map(|reading| reading.others.keys()).collect();
    let is_measured = |cell: &&Cell| cell.readings.iter().any(|reading| !reading.values.is_empty());
    let has_measures = others.is_empty() || cells.iter().any(is_measured);
    let is_shown = |measure: &Measure| {
        has_measures && (!is_optional(*measure) || cells.iter().any(|cell| cell.spread(*measure).is_some()))
    };
    let measures: Vec<Measure> = MEASURES.into_iter().filter(is_shown).collect();
    let mut columns: Vec<String> = vec!["cell".to_owned(), "runs".to_owned()];
    columns.extend(measures.iter().map(|measure| name(*measure).to_owned()));
    columns.extend(others.iter().map(|name| (*name).clone()));
    columns.push("remarks".to_owned());
    let row = |cell: &&Cell| {
        let text =
            |spread: Option<Spread>| spread.map_or_else(|| NOT_RECORDED.to_owned(), |spread| spread.text());
        let mut row = vec![cell.label(), exact(float_of(cell.readings.len()))];
        row.extend(measures.iter().map(|measure| text(cell.spread(*measure))));
        for name in &others {
            let values = cell.readings.iter().filter_map(|reading| reading.others.get(*name).copied());
            row.push(text(Spread::of(values)));
        }
        row.push(remarks(cell));
        row
    };
    Table {
        title: title.to_owned(),
        note: "Each value is the median of the runs, with the least and the greatest.".to_owned(),
        columns,
        rows: cells.iter().map(row).collect(),
    }
}

fn remarks(cell: &Cell) -> String {
    let mut remarks: Vec<String> = Vec::new();
    if cell.is_saturated() {
        remarks.push("saturated: the latency is that of a growing queue".to_owned());
    }
    remarks.extend(noise::remark(cell));
    if let Some(part) = &cell.not_built {
        remarks.push(format!("not built: {part}"));
    }
    if !cell.failed.is_empty() {
        let runs: Vec<String> = cell.failed.iter().map(|(run, _)| run.to_string()).collect();
        remarks.push(format!("failed runs: {}", runs.join(", ")));
    }
    let notes: BTreeSet<&str> =
        cell.readings.iter().map(|reading| reading.note.as_str()).filter(|note| !note.is_empty()).collect();
    remarks.extend(notes.into_iter().map(str::to_owned));
    remarks.join("; ")
}
