//! Latency against goodput: a point for each offered load.

use super::super::cells::{Cell, Spread};
use super::super::chart::{Axis, Chart, Entry, Fill, Layer, Look, Panel, Stroke, Symbol};
use super::super::reading::name;
use super::series::{Series, legend, series};
use super::{TALL, remark};
use crate::archive::{Figure, Measure};

/// Axes of an offered load, in order of preference.
const LOADS: [&str; 4] = ["rate", "offered", "in_flight", "clients"];

/// A point of a series.
struct Point {
    goodput: Spread,
    latency: Spread,
    p99: Option<Spread>,
    fill: Fill,
}

/// Returns the chart. Its panel is absent where no cell has both values.
pub(super) fn chart(figure: &Figure, cells: &[&Cell]) -> Chart {
    let known = |axis: &&str| cells.iter().any(|cell| cell.axes.contains_key(*axis));
    let load = if figure.x.is_empty() { LOADS.into_iter().find(known).unwrap_or("rate") } else { &figure.x };
    let all = series(figure, cells, load);
    let (mut chart, mut points) = (Chart::default(), Vec::new());
    for series in &all {
        points.push((series.look, points_of(series, load)));
    }
    let shown: Vec<&Point> = points.iter().flat_map(|(_, points)| points).collect();
    let without: Vec<&Cell> = cells.iter().filter(|cell| point(cell).is_none()).copied().collect();
    chart.remarks.extend(remark("Not drawn, as goodput or latency is not recorded", &without));
    let means: Vec<&Cell> = cells
        .iter()
        .filter(|cell| point(cell).is_some() && cell.spread(Measure::LatencyP50).is_none())
        .copied()
        .collect();
    chart.remarks.extend(remark("Drawn with the mean latency, as the median is not recorded", &means));
    if shown.is_empty() {
        return chart;
    }
    let latencies = |point: &&Point| {
        [point.latency.max, point.latency.min, point.p99.map_or(point.latency.max, |p99| p99.max)]
    };
    let ys: Vec<f64> = shown.iter().flat_map(latencies).collect();
    let xs: Vec<f64> = shown.iter().flat_map(|point| [point.goodput.min, point.goodput.max]).collect();
    chart.panels.push(Panel {
        title: String::new(),
        x: Axis::with_room(name(Measure::Goodput), &xs),
        y: Axis::measured("latency (ms)", &ys),
        layers: layers(&points),
        height: TALL,
    });
    chart.legend = legend(&all, Symbol::Series);
    if shown.iter().any(|point| point.p99.is_some()) {
        chart.legend.push(Entry::new(Symbol::Line(Look::of(6), Stroke::Solid), "median latency"));
        chart.legend.push(Entry::new(Symbol::Line(Look::of(6), Stroke::Dashed), "p99 latency"));
    }
    if shown.iter().any(|point| point.fill == Fill::Hollow) {
        let text = "hollow: saturated, less than 95 % of the offered load was answered in time";
        chart.legend.push(Entry::new(Symbol::Hollow, text));
    }
    chart.legend.push(Entry::new(Symbol::Whisker, "least and greatest of the runs"));
    chart
}

fn point(cell: &Cell) -> Option<Point> {
    let latency = cell.spread(Measure::LatencyP50).or_else(|| cell.spread(Measure::LatencyMean))?;
    let fill = if cell.is_saturated() { Fill::Hollow } else { Fill::Full };
    Some(Point {
        goodput: cell.spread(Measure::Goodput)?,
        latency,
        p99: cell.spread(Measure::LatencyP99),
        fill,
    })
}

fn points_of(series: &Series<'_>, load: &str) -> Vec<Point> {
    let mut cells = series.cells.clone();
    cells.sort_by(|a, b| a.compare_axis(b, load));
    cells.into_iter().filter_map(point).collect()
}

fn layers(points: &[(Look, Vec<Point>)]) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (look, points) in points {
        let p99: Vec<(f64, f64)> =
            points.iter().filter_map(|point| Some((point.goodput.median, point.p99?.median))).collect();
        let marker = |at: &(f64, f64)| Layer::Point { at: *at, look: *look, fill: Fill::Small };
        layers.extend(p99.iter().map(marker));
        layers.push(Layer::Line { points: p99, look: *look, stroke: Stroke::Dashed });
    }
    for (look, points) in points {
        let medians: Vec<(f64, f64)> =
            points.iter().map(|point| (point.goodput.median, point.latency.median)).collect();
        layers.push(Layer::Line { points: medians, look: *look, stroke: Stroke::Solid });
        for point in points {
            let (x, y) = (point.goodput.median, point.latency.median);
            layers.push(Layer::Whisker { x, y: (point.latency.min, point.latency.max) });
            layers.push(Layer::Span { x: (point.goodput.min, point.goodput.max), y });
        }
        for point in points {
            let at = (point.goodput.median, point.latency.median);
            layers.push(Layer::Point { at, look: *look, fill: point.fill });
        }
    }
    layers
}
