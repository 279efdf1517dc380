//! What was refused, counted by source and reason: bounded, for `status`.

use quorate_types::limits::{REJECT_PEERS_MAX, REJECT_REASONS_MAX};
use std::collections::BTreeMap;

/// Counts by source ("replica 2", "client 127.0.0.1:4242") and reason.
#[derive(Debug, Default)]
pub struct Rejects {
    counts: BTreeMap<String, BTreeMap<&'static str, u64>>,
    total: u64,
}

/// Stands for everybody who came when the table was full.
const OTHERS: &str = "others";

impl Rejects {
    /// Counts one.
    pub fn count(&mut self, source: &str, reason: &'static str) {
        self.total = self.total.saturating_add(1);
        let source = if self.counts.contains_key(source) || self.counts.len() < REJECT_PEERS_MAX {
            source
        } else {
            OTHERS
        };
        if !self.counts.contains_key(source) {
            self.counts.insert(source.to_owned(), BTreeMap::new());
        }
        let Some(reasons) = self.counts.get_mut(source) else { return };
        let reason =
            if reasons.contains_key(reason) || reasons.len() < REJECT_REASONS_MAX { reason } else { OTHERS };
        let count = reasons.entry(reason).or_default();
        *count = count.saturating_add(1);
    }

    /// All counts, as `{source: {reason: count}}`.
    #[must_use]
    pub fn counts(&self) -> &BTreeMap<String, BTreeMap<&'static str, u64>> {
        &self.counts
    }

    /// How many there were in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_sources_does_not_grow_the_table() {
        let mut rejects = Rejects::default();
        for i in 0..10_000 {
            rejects.count(&format!("client {i}"), "oversize");
        }
        assert!(rejects.counts().len() <= REJECT_PEERS_MAX + 1);
        assert_eq!(rejects.total(), 10_000);
        let counted: u64 = rejects.counts().values().flat_map(BTreeMap::values).sum();
        assert_eq!(counted, 10_000, "nothing is forgotten");
    }
}
