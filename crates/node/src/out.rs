//! Output of commands. A closed output stream (`| head`) is no failure.

use crate::exit::Failure;
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Prints a value and a line break on the output stream, at once.
///
/// # Errors
/// Fails when the stream cannot be written, unless its reader has closed it.
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

/// Prints bytes without change.
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
