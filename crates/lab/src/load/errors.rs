//! Requests without a good answer, by kind.

use quorate_app::{KvError, KvResult};
use quorate_types::codec::Wire as _;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The kind of a request that was sent and had no answer when the run ended.
pub(super) const NO_ANSWER: &str = "NoAnswer";
/// The kind of a request that was due and never sent, because there was no room.
pub(super) const NOT_SENT: &str = "NotSent";
/// The kind of a request that was signed before the run for a session that was lost in it.
pub(super) const SESSION_LOST: &str = "SessionLost";

/// Bytes of a result that is an error.
const ERROR_BYTES: usize = 2;

/// Numbers of failed requests, by kind. A kind is the name of the store's error in the answer, the name of the client's
/// failure, or a name that the generator gives.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Errors(BTreeMap<String, u64>);

impl Errors {
    /// Adds errors of one kind.
    pub(super) fn add(&mut self, kind: &str, count: u64) {
        if count == 0 {
            return;
        }
        let sum = self.0.entry(kind.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Number of errors of a kind.
    #[must_use]
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub(super) fn kinds(&self) -> Vec<(&str, u64)> {
        self.0.iter().map(|(kind, count)| (kind.as_str(), *count)).collect()
    }
}

/// Lists kinds with their numbers: `11 NoRoom, 2 TooLarge`, or `none`.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let each: Vec<String> = self.0.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        f.write_str(&each.join(", "))
    }
}

/// Returns the error that a result of the store is, if it is one. A longer result is not decoded.
pub(super) fn error_of(result: &[u8]) -> Option<KvError> {
    if result.len() != ERROR_BYTES {
        return None;
    }
    match KvResult::from_bytes(result) {
        Ok(KvResult::Error(error)) => Some(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_store_are_recognised() {
        for error in
            [KvError::Malformed, KvError::NotANumber, KvError::Overflow, KvError::NoRoom, KvError::NotAQuery]
        {
            assert_eq!(error_of(&KvResult::Error(error).to_bytes()), Some(error));
        }
        let good = [
            KvResult::Done,
            KvResult::Value(vec![7]),
            KvResult::Value(Vec::new()),
            KvResult::Absent,
            KvResult::Mismatch,
            KvResult::Number(7),
            KvResult::Padding(0),
            KvResult::Padding(2),
        ];
        for result in good {
            assert_eq!(error_of(&result.to_bytes()), None, "{result:?}");
        }
    }

    #[test]
    fn errors_are_listed_by_kind_with_counts() {
        let mut errors = Errors::default();
        assert_eq!(errors.to_string(), "none");
        for (kind, count) in [("TooLarge", 2), ("NoRoom", 5), ("NoRoom", 6), ("Never", 0)] {
            errors.add(kind, count);
        }
        assert_eq!(errors.to_string(), "11 NoRoom, 2 TooLarge");
        assert_eq!((errors.of("NoRoom"), errors.of("Never")), (11, 0));
    }
}
