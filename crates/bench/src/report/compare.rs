//! The comparison of two benchmarks, cell by cell.

use super::ReportError;
use super::numbers::exact;
use super::summary::{Key, Row, Summary};
use crate::archive::{Archive, Measure};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The share of the goodput that a cell may lose.
const GOODPUT_LOSS: f64 = 0.10;
/// The factor by which a latency may grow.
const LATENCY_FACTOR: f64 = 2.0;

/// A way in which a cell is worse than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Regression {
    /// More than 10 % of the goodput is lost.
    Goodput,
    /// The median latency has more than doubled.
    LatencyP50,
    /// The 99th percentile of the latency has more than doubled.
    LatencyP99,
    /// No run of the cell has a result any more.
    Failed,
}

impl Regression {
    fn text(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::LatencyP50 => "median",
            Self::LatencyP99 => "p99",
            Self::Failed => "failed",
        }
    }
}

/// A cell of both benchmarks. Each value is the median of the runs, `None` where no run has recorded it.
#[derive(Clone, PartialEq, Debug)]
pub struct Changed {
    /// The study.
    pub study: String,
    /// The cell within the study.
    pub cell: String,
    /// Good answers in a second, before and after.
    pub goodput: (Option<f64>, Option<f64>),
    /// The median latency in milliseconds, before and after.
    pub p50_ms: (Option<f64>, Option<f64>),
    /// The 99th percentile of the latency in milliseconds, before and after.
    pub p99_ms: (Option<f64>, Option<f64>),
    /// The ways in which the cell is worse.
    pub regressions: Vec<Regression>,
}

/// The comparison of two benchmarks.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The cells that both benchmarks have, in the order of the second one.
    pub cells: Vec<Changed>,
    /// Cells of the first benchmark alone.
    pub only_first: Vec<String>,
    /// Cells of the second benchmark alone.
    pub only_second: Vec<String>,
    /// Remarks about different conditions: machine, kernel and form.
    pub conditions: Vec<String>,
}

impl Comparison {
    /// Whether a cell is worse in the second benchmark.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.cells.iter().any(|cell| !cell.regressions.is_empty())
    }

    /// Whether the benchmarks have no cell in common, so that nothing was compared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }
}

/// Compares the benchmark in folder `b` with an earlier one in folder `a`. A folder needs `manifest.json`, and the runs or
/// `summary.csv`.
///
/// # Errors
/// Fails when a folder lacks one of these, or when a file cannot be read.
pub fn compare(a: &Path, b: &Path) -> Result<Comparison, ReportError> {
    Ok(compared_summaries(&Summary::read(a)?, &Summary::read(b)?))
}

/// Compares the benchmark `b` with an earlier one `a`. A cell is worse if it has lost more than 10 % of its goodput, if its
/// median latency or 99th percentile has more than doubled, or if it has no result any more. The latency of a cell that was
/// saturated before has no meaning and is not judged.
#[must_use]
pub fn compared(a: &Archive, b: &Archive) -> Comparison {
    compared_summaries(&Summary::of(a), &Summary::of(b))
}

fn compared_summaries(a: &Summary, b: &Summary) -> Comparison {
    let pairs = Pairs::of(a, b);
    Comparison {
        cells: pairs.both.iter().map(|(before, after)| changed(before, after)).collect(),
        only_first: pairs.only_first,
        only_second: pairs.only_second,
        conditions: pairs.conditions,
    }
}

/// The rows of two summaries, side by side.
pub(super) struct Pairs<'a> {
    /// The rows that both have, in the order of the second one.
    pub(super) both: Vec<(&'a Row, &'a Row)>,
    /// Names of the rows of the first one alone.
    pub(super) only_first: Vec<String>,
    /// Names of the rows of the second one alone.
    pub(super) only_second: Vec<String>,
    /// Remarks about different conditions.
    pub(super) conditions: Vec<String>,
}

impl<'a> Pairs<'a> {
    pub(super) fn of(a: &'a Summary, b: &'a Summary) -> Self {
        let known: BTreeMap<Key, &Row> = a.rows.iter().map(|row| (row.key(), row)).collect();
        let later: BTreeMap<Key, &Row> = b.rows.iter().map(|row| (row.key(), row)).collect();
        let name = |row: &Row| format!("{}: {}", row.study, row.label());
        let both: Vec<(&Row, &Row)> =
            b.rows.iter().filter_map(|row| Some((*known.get(&row.key())?, row))).collect();
        let mut conditions = conditions(a, b);
        conditions.extend(both.iter().filter_map(|(before, after)| different_settings(before, after)));
        Self {
            only_first: a.rows.iter().filter(|row| !later.contains_key(&row.key())).map(name).collect(),
            only_second: b.rows.iter().filter(|row| !known.contains_key(&row.key())).map(name).collect(),
            conditions,
            both,
        }
    }
}

fn conditions(a: &Summary, b: &Summary) -> Vec<String> {
    let of = |summary: &Summary| {
        let (manifest, machine) = (&summary.manifest, &summary.manifest.machine);
        [
            ("processor", machine.processor.clone()),
            ("cores", machine.cores.to_string()),
            ("kernel", machine.kernel.clone()),
            ("file system", machine.file_system.clone()),
            ("form", manifest.form.clone()),
        ]
    };
    let pairs = of(a).into_iter().zip(of(b)).filter(|(a, b)| a != b);
    pairs.map(|((name, a), (_, b))| format!("{name} differs: {a}, then {b}")).collect()
}

/// Returns a remark about settings that differ between the runs of a cell. The measured time is none of them.
fn different_settings(before: &Row, after: &Row) -> Option<String> {
    let differs = |(field, old): (&String, &String)| {
        let new = after.settings.get(field).filter(|new| *new != old && field != "seconds")?;
        Some(format!("{field} {old}, then {new}"))
    };
    let all: Vec<String> = before.settings.iter().filter_map(differs).collect();
    (!all.is_empty()).then(|| format!("{}: {}: {}", after.study, after.label(), all.join("; ")))
}

/// Whether a cell had a result, and has none any more.
pub(super) fn has_failed(before: &Row, after: &Row) -> bool {
    before.runs > 0 && after.runs == 0 && after.not_built.is_empty()
}

fn changed(before: &Row, after: &Row) -> Changed {
    let of = |measure| (before.median(measure), after.median(measure));
    let (goodput, p50_ms, p99_ms) = (of(Measure::Goodput), of(Measure::LatencyP50), of(Measure::LatencyP99));
    let mut regressions = Vec::new();
    if has_failed(before, after) {
        regressions.push(Regression::Failed);
    }
    if let (Some(old), Some(new)) = goodput
        && new < old * (1.0 - GOODPUT_LOSS)
    {
        regressions.push(Regression::Goodput);
    }
    for (pair, regression) in [(p50_ms, Regression::LatencyP50), (p99_ms, Regression::LatencyP99)] {
        if let (Some(old), Some(new)) = pair
            && new > old * LATENCY_FACTOR
            && !before.is_saturated
        {
            regressions.push(regression);
        }
    }
    Changed { study: after.study.clone(), cell: after.label(), goodput, p50_ms, p99_ms, regressions }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![["study", "cell", "goodput 1/s", "median ms", "p99 ms", ""].map(str::to_owned)];
        rows.extend(self.cells.iter().map(row));
        write_table(f, &rows)?;
        write_others(f, &self.only_first, &self.only_second, &self.conditions)?;
        let worse = self.cells.iter().filter(|cell| !cell.regressions.is_empty()).count();
        writeln!(f, "{worse} of {} cells are worse", self.cells.len())
    }
}

fn row(cell: &Changed) -> [String; 6] {
    let value = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), exact);
    let pair = |(before, after): (Option<f64>, Option<f64>)| {
        let change = match (before, after) {
            (Some(before), Some(after)) if before > 0.0 => {
                format!(" ({:+.1} %)", (after / before - 1.0) * 100.0)
            }
            _ => String::new(),
        };
        format!("{} -> {}{change}", value(before), value(after))
    };
    let worse: Vec<&str> = cell.regressions.iter().map(|regression| regression.text()).collect();
    let verdict = if worse.is_empty() { String::new() } else { format!("WORSE: {}", worse.join(", ")) };
    [cell.study.clone(), cell.cell.clone(), pair(cell.goodput), pair(cell.p50_ms), pair(cell.p99_ms), verdict]
}

/// Writes the cells of one benchmark alone, and the different conditions.
pub(super) fn write_others(
    f: &mut fmt::Formatter<'_>,
    only_first: &[String],
    only_second: &[String],
    conditions: &[String],
) -> fmt::Result {
    for (title, names) in [
        ("cells of the first benchmark alone", only_first),
        ("cells of the second benchmark alone", only_second),
        ("different conditions", conditions),
    ] {
        if !names.is_empty() {
            writeln!(f, "{title}:")?;
            names.iter().try_for_each(|name| writeln!(f, "  {name}"))?;
        }
    }
    Ok(())
}

/// Writes rows as a table with columns of the same width.
pub(super) fn write_table<const COLUMNS: usize>(
    f: &mut fmt::Formatter<'_>,
    rows: &[[String; COLUMNS]],
) -> fmt::Result {
    let length = |text: &String| text.chars().count();
    let mut widths = [0usize; COLUMNS];
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = length(text).max(*width);
        }
    }
    for row in rows {
        let mut line = String::new();
        for (text, width) in row.iter().zip(widths) {
            line.push_str(&format!("{text:width$}  "));
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
