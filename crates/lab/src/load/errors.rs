//! Requests without a good answer, by kind.

use quorate_app::{KvError, KvResult};
use quorate_types::codec::Wire as _;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Sent, and without an answer when the run ended.
pub(super) const NO_ANSWER: &str = "NoAnswer";
/// Due, and never sent for want of room.
pub(super) const NOT_SENT: &str = "NotSent";
/// Signed before the run for a session that was lost in it.
pub(super) const SESSION_LOST: &str = "SessionLost";

/// Bytes of a result that is an error.
const ERROR_BYTES: usize = 2;

/// Numbers of failed requests, by kind: the name of the store's error in the answer, the name of the client's failure, or
/// a name of the generator's.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Errors(BTreeMap<String, u64>);

impl Errors {
    /// More of a kind.
    pub(super) fn add(&mut self, kind: &str, count: u64) {
        if count == 0 {
            return;
        }
        match self.0.get_mut(kind) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => {
                self.0.insert(kind.to_owned(), count);
            }
        }
    }

    /// Number of errors of a kind.
    #[must_use]
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Number of scenarios.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    #[cfg(test)]
    pub(super) fn kinds(&self) -> Vec<(&str, u64)> {
        self.0.iter().map(|(kind, count)| (kind.as_str(), *count)).collect()
    }
}

/// `11 NoRoom, 2 TooLarge`; `none`.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (at, (kind, count)) in self.0.iter().enumerate() {
            write!(f, "{}{count} {kind}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// The error that a result of the store is, if it is one. Looks at nothing that is longer than an error.
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
    fn every_error_of_the_store_is_seen_and_nothing_else() {
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
    fn kinds_are_named_with_their_counts() {
        let mut errors = Errors::default();
        assert_eq!((errors.to_string().as_str(), errors.total()), ("none", 0));
        for (kind, count) in [("TooLarge", 2), ("NoRoom", 5), ("NoRoom", 6), ("Never", 0)] {
            errors.add(kind, count);
        }
        assert_eq!((errors.to_string().as_str(), errors.total()), ("11 NoRoom, 2 TooLarge", 13));
        assert_eq!((errors.of("NoRoom"), errors.of("Never")), (11, 0));
    }
}
