//! What every operation did, as JSON lines that any checker can judge (one clock for all clients): written by
//! `quorate load --history`, read by `quorate judge`.
//!
//! First come lines `{"key": …, "held": …}`: what keys held before. A key without one was absent. Each other line is
//! an operation, as the simulator writes it too, see [`quorate_sim::Record`].

use quorate_app::{KvError, KvResult};
use quorate_sim::{Op, Record};
use quorate_types::Time;
use quorate_types::codec::Wire as _;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;

/// Everything that was called, in the order of the ends, and what keys held before.
#[derive(Debug, Default)]
pub struct History {
    held: BTreeMap<String, String>,
    records: Vec<Record>,
}

/// An operation that was called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which client.
    pub client: usize,
    /// What for.
    pub op: Op,
    /// When.
    pub at: Time,
}

impl Call {
    fn ended(self, answered: Option<Time>, result: Option<KvResult>) -> Record {
        Record { client: self.client, op: self.op, call: self.at, answered, result }
    }
}

impl History {
    /// A history of these operations, on keys that held this.
    #[must_use]
    pub fn of(held: BTreeMap<String, String>, records: Vec<Record>) -> Self {
        Self { held, records }
    }

    /// The history of a store that held this before.
    #[must_use]
    pub fn after(self, held: BTreeMap<String, String>) -> Self {
        Self { held, ..self }
    }

    /// What keys held before; a key that is not there was absent.
    #[must_use]
    pub fn held(&self) -> &BTreeMap<String, String> {
        &self.held
    }

    /// An operation has returned. What was not carried out, for want of room in the reply, say, is left out: it has changed
    /// nothing and says nothing of what the key holds.
    pub fn returned(&mut self, call: Call, at: Time, result: &[u8]) {
        // What does not decode is a wrong result, and no operation results in it.
        let result = KvResult::from_bytes(result).unwrap_or(KvResult::Padding(0));
        if matches!(result, KvResult::Error(error) if error != KvError::NotANumber) {
            return;
        }
        self.records.push(call.ended(Some(at), Some(result)));
    }

    /// Whether an operation was executed is not known.
    pub fn unknown(&mut self, call: Call) {
        self.records.push(call.ended(None, None));
    }

    /// All operations.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Operations that follow on these.
    pub fn extend(&mut self, records: impl IntoIterator<Item = Record>) {
        self.records.extend(records);
    }

    /// Writes one line per key that held something, and one per operation.
    ///
    /// # Errors
    /// When `out` does.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (key, held) in &self.held {
            let line = Held { key: key.clone(), held: held.clone() };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        }
        self.records.iter().try_for_each(|record| writeln!(out, "{}", record.to_json_line()))
    }

    /// Writes a file of them.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn save(&self, file: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(File::create(file)?);
        self.write(&mut out)?;
        out.flush()
    }

    /// Reads what [`Self::write`] has written. A deletion is written without saying whether there was anything.
    ///
    /// # Errors
    /// When `lines` cannot be read, or a line is none of a history: says which, counted from 1.
    pub fn read(lines: impl BufRead) -> Result<Self, BadHistory> {
        let mut history = Self::default();
        for (line, text) in (1u64..).zip(lines.lines()) {
            let bad = |why: String| BadHistory { line, why };
            let text = text.map_err(|error| bad(error.to_string()))?;
            // What was held comes before all operations, or it is none of a history.
            if history.records.is_empty()
                && let Ok(Held { key, held }) = serde_json::from_str(&text)
            {
                if history.held.insert(key, held).is_some() {
                    return Err(bad("what this key held is there already".to_owned()));
                }
                continue;
            }
            let line: Line = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
            history.records.push(line.record().map_err(|why| bad(why.to_owned()))?);
        }
        Ok(history)
    }
}

/// A line that is none of a history.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct BadHistory {
    line: u64,
    why: String,
}

/// What a key held before.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Held {
    key: String,
    held: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    client: usize,
    kind: String,
    key: String,
    arg: Option<String>,
    expect: Option<String>,
    call_ns: u64,
    return_ns: Option<u64>,
    result: Option<String>,
}

impl Line {
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
            // Whether there was anything is not written down.
            record(Op::Delete { key: key() }, None, None),
        ]
    }

    #[test]
    fn what_is_written_is_read() {
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
            // And what was read is written in the same way.
            let mut again = Vec::new();
            read.write(&mut again).unwrap();
            assert_eq!(again, out);
        }
    }

    #[test]
    fn what_was_not_carried_out_says_nothing() {
        for (error, kept) in [(KvError::NoRoom, 0), (KvError::Overflow, 0), (KvError::NotANumber, 1)] {
            let call = Call { client: 1, op: Op::Increment { key: "k".to_owned(), by: 1 }, at: Time(1) };
            let mut history = History::default();
            history.returned(call, Time(2), &KvResult::Error(error).to_bytes());
            assert_eq!(history.records().len(), kept, "{error}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
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
}
