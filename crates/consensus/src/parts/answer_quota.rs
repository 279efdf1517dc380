//! Limit on answers to one peer: a peer that asks without end is answered now and then.

use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;

/// Answers that each peer has received lately.
#[derive(Debug)]
pub struct AnswerQuota {
    max: u32,
    /// Beginning of the current period, and the answers since then.
    since: BTreeMap<ReplicaId, (Time, u32)>,
}

impl AnswerQuota {
    /// Limits the answers to each peer in one period.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { max, since: BTreeMap::new() }
    }

    /// Whether a peer receives `count` more answers, in periods of `period_ns`. A refusal counts nothing.
    pub fn admits(&mut self, peer: ReplicaId, now: Time, period_ns: u64, count: u32) -> bool {
        let (since, answers) = self.since.entry(peer).or_insert((now, 0));
        if now >= since.plus(period_ns) {
            (*since, *answers) = (now, 0);
        }
        let after = answers.saturating_add(count);
        let admits = after <= self.max;
        if admits {
            *answers = after;
        }
        admits
    }
}
