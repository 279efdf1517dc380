//! `quorate sim --figures` and `quorate sim --script`: modes of the simulator without random runs.

use quorate_consensus::Entry;
use quorate_node::commands::arguments::refuse;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_protocols::find;
use quorate_sim::conformance::{FiguresReport, markdown, measure, sizes};
use quorate_sim::script::{first_difference, play};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Modes that replace random runs.
#[derive(Debug, clap::Args)]
pub(super) struct OtherMode {
    /// Instead of seeds: count messages, message delays and syncs of the good case, and compare them with the figures that
    /// the protocol states
    #[arg(long, conflicts_with_all = ["seeds", "seed", "script", "byzantine", "scenario"])]
    figures: bool,
    /// Instead of seeds: play a golden script, and report the first difference of its trace; docs/scripts.md explains
    /// scripts
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "seed", "n", "protocol", "byzantine", "json", "scenario"])]
    script: Option<PathBuf>,
    /// Write the trace into the script
    #[arg(long, requires = "script")]
    update: bool,
}

impl OtherMode {
    /// Whether another mode is asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.figures || self.script.is_some()
    }

    /// Checks `--update`: clap's `requires` is not evaluated where another option excludes `--script`.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let update = ("--update", self.update && self.script.is_none());
        refuse(&[update], "the option is for a script; choose the script with --script")
    }

    /// Runs the other mode, if one is asked for.
    pub(super) fn run(&self, entry: &Entry, n: Option<usize>, is_json: bool) -> Option<Result<(), Failure>> {
        match &self.script {
            Some(file) => Some(script(file, self.update)),
            None => self.figures.then(|| figures(entry, n, is_json)),
        }
    }
}

/// Measures a protocol at one size, or at its own sizes.
fn figures(entry: &Entry, n: Option<usize>, is_json: bool) -> Result<(), Failure> {
    let sizes = n.map_or_else(|| sizes(entry).to_vec(), |n| vec![n]);
    let mut reports = Vec::new();
    for n in sizes {
        reports.push(measure(entry, n).map_err(Failure::run)?);
    }
    if is_json {
        out::json(&figures_json(entry, &reports))?;
    } else {
        out::line(markdown(&reports).trim_end())?;
    }
    if reports.iter().all(|report| report.agrees()) {
        return Ok(());
    }
    Err(Failure::run(format!("the costs of {} differ from its stated figures", entry.spec.name)))
}

/// Returns the figures as one object.
fn figures_json(entry: &Entry, reports: &[FiguresReport]) -> Value {
    let figures = reports.iter().flat_map(|report| report.lines.iter().map(move |line| (report.n, line)));
    let figures: Vec<Value> = figures
        .map(|(n, line)| {
            json!({
                "n": n, "what": line.what, "formula": line.formula, "stated": line.stated,
                "measured": line.measured.to_string(), "agrees": line.agrees(),
            })
        })
        .collect();
    let agrees = reports.iter().all(FiguresReport::agrees);
    json!({ "protocol": entry.spec.name.as_str(), "agrees": agrees, "figures": figures })
}

/// Plays a script.
fn script(file: &Path, is_update: bool) -> Result<(), Failure> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    let played = play(&text, &|name| find(name).copied());
    let played = match played {
        Ok(played) => played,
        Err(trouble) => {
            out::line(trouble.played.trim_end())?;
            return Err(Failure::run(format!("{shown}: {trouble}")));
        }
    };
    out::line(played.trim_end())?;
    let Some(difference) = first_difference(&text, &played) else { return Ok(()) };
    if is_update {
        return std::fs::write(file, played).map_err(|error| Failure::run(format!("{shown}: {error}")));
    }
    eprintln!("{difference}");
    Err(Failure::run(format!("{shown}: the trace differs; --update writes the played trace")))
}
