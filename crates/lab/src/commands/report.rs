//! `quorate report`: the report of a benchmark, and the comparison of two.

use clap::Args;
use quorate_bench::report;
use quorate_node::exit::Failure;
use quorate_node::out;
use std::path::PathBuf;

/// Arguments of `quorate report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Folder of the archive that `quorate bench` has written
    #[arg(required_unless_present = "compare")]
    folder: Option<PathBuf>,
    /// Folder of the report [default: `report` in the archive]
    #[arg(long, requires = "folder")]
    out: Option<PathBuf>,
    /// Compare the second archive with the first. The exit code is 1 where a cell has lost more than 10 % of its throughput, or
    /// its latency has more than doubled
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with = "folder")]
    compare: Vec<PathBuf>,
}

/// Makes a report, or compares two archives.
///
/// # Errors
/// Fails when an archive cannot be read, the report cannot be written, or the comparison shows a loss.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    if let [before, after] = args.compare.as_slice() {
        let comparison = report::compare(before, after).map_err(Failure::run)?;
        out::line(&comparison)?;
        return if comparison.is_worse() { Err(Failure::run("the second archive is worse")) } else { Ok(()) };
    }
    let Some(folder) = &args.folder else { return Err(Failure::usage("expected the folder of an archive")) };
    let target = args.out.clone().unwrap_or_else(|| report::default_folder(folder));
    out::line(report::write(folder, &target).map_err(Failure::run)?)
}
