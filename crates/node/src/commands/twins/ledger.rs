//! What was run of an enumeration, a line of JSON for each piece: for runs that are stopped and go on.

use crate::exit::Failure;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One piece.
#[derive(Clone, Serialize, Deserialize, PartialEq, Debug)]
pub(super) struct Line {
    /// A name for the code that ran.
    pub(super) code: String,
    pub(super) protocol: String,
    /// Which scenarios.
    pub(super) enumeration: String,
    /// The first number, and the one after the last.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Scenarios that were run, and that were left out because they are the same as others.
    pub(super) runs: u64,
    pub(super) same: u64,
    pub(super) heights: u64,
    /// Numbers of those that failed, and why.
    pub(super) failures: Vec<(u64, String)>,
}

/// A file of such lines.
#[derive(Debug)]
pub(super) struct Ledger {
    file: PathBuf,
    lines: Vec<Line>,
}

impl Ledger {
    /// The ledger of a protocol in a folder.
    pub(super) fn open(folder: &Path, protocol: &str) -> Result<Self, Failure> {
        let file = folder.join(format!("twins-{protocol}.jsonl"));
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

    /// One more piece.
    pub(super) fn add(&mut self, line: Line) -> Result<(), Failure> {
        let fail = |error: String| Failure::run(format!("{}: {error}", self.file.display()));
        let mut text = serde_json::to_string(&line).map_err(|error| fail(error.to_string()))?;
        text.push('\n');
        let opened = OpenOptions::new().create(true).append(true).open(&self.file);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| fail(error.to_string()))?;
        self.lines.push(line);
        Ok(())
    }

    /// What stands there for this code and these scenarios.
    pub(super) fn of<'a>(&'a self, code: &'a str, enumeration: &'a str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().filter(move |line| line.code == code && line.enumeration == enumeration)
    }

    /// The pieces of a range that stand nowhere yet.
    pub(super) fn left(
        &self,
        code: &str,
        enumeration: &str,
        range: Range<u64>,
        piece: u64,
    ) -> Vec<Range<u64>> {
        let mut done: Vec<Range<u64>> = self.of(code, enumeration).map(|line| line.from..line.to).collect();
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
pub(super) fn pieces(range: Range<u64>, piece: u64) -> Vec<Range<u64>> {
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

    fn line(code: &str, enumeration: &str, from: u64, to: u64) -> Line {
        Line {
            code: code.to_owned(),
            protocol: "pbft".to_owned(),
            enumeration: enumeration.to_owned(),
            from,
            to,
            runs: to - from,
            same: 0,
            heights: 0,
            failures: vec![(from, "why".to_owned())],
        }
    }

    #[test]
    fn what_was_run_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(folder.path(), "pbft").unwrap();
        assert_eq!(ledger.left("c", "e", 0..10, 4), [0..4, 4..8, 8..10]);
        for written in [
            line("c", "e", 8, 12),
            line("c", "e", 2, 4),
            line("other", "e", 0, 20),
            line("c", "other", 0, 20),
        ] {
            ledger.add(written).unwrap();
        }
        // Whoever comes back finds what was written.
        let ledger = Ledger::open(folder.path(), "pbft").unwrap();
        assert_eq!(ledger.left("c", "e", 0..20, 4), [0..2, 4..8, 12..16, 16..20]);
        assert_eq!(ledger.left("c", "e", 9..11, 4), [] as [Range<u64>; 0]);
        assert_eq!(ledger.of("c", "e").count(), 2);
        assert_eq!(Ledger::open(folder.path(), "echo").unwrap().left("c", "e", 0..5, 4), [0..4, 4..5]);
    }

    #[test]
    fn a_ledger_that_is_damaged_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("twins-pbft.jsonl"), "{}\n").unwrap();
        assert!(Ledger::open(folder.path(), "pbft").unwrap_err().to_string().contains("line 1"));
    }
}
