//! Limit on answers to one peer: a peer that asks without end is answered now and then.

use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;

/// Questions of one peer that are answered within Δ: it asks at once, again when its link is up, and each Δ.
const ANSWERS_MAX: u8 = 4;

/// Answers that each peer has received lately.
#[derive(Debug, Default)]
pub struct AnswerQuota {
    /// Beginning of the current Δ, and answers since then.
    since: BTreeMap<ReplicaId, (Time, u8)>,
}

impl AnswerQuota {
    /// Whether a peer receives one more answer, whatever incarnation it names. `delta_ns` is Δ.
    pub fn admits(&mut self, peer: ReplicaId, now: Time, delta_ns: u64) -> bool {
        let (since, answers) = self.since.entry(peer).or_insert((now, 0));
        if now >= since.plus(delta_ns) {
            (*since, *answers) = (now, 0);
        }
        if *answers >= ANSWERS_MAX {
            return false;
        }
        *answers = answers.saturating_add(1);
        true
    }
}
