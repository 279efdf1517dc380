//! Bytes from the command line, from a file, or from standard input.

use crate::exit::Failure;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// A reader of byte strings.
pub(super) struct ByteReader<'a> {
    limit: u32,
    /// `None` after it was read.
    stdin: Option<&'a mut dyn Read>,
}

impl<'a> ByteReader<'a> {
    /// Returns a reader that refuses more than `limit` bytes.
    pub(super) fn new(limit: u32, stdin: &'a mut dyn Read) -> Self {
        Self { limit, stdin: Some(stdin) }
    }

    /// Reads a word, or a file; `-` is standard input.
    ///
    /// # Errors
    /// Fails when the file cannot be read, or has too many bytes.
    pub(super) fn take(&mut self, word: Option<&OsStr>, file: Option<&Path>) -> Result<Vec<u8>, Failure> {
        match (word, file) {
            (Some(word), None) if word == "-" => self.standard_input(),
            (None, Some(file)) if file == Path::new("-") => self.standard_input(),
            (None, Some(file)) => {
                let failed = |error: io::Error| Failure::usage(format!("{}: {error}", file.display()));
                let mut opened = File::open(file).map_err(failed)?;
                all_of(&mut opened, self.limit, &file.display().to_string())
            }
            (word, _) => Ok(word.map(|word| word.as_bytes().to_vec()).unwrap_or_default()),
        }
    }

    fn standard_input(&mut self) -> Result<Vec<u8>, Failure> {
        let Some(stdin) = self.stdin.take() else {
            return Err(Failure::usage("-: standard input can be read only once"));
        };
        all_of(stdin, self.limit, "standard input")
    }
}

/// Reads all bytes, up to the first that the cluster would refuse.
fn all_of(from: &mut dyn Read, limit: u32, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = from.take(u64::from(limit).saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    if u32::try_from(bytes.len()).is_ok_and(|length| length <= limit) {
        Ok(bytes)
    } else {
        Err(Failure::usage(format!("{name}: more than {limit} bytes, the cluster's request_bytes_max")))
    }
}
