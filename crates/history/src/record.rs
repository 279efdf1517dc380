//! One operation as its client saw it, and its line in a file.

use crate::operation::Op;
use quorate_app::{KvError, KvResult};
use quorate_types::Time;
use serde::Deserialize;
use std::fmt::{self, Write as _};

/// An operation, by its place in the history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// One operation as its client saw it.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// The client that called.
    pub client: usize,
    /// The operation.
    pub op: Op,
    /// Time of the call.
    pub call: Time,
    /// Time at which the client accepted the answer; `None` while the outcome is unknown.
    pub answered: Option<Time>,
    /// The answer; `None` where there is none, or where the file does not hold all of it.
    pub result: Option<KvResult>,
}

impl Record {
    /// Returns the record as a JSON object on one line.
    #[must_use]
    pub fn to_json_line(&self) -> String {
        let (arg, expect) = match &self.op {
            Op::Put { value, .. } => (Some(value.clone()), None),
            Op::Get { .. } | Op::Delete { .. } => (None, None),
            Op::Cas { expect, value, .. } => (Some(value.clone()), expect.clone()),
            Op::Increment { by, .. } => (Some(by.to_string()), None),
        };
        let kind = self.op.name();
        let answered = self.answered.map_or("null".to_owned(), |time| time.0.to_string());
        let result = match (&self.op, &self.result) {
            // The file does not say whether the key had a value.
            (Op::Delete { .. }, None) if self.answered.is_some() => Some("ok".to_owned()),
            (op, result) => result.as_ref().and_then(|result| shown(op, result)),
        };
        format!(
            r#"{{"client":{},"kind":"{kind}","key":{},"arg":{},"expect":{},"call_ns":{},"return_ns":{answered},"result":{}}}"#,
            self.client,
            quoted(self.op.key()),
            nullable(arg.as_deref()),
            nullable(expect.as_deref()),
            self.call.0,
            nullable(result.as_deref()),
        )
    }

    /// Reads a line that [`Record::to_json_line`] has written.
    ///
    /// # Errors
    /// The reason why the line is no record.
    pub fn from_json_line(text: &str) -> Result<Self, String> {
        let fields: RecordFields = serde_json::from_str(text).map_err(|error| error.to_string())?;
        fields.record().map_err(str::to_owned)
    }
}

/// The fields of a record as a file has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordFields {
    client: usize,
    kind: String,
    key: String,
    arg: Option<String>,
    expect: Option<String>,
    call_ns: u64,
    return_ns: Option<u64>,
    result: Option<String>,
}

impl RecordFields {
    fn record(self) -> Result<Record, &'static str> {
        let Self { key, arg, expect, .. } = self;
        let number = |text: &str| text.parse::<i64>().map_err(|_| "expected a number");
        let arg = arg.ok_or("without arg");
        let op = match self.kind.as_str() {
            "put" => Op::Put { key, value: arg? },
            "get" => Op::Get { key },
            "del" => Op::Delete { key },
            "cas" => Op::Cas { key, expect, value: arg? },
            "incr" => Op::Increment { key, by: number(&arg?)? },
            _ => return Err("kind: expected put, get, del, cas or incr"),
        };
        if self.return_ns.is_some_and(|end| end < self.call_ns) {
            return Err("returned before it was called");
        }
        let result = match (&op, self.result) {
            _ if self.return_ns.is_none() => None,
            (Op::Get { .. }, value) => {
                Some(value.map_or(KvResult::Absent, |value| KvResult::Value(value.into())))
            }
            (Op::Delete { .. }, Some(result)) if result == "ok" => None,
            (Op::Put { .. } | Op::Cas { .. }, Some(result)) if result == "ok" => Some(KvResult::Done),
            (Op::Cas { .. }, Some(result)) if result == "no" => Some(KvResult::Mismatch),
            (Op::Increment { .. }, Some(value)) => Some(KvResult::Number(number(&value)?)),
            (Op::Increment { .. }, None) => Some(KvResult::Error(KvError::NotANumber)),
            _ => return Err("a result that such an operation never has"),
        };
        let (call, answered) = (Time(self.call_ns), self.return_ns.map(Time));
        Ok(Record { client: self.client, op, call, answered, result })
    }
}

/// Returns a result as the file names it; `None` for null.
fn shown(op: &Op, result: &KvResult) -> Option<String> {
    match (op, result) {
        (_, KvResult::Value(value)) => Some(String::from_utf8_lossy(value).into_owned()),
        (_, KvResult::Number(number)) => Some(number.to_string()),
        (Op::Cas { .. }, KvResult::Mismatch) => Some("no".to_owned()),
        (Op::Delete { .. }, KvResult::Absent) | (_, KvResult::Done) => Some("ok".to_owned()),
        _ => None,
    }
}

fn nullable(text: Option<&str>) -> String {
    text.map_or("null".to_owned(), quoted)
}

/// Quotes a text as a string of JSON.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            plain => out.push(plain),
        }
    }
    out.push('"');
    out
}
