//! `summary.csv`: a row for each cell.

use super::cells::{Cell, axes, cells};
use super::numbers::without_zeros;
use super::reading::MEASURES;
use crate::archive::{Archive, Measure, axis_text};

/// Returns `summary.csv`: a row for each cell, with the least value, the median and the greatest value of each measure over
/// the runs. Goodput is in requests a second, latency in milliseconds, CPU in microseconds for a request, and memory in
/// megabytes. A value that is not recorded is empty.
#[must_use]
pub fn summary_csv(archive: &Archive) -> String {
    let cells = cells(archive);
    let axes = axes(&cells.iter().collect::<Vec<_>>());
    let mut head: Vec<String> = ["study", "system", "protocol", "n", "f"].map(str::to_owned).into();
    head.extend(axes.iter().cloned());
    head.extend(["runs", "failed", "not_built"].map(str::to_owned));
    for measure in MEASURES {
        head.extend(["min", "median", "max"].map(|which| format!("{}_{which}", name(measure))));
    }
    let mut text = line(&head);
    for cell in &cells {
        text.push_str(&line(&row(cell, axes.iter())));
    }
    text
}

fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::Goodput => "goodput_per_s",
        Measure::LatencyMean => "latency_mean_ms",
        Measure::LatencyP50 => "latency_p50_ms",
        Measure::LatencyP99 => "latency_p99_ms",
        Measure::CpuPerRequest => "cpu_us_per_request",
        Measure::Memory => "memory_mb",
    }
}

fn row<'a>(cell: &Cell, axes: impl Iterator<Item = &'a String>) -> Vec<String> {
    let head = [&cell.study, &cell.system, &cell.protocol].map(Clone::clone);
    let mut row: Vec<String> = head.into();
    row.extend([cell.n.to_string(), cell.f.to_string()]);
    row.extend(axes.map(|axis| cell.axes.get(axis).map(axis_text).unwrap_or_default()));
    row.extend([cell.readings.len().to_string(), cell.failed.len().to_string()]);
    row.push(cell.not_built.clone().unwrap_or_default());
    for measure in MEASURES {
        let spread = cell.spread(measure);
        let values = spread.map(|spread| [spread.min, spread.median, spread.max]);
        row.extend(values.map_or_else(Default::default, |values| values.map(number)));
    }
    row
}

fn number(value: f64) -> String {
    without_zeros(&format!("{value:.6}")).to_owned()
}

fn line(fields: &[String]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
    fields.join(",") + "\n"
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
