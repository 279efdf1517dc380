//! Printing what a program or a person asked for. A reader that has gone away (`| head`) is no failure.

use crate::exit::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints one line (or several, where the value has some) on the output stream, at once.
///
/// # Errors
/// When it cannot be written, unless nobody reads any more.
pub fn line(value: impl Display) -> Result<(), Failure> {
    bytes(format!("{value}\n").as_bytes())
}

/// Prints a value as one line of JSON.
///
/// # Errors
/// As [`line()`].
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value).map_err(Failure::run)?)
}

/// Prints bytes as they are.
///
/// # Errors
/// As [`line()`].
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::run(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}
