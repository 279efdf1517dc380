//! What every operation did, as JSON lines that any checker can judge (one clock for all clients).

use quorate_app::KvResult;
use quorate_types::Time;
use quorate_types::codec::Wire as _;
use serde::Serialize;
use std::io::{self, Write};

/// First letter of the keys that hold numbers.
pub(super) const NUMBER: char = 'n';

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Gives a key a value.
    Put,
    /// Reads a key.
    Get,
    /// Adds to a number.
    Incr,
}

/// An operation that was called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Which client.
    pub client: u64,
    /// What it does.
    pub kind: Kind,
    /// To which key.
    pub key: String,
    /// With what.
    pub arg: Option<String>,
    /// When it was called.
    pub call: Time,
}

impl Operation {
    /// A read after the load has ended, by the first client.
    pub(super) fn get(key: String, call: Time) -> Self {
        Self { client: 0, kind: Kind::Get, key, arg: None, call }
    }

    /// Whether its key holds a number, see [`super::Mix::Judged`].
    fn is_of_number(&self) -> bool {
        self.key.starts_with(NUMBER)
    }
}

/// An operation and what is known of its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The operation.
    pub operation: Operation,
    /// When it returned; `None`: the outcome is unknown.
    pub returned: Option<Time>,
    /// What it returned.
    pub result: Option<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    client: u64,
    kind: Kind,
    key: &'a str,
    arg: Option<&'a str>,
    expect: Option<&'a str>,
    call_ns: u64,
    return_ns: Option<u64>,
    result: Option<&'a str>,
}

/// Everything that was called, in the order of the ends.
#[derive(Debug, Default)]
pub struct History {
    entries: Vec<Entry>,
}

impl History {
    #[cfg(test)]
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        Self { entries }
    }

    /// An operation has returned.
    pub fn returned(&mut self, operation: Operation, at: Time, result: &[u8]) {
        let result = text_of(result, operation.is_of_number());
        self.entries.push(Entry { operation, returned: Some(at), result });
    }

    /// Whether an operation was executed is not known.
    pub fn unknown(&mut self, operation: Operation) {
        self.entries.push(Entry { operation, returned: None, result: None });
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Writes one line per operation.
    ///
    /// # Errors
    /// When `out` does.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for Entry { operation, returned, result } in &self.entries {
            let line = Line {
                client: operation.client,
                kind: operation.kind,
                key: &operation.key,
                arg: operation.arg.as_deref(),
                expect: None,
                call_ns: operation.call.0,
                return_ns: returned.map(|at| at.0),
                result: result.as_deref(),
            };
            serde_json::to_writer(&mut *out, &line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// A result as the history shows it.
fn text_of(result: &[u8], is_number: bool) -> Option<String> {
    match KvResult::from_bytes(result) {
        Ok(KvResult::Done) => Some("ok".to_owned()),
        Ok(KvResult::Value(value)) => Some(text_of_value(&value, is_number)),
        Ok(KvResult::Number(number)) => Some(number.to_string()),
        Ok(KvResult::Mismatch) => Some("no".to_owned()),
        Ok(KvResult::Absent) => None,
        Ok(other) => Some(format!("{other:?}")),
        Err(error) => Some(format!("malformed result: {error}")),
    }
}

/// A value as the history shows it: numbers are stored in eight bytes.
fn text_of_value(value: &[u8], is_number: bool) -> String {
    match <[u8; 8]>::try_from(value) {
        Ok(number) if is_number => i64::from_le_bytes(number).to_string(),
        _ => String::from_utf8_lossy(value).into_owned(),
    }
}

/// The value of a key as the history shows it.
pub(crate) fn value_of(key: &str, value: &[u8]) -> String {
    text_of_value(value, key.starts_with(NUMBER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_get_shows_numbers_and_values() {
        let mut history = History::default();
        let eight = KvResult::Value(7i64.to_le_bytes().to_vec()).to_bytes();
        history.returned(Operation::get("n0-1".to_owned(), Time(1)), Time(2), &eight);
        history.returned(
            Operation::get("p0-1".to_owned(), Time(1)),
            Time(2),
            &KvResult::Value(b"12345678".to_vec()).to_bytes(),
        );
        history.returned(Operation::get("p0-2".to_owned(), Time(1)), Time(2), &KvResult::Absent.to_bytes());
        let mut out = Vec::new();
        history.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let results: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(results[0]["result"], "7");
        assert_eq!(results[0]["kind"], "get");
        assert_eq!(results[1]["result"], "12345678", "eight digits are no number");
        assert!(results[2]["result"].is_null() && results[2]["return_ns"] == 2);
    }
}
