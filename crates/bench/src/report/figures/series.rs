//! Series: the cells of a figure that belong together.

use super::super::cells::{Cell, axes, compare_values, is_in_head};
use super::super::chart::{Entry, Look, Symbol};
use super::remark;
use crate::archive::{Figure, axis_text};
use serde_json::Value;
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
    let is_wanted = |cell: &&Cell| {
        figure.only.iter().all(|(axis, wanted)| {
            let value = cell.axis(axis);
            value.is_some() && compare_values(value.as_ref(), Some(wanted)).is_eq()
        })
    };
    let wanted: Vec<&Cell> = cells.iter().filter(is_wanted).collect();
    let (with, without): (Vec<&Cell>, Vec<&Cell>) =
        wanted.into_iter().partition(|cell| !cell.readings.is_empty());
    (with, remark("Not drawn, as no run has a result", &without).into_iter().collect())
}

/// Divides cells into series: by the axes that the figure names, or else by all axes with several values but `x`.
pub(super) fn series<'a>(figure: &Figure, cells: &[&'a Cell], x: &str) -> Vec<Series<'a>> {
    let names = series_axes(figure, cells, x);
    let mut series: Vec<(Vec<Option<Value>>, Series<'_>)> = Vec::new();
    for cell in cells {
        let key: Vec<Option<Value>> = std::iter::once("system")
            .chain(names.iter().map(String::as_str))
            .map(|axis| cell.axis(axis))
            .collect();
        if let Some((_, found)) = series.iter_mut().find(|(known, _)| *known == key) {
            found.cells.push(cell);
        } else {
            let look = Look::of(series.len());
            series.push((key, Series { label: label(cell, &names), look, cells: vec![cell] }));
        }
    }
    series.into_iter().map(|(_, series)| series).collect()
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
        axis != x && values.len() > 1
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
