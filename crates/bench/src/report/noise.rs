//! The noise of the machine, from runs that should agree: saturating runs of the same cell.
//!
//! A saturating run takes all that the cluster gives: a closed loop, or an open loop that was not carried. Its goodput is
//! the speed of machine and program together, so runs of the same cell differ by the machine alone.

use super::cells::{Cell, Spread, cells};
use crate::archive::Archive;

/// The difference of saturating runs, in per cent of their median, from which on the machine counts as noisy.
const NOISY_PERCENT: f64 = 15.0;

/// Returns the difference between the greatest and the least goodput of a cell's saturating runs, in per cent of the median.
/// `None` where fewer than two runs can be compared.
pub(super) fn difference(cell: &Cell) -> Option<f64> {
    let saturating = cell.readings.iter().filter(|reading| reading.is_saturating);
    let goodputs = saturating.filter_map(|reading| reading.values.get(&crate::archive::Measure::Goodput));
    let in_a_row = cell.readings.iter().map(|reading| reading.saturations.clone());
    let groups = std::iter::once(goodputs.copied().collect::<Vec<f64>>()).chain(in_a_row);
    groups.filter_map(|group| percent(&group)).reduce(f64::max)
}

fn percent(goodputs: &[f64]) -> Option<f64> {
    let spread = Spread::of(goodputs.iter().copied()).filter(|spread| spread.median > 0.0)?;
    (goodputs.len() > 1).then(|| (spread.max - spread.min) / spread.median * 100.0)
}

/// Returns the remark about a cell whose saturating runs differ too much; `None` for any other cell.
pub(super) fn remark(cell: &Cell) -> Option<String> {
    let percent = difference(cell).filter(|percent| *percent > NOISY_PERCENT)?;
    Some(format!("the machine was noisy: saturating runs differ by {percent:.0} % of their median"))
}

/// Returns a remark for each cell of an archive whose saturating runs differ by more than 15 % of their median.
#[must_use]
pub fn noise(archive: &Archive) -> Vec<String> {
    remarks(&cells(archive))
}

/// Returns a remark for each of these cells whose saturating runs differ too much.
pub(super) fn remarks(cells: &[Cell]) -> Vec<String> {
    let of = |cell: &Cell| Some(format!("{}: {}: {}", cell.study, cell.label(), remark(cell)?));
    cells.iter().filter_map(of).collect()
}

/// Returns the judgement for the header of a report.
pub(super) fn judgement(cells: &[Cell]) -> String {
    let differences: Vec<f64> = cells.iter().filter_map(difference).collect();
    let Some(greatest) = differences.iter().copied().reduce(f64::max) else {
        return "not measured: no cell has two saturating runs".to_owned();
    };
    let noisy = differences.iter().filter(|percent| **percent > NOISY_PERCENT).count();
    let all = differences.len();
    if noisy > 0 {
        format!(
            "NOISY: saturating runs of {noisy} of {all} cells differ by more than {NOISY_PERCENT} %, at most by {greatest:.0} %"
        )
    } else {
        format!("quiet: saturating runs of {all} cells differ by {greatest:.0} % at most")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::CellRun;
    use crate::report::tests::{archive, html, run};

    fn of(runs: Vec<CellRun>) -> Archive {
        Archive { runs, ..archive() }
    }

    fn closed(goodputs: &[f64]) -> Archive {
        let one = |(goodput, number): (&f64, u32)| {
            let mut run = run("pbft", 0, number, *goodput, 1.0);
            run.axes = [("in_flight".to_owned(), 100.into())].into();
            run.load["offered"] = serde_json::Value::Null;
            run.load["in_flight"] = 100.into();
            run
        };
        of(goodputs.iter().zip(1..).map(one).collect())
    }

    #[test]
    fn saturating_runs_that_differ_by_more_than_15_percent_are_noise() {
        for (goodputs, is_noisy) in [
            (vec![1_000.0, 930.0, 1_079.0], false),
            (vec![1_000.0, 930.0, 1_081.0], true),
            (vec![1_000.0], false),
            (vec![0.0, 0.0], false),
        ] {
            assert_eq!(!noise(&closed(&goodputs)).is_empty(), is_noisy, "{goodputs:?}");
        }
    }

    #[test]
    fn runs_of_a_carried_load_are_no_measure_of_noise() {
        let carried = of(vec![run("pbft", 500, 1, 500.0, 1.0), run("pbft", 500, 2, 480.0, 9.0)]);
        assert_eq!(cells(&carried).first().and_then(difference), None);
        let not_carried = of(vec![run("pbft", 5_000, 1, 500.0, 1.0), run("pbft", 5_000, 2, 700.0, 9.0)]);
        assert_eq!(noise(&not_carried).len(), 1);
    }

    #[test]
    fn saturating_loads_in_a_row_before_a_run_count() {
        let mut run = run("pbft", 500, 1, 500.0, 1.0);
        run.load["saturations"] = serde_json::json!([1_000, 1_300, 1_100]);
        let remarks = noise(&of(vec![run]));
        assert!(remarks.len() == 1 && remarks[0].contains("differ by 27 %"), "{remarks:?}");
    }

    #[test]
    fn page_of_a_noisy_machine_states_it_in_header_and_row() {
        let noisy = html(&closed(&[1_000.0, 700.0]));
        assert!(noisy.contains("NOISY: saturating runs of 1 of 1 cells differ by more than 15 %"), "{noisy}");
        assert!(noisy.contains("id=\"noise\""));
        assert!(noisy.contains("the machine was noisy: saturating runs differ by 35 % of their median</td>"));
        let quiet = html(&closed(&[1_000.0, 990.0]));
        assert!(quiet.contains("quiet: saturating runs of 1 cells differ by 1 % at most"));
        assert!(!quiet.contains("id=\"noise\"") && !quiet.contains("the machine was noisy"));
        assert!(html(&of(vec![run("pbft", 500, 1, 500.0, 1.0)])).contains("not measured: no cell has two"));
    }
}
