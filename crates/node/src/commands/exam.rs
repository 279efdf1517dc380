//! `quorate exam`: a protocol sits every paper of the exam, at several sizes, with many seeds.
//!
//! With a ledger a long exam can be stopped at any time and goes on where it stopped: what was run is written down
//! piece by piece, for the code that it was run with. Who changes that code begins anew.

mod short;

use super::seeds::{How, Total, many};
use super::sim::{find_paper, protocol};
use crate::exit::Failure;
use crate::out;
use quorate_consensus::Entry;
use quorate_sim::exam::{PAPERS, Paper, sizes};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to examine.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which protocol
    #[arg(long, default_value = "pbft")]
    protocol: String,
    /// How many replicas, several with commas; the smallest numbers that tolerate one, two and three faults if not given
    #[arg(long, value_delimiter = ',')]
    n: Vec<usize>,
    /// Seeds of each paper at each size
    #[arg(long, default_value_t = 50)]
    seeds: u64,
    /// One paper instead of all
    #[arg(long)]
    paper: Option<String>,
    /// Write down what was run in this folder, and leave out what stands there for the same code
    #[arg(long, value_name = "FOLDER", requires = "code")]
    ledger: Option<PathBuf>,
    /// A name for the code that runs: ranges count only for the code that they were run with
    #[arg(long, value_name = "NAME")]
    code: Option<String>,
    /// Seeds between two entries of the ledger
    #[arg(long, default_value_t = 500)]
    piece: u64,
    /// Stop after so many minutes; a ledger remembers how far it was
    #[arg(long)]
    minutes: Option<u64>,
    /// Every registered protocol in a few minutes: 200 fixed seeds shared among them, runs that have failed once, and seeds
    /// that nobody has seen before
    #[arg(long, conflicts_with_all = ["protocol", "n", "seeds", "paper", "ledger", "minutes"])]
    short: bool,
}

/// One piece of an exam, as a line of the ledger.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Line {
    code: String,
    protocol: String,
    paper: String,
    n: usize,
    /// The first seed, and the one after the last.
    from: u64,
    to: u64,
    failures: u64,
    /// The first of them, and what it was.
    failed: Option<(u64, String)>,
    virtual_seconds: f64,
    requests: u64,
    seconds: f64,
}

/// Where a protocol's ledger is, and what stands in it.
struct Ledger {
    file: PathBuf,
    lines: Vec<Line>,
}

impl Ledger {
    fn open(folder: &Path, protocol: &str) -> Result<Self, Failure> {
        let file = folder.join(format!("{protocol}.jsonl"));
        let fail = |why: String| Failure::run(format!("{}: {why}", file.display()));
        fs::create_dir_all(folder).map_err(|error| fail(error.to_string()))?;
        let text = if file.exists() {
            fs::read_to_string(&file).map_err(|error| fail(error.to_string()))?
        } else {
            String::new()
        };
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let read = serde_json::from_str(line);
            lines.push(read.map_err(|error| fail(format!("line {}: {error}", number.saturating_add(1))))?);
        }
        Ok(Self { file, lines })
    }

    fn add(&mut self, line: Line) -> Result<(), Failure> {
        let fail =
            |error: &dyn ToString| Failure::run(format!("{}: {}", self.file.display(), error.to_string()));
        let mut text = serde_json::to_string(&line).map_err(|error| fail(&error))?;
        text.push('\n');
        let mut file =
            OpenOptions::new().create(true).append(true).open(&self.file).map_err(|error| fail(&error))?;
        file.write_all(text.as_bytes()).map_err(|error| fail(&error))?;
        self.lines.push(line);
        Ok(())
    }

    /// The first seed from `seed` on that has not passed, for this code, paper and size.
    fn next(&self, code: &str, (paper, n): (&str, usize), mut seed: u64) -> u64 {
        let mut ranges: Vec<Range<u64>> = self
            .lines
            .iter()
            .filter(|line| line.code == code && line.paper == paper && line.n == n && line.failures == 0)
            .map(|line| line.from..line.to)
            .collect();
        ranges.sort_by_key(|range| range.start);
        for range in ranges {
            if range.contains(&seed) {
                seed = range.end;
            }
        }
        seed
    }
}

/// Examines a protocol.
///
/// # Errors
/// When a run fails, the protocol does not exist, or the ledger cannot be read or written.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.short {
        return short::run();
    }
    let entry = protocol(&args.protocol)?;
    let papers: Vec<&'static Paper> = match &args.paper {
        Some(name) => vec![find_paper(name)?],
        None => PAPERS.iter().collect(),
    };
    let sizes = if args.n.is_empty() { sizes(entry) } else { args.n.clone() };
    let mut ledger = match &args.ledger {
        Some(folder) => Some(Ledger::open(folder, &args.protocol)?),
        None => None,
    };
    let begun = Instant::now();
    let mut failures = 0u64;
    for paper in papers {
        for n in sizes.iter().copied() {
            let (done, failed) = examine(args, entry, (paper, n), &mut ledger, begun)?;
            failures = failures.saturating_add(failed);
            if done < args.seeds && is_over(args, begun) {
                out::line("time is over; the same command goes on from here")?;
                return verdict(failures);
            }
        }
    }
    verdict(failures)
}

fn verdict(failures: u64) -> Result<(), Failure> {
    match failures {
        0 => out::line("passed"),
        many => Err(Failure::run(format!("{many} runs failed"))),
    }
}

fn is_over(args: &Args, begun: Instant) -> bool {
    args.minutes.is_some_and(|minutes| begun.elapsed().as_secs() >= minutes.saturating_mul(60))
}

/// One paper at one size, piece by piece. How far it came, and how many failed.
fn examine(
    args: &Args,
    entry: &'static Entry,
    (paper, n): (&'static Paper, usize),
    ledger: &mut Option<Ledger>,
    begun: Instant,
) -> Result<(u64, u64), Failure> {
    let code = args.code.as_deref().unwrap_or_default();
    let next = |ledger: &Option<Ledger>, seed| {
        ledger.as_ref().map_or(seed, |ledger| ledger.next(code, (paper.name, n), seed))
    };
    let again = |seed| paper.again(&args.protocol, n, seed);
    let how = How { quiet: false, keep_going: true, again: &again };
    let (mut seed, mut failures) = (next(ledger, 0), 0u64);
    let first = seed;
    let (clock, mut virtual_seconds) = (Instant::now(), 0.0);
    while seed < args.seeds && !is_over(args, begun) {
        let to = seed.saturating_add(args.piece.max(1)).min(args.seeds);
        let begun = Instant::now();
        let total = many(&how, seed..to, |seed| paper.sit(entry, n, seed).map_err(|error| error.to_string()));
        let line = line(code, entry, (paper, n), seed..to, &total, begun);
        failures = failures.saturating_add(line.failures);
        virtual_seconds += line.virtual_seconds;
        if let Some(ledger) = ledger {
            ledger.add(line)?;
        }
        seed = next(ledger, to);
    }
    let (runs, seconds) = (seed.saturating_sub(first), clock.elapsed().as_secs_f64());
    let before = if first > 0 { format!(", {first} before") } else { String::new() };
    out::line(format!(
        "{:<12} n = {n:<3} {runs:>7} runs{before}, {failures} failures, {virtual_seconds:.0} virtual s in {seconds:.1} s",
        paper.name
    ))?;
    Ok((seed, failures))
}

fn line(
    code: &str,
    entry: &'static Entry,
    (paper, n): (&Paper, usize),
    range: Range<u64>,
    total: &Total,
    begun: Instant,
) -> Line {
    let summary = total.summary(entry, Some(n), begun);
    Line {
        code: code.to_owned(),
        protocol: summary.protocol.to_owned(),
        paper: paper.name.to_owned(),
        n,
        from: range.start,
        to: range.end,
        failures: summary.failures,
        failed: total.first_failure().map(|(seed, what)| (seed, what.to_owned())),
        virtual_seconds: summary.virtual_seconds,
        requests: summary.requests,
        seconds: summary.seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(code: &str, paper: &str, n: usize, seeds: Range<u64>) -> Line {
        Line {
            code: code.to_owned(),
            protocol: "pbft".to_owned(),
            paper: paper.to_owned(),
            n,
            from: seeds.start,
            to: seeds.end,
            failures: 0,
            failed: None,
            virtual_seconds: 60.0,
            requests: 400,
            seconds: 1.0,
        }
    }

    #[test]
    fn what_stands_in_the_ledger_is_left_out_for_the_same_code_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path(), "pbft").unwrap();
        for line in [
            line("a", "standard", 4, 100..200),
            line("a", "standard", 4, 0..100),
            line("a", "standard", 4, 250..300),
            line("a", "standard", 7, 0..900),
            line("b", "standard", 4, 0..900),
            Line { failures: 1, ..line("a", "standard", 4, 300..400) },
        ] {
            ledger.add(line).unwrap();
        }
        let again = Ledger::open(folder.path(), "pbft").unwrap();
        assert_eq!(again.lines, ledger.lines);
        for (code, paper, n, from, next) in [
            ("a", "standard", 4, 0, 200),
            ("a", "standard", 4, 250, 300),
            ("a", "standard", 4, 350, 350),
            ("a", "standard", 7, 0, 900),
            ("a", "liars", 4, 0, 0),
            ("c", "standard", 4, 0, 0),
        ] {
            assert_eq!(again.next(code, (paper, n), from), next, "{code} {paper} {n} {from}");
        }
    }

    #[test]
    fn a_ledger_that_cannot_be_read_says_where() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pbft.jsonl"), "{}\n").unwrap();
        let Err(failure) = Ledger::open(folder.path(), "pbft") else { panic!("it is no ledger") };
        assert!(failure.to_string().contains("line 1"), "{failure}");
    }
}
