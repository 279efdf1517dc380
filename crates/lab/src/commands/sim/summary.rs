//! The summary of many runs, as tables for people.

use crate::commands::seeds::{SeedsSummary, counted};
use comfy_table::{CellAlignment, Table, presets};
use std::collections::BTreeSet;

/// Digits of the trace hash that the summary shows.
const HASH_DIGITS: usize = 16;

/// Scope of a summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// One run, whose faults and Byzantine replicas are printed with its report.
    OneRun,
    /// Several runs.
    Range,
}

/// Returns the summary: a line with the result, a table of totals, and for several runs a table of faults.
pub(super) fn summary_text(summary: &SeedsSummary, scope: Scope) -> String {
    let SeedsSummary { protocol, seeds, failures, .. } = summary;
    let mut text = format!("{protocol}: {seeds} seeds, {failures} failures\n{}", totals(summary, scope));
    if scope == Scope::Range {
        text.push_str(&format!("\n\n{}", faults(summary)));
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

fn totals(summary: &SeedsSummary, scope: Scope) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut row = |what: &str, value: String| {
        table.add_row([what.to_owned(), value]);
    };
    row("replicas", summary.n.to_string());
    row("virtual time", format!("{:.0} s", summary.virtual_seconds));
    row("requests", summary.requests.to_string());
    row("states received", summary.transfers.to_string());
    row("amnesiacs at the end", summary.amnesiacs.to_string());
    row("elapsed time", format!("{:.1} s", summary.seconds));
    row("trace hash", summary.trace_hash.get(..HASH_DIGITS).unwrap_or(&summary.trace_hash).to_owned());
    if scope == Scope::Range {
        if !summary.modes.is_empty() {
            row("synchrony guard", counted(&summary.modes));
        }
        row("Byzantine replicas", counted(&summary.byzantine));
    }
    table
}

/// Returns a row for each fault: the number of planned faults, and of their effects.
fn faults(summary: &SeedsSummary) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["fault", "planned", "effects"]);
    let names: BTreeSet<&str> = summary.faults.keys().chain(summary.felt.keys()).copied().collect();
    for name in names {
        let planned = summary.faults.get(name).copied().unwrap_or_default();
        let effects = summary.felt.get(name).copied().unwrap_or_default();
        table.add_row([name.to_owned(), planned.to_string(), effects.to_string()]);
    }
    for index in [1, 2] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn summary_has_a_row_for_each_total_and_fault() {
        let summary = SeedsSummary {
            protocol: "pbft",
            n: 4,
            seeds: 2,
            failures: 0,
            virtual_seconds: 120.4,
            requests: 800,
            transfers: 3,
            amnesiacs: 2,
            seconds: 1.26,
            trace_hash: "0123456789abcdef01".to_owned(),
            byzantine: BTreeMap::from([("mute", 1)]),
            lied_to: 1,
            faults: BTreeMap::from([("loss", 2)]),
            felt: BTreeMap::from([("loss", 1_234), ("silence", 5)]),
            modes: BTreeMap::new(),
        };
        let fields = |scope| -> Vec<String> {
            let text = summary_text(&summary, scope);
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        let one = [
            "pbft: 2 seeds, 0 failures",
            "replicas 4",
            "virtual time 120 s",
            "requests 800",
            "states received 3",
            "amnesiacs at the end 2",
            "elapsed time 1.3 s",
            "trace hash 0123456789abcdef",
        ];
        assert_eq!(fields(Scope::OneRun), one);
        let more = ["Byzantine replicas 1 mute", "", "fault planned effects", "loss 2 1234", "silence 0 5"];
        assert_eq!(fields(Scope::Range), [&one[..], &more[..]].concat());
    }
}
