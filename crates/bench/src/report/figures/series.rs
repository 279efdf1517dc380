//! Series: the cells of a figure that belong together.

use super::super::cells::{Cell, axes, is_in_head, is_same};
use super::super::chart::{Entry, Look, Symbol};
use super::remark;
use crate::archive::{Figure, FigureKind, axis_text};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// A series of a figure.
pub(super) struct Series<'a> {
    /// The name, for the legend.
    pub(super) label: String,
    /// The colour and the marker.
    pub(super) look: Look,
    /// The cells, in the order of the study.
    pub(super) cells: Vec<&'a Cell>,
}

/// Returns the cells that a figure shows, and remarks about cells of the study that no figure can show.
pub(super) fn selected<'a>(figure: &Figure, cells: &'a [Cell]) -> (Vec<&'a Cell>, Vec<String>) {
    // A system of others has none of the axes of the study, and stands beside all of its cells.
    let shows_others =
        matches!(figure.kind, FigureKind::LatencyThroughput | FigureKind::Lines | FigureKind::Bars);
    let is_wanted = |cell: &&Cell| {
        figure.only.iter().all(|(axis, wanted)| match cell.axis(axis) {
            None => shows_others && cell.system != "quorate",
            value => is_same(value.as_ref(), Some(wanted)),
        })
    };
    let wanted: Vec<&Cell> = cells.iter().filter(is_wanted).collect();
    let (with, without): (Vec<&Cell>, Vec<&Cell>) =
        wanted.into_iter().partition(|cell| !cell.readings.is_empty());
    (with, remark("Not drawn, as no run has a result", &without).into_iter().collect())
}

/// Divides cells into series: by the axes that the figure names, or else by all axes with several values but `x`. Series have
/// the order of the experiment.
pub(super) fn series<'a>(figure: &Figure, cells: &[&'a Cell], x: &str) -> Vec<Series<'a>> {
    let names = series_axes(figure, cells, x);
    let mut groups: Vec<(Vec<Option<Value>>, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        let key: Vec<Option<Value>> = std::iter::once("system")
            .chain(names.iter().map(String::as_str))
            .map(|axis| cell.axis(axis))
            .collect();
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(cell),
            None => groups.push((key, vec![cell])),
        }
    }
    let mut groups: Vec<Vec<&Cell>> = groups.into_iter().map(|(_, group)| group).collect();
    groups.sort_by(|a, b| match (a.first(), b.first()) {
        (Some(a), Some(b)) => std::iter::once("system")
            .chain(names.iter().map(String::as_str))
            .fold(Ordering::Equal, |order, axis| order.then_with(|| a.compare_axis(b, axis))),
        _ => Ordering::Equal,
    });
    let of = |(i, cells): (usize, Vec<&'a Cell>)| {
        let label = cells.first().map(|cell| label(cell, &names)).unwrap_or_default();
        Series { label, look: Look::of(i), cells }
    };
    groups.into_iter().enumerate().map(of).collect()
}

fn series_axes(figure: &Figure, cells: &[&Cell], x: &str) -> Vec<String> {
    if !figure.series.is_empty() {
        return figure.series.clone();
    }
    let fixed = ["protocol", "n"].map(str::to_owned).into_iter();
    let is_several = |axis: &String| {
        let values: BTreeSet<String> = cells
            .iter()
            .map(|cell| cell.axis(axis).map(|value| axis_text(&value)).unwrap_or_default())
            .collect();
        let is_along_x = axis == x || (x == "offered" && axis == "rate");
        !is_along_x && values.len() > 1
    };
    fixed.chain(axes(cells)).filter(is_several).collect()
}

fn label(cell: &Cell, names: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    if cell.system != "quorate" {
        parts.push(cell.system.clone());
    }
    for axis in names {
        let Some(value) = cell.axis(axis) else { continue };
        parts.push(match axis.as_str() {
            "system" => continue,
            "protocol" => axis_text(&value),
            axis if is_in_head(axis) => format!("{axis}={}", axis_text(&value)),
            axis => format!("{axis} {}", axis_text(&value)),
        });
    }
    if parts.is_empty() { cell.head() } else { parts.join(", ") }
}

/// Returns an entry of the legend for each series.
pub(super) fn legend(series: &[Series<'_>], symbol: fn(Look) -> Symbol) -> Vec<Entry> {
    series.iter().map(|series| Entry::new(symbol(series.look), series.label.clone())).collect()
}
