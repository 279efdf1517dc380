//! `call`: one operation for the service, from the command line. The cluster orders it, and f + 1 replicas report its result.

use super::arguments::cluster_file;
use super::escape::{escaped, text};
use super::input::ByteReader;
use crate::config::{ClusterConfig, parse_seconds};
use crate::exit::Failure;
use crate::out;
use crate::service::Service;
use quorate_client::driver::{Client, ClientError, Options};
use quorate_client::{Fate, keys};
use quorate_types::digest::from_hex;
use serde_json::json;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The operation, and the cluster that it is for.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The operation as text; `-`: standard input, byte for byte
    #[arg(required_unless_present_any = ["file", "hex"], conflicts_with_all = ["file", "hex"])]
    operation: Option<OsString>,
    /// Take the operation from this file, byte for byte; `-`: from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "hex")]
    file: Option<PathBuf>,
    /// The operation in hexadecimal digits
    #[arg(long, value_name = "DIGITS")]
    hex: Option<String>,
    /// Write the result to this file, byte for byte; `-`: to standard output, without a line break behind it
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    out: Option<PathBuf>,
    /// The cluster's file, or its folder
    #[arg(long, value_name = "FILE", default_value = "cluster.toml", value_parser = cluster_file)]
    cluster: PathBuf,
    /// Private key of a registered client [default: the key in the folder clients beside cluster.toml that is named after
    /// the service]
    #[arg(long = "key", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Time to wait for the result: 30 (seconds), 500ms, 2m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_seconds)]
    timeout: Duration,
    /// One JSON object instead of text: `{"result": TEXT}`, with `{"hex": DIGITS}` for a result that is no text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When the configuration, the key or the operation is wrong, or the cluster gives no result in time.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    let cluster = ClusterConfig::load(&args.cluster)?;
    cluster.check_service(service)?;
    let operation = args.operation(cluster.genesis.bodies.request_bytes_max, &mut std::io::stdin())?;
    let default_key = || args.cluster.parent().unwrap_or(Path::new("")).join(service.client_key());
    let key = args.key_file.clone().unwrap_or_else(default_key);
    let key = keys::read_private(&key).map_err(Failure::usage)?;
    let is_watched = std::io::stderr().is_terminal();
    let waiting: Option<fn(&str)> = if is_watched { Some(|text| eprintln!("{text}")) } else { None };
    let options = Options { timeout: args.timeout, waiting, ..Options::default() };
    let mut client = Client::connect(cluster.client_info(), key, options).map_err(Failure::run)?;
    let result = client.call(&operation).map_err(|error| without_result(&error))?;
    args.print(&result)
}

/// The reason why there is no result, and its meaning for the operation.
fn without_result(error: &ClientError) -> Failure {
    let is_unknown = match error {
        ClientError::Timeout { fate, .. } => *fate == Fate::Unknown,
        ClientError::Failed(why) => why.fate() == Fate::Unknown,
        _ => false,
    };
    if is_unknown {
        return Failure::run(format!("{error}; ask the service for its state before you call again"));
    }
    Failure::run(error)
}

impl Args {
    /// Reads the operation, of at most `limit` bytes.
    fn operation(&self, limit: u32, stdin: &mut dyn Read) -> Result<Vec<u8>, Failure> {
        match &self.hex {
            Some(digits) => from_hex(digits)
                .ok_or_else(|| Failure::usage("--hex: expected an even number of hexadecimal digits")),
            None => ByteReader::new(limit, stdin).take(self.operation.as_deref(), self.file.as_deref()),
        }
    }

    fn print(&self, result: &[u8]) -> Result<(), Failure> {
        match &self.out {
            _ if self.json => out::json(&json!({ "result": text(result) })),
            Some(file) if file != Path::new("-") => std::fs::write(file, result)
                .map_err(|error| Failure::run(format!("{}: {error}", file.display()))),
            Some(_) => out::bytes(result),
            None if std::io::stdout().is_terminal() => out::line(escaped(result)),
            None => out::bytes(&[result, b"\n".as_slice()].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        args: Args,
    }

    fn operation(words: &[&str], stdin: &[u8]) -> Result<Vec<u8>, String> {
        let parsed = CommandLine::try_parse_from([&["call"], words].concat());
        let args = parsed.map_err(|error| error.to_string())?.args;
        args.operation(10, &mut &*stdin).map_err(|failure| failure.to_string())
    }

    #[test]
    fn operation_is_text_file_standard_input_or_digits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("operation");
        std::fs::write(&file, b"\xff\0").unwrap();
        let file = file.to_str().unwrap();
        for (words, expected) in [
            (&["acquire a"][..], &b"acquire a"[..]),
            (&[""], b""),
            (&["--file", file], b"\xff\0"),
            (&["-"], b"in\n"),
            (&["--file", "-"], b"in\n"),
            (&["--hex", "00ff"], b"\0\xff"),
            (&["--hex", ""], b""),
        ] {
            assert_eq!(operation(words, b"in\n"), Ok(expected.to_vec()), "{words:?}");
        }
    }

    #[test]
    fn wrong_operation_is_refused() {
        for (words, expected) in [
            (&[][..], "required"),
            (&["a", "--hex", "00"], "cannot be used with"),
            (&["--file", "x", "--hex", "00"], "cannot be used with"),
            (&["a", "--json", "--out", "x"], "cannot be used with"),
            (&["--hex", "0"], "even number of hexadecimal digits"),
            (&["--hex", "xy"], "even number of hexadecimal digits"),
            (&["--file", "/none"], "/none: "),
            (&["-"], "more than 10 bytes"),
        ] {
            let error = operation(words, &[7; 11]).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }
}
