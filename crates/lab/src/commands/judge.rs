//! `quorate judge`: checks a recorded history for linearizability.

use crate::load::judge_alone;
use quorate_history::History;
use quorate_node::exit::Failure;
use quorate_node::out;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// Text after the options.
const RULE: &str = "An operation comes after all operations that were answered before its call. If an answer and a call have \
                    the same nanosecond, operations of two clients overlap, and those of one client are in order.";

/// The history to judge.
#[derive(Debug, clap::Args)]
#[command(after_help = RULE)]
pub struct Args {
    /// History file, as written by `load --history`, `sim --history`, `demo --keep` and a failed `torture`
    file: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Searches for an order of all operations that explains every answer.
///
/// # Errors
/// Fails when there is no such order, when the search takes too long, or when the file is no history or has no operations.
pub fn run(args: &Args) -> Result<(), Failure> {
    let name = args.file.display();
    let file = File::open(&args.file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let history =
        History::read(BufReader::new(file)).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    let verdict = judge_alone(&history);
    if args.json {
        out::json(&verdict)?;
    } else {
        for finding in &verdict.findings {
            out::line(finding)?;
        }
        out::line(format!(
            "{} operations judged, keys not linearizable {}, keys too hard to judge {}",
            verdict.judged, verdict.illegal, verdict.undecided
        ))?;
    }
    match (verdict.illegal, verdict.undecided) {
        (0, 0) if verdict.judged == 0 => {
            Err(Failure::run(format!("{name} has no operation: nothing was judged")))
        }
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::run(
            "some keys could not be judged, because too many operations on one key overlap; record with fewer requests in flight",
        )),
        _ => Err(Failure::run("the history is not linearizable")),
    }
}
