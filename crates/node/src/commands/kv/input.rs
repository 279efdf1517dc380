//! Keys and values as a command line gives them: as words, from a file, or from standard input.

use super::Action;
use crate::exit::Failure;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The bytes that an action works with.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Inputs {
    /// The value that a key is given.
    pub(super) value: Vec<u8>,
    /// The value that a key is expected to have; `None`: no value.
    pub(super) expect: Option<Vec<u8>>,
}

impl Inputs {
    /// Reads what an action needs, none of it longer than `limit` bytes.
    ///
    /// # Errors
    /// When the words do not fit together, or a file cannot be read or is too long.
    pub(super) fn of(action: &Action, limit: u32, stdin: &mut dyn Read) -> Result<Self, Failure> {
        let mut reader = Reader { limit, stdin: Some(stdin) };
        match action {
            Action::Put { value, file, .. } => {
                let value = reader.take(value.as_deref(), file.as_deref())?;
                Ok(Self { value, expect: None })
            }
            Action::Cas { values, absent, file, expect_file, .. } => {
                let mut words = values.iter().map(|word| word.as_os_str());
                let mut word = |file: &Option<_>| if file.is_none() { words.next() } else { None };
                let expect = if *absent { None } else { Some(word(expect_file)) };
                let value = word(file);
                let missing = value.is_none() && file.is_none()
                    || expect.is_some_and(|word| word.is_none() && expect_file.is_none());
                if missing || words.next().is_some() {
                    return Err(Failure::usage("cas: expected KEY EXPECT VALUE, or --absent KEY VALUE"));
                }
                let expect = expect.map(|word| reader.take(word, expect_file.as_deref())).transpose()?;
                Ok(Self { value: reader.take(value, file.as_deref())?, expect })
            }
            Action::Get { .. } | Action::Del { .. } | Action::Incr { .. } | Action::Scan { .. } => {
                Ok(Self::default())
            }
        }
    }
}

struct Reader<'a> {
    limit: u32,
    /// `None` once it was read.
    stdin: Option<&'a mut dyn Read>,
}

impl Reader<'_> {
    fn take(&mut self, word: Option<&OsStr>, file: Option<&Path>) -> Result<Vec<u8>, Failure> {
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

/// A value that the cluster would refuse is not read to its end.
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
