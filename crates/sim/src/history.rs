//! What clients saw: every operation with the time of its call and of its answer, in the form that any checker
//! can judge (one JSON object a line).

use crate::model::Op;
use quorate_app::KvResult;
use quorate_types::Time;
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
    /// Who asked.
    pub client: usize,
    /// What for.
    pub op: Op,
    /// When.
    pub call: Time,
    /// When the answer was believed; `None` while the outcome is unknown.
    pub answered: Option<Time>,
    /// The answer; `None` where there is none, or where whoever wrote it down did not say all.
    pub result: Option<KvResult>,
}

impl Record {
    /// As a JSON object on one line.
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
            // Whoever wrote it down did not say whether there was anything.
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
}

/// See the module.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct History {
    records: Vec<Record>,
}

impl History {
    /// A client calls an operation.
    pub(crate) fn call(&mut self, now: Time, client: usize, op: Op) -> OpId {
        let id = OpId(u64::try_from(self.records.len()).unwrap_or(u64::MAX));
        self.records.push(Record { client, op, call: now, answered: None, result: None });
        id
    }

    /// A client believes an answer.
    pub(crate) fn answer(&mut self, now: Time, id: OpId, result: KvResult) {
        if let Some(record) = usize::try_from(id.0).ok().and_then(|at| self.records.get_mut(at)) {
            record.answered = Some(now);
            record.result = Some(result);
        }
    }

    /// An operation.
    #[must_use]
    pub fn get(&self, id: OpId) -> Option<&Record> {
        self.records.get(usize::try_from(id.0).ok()?)
    }

    /// All operations, in the order of their calls.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// How many have an answer.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.records.iter().filter(|record| record.answered.is_some()).count()
    }

    /// One JSON object a line.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        self.records.iter().map(|record| record.to_json_line() + "\n").collect()
    }
}

/// A result as the history names it; `None` for null.
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

pub(crate) fn quoted(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_one_line() {
        let mut history = History::default();
        let key = || "k\"1".to_owned();
        let put = history.call(Time(5), 2, Op::Put { key: key(), value: "v".to_owned() });
        let cas = Op::Cas { key: key(), expect: Some("v".to_owned()), value: "w".to_owned() };
        let cas = history.call(Time(6), 2, cas);
        history.call(Time(7), 3, Op::Get { key: key() });
        history.answer(Time(9), put, KvResult::Done);
        history.answer(Time(9), cas, KvResult::Mismatch);
        assert_eq!(history.answered(), 2);
        let expected = concat!(
            r#"{"client":2,"kind":"put","key":"k\"1","arg":"v","expect":null,"call_ns":5,"return_ns":9,"result":"ok"}"#,
            "\n",
            r#"{"client":2,"kind":"cas","key":"k\"1","arg":"w","expect":"v","call_ns":6,"return_ns":9,"result":"no"}"#,
            "\n",
            r#"{"client":3,"kind":"get","key":"k\"1","arg":null,"expect":null,"call_ns":7,"return_ns":null,"result":null}"#,
            "\n",
        );
        assert_eq!(history.to_json_lines(), expected);
    }
}
