//! The comparison of two benchmarks in counted terms: work for each request, whatever the time that it takes.
//!
//! A noisy machine changes throughput and latency, and by that also the sizes of bundles, blocks and turns. These sizes
//! change the work for each request without any change of the program. So a term counts as grown only as far as it has
//! grown for each request, for each bundle, for each block and for each turn. A sum of costs of these four kinds grows by
//! none of this where the costs are the same.

use super::ReportError;
use super::compare::{Pairs, has_failed, write_others, write_table};
use super::numbers::exact;
use super::summary::{Row, Summary};
use crate::archive::Measure;
use std::fmt;
use std::path::Path;

/// The units of work besides requests: counters of the ledger.
const UNITS: [&str; 3] = ["bundles", "blocks", "turns"];

/// The name of the CPU time, with its unit.
const CPU: &str = "CPU µs";
/// Microseconds of CPU time for each request below which growth is no loss.
const CPU_SLACK: f64 = 1.0;
/// Events for each request below which growth is no loss.
const EVENT_SLACK: f64 = 0.01;
/// Bytes for each request below which growth is no loss.
const BYTE_SLACK: f64 = 16.0;

/// A term: its name, the counters of the ledger that it adds up, and the growth for each request that is no loss.
const TERMS: [(&str, &[&str], f64); 9] = [
    ("syncs", &["syncs"], EVENT_SLACK),
    ("log writes", &["log_writes"], EVENT_SLACK),
    ("bytes written", &["log_bytes"], BYTE_SLACK),
    ("bytes sent", &["bytes_out"], BYTE_SLACK),
    ("bytes hashed", &["body_bytes_hashed"], BYTE_SLACK),
    ("bytes copied", &["body_bytes_copied"], BYTE_SLACK),
    ("allocations", &["allocations"], EVENT_SLACK),
    ("signatures made", &["signatures_made"], EVENT_SLACK),
    // The division into single and batched checks depends on the number of bundles that wait.
    ("signatures checked", &["signatures_single", "signatures_batched"], EVENT_SLACK),
];
/// The start of the names of counters of messages. Each is a term of its own.
const MESSAGES: &str = "messages";

/// The growth that is no loss, in per cent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerances {
    /// Of the CPU time for each request, which is partly noisy.
    pub cpu_percent: f64,
    /// Of a count for each request.
    pub count_percent: f64,
}

impl Default for Tolerances {
    fn default() -> Self {
        Self { cpu_percent: 25.0, count_percent: 10.0 }
    }
}

/// A term of a cell, for each request, all replicas together.
#[derive(Clone, PartialEq, Debug)]
pub struct CountedChange {
    /// The name.
    pub term: String,
    /// The value before.
    pub before: f64,
    /// The value after.
    pub after: f64,
    /// The growth in per cent that larger numbers of bundles, blocks and turns do not explain.
    pub growth_percent: f64,
    /// Whether this is more than the tolerance.
    pub is_worse: bool,
}

/// A cell of both benchmarks.
#[derive(Clone, PartialEq, Debug)]
pub struct CountedCell {
    /// The study.
    pub study: String,
    /// The cell within the study.
    pub cell: String,
    /// The terms that both benchmarks have recorded.
    pub terms: Vec<CountedChange>,
    /// The reason why the cell is not judged; empty: it is.
    pub not_judged: String,
    /// Whether the cell had a result, and has none any more.
    pub has_failed: bool,
}

impl CountedCell {
    /// Whether the cell is worse.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.has_failed || self.terms.iter().any(|term| term.is_worse)
    }
}

/// The comparison of two benchmarks in counted terms.
#[derive(Clone, PartialEq, Debug)]
pub struct CountedComparison {
    /// The tolerances.
    pub tolerances: Tolerances,
    /// The cells that both benchmarks have, in the order of the second one.
    pub cells: Vec<CountedCell>,
    /// Cells of the first benchmark alone.
    pub only_first: Vec<String>,
    /// Cells of the second benchmark alone.
    pub only_second: Vec<String>,
    /// Remarks about different conditions.
    pub conditions: Vec<String>,
}

impl CountedComparison {
    /// Whether a cell is worse in the second benchmark.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.cells.iter().any(CountedCell::is_worse)
    }

    /// Whether no cell was judged, so that nothing was compared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| !cell.has_failed && !cell.not_judged.is_empty())
    }
}

/// Compares the benchmark in folder `b` with an earlier one in folder `a` in counted terms. A folder needs `manifest.json`,
/// and the runs or `summary.csv`.
///
/// # Errors
/// Fails when a folder lacks one of these, or when a file cannot be read.
pub fn compare_counted(a: &Path, b: &Path, tolerances: Tolerances) -> Result<CountedComparison, ReportError> {
    Ok(compared(&Summary::read(a)?, &Summary::read(b)?, tolerances))
}

/// Compares two summaries in counted terms.
pub(super) fn compared(a: &Summary, b: &Summary, tolerances: Tolerances) -> CountedComparison {
    let pairs = Pairs::of(a, b);
    CountedComparison {
        tolerances,
        cells: pairs.both.iter().map(|(before, after)| cell(before, after, tolerances)).collect(),
        only_first: pairs.only_first,
        only_second: pairs.only_second,
        conditions: pairs.conditions,
    }
}

fn cell(before: &Row, after: &Row, tolerances: Tolerances) -> CountedCell {
    let terms =
        if before.is_saturated || after.is_saturated { Vec::new() } else { terms(before, after, tolerances) };
    CountedCell {
        study: after.study.clone(),
        cell: after.label(),
        not_judged: if terms.is_empty() { why_not_judged(before, after) } else { String::new() },
        has_failed: has_failed(before, after),
        terms,
    }
}

fn why_not_judged(before: &Row, after: &Row) -> String {
    if before.is_saturated || after.is_saturated {
        return "saturated: the work for requests that have no answer depends on the machine's speed"
            .to_owned();
    }
    for (which, row) in [("first", before), ("second", after)] {
        if !row.not_built.is_empty() {
            return format!("not built in the {which} benchmark: {}", row.not_built);
        }
        if row.runs == 0 {
            return format!("no run of the {which} benchmark has a result");
        }
        if row.counted.is_empty() && row.median(Measure::CpuPerRequest).is_none() {
            let columns = "columns ledger_… and cpu_us_per_request_median of summary.csv";
            return format!("the {which} benchmark has no counted terms: {columns}");
        }
    }
    "the two benchmarks have no counted term in common".to_owned()
}

fn terms(before: &Row, after: &Row, tolerances: Tolerances) -> Vec<CountedChange> {
    let units = unit_growths(before, after);
    let change = |term: &str, values: (f64, f64), slack: f64, percent: f64| {
        let (old, new) = values;
        let grown = units.iter().map(|unit| new / unit).fold(new, f64::min);
        let growth_percent = if old > 0.0 { (grown / old - 1.0) * 100.0 } else { 0.0 };
        let is_worse = grown > old * (1.0 + percent / 100.0) && grown - old > slack;
        CountedChange { term: term.to_owned(), before: old, after: new, growth_percent, is_worse }
    };
    let cpu = before.median(Measure::CpuPerRequest).zip(after.median(Measure::CpuPerRequest));
    let cpu = cpu.map(|values| change(CPU, values, CPU_SLACK, tolerances.cpu_percent));
    let sum = |row: &Row, counters: &[&str]| {
        counters.iter().filter_map(|name| row.counted.get(*name).copied()).reduce(|a, b| a + b)
    };
    let counted = |(name, counters, slack): (&str, &[&str], f64)| {
        let values = sum(before, counters).zip(sum(after, counters))?;
        Some(change(name, values, slack, tolerances.count_percent))
    };
    let messages = before.counted.keys().filter(|name| name.starts_with(MESSAGES));
    let messages = messages.filter_map(|name| counted((name, &[name], EVENT_SLACK)));
    cpu.into_iter().chain(TERMS.into_iter().filter_map(counted)).chain(messages).collect()
}

/// Returns the factors by which the numbers of units for each request have grown.
fn unit_growths(before: &Row, after: &Row) -> Vec<f64> {
    let growth = |unit: &str| {
        let (old, new) = before.counted.get(unit).zip(after.counted.get(unit))?;
        Some(new / old).filter(|growth| growth.is_finite() && *growth > 0.0)
    };
    UNITS.into_iter().filter_map(growth).collect()
}

impl fmt::Display for CountedComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = vec![["study", "cell", "term", "for each request", "growth", ""].map(str::to_owned)];
        for cell in &self.cells {
            rows.extend(cell_rows(cell));
        }
        write_table(f, &rows)?;
        write_others(f, &self.only_first, &self.only_second, &self.conditions)?;
        writeln!(
            f,
            "worse: CPU time for each request grown by more than {} % and {CPU_SLACK} µs, a count by more than {} % and \
             {EVENT_SLACK}, bytes by more than {} % and {BYTE_SLACK}, beyond the growth of bundles, blocks and turns",
            self.tolerances.cpu_percent, self.tolerances.count_percent, self.tolerances.count_percent
        )?;
        let count = |is: fn(&CountedCell) -> bool| self.cells.iter().filter(|cell| is(cell)).count();
        let judged = count(|cell| cell.has_failed || cell.not_judged.is_empty());
        let worse = count(CountedCell::is_worse);
        writeln!(f, "{worse} of {judged} judged cells are worse; {} cells in common", self.cells.len())
    }
}

/// Returns the rows of a cell: each term that is worse, or else the one that has grown most.
fn cell_rows(cell: &CountedCell) -> Vec<[String; 6]> {
    let head = || [cell.study.clone(), cell.cell.clone()];
    let [study, name] = head();
    if cell.has_failed {
        return vec![[study, name, String::new(), String::new(), String::new(), "WORSE: failed".to_owned()]];
    }
    if !cell.not_judged.is_empty() {
        let reason = format!("not judged: {}", cell.not_judged);
        return vec![[study, name, String::new(), String::new(), String::new(), reason]];
    }
    let most = cell.terms.iter().max_by(|a, b| a.growth_percent.total_cmp(&b.growth_percent));
    let worse: Vec<&CountedChange> = cell.terms.iter().filter(|term| term.is_worse).collect();
    let shown = if worse.is_empty() { most.into_iter().collect() } else { worse };
    let row = |change: &CountedChange| {
        let [study, name] = head();
        let values = format!("{} -> {}", exact(change.before), exact(change.after));
        let verdict = if change.is_worse { "WORSE" } else { "" };
        [
            study,
            name,
            change.term.clone(),
            values,
            format!("{:+.1} %", change.growth_percent),
            verdict.to_owned(),
        ]
    };
    shown.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{Archive, CellRun, write_json};
    use crate::report::csv::summary_csv;
    use crate::report::tests::{archive, run};
    use serde_json::json;

    /// Returns an archive of one run whose replicas have these counters, and this CPU time for 1,000 requests.
    fn counted(cpu_seconds: f64, ledger: serde_json::Value) -> Archive {
        let mut run = run("pbft", 500, 1, 500.0, 1.0);
        run.load["replicas"] = json!([{ "id": 0, "cpu_seconds_per_1000": cpu_seconds, "ledger": ledger }]);
        of(vec![run])
    }

    fn of(runs: Vec<CellRun>) -> Archive {
        Archive { runs, ..archive() }
    }

    fn compared_with(before: &Archive, after: &Archive) -> CountedComparison {
        compared(&Summary::of(before), &Summary::of(after), Tolerances::default())
    }

    fn worse(before: &Archive, after: &Archive) -> Vec<String> {
        let comparison = compared_with(before, after);
        let terms = comparison.cells.iter().flat_map(|cell| &cell.terms);
        terms.filter(|term| term.is_worse).map(|term| term.term.clone()).collect()
    }

    #[test]
    fn count_that_has_grown_by_more_than_its_tolerance_is_worse() {
        let ledger = |bytes: u64, syncs: u64, messages: u64| json!({ "requests": 1_000, "bytes_out": bytes, "syncs": syncs, "messages": messages, "log_bytes": 5 });
        let before = counted(0.2, ledger(1_000_000, 1_000, 100));
        for (cpu, bytes, syncs, messages, expected) in [
            (0.249, 1_099_000, 1_099, 109, vec![]),
            (0.251, 1_099_000, 1_099, 109, vec![CPU]),
            (0.2, 1_101_000, 1_101, 111, vec!["syncs", "bytes sent", "messages"]),
            (0.1, 0, 0, 0, vec![]),
        ] {
            let after = counted(cpu, ledger(bytes, syncs, messages));
            assert_eq!(worse(&before, &after), expected, "{cpu} {bytes} {syncs} {messages}");
        }
        let strict = Tolerances { cpu_percent: 1.0, count_percent: 1.0 };
        let after = Summary::of(&counted(0.21, ledger(1_020_000, 1_000, 100)));
        let text = compared(&Summary::of(&before), &after, strict).to_string();
        assert!(
            text.contains("CPU µs") && text.contains("+5.0 %") && text.contains("1,000 -> 1,020"),
            "{text}"
        );
    }

    #[test]
    fn growth_of_tiny_values_is_no_loss() {
        let ledger = |syncs: u64| json!({ "requests": 1_000_000, "syncs": syncs });
        let before = counted(0.000_1, ledger(1_000));
        assert_eq!(worse(&before, &counted(0.000_9, ledger(10_900))), Vec::<String>::new());
        assert_eq!(worse(&before, &counted(0.001_2, ledger(11_100))), [CPU, "syncs"]);
    }

    /// A slower machine makes smaller or larger blocks. The costs of a request, bundle, block and turn are the same.
    #[test]
    fn other_sizes_of_blocks_and_turns_are_no_loss() {
        let ledger = |bundles: u64, blocks: u64, turns: u64| {
            let bytes = 100_000 + bundles * 300 + blocks * 2_000 + turns * 50;
            json!({ "requests": 1_000, "bundles": bundles, "blocks": blocks, "turns": turns, "bytes_out": bytes,
                    "syncs": blocks * 2, "allocations": turns * 7 + bundles })
        };
        let before = counted(0.2, ledger(200, 50, 900));
        for (bundles, blocks, turns) in [(200, 100, 900), (900, 10, 100), (100, 400, 4_000), (200, 25, 2_000)]
        {
            let after = counted(0.2, ledger(bundles, blocks, turns));
            assert_eq!(worse(&before, &after), Vec::<String>::new(), "{bundles} {blocks} {turns}");
        }
        let mut more = ledger(400, 100, 1_800);
        more["bytes_out"] = (more["bytes_out"].as_u64().unwrap() * 3).into();
        assert_eq!(worse(&before, &counted(0.2, more)), ["bytes sent"]);
    }

    #[test]
    fn throughput_and_latency_are_not_compared() {
        let (before, after) = (run("pbft", 500, 1, 500.0, 1.0), run("pbft", 500, 1, 480.0, 900.0));
        let comparison = compared_with(&of(vec![before]), &of(vec![after]));
        assert!(!comparison.is_worse() && !comparison.is_empty(), "{comparison}");
    }

    #[test]
    fn cell_that_fails_is_worse_and_a_saturated_one_is_not_judged() {
        let before = run("pbft", 500, 1, 500.0, 1.0);
        let mut failed = before.clone();
        failed.outcome = crate::archive::Outcome::Failed("ended".to_owned());
        failed.load = serde_json::Value::Null;
        let comparison = compared_with(&of(vec![before.clone()]), &of(vec![failed.clone()]));
        assert!(comparison.is_worse() && comparison.to_string().contains("WORSE: failed"), "{comparison}");
        let back = compared_with(&of(vec![failed]), &of(vec![before.clone()]));
        assert!(!back.is_worse() && back.is_empty(), "{back}");
        let mut saturated = before.clone();
        saturated.load["saturated"] = true.into();
        let comparison = compared_with(&of(vec![before]), &of(vec![saturated]));
        assert!(
            comparison.is_empty() && comparison.to_string().contains("not judged: saturated"),
            "{comparison}"
        );
    }

    #[test]
    fn summary_without_counted_terms_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        let archive = counted(0.2, json!({ "requests": 1_000, "syncs": 100 }));
        let text = summary_csv(&archive);
        for folder in [&old, &new] {
            std::fs::create_dir_all(folder).unwrap();
            write_json(&folder.join("manifest.json"), &archive.manifest).unwrap();
            std::fs::write(folder.join("summary.csv"), &text).unwrap();
        }
        let of = |a, b| compare_counted(a, b, Tolerances::default()).unwrap();
        assert!(!of(&old, &new).is_empty() && !of(&old, &new).is_worse());
        let before = text.replace("ledger_syncs", "x").replace("cpu_us_per_request", "y");
        std::fs::write(old.join("summary.csv"), before).unwrap();
        let comparison = of(&old, &new);
        let reason = "not judged: the first benchmark has no counted terms: columns ledger_… and cpu_us_per_request_median";
        assert!(comparison.is_empty() && comparison.to_string().contains(reason), "{comparison}");
    }
}
