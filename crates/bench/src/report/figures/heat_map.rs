//! Latency over time: a panel for each cell, and a colour for the number of requests.

use super::super::cells::Cell;
use super::super::chart::{Axis, Chart, ColourBar, Layer, Panel, heat};
use super::super::numbers::{float_of, index, pixel};
use super::timeline::{Marks, Times};
use super::{LOW, remark, with_panels};
use std::collections::BTreeMap;

/// Columns of a panel, at most. More intervals share columns.
const COLUMNS_MAX: usize = 120;
/// Rows of latencies in a factor of ten.
const ROWS_IN_DECADE: f64 = 12.0;
/// The least latency with a row of its own, in milliseconds.
const LEAST_MS: f64 = 0.001;

/// Counts by column and row.
struct Grid {
    counts: BTreeMap<(usize, i32), f64>,
    /// Intervals in a column.
    joined: usize,
}

/// Returns the chart: a panel for each cell whose timeline has histograms.
pub(super) fn chart(cells: &[&Cell]) -> Chart {
    let grid_of = |cell: &&Cell| Times::of(cell).is_some_and(|times| !grid(&times).counts.is_empty());
    let (with, without): (Vec<&Cell>, Vec<&Cell>) = cells.iter().copied().partition(grid_of);
    let (with, too_many) = with_panels(&with);
    let mut chart = Chart::default();
    chart.remarks.extend(remark("Not drawn, as histograms over time are not recorded", &without));
    chart.remarks.extend(too_many);
    let drawn: Vec<(&Cell, Times<'_>)> =
        with.into_iter().filter_map(|cell| Some((cell, Times::of(cell)?))).collect();
    let grids: Vec<Grid> = drawn.iter().map(|(_, times)| grid(times)).collect();
    let counts = || grids.iter().flat_map(|grid| grid.counts.values().copied());
    let (Some(low), Some(high)) = (counts().reduce(f64::min), counts().reduce(f64::max)) else {
        return chart;
    };
    let bar = ColourBar { name: "requests by time and latency, all runs".to_owned(), low, high };
    let rows = || grids.iter().flat_map(|grid| grid.counts.keys().map(|(_, row)| *row));
    let (lowest, highest) = (rows().min().unwrap_or(0), rows().max().unwrap_or(0));
    let mut marks = Marks::default();
    for ((cell, times), grid) in drawn.iter().zip(&grids) {
        let mut layers = vec![Layer::Ground];
        for ((column, row), count) in &grid.counts {
            let second = |column: usize| times.second(column.saturating_mul(grid.joined));
            let x = (second(*column), second(column.saturating_add(1)).min(times.seconds()));
            let y = (edge(*row), edge(row.saturating_add(1)));
            layers.push(Layer::Patch { x, y, rgb: heat(bar.place(*count)) });
        }
        layers.extend(marks.add(cell, times.seconds()));
        let x = Axis::from_zero("time of the request (s)", [times.seconds()]);
        let y = Axis::logarithmic("latency (ms)", &[edge(lowest), edge(highest.saturating_add(1))]);
        chart.panels.push(Panel { title: cell.label(), x, y, layers, height: LOW });
    }
    chart.colour_bar = Some(bar);
    chart.legend = marks.legend;
    chart
}

fn grid(times: &Times<'_>) -> Grid {
    let last = times.intervals.keys().last().copied().unwrap_or(0);
    let joined = last.saturating_add(1).div_ceil(COLUMNS_MAX).max(1);
    let mut counts: BTreeMap<(usize, i32), f64> = BTreeMap::new();
    for (at, runs) in &times.intervals {
        let column = at.checked_div(joined).unwrap_or(0);
        for histogram in runs.iter().filter_map(|interval| interval.histogram.as_ref()) {
            for (ns, count) in histogram.counts() {
                *counts.entry((column, row(ns / 1e6))).or_default() += count;
            }
        }
    }
    Grid { counts, joined }
}

fn row(ms: f64) -> i32 {
    let rows = (ms.max(LEAST_MS) / LEAST_MS).log10() * ROWS_IN_DECADE;
    pixel(float_of(index(rows)))
}

/// Returns the least latency of a row, in milliseconds.
fn edge(row: i32) -> f64 {
    LEAST_MS * 10f64.powf(f64::from(row) / ROWS_IN_DECADE)
}
