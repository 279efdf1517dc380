//! Operations of the key-value store, and a naive store that gives the expected results.

use quorate_app::{KvError, KvOp, KvResult};
use std::collections::BTreeMap;
use std::fmt;

/// One operation of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Gives a key a value.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Reads a key.
    Get {
        /// The key.
        key: String,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
    /// Gives a key a value if it has the expected one.
    Cas {
        /// The key.
        key: String,
        /// The expected value; `None`: the key has none.
        expect: Option<String>,
        /// The value.
        value: String,
    },
    /// Adds to a number.
    Increment {
        /// The key.
        key: String,
        /// The number to add.
        by: i64,
    },
}

/// Returns the text of a result, for people.
#[must_use]
pub fn result_text(result: &KvResult) -> String {
    match result {
        KvResult::Value(value) => String::from_utf8_lossy(value).into_owned(),
        KvResult::Number(number) => number.to_string(),
        other => format!("{other:?}").to_lowercase(),
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.key())?;
        match self {
            Self::Get { .. } | Self::Delete { .. } => Ok(()),
            Self::Put { value, .. } => write!(f, " {value}"),
            Self::Cas { expect: Some(expect), value, .. } => write!(f, " {expect} {value}"),
            Self::Cas { expect: None, value, .. } => write!(f, " (absent) {value}"),
            Self::Increment { by, .. } => write!(f, " {by}"),
        }
    }
}

impl Op {
    /// Returns the name of the operation in a history.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::Get { .. } => "get",
            Self::Delete { .. } => "del",
            Self::Cas { .. } => "cas",
            Self::Increment { .. } => "incr",
        }
    }

    /// Returns the key of the operation.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. }
            | Self::Get { key }
            | Self::Delete { key }
            | Self::Cas { key, .. }
            | Self::Increment { key, .. } => key,
        }
    }

    /// Returns the key's new value and the result that the operation should have when the key holds `value`.
    #[must_use]
    pub fn apply(&self, value: Option<&str>) -> (Option<String>, KvResult) {
        let same = || value.map(str::to_owned);
        match self {
            Self::Put { value, .. } => (Some(value.clone()), KvResult::Done),
            Self::Get { .. } => match value {
                Some(value) => (same(), KvResult::Value(value.as_bytes().to_vec())),
                None => (None, KvResult::Absent),
            },
            Self::Delete { .. } => (None, if value.is_some() { KvResult::Done } else { KvResult::Absent }),
            Self::Cas { expect, value: new, .. } if value == expect.as_deref() => {
                (Some(new.clone()), KvResult::Done)
            }
            Self::Cas { .. } => (same(), KvResult::Mismatch),
            Self::Increment { by, .. } => match value.map_or(Ok(0), str::parse::<i64>) {
                Err(_) => (same(), KvResult::Error(KvError::NotANumber)),
                Ok(old) => match old.checked_add(*by) {
                    Some(new) => (Some(new.to_string()), KvResult::Number(new)),
                    None => (same(), KvResult::Error(KvError::Overflow)),
                },
            },
        }
    }

    /// Appends the operation as the key-value store reads it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let op = match self {
            Self::Put { key, value } => KvOp::Put { key: key.as_bytes(), value: value.as_bytes() },
            Self::Get { key } => KvOp::Get { key: key.as_bytes() },
            Self::Delete { key } => KvOp::Delete { key: key.as_bytes() },
            Self::Cas { key, expect, value } => KvOp::CompareAndSwap {
                key: key.as_bytes(),
                expect: expect.as_deref().map(str::as_bytes),
                value: value.as_bytes(),
            },
            Self::Increment { key, by } => KvOp::Increment { key: key.as_bytes(), by: *by },
        };
        op.encode(out);
    }
}

/// A naive store, independent of the one under test.
#[derive(Clone, Default, Debug)]
pub struct Model {
    values: BTreeMap<String, String>,
}

impl Model {
    /// Applies an operation and returns the result that it should have.
    pub fn apply(&mut self, op: &Op) -> KvResult {
        let (value, result) = op.apply(self.get(op.key()));
        match value {
            Some(value) => self.values.insert(op.key().to_owned(), value),
            None => self.values.remove(op.key()),
        };
        result
    }

    /// Returns the value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Returns all keys with a value.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}
