//! What a node may set, and what must be equal everywhere.

use quorate_consensus::Choice;
use quorate_consensus::parts::leaders::{self, LeaderPolicy};
use serde::{Deserialize, Serialize};

/// Parameters; those that say who leads stand in genesis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JolteonParams {
    /// D0: milliseconds that a view has, 10 to 60,000. At least four network delays, two more for what has to be
    /// fetched; doubled with each view in a row that was given up, until something is committed.
    pub d0_ms: u64,
    /// C: no timer grows beyond it, in milliseconds; at least three times `d0_ms`, at most 600,000.
    pub cap_ms: u64,
    /// `round-robin`, `terms`, `stable` or `avoiding`. The last is the default: a replica that is away is left out, and
    /// clients hear as fast as before most of the time. The first is the papers': while one replica is away, each of its
    /// turns costs a timer of `d0_ms`, and most requests wait for it.
    pub leader_policy: LeaderPolicy,
    /// K: views of one leader in a row where the policy is `terms`; 1 to 1,000,000.
    pub views_per_leader: u64,
    /// Blocks for which a turn that led to nothing counts against its owner where the policy is `avoiding`: so many to twice
    /// so many. Whoever is dead costs a timer each time it is tried again, and a busy cluster makes hundreds in a second.
    pub failures_count_for: u64,
    /// Who leads the first views, for the simulator.
    pub leaders: Vec<u16>,
}

/// The parameters that say who leads: replicas that differ in them do not agree on it.
pub(super) const SHARED: &[&str] = &["leader_policy", "views_per_leader", "failures_count_for"];
/// What the exam draws from.
pub(super) const CHOICES: &[Choice] =
    &[Choice { name: "leader_policy", values: &["round-robin", "terms", "stable", "avoiding"] }];
/// The parameter that only the simulator sets.
pub(super) const EXAM_ONLY: &[&str] = &["leaders"];

impl Default for JolteonParams {
    fn default() -> Self {
        Self {
            d0_ms: 400,
            cap_ms: 10_000,
            leader_policy: LeaderPolicy::Avoiding,
            views_per_leader: 8,
            failures_count_for: leaders::STRETCH,
            leaders: Vec::new(),
        }
    }
}
