//! A ledger of runs and their results, a line of JSON for each piece: runs that are stopped continue from it.

use quorate_node::commands::arguments::refuse;
use quorate_node::config::parse_minutes;
use quorate_node::exit::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs in a piece.
const PIECE: u64 = 500;

/// Options about ledgers.
#[derive(Debug, clap::Args)]
pub(super) struct Keeping {
    /// Write down what was run in this folder, and leave out what stands there for the same code
    #[arg(long, value_name = "FOLDER", requires = "code")]
    pub(super) ledger: Option<PathBuf>,
    /// A name for the code that runs: what was run counts only for the code that it was run with
    #[arg(long, value_name = "NAME", requires = "ledger")]
    code: Option<String>,
    /// Which commit that code was, for whoever reads the ledger
    #[arg(long, value_name = "HASH", requires = "ledger")]
    pub(super) commit: Option<String>,
    /// Runs between two entries of the ledger, or two looks at the time [default: 500]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    piece: Option<u64>,
    /// Stop after so many minutes, or 90s, or 2h; a ledger remembers how far it was
    #[arg(long, value_name = "DURATION", value_parser = parse_minutes)]
    minutes: Option<Duration>,
}

impl Keeping {
    /// The ledger of this name, where there is to be one.
    pub(super) fn open<L: LedgerEntry>(&self, name: &str) -> Result<Option<Ledger<L>>, Failure> {
        self.ledger.as_ref().map(|folder| Ledger::open(folder, name)).transpose()
    }

    /// Whether the options mean something together.
    ///
    /// # Errors
    /// When one would do nothing, or no time is left for anything.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let is_stopped = self.ledger.is_some() || self.minutes.is_some();
        let piece = ("--piece", self.piece.is_some() && !is_stopped);
        refuse(&[piece], "only --ledger and --minutes look after each piece")?;
        if self.minutes == Some(Duration::ZERO) {
            return Err(Failure::usage(
                "--minutes: expected a duration above 0, in which something can be run",
            ));
        }
        Ok(())
    }

    /// Its options, and whether they are given.
    pub(super) fn given(&self) -> [(&'static str, bool); 3] {
        [
            ("--ledger", self.ledger.is_some()),
            ("--piece", self.piece.is_some()),
            ("--minutes", self.minutes.is_some()),
        ]
    }

    fn piece(&self) -> u64 {
        self.piece.unwrap_or(PIECE)
    }

    /// Name of the code that runs.
    pub(super) fn code(&self) -> &str {
        self.code.as_deref().unwrap_or_default()
    }

    /// Whether what has begun then has lasted long enough.
    pub(super) fn is_over(&self, begun: Instant) -> bool {
        self.minutes.is_some_and(|span| begun.elapsed() >= span)
    }

    /// The pieces of a range that are still to be run, where the ledger has lines `about` it.
    pub(super) fn left<L: LedgerEntry>(
        &self,
        ledger: Option<&Ledger<L>>,
        about: impl Fn(&L) -> bool,
        range: Range<u64>,
    ) -> Vec<Range<u64>> {
        match ledger {
            Some(ledger) => ledger.left(about, range, self.piece()),
            None => pieces(range, self.piece()),
        }
    }
}

/// One piece.
pub(super) trait LedgerEntry: Serialize + DeserializeOwned {
    /// The first number, and the one after the last.
    fn range(&self) -> Range<u64>;
    /// Whether nothing in it failed. What failed counts for nothing: it is run again.
    fn has_passed(&self) -> bool;
}

/// A file of such lines.
#[derive(Debug)]
pub(super) struct Ledger<L> {
    file: PathBuf,
    lines: Vec<L>,
}

impl<L: LedgerEntry> Ledger<L> {
    /// The ledger of this name in a folder. A last line that was cut off is taken away: nothing says that its piece was run.
    fn open(folder: &Path, name: &str) -> Result<Self, Failure> {
        let file = folder.join(format!("{name}.jsonl"));
        let fail = |why: String| Failure::run(format!("{}: {why}", file.display()));
        fs::create_dir_all(folder).map_err(|error| fail(error.to_string()))?;
        let mut text = if file.exists() {
            fs::read_to_string(&file).map_err(|error| fail(error.to_string()))?
        } else {
            String::new()
        };
        let whole = text.rfind('\n').map_or(0, |end| end.saturating_add(1));
        if whole < text.len() {
            text.truncate(whole);
            fs::write(&file, &text).map_err(|error| fail(error.to_string()))?;
        }
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let read = serde_json::from_str(line);
            lines.push(read.map_err(|error| fail(format!("line {}: {error}", number.saturating_add(1))))?);
        }
        Ok(Self { file, lines })
    }

    /// One more piece.
    pub(super) fn add(&mut self, line: L) -> Result<(), Failure> {
        let fail = |error: String| Failure::run(format!("{}: {error}", self.file.display()));
        let mut text = serde_json::to_string(&line).map_err(|error| fail(error.to_string()))?;
        text.push('\n');
        let opened = OpenOptions::new().create(true).append(true).open(&self.file);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| fail(error.to_string()))?;
        self.lines.push(line);
        Ok(())
    }

    /// Entries of pieces that have passed.
    pub(super) fn passed(&self) -> impl Iterator<Item = &L> {
        self.lines.iter().filter(|line| line.has_passed())
    }

    /// The pieces of a range that have not passed yet, among the lines that are `about` it.
    fn left(&self, about: impl Fn(&L) -> bool, range: Range<u64>, piece: u64) -> Vec<Range<u64>> {
        let mut done: Vec<Range<u64>> =
            self.passed().filter(|line| about(line)).map(LedgerEntry::range).collect();
        done.sort_by_key(|range| range.start);
        let (mut left, mut at) = (Vec::new(), range.start);
        for done in done.into_iter().chain(std::iter::once(range.end..range.end)) {
            left.extend(pieces(at..done.start.min(range.end), piece));
            at = at.max(done.end);
        }
        left
    }
}

/// A range in pieces.
fn pieces(range: Range<u64>, piece: u64) -> Vec<Range<u64>> {
    let piece = piece.max(1);
    let mut pieces = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let to = at.saturating_add(piece).min(range.end);
        pieces.push(at..to);
        at = to;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Run {
        code: String,
        from: u64,
        to: u64,
        failures: u64,
    }

    impl LedgerEntry for Run {
        fn range(&self) -> Range<u64> {
            self.from..self.to
        }

        fn has_passed(&self) -> bool {
            self.failures == 0
        }
    }

    fn run(code: &str, from: u64, to: u64) -> Run {
        Run { code: code.to_owned(), from, to, failures: 0 }
    }

    fn open(folder: &Path, name: &str) -> Ledger<Run> {
        Ledger::open(folder, name).unwrap()
    }

    #[test]
    fn what_has_passed_is_left_out_for_the_same_code_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(folder.path(), "pbft");
        let left = |ledger: &Ledger<Run>, range| ledger.left(|run| run.code == "c", range, 4);
        assert_eq!(left(&ledger, 0..10), [0..4, 4..8, 8..10]);
        let failed = Run { failures: 1, ..run("c", 4, 8) };
        for written in [run("c", 8, 12), run("c", 2, 4), run("other", 0, 20), failed] {
            ledger.add(written).unwrap();
        }
        // Whoever comes back finds what was written.
        let again = open(folder.path(), "pbft");
        assert_eq!(again.lines, ledger.lines);
        assert_eq!(left(&again, 0..20), [0..2, 4..8, 12..16, 16..20]);
        assert_eq!(left(&again, 9..11), [] as [Range<u64>; 0]);
        assert_eq!(again.passed().count(), 3);
        assert_eq!(left(&open(folder.path(), "echo"), 0..5), [0..4, 4..5]);
    }

    #[test]
    fn a_line_that_was_cut_off_was_never_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(folder.path(), "pbft");
        [run("c", 0, 4), run("c", 4, 8)].into_iter().for_each(|line| ledger.add(line).unwrap());
        let file = folder.path().join("pbft.jsonl");
        let text = fs::read_to_string(&file).unwrap();
        let first = text.find('\n').unwrap();
        for end in first + 1..text.len() {
            fs::write(&file, &text[..end]).unwrap();
            let mut cut = open(folder.path(), "pbft");
            assert_eq!(cut.lines, [run("c", 0, 4)], "{end}");
            cut.add(run("c", 4, 6)).unwrap();
            assert_eq!(open(folder.path(), "pbft").lines, [run("c", 0, 4), run("c", 4, 6)], "{end}");
        }
    }

    #[test]
    fn a_ledger_that_cannot_be_read_says_where_and_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pbft.jsonl");
        fs::write(&file, "{}\n").unwrap();
        let Err(failure) = Ledger::<Run>::open(folder.path(), "pbft") else { panic!("it is no ledger") };
        assert!(failure.to_string().contains("line 1"), "{failure}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}\n");
    }
}
