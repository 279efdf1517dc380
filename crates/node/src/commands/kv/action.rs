//! The operations of `quorate kv`, as the command line names them.

use clap::Subcommand;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One operation. Keys and values are any bytes.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Action {
    /// Print the value of a key; exit code 3 where it has none
    Get {
        key: OsString,
        /// Write the value to this file, byte for byte; `-`: to standard output, without a line break behind it
        #[arg(long, value_name = "FILE", conflicts_with = "json")]
        file: Option<PathBuf>,
    },
    /// Give a key a value
    Put {
        key: OsString,
        /// The value; `-`: standard input
        #[arg(required_unless_present = "file", conflicts_with = "file")]
        value: Option<OsString>,
        /// Take the value from this file; `-`: from standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Remove a key
    Del { key: OsString },
    /// Give a key a value if it has the expected one; exit code 3 where it has another
    Cas {
        key: OsString,
        /// The expected value, then the new one; `-`: standard input; a value that --absent, --file or --expect-file give
        /// is left out
        #[arg(num_args = 0..=2, value_names = ["EXPECT", "VALUE"])]
        values: Vec<OsString>,
        /// Expect that the key has no value
        #[arg(long, conflicts_with = "expect_file")]
        absent: bool,
        /// Take the new value from this file; `-`: from standard input
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Take the expected value from this file; `-`: from standard input
        #[arg(long, value_name = "FILE")]
        expect_file: Option<PathBuf>,
    },
    /// Add to the number that a key holds; a key without a value holds 0
    Incr {
        key: OsString,
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        by: i64,
    },
    /// Print keys and values in order, one entry in a line, with `\n`, `\t`, `\\`, `\xHH` and `\u{H}` for what a line cannot
    /// hold; --json is exact. More than 1,000 are read in several steps, between which the store may change
    Scan {
        /// Only keys that begin so
        #[arg(long, conflicts_with_all = ["from", "to"])]
        prefix: Option<OsString>,
        /// The first key
        #[arg(long)]
        from: Option<OsString>,
        /// The first key that is not wanted any more
        #[arg(long)]
        to: Option<OsString>,
        /// Entries at most
        #[arg(long, default_value_t = 1_000)]
        limit: u32,
    },
}

impl Action {
    /// The file that the value goes to.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Get { file, .. } => file.as_deref(),
            _ => None,
        }
    }
}
