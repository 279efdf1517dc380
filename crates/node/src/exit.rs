//! How a command ends: one line on the error stream and one of four exit codes.

use crate::config::ConfigError;
use std::fmt::Display;
use std::process::ExitCode;

/// Why a command has not done its work. The text is one line that says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Wrong usage or configuration: nothing was done. Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The run has failed. Exit code 1.
    #[error("{0}")]
    Run(String),
    /// The cluster has answered, and the answer is no: a key without a value, a comparison that does not hold. Exit
    /// code 3.
    #[error("{0}")]
    No(String),
}

impl Failure {
    /// Wrong usage or configuration.
    pub fn usage(text: impl Display) -> Self {
        Self::Usage(one_line(&text.to_string()))
    }

    /// A run that failed.
    pub fn run(text: impl Display) -> Self {
        Self::Run(one_line(&text.to_string()))
    }

    /// An answer that is no.
    pub fn no(text: impl Display) -> Self {
        Self::No(one_line(&text.to_string()))
    }

    /// The exit code: 1 the run failed, 2 wrong usage or configuration, 3 the answer is no.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Run(_) => 1,
            Self::Usage(_) => 2,
            Self::No(_) => 3,
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error)
    }
}

/// Prints the failure as the one line that it is, and gives the process its exit code.
#[must_use]
pub fn report(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// The text without line breaks: messages of libraries may have some.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::run("first\n  second\n\n");
        assert_eq!((failure.to_string().as_str(), failure.code()), ("first; second", 1));
        assert_eq!((Failure::usage("x").code(), Failure::no("x").code()), (2, 3));
    }
}
