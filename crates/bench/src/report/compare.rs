//! The comparison of two benchmarks, cell by cell.

use super::ReportError;
use super::cells::{Cell, Key, cells};
use super::numbers::exact;
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
}

/// Compares the benchmark in folder `b` with an earlier one in folder `a`.
///
/// # Errors
/// Fails when an archive cannot be read.
pub fn compare(a: &Path, b: &Path) -> Result<Comparison, ReportError> {
    Ok(compared(&Archive::read(a)?, &Archive::read(b)?))
}

/// Compares the benchmark `b` with an earlier one `a`. A cell is worse if it has lost more than 10 % of its goodput, if its
/// median latency or 99th percentile has more than doubled, or if it has no result any more. The latency of a cell that was
/// saturated before has no meaning and is not judged.
#[must_use]
pub fn compared(a: &Archive, b: &Archive) -> Comparison {
    let (before, after) = (cells(a), cells(b));
    let known: BTreeMap<Key, &Cell> = before.iter().map(|cell| (cell.key(), cell)).collect();
    let later: BTreeMap<Key, &Cell> = after.iter().map(|cell| (cell.key(), cell)).collect();
    let name = |cell: &Cell| format!("{}: {}", cell.study, cell.label());
    let pair = |cell: &Cell| known.get(&cell.key()).map(|old| changed(old, cell));
    Comparison {
        cells: after.iter().filter_map(pair).collect(),
        only_first: before.iter().filter(|cell| !later.contains_key(&cell.key())).map(name).collect(),
        only_second: after.iter().filter(|cell| !known.contains_key(&cell.key())).map(name).collect(),
        conditions: conditions(a, b),
    }
}

fn conditions(a: &Archive, b: &Archive) -> Vec<String> {
    let of = |archive: &Archive| {
        let (manifest, machine) = (&archive.manifest, &archive.manifest.machine);
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

fn changed(before: &Cell, after: &Cell) -> Changed {
    let of = |measure| {
        let median = |cell: &Cell| cell.spread(measure).map(|spread| spread.median);
        (median(before), median(after))
    };
    let (goodput, p50_ms, p99_ms) = (of(Measure::Goodput), of(Measure::LatencyP50), of(Measure::LatencyP99));
    let mut regressions = Vec::new();
    if !before.readings.is_empty() && after.readings.is_empty() && after.not_built.is_none() {
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
            && !before.is_saturated()
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
        for (title, names) in [
            ("cells of the first benchmark alone", &self.only_first),
            ("cells of the second benchmark alone", &self.only_second),
            ("different conditions", &self.conditions),
        ] {
            if !names.is_empty() {
                writeln!(f, "{title}:")?;
                names.iter().try_for_each(|name| writeln!(f, "  {name}"))?;
            }
        }
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

fn write_table(f: &mut fmt::Formatter<'_>, rows: &[[String; 6]]) -> fmt::Result {
    let length = |text: &String| text.chars().count();
    let mut widths = [0usize; 6];
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
