//! The operations of `quorate kv` on the command line.

use clap::Subcommand;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One operation. Keys and values are any bytes.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum Action {
    /// Print the value of a key; exit code 3 if it has none
    Get {
        key: OsString,
        /// Write the value to this file, byte for byte; `-`: to standard output, without a line break after it
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
    /// Give a key a value if it has the expected one; exit code 3 if it has another
    Cas {
        key: OsString,
        /// The expected value, then the new one; `-`: standard input; omit a value that --absent, --file or --expect-file
        /// give
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
    /// Print keys and values in order, one entry in a line, with `\n`, `\t`, `\\`, `\xHH` and `\u{H}` for bytes
    /// that a line cannot show; --json is exact. More than 1,000 are read in several steps, between which the store may change
    Scan {
        /// Only keys that begin with this prefix
        #[arg(long, conflicts_with_all = ["from", "to"])]
        prefix: Option<OsString>,
        /// The first key
        #[arg(long)]
        from: Option<OsString>,
        /// The first key behind the range
        #[arg(long)]
        to: Option<OsString>,
        /// The largest number of entries
        #[arg(long, default_value_t = 1_000)]
        limit: u32,
    },
}

impl Action {
    /// Returns the file for the value.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Get { file, .. } => file.as_deref(),
            _ => None,
        }
    }
}
