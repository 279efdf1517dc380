//! Measured figures as a Markdown table that people can read as it is.

use super::report::{FigureLine, FiguresReport};
use std::fmt::Write as _;

/// Formats one protocol at several sizes: a line for each figure, and the remarks. A figure that is not as stated is
/// marked.
#[must_use]
pub fn markdown(reports: &[FiguresReport]) -> String {
    let mut rows: Vec<Vec<String>> = vec![vec!["figure".to_owned(), "formula".to_owned()]];
    // Some sizes may lack a figure: a kind that no figure covers may occur at some sizes only.
    let mut names: Vec<(&str, &str)> = Vec::new();
    for line in reports.iter().flat_map(|report| &report.lines) {
        if !names.iter().any(|(what, _)| *what == line.what) {
            names.push((&line.what, &line.formula));
        }
    }
    rows.extend(names.iter().map(|(what, formula)| vec![(*what).to_owned(), (*formula).to_owned()]));
    for report in reports {
        let cells = names.iter().map(|(what, _)| {
            let line = report.lines.iter().find(|line| line.what == *what);
            line.map(cell).unwrap_or_default()
        });
        let column = std::iter::once(format!("n = {}", report.n)).chain(cells);
        for (row, cell) in rows.iter_mut().zip(column) {
            row.push(cell);
        }
    }
    let mut text = String::new();
    let widths = widths(&rows);
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if index == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            let _ = writeln!(text, "| {} |", rules.join(" | "));
        }
    }
    let remarks = reports.first().map(|report| report.remarks).unwrap_or_default();
    if !remarks.is_empty() {
        text.push('\n');
    }
    for remark in remarks {
        let _ = writeln!(text, "* {remark}");
    }
    text
}

fn cell(line: &FigureLine) -> String {
    if line.agrees() {
        return line.measured.to_string();
    }
    format!("{}, not {}", line.measured, line.stated)
}

/// Returns the width of each column.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    (0..columns)
        .map(|at| {
            rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Measured;
    use quorate_types::ProtocolId;

    fn line(what: &str, formula: &str, stated: u64, total: u64, of: u64) -> FigureLine {
        FigureLine::new(what, formula, stated, Measured { total, of })
    }

    #[test]
    fn figures_that_differ_are_marked() {
        let report =
            |n, lines| FiguresReport { protocol: ProtocolId::new("x"), n, lines, remarks: &["Mind this."] };
        let reports = [
            report(4, vec![line("votes", "n - 1", 3, 30, 10), line("delays", "2", 2, 5, 2)]),
            report(7, vec![line("votes", "n - 1", 6, 50, 10), line("`x`", "", 0, 3, 1)]),
        ];
        assert!(!reports[0].agrees());
        let expected = "\
| figure | formula | n = 4      | n = 7    |
| ------ | ------- | ---------- | -------- |
| votes  | n - 1   | 3          | 5, not 6 |
| delays | 2       | 5/2, not 2 |          |
| `x`    |         |            | 3, not 0 |

* Mind this.
";
        assert_eq!(markdown(&reports), expected);
    }

    #[test]
    fn only_whole_numbers_agree() {
        let measured = Measured { total: 30, of: 10 };
        assert!(measured.is(3) && !measured.is(2) && !measured.is(4));
        assert!(!Measured { total: 31, of: 10 }.is(3));
        assert!(!Measured { total: 0, of: 0 }.is(0), "nothing was measured");
    }
}
