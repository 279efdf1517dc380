//! The share of requests that were answered within a latency.

use super::super::cells::{Cell, Spread};
use super::super::chart::{Axis, Chart, Entry, Fill, Layer, Panel, Stroke, Symbol};
use super::super::histogram::Histogram;
use super::series::series;
use super::{TALL, remark};
use crate::archive::Figure;

/// Points of a curve, at most. More of them would lie on the same pixels.
const POINTS_MAX: usize = 400;

/// Percentages of requests at which a curve has a marker.
const MARKED: [f64; 4] = [25.0, 50.0, 75.0, 99.0];

/// Returns the chart. Its panel is absent where no cell has latencies.
pub(super) fn chart(figure: &Figure, cells: &[&Cell]) -> Chart {
    let mut chart = Chart::default();
    let (mut layers, mut latencies) = (Vec::new(), Vec::new());
    let (mut from_percentiles, mut without) = (Vec::new(), Vec::new());
    // Each cell is a series: curves of different cells have no common line.
    let cut = Figure { series: Vec::new(), ..figure.clone() };
    for series in series(&cut, cells, "") {
        for cell in series.cells {
            let whole = curve(cell);
            let points = if whole.is_empty() { percentiles(cell) } else { whole.clone() };
            if points.is_empty() {
                without.push(cell);
                continue;
            }
            latencies.extend(points.iter().map(|(ms, _)| *ms));
            if whole.is_empty() {
                from_percentiles.push(cell);
            }
            let marked = MARKED.iter().filter_map(|share| points.iter().find(|(_, seen)| seen >= share));
            let marker = |at: &(f64, f64)| Layer::Point { at: *at, look: series.look, fill: Fill::Full };
            layers.extend(marked.map(marker));
            layers.push(Layer::Line { points, look: series.look, stroke: Stroke::Solid });
            chart.legend.push(Entry::new(Symbol::Series(series.look), series.label.clone()));
        }
    }
    chart.remarks.extend(remark("Not drawn, as latencies are not recorded", &without));
    let start = "Drawn through percentiles, as the histogram of latencies is not recorded";
    chart.remarks.extend(remark(start, &from_percentiles));
    if latencies.is_empty() {
        return chart;
    }
    let x = Axis::logarithmic("latency (ms)", &latencies);
    let y = Axis::from_zero("requests answered within the latency (%)", [100.0]);
    chart.panels.push(Panel { title: String::new(), x, y, layers, height: TALL });
    chart
}

/// Returns the curve of the requests of all runs: milliseconds, and the percentage of requests that needed no longer.
fn curve(cell: &Cell) -> Vec<(f64, f64)> {
    let mut sum = Histogram::default();
    for histogram in cell.readings.iter().filter_map(|reading| reading.histogram.as_ref()) {
        sum.add(histogram);
    }
    let total: f64 = sum.counts().map(|(_, count)| count).sum();
    let steps = sum.counts().count();
    let every = steps.div_ceil(POINTS_MAX).max(1);
    let mut seen = 0.0;
    let points = sum.counts().map(|(ns, count)| {
        seen += count;
        (ns / 1e6, seen / total * 100.0)
    });
    let is_kept = |i: usize| i.is_multiple_of(every) || i.saturating_add(1) == steps;
    points.enumerate().filter(|(i, _)| is_kept(*i)).map(|(_, point)| point).collect()
}

/// Returns the medians of the percentiles over the runs, as a curve.
fn percentiles(cell: &Cell) -> Vec<(f64, f64)> {
    let mut shares: Vec<f64> = cell
        .readings
        .iter()
        .flat_map(|reading| reading.percentiles.iter().map(|(share, _)| *share))
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let median = |share: f64| {
        let all = cell.readings.iter().flat_map(|reading| &reading.percentiles);
        let spread = Spread::of(all.filter(|(known, _)| *known == share).map(|(_, ms)| *ms))?;
        Some((spread.median, share * 100.0)).filter(|(ms, _)| *ms > 0.0)
    };
    shares.into_iter().filter_map(median).collect()
}
