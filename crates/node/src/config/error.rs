//! The one error of configuration files.

use std::path::{Path, PathBuf};

/// A configuration file that is not right, as one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}: {field}: {problem}", place(.file, *.line))]
pub struct ConfigError {
    /// Which file.
    pub file: PathBuf,
    /// Which line of it, from 1; `None` where the file as a whole is meant.
    pub line: Option<usize>,
    /// Which field, with the tables that it stands in: `genesis.f`.
    pub field: String,
    /// What is wrong, what was expected, and what to do.
    pub problem: String,
}

fn place(file: &Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", file.display()),
        None => file.display().to_string(),
    }
}
