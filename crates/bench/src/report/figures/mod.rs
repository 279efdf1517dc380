//! The figures of a study: charts and tables from its cells.

mod by_axis;
mod cumulative;
mod heat_map;
mod latency_throughput;
mod series;
mod tables;
mod timeline;

use super::cells::Cell;
use super::chart::{Axis, Chart, Layer, Panel, Width};
use crate::archive::{Figure, FigureKind, StudyFacts};
pub(super) use tables::{NOT_RECORDED, Table, everything};

/// Panels of a figure that has one for each cell, at most.
const PANELS_MAX: usize = 24;
/// Cells that a remark names, at most.
const NAMES_MAX: usize = 20;
/// Pixels of the height of the plot in a figure with one panel.
const TALL: u32 = 340;
/// Pixels of the height of the plots in a figure with several panels.
const LOW: u32 = 200;

/// A figure that can be shown.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Shown {
    /// A chart.
    Chart(Chart),
    /// A table.
    Table(Table),
}

/// Returns a figure of a study. `cells` are those of the study.
pub(super) fn build(figure: &Figure, study: &StudyFacts, cells: &[Cell], width: Width) -> Shown {
    let (selected, mut remarks) = series::selected(figure, cells);
    let title = if figure.title.is_empty() { &study.title } else { &figure.title };
    let mut chart = match figure.kind {
        FigureKind::LatencyThroughput => latency_throughput::chart(figure, &selected),
        FigureKind::Lines => by_axis::lines(figure, &selected, width),
        FigureKind::Bars => by_axis::bars(figure, &selected, width),
        FigureKind::HeatMap => heat_map::chart(&selected),
        FigureKind::Cumulative => cumulative::chart(figure, &selected),
        FigureKind::Timeline => timeline::chart(&selected),
        FigureKind::Ledger => return Shown::Table(tables::ledger(title, &selected)),
        FigureKind::Table => return Shown::Table(everything(title, &selected)),
    };
    if chart.panels.is_empty() {
        chart.panels.push(empty_panel());
        chart.legend.clear();
        chart.colour_bar = None;
    }
    chart.width = width;
    chart.title.clone_from(title);
    remarks.append(&mut chart.remarks);
    chart.remarks = remarks;
    Shown::Chart(chart)
}

/// Returns the short name of a kind, for files.
pub(super) fn kind_name(kind: FigureKind) -> &'static str {
    match kind {
        FigureKind::LatencyThroughput => "latency-throughput",
        FigureKind::Lines => "lines",
        FigureKind::Bars => "bars",
        FigureKind::HeatMap => "heat-map",
        FigureKind::Cumulative => "cumulative",
        FigureKind::Timeline => "timeline",
        FigureKind::Ledger => "ledger",
        FigureKind::Table => "table",
    }
}

fn empty_panel() -> Panel {
    let empty = Layer::Empty("no cell has a result for this figure".to_owned());
    Panel {
        title: String::new(),
        x: Axis::from_zero("", []),
        y: Axis::from_zero("", []),
        layers: vec![empty],
        height: LOW,
    }
}

/// Returns a remark that names cells; none without cells. The table of all values names those that are too many.
fn remark(start: &str, cells: &[&Cell]) -> Option<String> {
    let names: Vec<String> = cells.iter().take(NAMES_MAX).map(|cell| cell.label()).collect();
    let left = cells.len().saturating_sub(NAMES_MAX);
    let more = if left > 0 { format!("; and {left} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("{start}: {}{more}.", names.join("; ")))
}

/// Divides cells into those that get a panel each, and a remark that names the others.
fn with_panels<'a>(cells: &[&'a Cell]) -> (Vec<&'a Cell>, Option<String>) {
    let others: Vec<&Cell> = cells.iter().skip(PANELS_MAX).copied().collect();
    let start = format!("Not drawn, as the figure shows the first {PANELS_MAX} cells alone");
    (cells.iter().take(PANELS_MAX).copied().collect(), remark(&start, &others))
}

#[cfg(test)]
mod tests;
