//! What every operation did, as JSON lines that any checker can judge (one clock for all clients).

use quorate_app::KvResult;
use quorate_types::Time;
use quorate_types::codec::Wire as _;
use serde::Serialize;
use std::io::{self, Write};

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
        let result = text_of(result);
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
pub(super) fn text_of(result: &[u8]) -> Option<String> {
    match KvResult::from_bytes(result) {
        Ok(KvResult::Done) => Some("ok".to_owned()),
        Ok(KvResult::Value(value)) => Some(String::from_utf8_lossy(&value).into_owned()),
        Ok(KvResult::Number(number)) => Some(number.to_string()),
        Ok(KvResult::Mismatch) => Some("no".to_owned()),
        Ok(KvResult::Absent) => None,
        Ok(other) => Some(format!("{other:?}")),
        Err(error) => Some(format!("malformed result: {error}")),
    }
}
