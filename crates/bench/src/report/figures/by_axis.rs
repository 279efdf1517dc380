//! Measured values against an axis of the experiment, as lines or as bars.

use super::super::cells::{Cell, Spread, axes, axis_number, axis_title, is_same};
use super::super::chart::{Axis, Chart, Entry, Fill, Layer, Look, Panel, Stroke, Symbol, Width};
use super::super::numbers::float_of;
use super::super::reading::{name_and_unit, name_of};
use super::series::{Series, legend, series};
use super::{LOW, TALL, remark};
use crate::archive::{Figure, Measure, Quantity, axis_text};
use serde_json::Value;

/// The share of a bar's place that a group of bars fills.
const GROUP: f64 = 0.8;

/// The places of numbers along x.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// At their value.
    AtValue,
    /// At equal distances, as names.
    AsNames,
}
/// The axis along x whose places are the measured values themselves.
const VALUE: &str = "value";

/// The axis along x, with a place for each value.
struct Places {
    axis: Axis,
    /// Values in the order of the experiment, numbers in ascending order, and their places.
    values: Vec<(Value, f64)>,
    explained: Vec<String>,
}

impl Places {
    fn of(&self, cell: &Cell, x: &str) -> Option<f64> {
        let value = cell.axis(x)?;
        self.values.iter().find(|(known, _)| is_same(Some(known), Some(&value))).map(|(_, at)| *at)
    }
}

/// Returns measured values as lines.
pub(super) fn lines(figure: &Figure, cells: &[&Cell], width: Width) -> Chart {
    let x = axis_of(figure, cells);
    let all = series(figure, cells, &x);
    let Some(places) = places(cells, &x, Numbers::AtValue, width.room()) else {
        return without_axis(cells, &x);
    };
    let mut chart = start(cells, &x, &places);
    for measure in measures(figure) {
        let (mut layers, mut values) = (Vec::new(), Vec::new());
        for series in &all {
            let points = points(series, &x, &places, &measure);
            values.extend(points.iter().flat_map(|(_, spread, _)| [spread.min, spread.max]));
            let medians: Vec<(f64, f64)> =
                points.iter().map(|(at, spread, _)| (*at, spread.median)).collect();
            layers.push(Layer::Line { points: medians, look: series.look, stroke: Stroke::Solid });
            layers.extend(whiskers(&points, 0.0));
            layers.extend(points.iter().map(|(at, spread, fill)| Layer::Point {
                at: (*at, spread.median),
                look: series.look,
                fill: *fill,
            }));
        }
        let y = Axis::measured(&name_of(&measure), &values);
        add_panel(
            &mut chart,
            cells,
            &measure,
            Panel { title: String::new(), x: places.axis.clone(), y, layers, height: TALL },
        );
    }
    finish(&mut chart, legend(&all, Symbol::Series), cells);
    chart.remarks.extend(all.iter().filter_map(|series| shared_places(series, &x, &places)));
    chart
}

/// Returns measured values as bars.
pub(super) fn bars(figure: &Figure, cells: &[&Cell], width: Width) -> Chart {
    if figure.x == VALUE {
        return bars_of_values(figure, cells, width);
    }
    let x = axis_of(figure, cells);
    let all = series(figure, cells, &x);
    let Some(places) = places(cells, &x, Numbers::AsNames, width.room()) else {
        return without_axis(cells, &x);
    };
    let mut chart = start(cells, &x, &places);
    let thickness = GROUP / float_of(all.len().max(1));
    for measure in measures(figure) {
        let (mut layers, mut values, mut markers) = (Vec::new(), Vec::new(), Vec::new());
        for (i, series) in all.iter().enumerate() {
            let offset = (float_of(i) + 0.5) * thickness - GROUP / 2.0;
            let points = points(series, &x, &places, &measure);
            values.extend(points.iter().map(|(_, spread, _)| spread.max));
            for (at, spread, fill) in &points {
                let middle = at + offset;
                let x = (middle - thickness * 0.46, middle + thickness * 0.46);
                layers.push(Layer::Bar { x, top: spread.median, look: series.look });
                if all.len() > 1 || *fill == Fill::Hollow {
                    markers.push(Layer::Above { at: (middle, spread.max), look: series.look, fill: *fill });
                }
            }
            markers.extend(whiskers(&points, offset));
        }
        layers.append(&mut markers);
        let y = Axis::with_room(&name_of(&measure), &values);
        add_panel(
            &mut chart,
            cells,
            &measure,
            Panel { title: String::new(), x: places.axis.clone(), y, layers, height: TALL },
        );
    }
    let symbol: fn(Look) -> Symbol = Symbol::Bar;
    finish(&mut chart, if all.len() > 1 { legend(&all, symbol) } else { Vec::new() }, cells);
    chart.remarks.extend(all.iter().filter_map(|series| shared_places(series, &x, &places)));
    chart
}

/// Returns the bars of several values in one panel: a place for each value, and a bar in it for each series.
fn bars_of_values(figure: &Figure, cells: &[&Cell], width: Width) -> Chart {
    let all = series(figure, cells, VALUE);
    let quantities = measures(figure);
    let parts: Vec<(String, &str)> = quantities.iter().map(parts_of).collect();
    let unit = parts.first().map_or("", |(_, unit)| *unit);
    let is_common = parts.iter().all(|(_, other)| *other == unit);
    let names: Vec<String> = quantities
        .iter()
        .zip(&parts)
        .map(|(quantity, (name, _))| if is_common { name.clone() } else { name_of(quantity) })
        .collect();
    let (x, explained) = Axis::names("", &names, width.room());
    let legend_of_places = explained.iter().map(|text| Entry::new(Symbol::Text, text.clone())).collect();
    let mut chart = Chart { legend: legend_of_places, ..Chart::default() };
    let thickness = GROUP / float_of(all.len().max(1));
    let (mut layers, mut markers, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (i, series) in all.iter().enumerate() {
        for (place, quantity) in quantities.iter().enumerate() {
            // Cells of a series that no axis tells apart are runs of the same.
            let Some(spread) = series.cells.iter().find_map(|cell| cell.spread_of(quantity)) else {
                continue;
            };
            let middle = float_of(place) + (float_of(i) + 0.5) * thickness - GROUP / 2.0;
            values.push(spread.max);
            let x = (middle - thickness * 0.46, middle + thickness * 0.46);
            layers.push(Layer::Bar { x, top: spread.median, look: series.look });
            if all.len() > 1 {
                markers.push(Layer::Above { at: (middle, spread.max), look: series.look, fill: Fill::Full });
            }
            markers.push(Layer::Whisker { x: middle, y: (spread.min, spread.max) });
        }
    }
    layers.append(&mut markers);
    for quantity in &quantities {
        let without: Vec<&Cell> =
            cells.iter().filter(|cell| cell.spread_of(quantity).is_none()).copied().collect();
        chart.remarks.extend(remark(&format!("Not recorded: {}", name_of(quantity)), &without));
    }
    if !layers.is_empty() {
        let y = Axis::with_room(if is_common { unit } else { "" }, &values);
        chart.panels.push(Panel { title: String::new(), x, y, layers, height: TALL });
    }
    finish(&mut chart, if all.len() > 1 { legend(&all, Symbol::Bar) } else { Vec::new() }, cells);
    chart
}

fn parts_of(quantity: &Quantity) -> (String, &'static str) {
    match quantity {
        Quantity::Measure(_) => (name_of(quantity), ""),
        Quantity::Field(field) => name_and_unit(field),
    }
}

/// Returns the axis along x: the named one, or else the first axis with several values.
fn axis_of(figure: &Figure, cells: &[&Cell]) -> String {
    if !figure.x.is_empty() {
        return figure.x.clone();
    }
    let is_several = |axis: &String| {
        let mut values = cells.iter().map(|cell| cell.axis(axis).map(|value| axis_text(&value)));
        let first = values.next();
        first.is_some_and(|first| values.any(|value| value != first))
    };
    let names = axes(cells).into_iter().chain(["n", "protocol"].map(str::to_owned));
    names.into_iter().find(is_several).unwrap_or_else(|| "protocol".to_owned())
}

fn measures(figure: &Figure) -> Vec<Quantity> {
    if figure.y.is_empty() { vec![Quantity::Measure(Measure::Goodput)] } else { figure.y.clone() }
}

/// Returns the places of all values of an axis. Lines put numbers at their value; bars have equal distances.
fn places(cells: &[&Cell], x: &str, numbers_are: Numbers, length: f64) -> Option<Places> {
    let mut sorted: Vec<&Cell> = cells.to_vec();
    sorted.sort_by(|a, b| a.compare_axis(b, x));
    let mut values: Vec<Value> = sorted.iter().filter_map(|cell| cell.axis(x)).collect();
    values.dedup_by(|a, b| is_same(Some(a), Some(b)));
    if values.is_empty() {
        return None;
    }
    let numbers: Option<Vec<f64>> = values.iter().map(axis_number).collect();
    if let Some(numbers) = numbers.filter(|_| numbers_are == Numbers::AtValue) {
        let axis = Axis::chosen(&axis_title(x, &values), &numbers, length);
        return Some(Places {
            axis,
            values: values.into_iter().zip(numbers).collect(),
            explained: Vec::new(),
        });
    }
    let names: Vec<String> = values.iter().map(axis_text).collect();
    let (axis, explained) = Axis::names(&axis_title(x, &values), &names, length);
    let values = values.into_iter().enumerate().map(|(i, value)| (value, float_of(i))).collect();
    Some(Places { axis, values, explained })
}

/// Returns the points of a series in ascending order: place, value, and whether the cell was saturated.
fn points(series: &Series<'_>, x: &str, places: &Places, measure: &Quantity) -> Vec<(f64, Spread, Fill)> {
    let of = |cell: &&Cell| {
        let fill = if cell.is_saturated() { Fill::Hollow } else { Fill::Full };
        Some((places.of(cell, x)?, cell.spread_of(measure)?, fill))
    };
    let mut points: Vec<(f64, Spread, Fill)> = series.cells.iter().filter_map(of).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn whiskers(points: &[(f64, Spread, Fill)], offset: f64) -> Vec<Layer> {
    points
        .iter()
        .map(|(at, spread, _)| Layer::Whisker { x: at + offset, y: (spread.min, spread.max) })
        .collect()
}

/// Returns a remark about a series in which several cells have the same place.
fn shared_places(series: &Series<'_>, x: &str, places: &Places) -> Option<String> {
    let mut taken: Vec<f64> = series.cells.iter().filter_map(|cell| places.of(cell, x)).collect();
    taken.sort_by(f64::total_cmp);
    let is_shared = taken.iter().zip(taken.iter().skip(1)).any(|(a, b)| a == b);
    let why = "An axis of the experiment is neither along x nor a series of the figure.";
    is_shared.then(|| format!("Several cells of {} have the same place. {why}", series.label))
}

fn start(cells: &[&Cell], x: &str, places: &Places) -> Chart {
    let elsewhere: Vec<&Cell> = cells.iter().filter(|cell| places.of(cell, x).is_none()).copied().collect();
    let mut chart = Chart::default();
    chart.remarks.extend(remark(&format!("Not drawn, without a value of {x}"), &elsewhere));
    chart.legend = places.explained.iter().map(|text| Entry::new(Symbol::Text, text.clone())).collect();
    chart
}

fn without_axis(cells: &[&Cell], x: &str) -> Chart {
    let remarks = remark(&format!("Not drawn, without a value of {x}"), cells).into_iter().collect();
    Chart { remarks, ..Chart::default() }
}

fn add_panel(chart: &mut Chart, cells: &[&Cell], measure: &Quantity, mut panel: Panel) {
    let without: Vec<&Cell> =
        cells.iter().filter(|cell| cell.spread_of(measure).is_none()).copied().collect();
    chart.remarks.extend(remark(&format!("Not recorded: {}", name_of(measure)), &without));
    let is_drawn = |layer: &Layer| matches!(layer, Layer::Point { .. } | Layer::Bar { .. });
    if !panel.layers.iter().any(is_drawn) {
        panel.layers = vec![Layer::Empty("not recorded".to_owned())];
    }
    chart.panels.push(panel);
}

fn finish(chart: &mut Chart, mut legend: Vec<Entry>, cells: &[&Cell]) {
    if chart.panels.len() > 1 {
        for panel in &mut chart.panels {
            panel.height = LOW;
        }
    }
    legend.append(&mut chart.legend);
    let layers = || chart.panels.iter().flat_map(|panel| &panel.layers);
    if layers().any(|layer| {
        matches!(layer, Layer::Point { fill: Fill::Hollow, .. } | Layer::Above { fill: Fill::Hollow, .. })
    }) {
        let text = "hollow: saturated, less than 95 % of the offered load was answered in time";
        legend.push(Entry::new(Symbol::Hollow, text));
    }
    if cells.iter().any(|cell| cell.readings.len() > 1) {
        legend.push(Entry::new(Symbol::Whisker, "median, least and greatest of the runs"));
    }
    chart.legend = legend;
}
