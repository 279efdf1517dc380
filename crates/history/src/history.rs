//! The operations of a run, and the file that holds them: one JSON object a line, one clock for all clients.
//!
//! A file begins with lines `{"key": …, "held": …}`: the values that keys had before the run. A key without such a line
//! had no value. Each further line is a [`Record`]. The commands `load`, `torture` and `sim` write such files, and
//! `judge` reads them.

use crate::operation::Op;
use crate::record::{OpId, Record};
use quorate_app::{KvError, KvResult};
use quorate_types::Time;
use quorate_types::codec::Wire as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

/// The operations of a run, and the values that keys had before it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct History {
    held: BTreeMap<String, String>,
    records: Vec<Record>,
}

/// An operation that was called and has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The client that called.
    pub client: usize,
    /// The operation.
    pub op: Op,
    /// Time of the call.
    pub at: Time,
}

impl Call {
    fn ended(self, answered: Option<Time>, result: Option<KvResult>) -> Record {
        Record { client: self.client, op: self.op, call: self.at, answered, result }
    }
}

impl History {
    /// Returns a history of these operations on keys that had these values before.
    #[must_use]
    pub fn of(held: BTreeMap<String, String>, records: Vec<Record>) -> Self {
        Self { held, records }
    }

    /// Returns the same operations on a store that had these values before.
    #[must_use]
    pub fn after(self, held: BTreeMap<String, String>) -> Self {
        Self { held, ..self }
    }

    /// Returns the values that keys had before; a key without an entry had none.
    #[must_use]
    pub fn held(&self) -> &BTreeMap<String, String> {
        &self.held
    }

    /// Adds an operation that a client calls; its answer follows by [`History::answer`].
    pub fn call(&mut self, now: Time, client: usize, op: Op) -> OpId {
        let id = OpId(u64::try_from(self.records.len()).unwrap_or(u64::MAX));
        self.records.push(Call { client, op, at: now }.ended(None, None));
        id
    }

    /// Notes the answer that a client has accepted.
    pub fn answer(&mut self, now: Time, id: OpId, result: KvResult) {
        if let Some(record) = usize::try_from(id.0).ok().and_then(|at| self.records.get_mut(at)) {
            record.answered = Some(now);
            record.result = Some(result);
        }
    }

    /// Adds an operation with a result. An operation that was refused, for example because the reply had no room, is left out: it
    /// has changed nothing and does not show the value of its key.
    pub fn returned(&mut self, call: Call, at: Time, result: &[u8]) {
        // A result that does not decode is wrong. No operation has the result that replaces it.
        let result = KvResult::from_bytes(result).unwrap_or(KvResult::Padding(0));
        if matches!(result, KvResult::Error(error) if error != KvError::NotANumber) {
            return;
        }
        self.records.push(call.ended(Some(at), Some(result)));
    }

    /// Adds an operation that may have been executed or not.
    pub fn unknown(&mut self, call: Call) {
        self.records.push(call.ended(None, None));
    }

    /// Returns one operation.
    #[must_use]
    pub fn get(&self, id: OpId) -> Option<&Record> {
        self.records.get(usize::try_from(id.0).ok()?)
    }

    /// Returns all operations, in the order of their addition.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the number of operations with an answer.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.records.iter().filter(|record| record.answered.is_some()).count()
    }

    /// Appends operations.
    pub fn extend(&mut self, records: impl IntoIterator<Item = Record>) {
        self.records.extend(records);
    }

    /// Writes one line per key that had a value before, and one per operation.
    ///
    /// # Errors
    /// Fails when `out` fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (key, held) in &self.held {
            let line = HeldValue { key: key.clone(), held: held.clone() };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        }
        self.write_records(out)
    }

    /// Writes one line per operation, after the lines of an earlier part of the same run.
    ///
    /// # Errors
    /// Fails when `out` fails.
    pub fn write_records(&self, out: &mut dyn Write) -> io::Result<()> {
        self.records.iter().try_for_each(|record| writeln!(out, "{}", record.to_json_line()))
    }

    /// Reads a file that [`History::write`] has written. The file does not say whether a deleted key had a value.
    ///
    /// # Errors
    /// Fails when `lines` cannot be read, or a line belongs to no history: the error names the line, counted from 1.
    pub fn read(lines: impl BufRead) -> Result<Self, BadHistory> {
        let mut history = Self::default();
        for (line, text) in (1u64..).zip(lines.lines()) {
            let bad = |why: String| BadHistory { line, why };
            let text = text.map_err(|error| bad(error.to_string()))?;
            // Values from before the run precede all operations.
            if history.records.is_empty()
                && let Ok(HeldValue { key, held }) = serde_json::from_str(&text)
            {
                if history.held.insert(key, held).is_some() {
                    return Err(bad("an earlier line gives this key's value already".to_owned()));
                }
                continue;
            }
            history.records.push(Record::from_json_line(&text).map_err(bad)?);
        }
        Ok(history)
    }
}

/// A line that belongs to no history.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadHistory {
    line: u64,
    why: String,
}

/// The value that a key had before.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldValue {
    key: String,
    held: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Record> {
        let key = || "a\"k\n".to_owned();
        let record = |op, answered: Option<u64>, result| Record {
            client: 3,
            op,
            call: Time(5),
            answered: answered.map(Time),
            result,
        };
        let cas = |expect: Option<&str>| Op::Cas {
            key: key(),
            expect: expect.map(str::to_owned),
            value: "12345678".to_owned(),
        };
        let incr = || Op::Increment { key: key(), by: -2 };
        vec![
            record(Op::Put { key: key(), value: "v".to_owned() }, Some(7), Some(KvResult::Done)),
            record(Op::Put { key: key(), value: "v".to_owned() }, None, None),
            record(Op::Get { key: key() }, Some(9), Some(KvResult::Absent)),
            record(Op::Get { key: key() }, Some(5), Some(KvResult::Value(b"12345678".to_vec()))),
            record(cas(None), Some(9), Some(KvResult::Done)),
            record(cas(Some("")), Some(9), Some(KvResult::Mismatch)),
            record(incr(), Some(9), Some(KvResult::Number(-12))),
            record(incr(), Some(9), Some(KvResult::Error(KvError::NotANumber))),
            // The file does not say whether the key had a value.
            record(Op::Delete { key: key() }, None, None),
        ]
    }

    #[test]
    fn written_history_is_read_again() {
        let held = BTreeMap::from([("a\"k\n", "7"), ("b", "")]);
        let held: BTreeMap<_, _> = held.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let history = History::of(held.clone(), all());
        let mut out = Vec::new();
        history.write(&mut out).unwrap();
        let read = History::read(&out[..]).unwrap();
        assert_eq!((read.held(), read.records()), (&held, &all()[..]));
        for result in [KvResult::Done, KvResult::Absent] {
            let call = Call { client: 1, op: Op::Delete { key: "k".to_owned() }, at: Time(1) };
            let mut history = History::default();
            history.returned(call, Time(2), &result.to_bytes());
            assert_eq!(history.records()[0].result.as_ref(), Some(&result));
            let mut out = Vec::new();
            history.write(&mut out).unwrap();
            let read = History::read(&out[..]).unwrap();
            assert_eq!((read.records()[0].answered, &read.records()[0].result), (Some(Time(2)), &None));
            // A second writing gives the same bytes.
            let mut again = Vec::new();
            read.write(&mut again).unwrap();
            assert_eq!(again, out);
        }
    }

    #[test]
    fn refused_operation_is_left_out() {
        for (error, kept) in [(KvError::NoRoom, 0), (KvError::Overflow, 0), (KvError::NotANumber, 1)] {
            let call = Call { client: 1, op: Op::Increment { key: "k".to_owned(), by: 1 }, at: Time(1) };
            let mut history = History::default();
            history.returned(call, Time(2), &KvResult::Error(error).to_bytes());
            assert_eq!(history.records().len(), kept, "{error}");
        }
    }

    #[test]
    fn line_of_no_history_is_named() {
        let mut out = Vec::new();
        History::of(BTreeMap::new(), all()).write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for (from, to) in [
            ("\"put\"", "\"push\""),
            ("\"arg\":\"v\"", "\"arg\":null"),
            ("\"result\":\"ok\"", "\"result\":\"no\""),
            ("\"result\":\"ok\"", "\"result\":null"),
            ("\"return_ns\":7", "\"return_ns\":4"),
            ("\"call_ns\":5", "\"call_ns\":-5"),
            ("\"client\":3,", ""),
            ("\"client\":3,", "\"client\":3,\"more\":1,"),
        ] {
            let text = text.replacen(from, to, 1);
            let error = History::read(text.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("line 1: "), "{from} to {to}: {error}");
        }
        let held = "{\"key\":\"k\",\"held\":\"v\"}\n";
        for (text, at) in [
            (format!("{text}\n"), "line 10: "),
            (format!("{text}{held}"), "line 10: "),
            (format!("{held}{held}{text}"), "line 2: "),
        ] {
            let error = History::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(at), "{error}");
        }
    }

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
        let mut out = Vec::new();
        history.write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
