//! The end of a command: one line on the error stream and one of four exit codes.

use clap::Parser;
use clap::error::ErrorKind;
use quorate_client::config::ConfigError;
use serde_json::json;
use std::fmt::Display;
use std::process::ExitCode;

/// The failure of a command. The text is one line with the problem and advice.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// Wrong usage or configuration: the command did nothing. Exit code 2.
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
    /// Returns a failure by wrong usage or configuration.
    pub fn usage(text: impl Display) -> Self {
        Self::Usage(one_line(&text.to_string()))
    }

    /// Returns the failure of a run.
    pub fn run(text: impl Display) -> Self {
        Self::Run(one_line(&text.to_string()))
    }

    /// Returns the failure by the answer no.
    pub fn no(text: impl Display) -> Self {
        Self::No(one_line(&text.to_string()))
    }

    /// Returns the exit code: 1 for a failed run, 2 for wrong usage or configuration, 3 for the answer no.
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

/// Reads the command line and runs the command. A failure is one line on the error stream: text, or with `--json` an object
/// `{"error": "...", "exit_code": 2}`.
#[must_use]
pub fn main<C: Parser>(run: impl FnOnce(C) -> Result<(), Failure>) -> ExitCode {
    let result = match C::try_parse() {
        Ok(command) => run(command),
        Err(error) if is_help(error.kind()) => error.exit(),
        Err(error) => Err(wrong_usage(&error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", line(&failure, wants_json(std::env::args())));
            ExitCode::from(failure.code())
        }
    }
}

/// Whether the text is help or a version: the user has requested it.
fn is_help(kind: ErrorKind) -> bool {
    let missing = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, missing].contains(&kind)
}

/// Returns the first part of clap's message about a wrong command line, without usage and hints.
fn wrong_usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .fold(text.as_str(), |text, end| text.split(end).next().unwrap_or_default());
    let text = one_line(text.trim_start_matches("error: "));
    Failure::usage(text.replace(":; ", ": "))
}

/// Whether a command line requests JSON. No options follow after `--`.
fn wants_json(words: impl Iterator<Item = String>) -> bool {
    words.take_while(|word| word != "--").any(|word| word == "--json")
}

fn line(failure: &Failure, is_json: bool) -> String {
    if is_json {
        json!({ "error": failure.to_string(), "exit_code": failure.code() }).to_string()
    } else {
        format!("error: {failure}")
    }
}

/// Returns the text without line breaks: messages of libraries may have some.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_one_line() {
        let failure = Failure::run("first\n  second\n\n");
        assert_eq!((failure.to_string().as_str(), failure.code()), ("first; second", 1));
        assert_eq!((Failure::usage("x").code(), Failure::no("x").code()), (2, 3));
    }

    #[test]
    fn failure_is_json_on_request() {
        let failure = Failure::usage("no \"n\"");
        assert_eq!(line(&failure, false), "error: no \"n\"");
        assert_eq!(line(&failure, true), r#"{"error":"no \"n\"","exit_code":2}"#);
        let asks = |words: &str| wants_json(words.split(' ').map(str::to_owned));
        assert!(asks("quorate kv --json get a") && !asks("quorate kv get a"));
        assert!(!asks("quorate kv put a -- --json"));
    }

    #[test]
    fn wrong_command_line_is_one_line() {
        #[derive(Debug, Parser)]
        struct CommandLine {
            #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
            n: u8,
            #[arg(long)]
            to: String,
        }
        for (words, expected) in [
            ("x --n 0 --to y", "invalid value '0' for '--n <N>': 0 is not in 1..=255"),
            ("x", "the following required arguments were not provided: --n <N>; --to <TO>"),
            ("x --n 1 --to y z", "unexpected argument 'z' found"),
        ] {
            let failure = wrong_usage(&CommandLine::try_parse_from(words.split(' ')).unwrap_err());
            assert_eq!((failure.to_string().as_str(), failure.code()), (expected, 2));
        }
    }
}
