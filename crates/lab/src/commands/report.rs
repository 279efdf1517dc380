//! `quorate report`: the report of a benchmark, and the comparison of two.

use clap::Args;
use quorate_bench::report::{self, Tolerances};
use quorate_node::exit::Failure;
use quorate_node::out;
use std::path::{Path, PathBuf};

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
    /// Compare counted work for each request in place of throughput and latency: CPU time, syncs, bytes, allocations, hashes,
    /// signatures and messages. A noisy machine changes none of them. The exit code is 1 where one has grown too much
    #[arg(long, requires = "compare")]
    counted: bool,
    /// Growth of the CPU time for each request in per cent that counts as noise, with --counted
    #[arg(long, value_name = "PERCENT", default_value_t = Tolerances::default().cpu_percent, requires = "counted")]
    cpu_tolerance: f64,
    /// Growth of a count for each request in per cent that is allowed, with --counted
    #[arg(long, value_name = "PERCENT", default_value_t = Tolerances::default().count_percent, requires = "counted")]
    count_tolerance: f64,
}

/// The reason of a failure where two archives have nothing to compare.
const NOTHING: &str = "nothing was compared; the list above has the reasons";

/// Makes a report, or compares two archives.
///
/// # Errors
/// Fails when an archive cannot be read, the report cannot be written, or the comparison shows a loss or has nothing to
/// compare.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    if let [before, after] = args.compare.as_slice() {
        return compare(args, before, after);
    }
    let Some(folder) = &args.folder else { return Err(Failure::usage("expected the folder of an archive")) };
    let target = args.out.clone().unwrap_or_else(|| report::default_folder(folder));
    out::line(report::write(folder, &target).map_err(Failure::run)?)
}

fn compare(args: &ReportArgs, before: &Path, after: &Path) -> Result<(), Failure> {
    let (is_empty, is_worse) = if args.counted {
        let tolerances = Tolerances { cpu_percent: args.cpu_tolerance, count_percent: args.count_tolerance };
        let comparison = report::compare_counted(before, after, tolerances).map_err(Failure::run)?;
        out::line(&comparison)?;
        (comparison.is_empty(), comparison.is_worse())
    } else {
        let comparison = report::compare(before, after).map_err(Failure::run)?;
        out::line(&comparison)?;
        (comparison.is_empty(), comparison.is_worse())
    };
    match (is_empty, is_worse) {
        (true, _) => Err(Failure::run(NOTHING)),
        (_, true) => Err(Failure::run("the second archive is worse")),
        _ => Ok(()),
    }
}
