//! A ledger of runs and their results, with a line of JSON for each piece. Stopped runs continue from it.

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

/// Options of ledgers.
#[derive(Debug, clap::Args)]
pub(super) struct LedgerArgs {
    /// Record passed runs in this folder, and leave out runs that are recorded there for the same code
    #[arg(long, value_name = "FOLDER", requires = "code")]
    pub(super) ledger: Option<PathBuf>,
    /// Name of the code that runs; recorded runs count for the same code only
    #[arg(long, value_name = "NAME", requires = "ledger")]
    code: Option<String>,
    /// Commit of that code, for readers of the ledger
    #[arg(long, value_name = "HASH", requires = "ledger")]
    pub(super) commit: Option<String>,
    /// Number of runs between two entries of the ledger, or two checks of the time [default: 500]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    piece: Option<u64>,
    /// Stop after this time: a number of minutes, or 90s, or 2h; the ledger keeps the progress
    #[arg(long, value_name = "DURATION", value_parser = parse_minutes)]
    minutes: Option<Duration>,
}

impl LedgerArgs {
    /// Opens the ledger of this name, if the options ask for one.
    pub(super) fn open<L: LedgerEntry>(&self, name: &str) -> Result<Option<Ledger<L>>, Failure> {
        self.ledger.as_ref().map(|folder| Ledger::open(folder, name)).transpose()
    }

    /// Checks that the options make sense together.
    ///
    /// # Errors
    /// Fails when an option has no effect, or when the time is zero.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let is_stopped = self.ledger.is_some() || self.minutes.is_some();
        let piece = ("--piece", self.piece.is_some() && !is_stopped);
        refuse(&[piece], "only --ledger and --minutes use pieces")?;
        if self.minutes == Some(Duration::ZERO) {
            return Err(Failure::usage("--minutes: expected a duration above 0"));
        }
        Ok(())
    }

    /// Returns the names of the options, and whether they are given.
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

    /// Returns the name of the code that runs.
    pub(super) fn code(&self) -> &str {
        self.code.as_deref().unwrap_or_default()
    }

    /// Whether the time is over for work that began at `begun`.
    pub(super) fn is_over(&self, begun: Instant) -> bool {
        self.minutes.is_some_and(|span| begun.elapsed() >= span)
    }

    /// Returns the pieces of a range that have to run, without those of passed entries that satisfy `is_same`.
    pub(super) fn left<L: LedgerEntry>(
        &self,
        ledger: Option<&Ledger<L>>,
        is_same: impl Fn(&L) -> bool,
        range: Range<u64>,
    ) -> Vec<Range<u64>> {
        match ledger {
            Some(ledger) => ledger.left(is_same, range, self.piece()),
            None => pieces(range, self.piece()),
        }
    }
}

/// An entry of a ledger: one piece of work.
pub(super) trait LedgerEntry: Serialize + DeserializeOwned {
    /// Returns the numbers of the piece.
    fn range(&self) -> Range<u64>;
    /// Whether all runs of the piece passed. Otherwise the piece runs again.
    fn has_passed(&self) -> bool;
}

/// A file of entries, one JSON object on each line.
#[derive(Debug)]
pub(super) struct Ledger<L> {
    file: PathBuf,
    lines: Vec<L>,
}

impl<L: LedgerEntry> Ledger<L> {
    /// Opens the ledger of this name in a folder. A truncated last line is removed: its piece runs again.
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

    /// Adds an entry.
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

    /// Returns the entries of pieces that have passed.
    pub(super) fn passed(&self) -> impl Iterator<Item = &L> {
        self.lines.iter().filter(|line| line.has_passed())
    }

    /// Returns the pieces of a range that have not passed yet.
    fn left(&self, is_same: impl Fn(&L) -> bool, range: Range<u64>, piece: u64) -> Vec<Range<u64>> {
        let mut done: Vec<Range<u64>> =
            self.passed().filter(|entry| is_same(entry)).map(LedgerEntry::range).collect();
        done.sort_by_key(|range| range.start);
        let (mut left, mut at) = (Vec::new(), range.start);
        for done in done.into_iter().chain(std::iter::once(range.end..range.end)) {
            left.extend(pieces(at..done.start.min(range.end), piece));
            at = at.max(done.end);
        }
        left
    }
}

/// Divides a range into pieces.
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
    struct TestEntry {
        code: String,
        from: u64,
        to: u64,
        failures: u64,
    }

    impl LedgerEntry for TestEntry {
        fn range(&self) -> Range<u64> {
            self.from..self.to
        }

        fn has_passed(&self) -> bool {
            self.failures == 0
        }
    }

    fn run(code: &str, from: u64, to: u64) -> TestEntry {
        TestEntry { code: code.to_owned(), from, to, failures: 0 }
    }

    fn open(folder: &Path, name: &str) -> Ledger<TestEntry> {
        Ledger::open(folder, name).unwrap()
    }

    #[test]
    fn passed_pieces_are_left_out_for_the_same_code_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = open(folder.path(), "pbft");
        let left = |ledger: &Ledger<TestEntry>, range| ledger.left(|run| run.code == "c", range, 4);
        assert_eq!(left(&ledger, 0..10), [0..4, 4..8, 8..10]);
        let failed = TestEntry { failures: 1, ..run("c", 4, 8) };
        for written in [run("c", 8, 12), run("c", 2, 4), run("other", 0, 20), failed] {
            ledger.add(written).unwrap();
        }
        // The file has the entries.
        let again = open(folder.path(), "pbft");
        assert_eq!(again.lines, ledger.lines);
        assert_eq!(left(&again, 0..20), [0..2, 4..8, 12..16, 16..20]);
        assert_eq!(left(&again, 9..11), [] as [Range<u64>; 0]);
        assert_eq!(again.passed().count(), 3);
        assert_eq!(left(&open(folder.path(), "echo"), 0..5), [0..4, 4..5]);
    }

    #[test]
    fn truncated_last_line_is_dropped() {
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
    fn unreadable_ledger_names_the_line_and_stays_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pbft.jsonl");
        fs::write(&file, "{}\n").unwrap();
        let Err(failure) = Ledger::<TestEntry>::open(folder.path(), "pbft") else {
            panic!("the file is no ledger")
        };
        assert!(failure.to_string().contains("line 1"), "{failure}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}\n");
    }
}
