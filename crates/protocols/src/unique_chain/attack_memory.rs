//! Memory that attackers of both forms have.

use quorate_consensus::Certificate;
use quorate_types::{ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of remembered items, of each kind.
pub(super) const REMEMBERED: usize = 64;

/// Skip certificates that an attacker knows.
#[derive(Default)]
pub(super) struct KnownSkips(BTreeMap<View, Certificate>);

impl KnownSkips {
    pub(super) fn note(&mut self, skips: &[Certificate]) {
        self.0.extend(skips.iter().map(|skip| (skip.view(), skip.clone())));
        while self.0.len() > REMEMBERED {
            self.0.pop_first();
        }
    }

    /// Returns the skip certificates of all rounds between two. `None` if one of them is unknown.
    pub(super) fn between(&self, after: View, before: View) -> Option<Vec<Certificate>> {
        let known: Vec<Certificate> =
            self.0.range(after.next()..before).map(|(_, skip)| skip.clone()).collect();
        let needed = usize::try_from(before.since(after)).ok()?.checked_sub(1)?;
        (known.len() == needed).then_some(known)
    }
}

/// Messages that wait for a later one to the same replica.
pub(super) struct LateMessages<M>(VecDeque<(ReplicaId, M)>);

impl<M> Default for LateMessages<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M> LateMessages<M> {
    pub(super) fn postpone(&mut self, to: ReplicaId, message: M) {
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back((to, message));
    }

    /// Takes the oldest message that waits for a replica.
    pub(super) fn take(&mut self, to: ReplicaId) -> Option<M> {
        let at = self.0.iter().position(|(waits, _)| *waits == to)?;
        self.0.remove(at).map(|(_, message)| message)
    }
}
