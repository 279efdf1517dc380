//! `quorate call`: sends one operation to the service. The cluster orders it, and f + 1 replicas report its result.

use super::client::{ClientArgs, put_result};
use super::escape::text;
use super::input::ByteReader;
use crate::exit::Failure;
use crate::out;
use crate::service::Service;
use quorate_client::driver::ClientError;
use quorate_types::digest::from_hex;
use serde_json::json;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;

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
    /// Write the result to this file, byte for byte; `-`: to standard output, without a line break after it
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    out: Option<PathBuf>,
    #[command(flatten)]
    client: ClientArgs,
    /// One JSON object instead of text: `{"result": TEXT}`, with `{"hex": DIGITS}` in the place of a TEXT that is not UTF-8
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Fails when the configuration, the key or the operation is wrong, or the cluster gives no result in time.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    let cluster = args.client.cluster(service)?;
    let operation = args.operation(cluster.genesis.bodies.request_bytes_max, &mut std::io::stdin())?;
    let mut client = args.client.connect(&cluster, service)?;
    let result = client.call(&operation).map_err(|error| without_result(&error))?;
    args.print(&result)
}

/// Returns the reason why there is no result, with advice if the operation may still be executed.
fn without_result(error: &ClientError) -> Failure {
    if error.is_fate_unknown() {
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
        if self.json {
            return out::json(&json!({ "result": text(result) }));
        }
        put_result(result, self.out.as_deref())
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
