//! `quorate bench`: experiments with clusters on this machine.

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use quorate_bench::archive::{Archive, CellRun, Outcome};
use quorate_bench::cell::Cell;
use quorate_bench::experiment::{AxisValues, Experiment, Form};
use quorate_bench::report;
use quorate_bench::runner::{self, BenchError, Orders, Progress};
use quorate_node::config::choice;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::profile::{self, Profile};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// The experiment without a file.
const CANONICAL: &str = include_str!("../../../bench/experiments/canonical.toml");

/// Arguments of `quorate bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Experiment file [default: the canonical workload, in less than a minute]
    file: Option<PathBuf>,
    /// Run the short form: fewer values, shorter runs
    #[arg(long)]
    short: bool,
    /// Restrict the run to cells with these values of an axis or a study: protocol=artemis, n=4,7, study=ablation
    #[arg(long, value_name = "AXIS=VALUES")]
    only: Vec<AxisValues>,
    /// Replace the values of an axis or setting in all studies: protocol=jolteon, seconds=5s
    #[arg(long, value_name = "AXIS=VALUES")]
    set: Vec<AxisValues>,
    /// Folder of the archive; an interrupted run of the same experiment resumes [default: results/TIME-TAG]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Seed of the order of cells, of keys and of operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a profile of one replica of each cluster to the archive as a flame graph: of its CPU time, or of its allocations
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "cpu", value_parser = choice(Profile::NAMES.to_vec()))]
    profile: Option<Profile>,
    /// List the cells and the time that they take, and run nothing
    #[arg(long)]
    list: bool,
    /// Print the runs as one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// Runs an experiment.
///
/// # Errors
/// Fails when the experiment is wrong, the archive cannot be used, no run has a result, or this process is asked to stop.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    if args.profile.is_some() && !profile::IS_AVAILABLE {
        return Err(Failure::usage(profile::WITHOUT));
    }
    let experiment = match &args.file {
        Some(file) => Experiment::read(file).map_err(Failure::usage)?,
        None => Experiment::parse(CANONICAL).map_err(Failure::run)?,
    };
    let form = if args.short { Form::Short } else { Form::Full };
    let folder = args.out.clone().unwrap_or_else(|| runner::default_folder(&experiment.tag));
    let orders = Orders {
        experiment,
        form,
        only: args.only.clone(),
        changes: args.set.clone(),
        out: folder.clone(),
        seed: args.seed,
        profile: args.profile,
    };
    let cells = orders.cells().map_err(Failure::usage)?;
    let runs: usize = cells.iter().map(|cell| usize::try_from(cell.repeats).unwrap_or(usize::MAX)).sum();
    let estimate = runner::estimate(&cells);
    if args.list {
        cells.iter().try_for_each(|cell| out::line(cell.name()))?;
    }
    eprintln!("{} cells, {runs} runs, about {}", cells.len(), time_text(estimate));
    if args.list {
        return Ok(());
    }
    let bar = Bar::new();
    let archive = runner::run(&orders, &mut |progress| bar.show(&progress)).map_err(failure)?;
    bar.0.finish_and_clear();
    let summary = folder.join("summary.csv");
    std::fs::write(&summary, report::summary_csv(&archive))
        .map_err(|error| Failure::run(format!("{}: {error}", summary.display())))?;
    if args.json {
        return out::json(&archive.runs);
    }
    if args.file.is_none() {
        canonical(&archive).iter().try_for_each(out::line)?;
    }
    eprintln!("the archive is {}; `quorate report {}` makes its report", folder.display(), folder.display());
    let has_result = archive.runs.iter().any(|run| run.outcome == Outcome::Done);
    if has_result { Ok(()) } else { Err(Failure::run("no run has a result; the reasons are above")) }
}

fn failure(error: BenchError) -> Failure {
    match error {
        BenchError::Experiment(error) => Failure::usage(error),
        other => Failure::run(other),
    }
}

/// Returns the two numbers of the canonical workload, with the noise, the machine and the settings.
fn canonical(archive: &Archive) -> Vec<String> {
    let Some(run) = archive.runs.iter().find(|run| run.outcome == Outcome::Done) else { return Vec::new() };
    let number = |path: &str| run.load.pointer(path).and_then(Value::as_f64).unwrap_or(0.0);
    let text = |path: &str| run.load.pointer(path).and_then(Value::as_str).unwrap_or("unknown").to_owned();
    let machine = &archive.manifest.machine;
    let mut lines: Vec<String> = saturation(run).into_iter().collect();
    lines.push(format!(
        "at {:>8.0}/s {:>9.2} ms p50, {:.2} ms p99",
        number("/offered"),
        number("/latency_ns/p50") / 1e6,
        number("/latency_ns/p99") / 1e6
    ));
    lines.extend(report::noise(archive).into_iter().map(|remark| format!("NOISY: {remark}")));
    lines.push(format!(
        "{} n={} f={}, durability {}, links {}, client authentication {}, all replicas and the load on this machine",
        run.protocol,
        run.n,
        run.f,
        text("/durability"),
        text("/link_auth"),
        text("/client_auth")
    ));
    lines.push(format!(
        "{} cores of {}, {:.0} GiB, {}, {}, commit {}",
        machine.cores,
        machine.processor,
        bytes_gib(machine.memory_bytes),
        machine.kernel,
        machine.file_system,
        archive.manifest.commit
    ));
    lines
}

/// Returns the line of the saturation; `None` where the rate of the run is no share of it.
fn saturation(run: &CellRun) -> Option<String> {
    let loads = run.load.get("saturations").and_then(Value::as_array)?;
    let goodputs: Vec<f64> = loads.iter().filter_map(Value::as_f64).collect();
    let median = runner::median(&goodputs)?;
    let least = goodputs.iter().copied().fold(median, f64::min);
    let greatest = goodputs.iter().copied().fold(median, f64::max);
    let loads = goodputs.len();
    Some(format!(
        "saturation  {median:>10.0} requests/s, median of {loads} loads in a row, {least:.0} to {greatest:.0}"
    ))
}

fn bytes_gib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 20).unwrap_or(u32::MAX)) / 1024.0
}

fn time_text(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{}.{} h", seconds / 3_600, seconds % 3_600 / 360),
    }
}

/// A bar at a terminal, and a line for each ended run.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {bar:30} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    fn show(&self, progress: &Progress<'_>) {
        self.0.set_length(u64::try_from(progress.all).unwrap_or(u64::MAX));
        self.0.set_position(u64::try_from(progress.done).unwrap_or(u64::MAX));
        self.0.set_message(format!("about {} left, {}", time_text(progress.left), progress.cell.name()));
        if let Some(run) = progress.ended {
            let line = format!("{}/{} {}", progress.done, progress.all, line_of(progress.cell, run));
            if self.0.is_hidden() {
                eprintln!("{line}");
            } else {
                self.0.println(line);
            }
        }
    }
}

/// Describes the result of a run in one line.
fn line_of(cell: &Cell, run: &CellRun) -> String {
    let name = format!("{}, run {}", cell.name(), run.run);
    match &run.outcome {
        Outcome::Failed(why) => format!("{name}: FAILED: {why}"),
        Outcome::NotBuilt(what) => format!("{name}: not built yet: {what}"),
        Outcome::Done => {
            let number = |path: &str| run.load.pointer(path).and_then(Value::as_f64);
            let ns = |path: &str| number(path).filter(|_| number("/latency_ns/samples") != Some(0.0));
            match (number("/goodput"), ns("/latency_ns/p50"), ns("/latency_ns/p99")) {
                (Some(goodput), Some(p50), Some(p99)) => {
                    let mark = if run.load.get("saturated") == Some(&Value::Bool(true)) {
                        ", saturated"
                    } else {
                        ""
                    };
                    format!("{name}: {goodput:.0}/s, p50 {:.2} ms, p99 {:.2} ms{mark}", p50 / 1e6, p99 / 1e6)
                }
                (Some(goodput), ..) => {
                    format!("{name}: {goodput:.0}/s, no answer to a request of the measured time, saturated")
                }
                _ => match number("/tx_per_s") {
                    Some(goodput) => format!("{name}: {goodput:.0}/s"),
                    None => format!("{name}: done"),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Returns the archive of a canonical run whose saturating loads have these goodputs.
    fn archive(saturations: &[f64]) -> Archive {
        let manifest = json!({
            "format": 1, "tag": "canonical", "title": "", "stamp": "", "commit": "abc", "seed": 1, "form": "full",
            "machine": { "processor": "a processor", "cores": 2, "memory_bytes": 8_u64 << 30, "kernel": "Linux 6",
                         "file_system": "ext4" },
            "yardstick": null, "studies": [],
        });
        let run = json!({
            "study": "canonical", "system": "quorate", "protocol": "pbft", "n": 4, "f": 1, "axes": {}, "run": 1,
            "outcome": "done", "wall_seconds": 1.0, "faults": [],
            "load": { "offered": 500.0, "saturations": saturations, "durability": "fsync",
                      "latency_ns": { "p50": 2_000_000, "p99": 9_500_000 } },
        });
        let runs = vec![serde_json::from_value(run).unwrap()];
        Archive { manifest: serde_json::from_value(manifest).unwrap(), runs }
    }

    #[test]
    fn canonical_output_has_two_numbers_and_their_conditions() {
        let lines = canonical(&archive(&[1_000.0, 950.0, 1_050.0]));
        assert_eq!(lines[0], "saturation        1000 requests/s, median of 3 loads in a row, 950 to 1050");
        assert_eq!(lines[1], "at      500/s      2.00 ms p50, 9.50 ms p99");
        assert!(
            lines[2].contains("durability fsync") && lines[3].contains("2 cores of a processor, 8 GiB"),
            "{lines:?}"
        );
    }

    #[test]
    fn canonical_output_names_a_noisy_machine() {
        let lines = canonical(&archive(&[1_000.0, 950.0, 1_150.0]));
        let expected = "NOISY: canonical: pbft n=4: the machine was noisy: saturating runs differ by 20 % of their median";
        assert_eq!(lines[2], expected);
    }
}
