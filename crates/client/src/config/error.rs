//! The error of configuration files.

use std::path::{Path, PathBuf};

/// The first problem of a configuration file, as one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {field}: {problem}", place(.file, *.line))]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// The field with the path of its table: `genesis.f`.
    pub field: String,
    /// The problem, the expected value, and what to do.
    pub problem: String,
}

fn place(file: &Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    }
}
