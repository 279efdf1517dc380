//! What the service should do: operations, and a naive store that says what each results in.

use quorate_app::{KvOp, KvResult};
use std::collections::BTreeMap;

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
        /// What is expected; `None`: that there is nothing.
        expect: Option<String>,
        /// The value.
        value: String,
    },
    /// Adds to a number.
    Increment {
        /// The key.
        key: String,
        /// What to add.
        by: i64,
    },
}

impl Op {
    /// The key that it is about.
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

    /// Appends the operation as the key-value store reads it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
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

/// The store as a child would write it: independent of the one that is tested.
#[derive(Clone, Default, Debug)]
pub struct Model {
    values: BTreeMap<String, String>,
}

impl Model {
    /// Applies an operation and says what it should result in.
    pub fn apply(&mut self, op: &Op) -> KvResult {
        match op {
            Op::Put { key, value } => {
                self.values.insert(key.clone(), value.clone());
                KvResult::Done
            }
            Op::Get { key } => match self.values.get(key) {
                Some(value) => KvResult::Value(value.clone().into_bytes()),
                None => KvResult::Absent,
            },
            Op::Delete { key } => match self.values.remove(key) {
                Some(_) => KvResult::Done,
                None => KvResult::Absent,
            },
            Op::Cas { key, expect, value } => {
                if self.values.get(key) != expect.as_ref() {
                    return KvResult::Mismatch;
                }
                self.values.insert(key.clone(), value.clone());
                KvResult::Done
            }
            Op::Increment { key, by } => {
                let old = self.values.get(key).map_or(Some(0), |value| value.parse::<i64>().ok());
                match old.and_then(|old| old.checked_add(*by)) {
                    Some(new) => {
                        self.values.insert(key.clone(), new.to_string());
                        KvResult::Number(new)
                    }
                    // The workload never increments a text, nor so often.
                    None => KvResult::Error(quorate_app::KvError::NotANumber),
                }
            }
        }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// All keys with a value.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}
