//! Keys and values of `quorate kv`: words of the command line, files, or standard input.

use super::action::Action;
use crate::commands::input::ByteReader;
use crate::exit::Failure;
use std::io::Read;

/// The value and the expected value of an operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Inputs {
    /// The new value of a key.
    pub(super) value: Vec<u8>,
    /// The expected value of a key; `None`: no value.
    pub(super) expect: Option<Vec<u8>>,
}

impl Inputs {
    /// Reads the bytes of an operation, none of them longer than `limit`.
    ///
    /// # Errors
    /// Fails when the words do not fit together, or a file cannot be read or is too long.
    pub(super) fn of(action: &Action, limit: u32, stdin: &mut dyn Read) -> Result<Self, Failure> {
        let mut reader = ByteReader::new(limit, stdin);
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
