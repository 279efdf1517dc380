//! Parameters of chained protocols.

use quorate_consensus::Choice;
use quorate_consensus::parts::leaders::{self, LeaderPolicy};
use quorate_consensus::parts::pacemaker::Timing;
use serde::{Deserialize, Serialize};

/// Parameters. Those that decide who leads stand in genesis. `X` are parameters that one rule set alone has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChainedParams<X> {
    /// D0: the first timer of a view in milliseconds, 10 to 60,000. It is at least six network delays, and two more
    /// where blocks have to be fetched, and the execution of a view's blocks. Each failed view doubles it until a commit.
    pub d0_ms: u64,
    /// C: the longest timer in milliseconds, at least three times `d0_ms`, at most 600,000.
    pub cap_ms: u64,
    /// `round-robin`, `terms`, `stable` or `avoiding`. The default is `avoiding`: replicas that are away do not lead, and
    /// most requests are answered as fast as before. The papers have `round-robin`: while one replica is away, each of its
    /// turns costs a timer of `d0_ms`, and most requests wait for it.
    pub leader_policy: LeaderPolicy,
    /// K: views of one leader in a row where the policy is `terms`; 1 to 1,000,000.
    pub views_per_leader: u64,
    /// Number of blocks for which a failed turn counts against its owner where the policy is `avoiding`; it counts for up
    /// to twice as many. Each further try of a crashed replica costs a timer, and a busy cluster makes hundreds of blocks
    /// in a second.
    pub failures_count_for: u64,
    /// Leaders of the first views, for the simulator.
    pub leaders: Vec<u16>,
    /// Parameters of the rule set.
    #[serde(flatten)]
    pub own: X,
}

/// Parameters of a rule set that has none of its own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NoOwnParams {}

/// The parameters that decide who leads: replicas that differ in them disagree on it.
pub(super) const SHARED: &[&str] = &["leader_policy", "views_per_leader", "failures_count_for"];
/// The choices that every rule set has.
pub(super) const LEADER_POLICY: Choice =
    Choice { name: "leader_policy", values: &["round-robin", "terms", "stable", "avoiding"] };
/// The parameter that the simulator alone sets.
pub(super) const EXAM_ONLY: &[&str] = &["leaders"];

impl<X> ChainedParams<X> {
    /// Returns the lengths of timers, which may be out of range.
    pub(super) fn timing(&self) -> Timing {
        Timing { d0_ms: self.d0_ms, cap_ms: self.cap_ms }
    }
}

impl<X: Default> Default for ChainedParams<X> {
    fn default() -> Self {
        Self {
            d0_ms: 400,
            cap_ms: 10_000,
            leader_policy: LeaderPolicy::Avoiding,
            views_per_leader: 8,
            failures_count_for: leaders::STRETCH,
            leaders: Vec::new(),
            own: X::default(),
        }
    }
}

impl<X: Default> ChainedParams<X> {
    /// Parameters for the exam, whose network heals to delays of at most `delta_ns`.
    pub(super) fn for_exam(delta_ns: u64) -> Self {
        // `hotstuff` §7e: D0 is at least 6 Δ, and two more where blocks have to be fetched.
        let d0_ms = (delta_ns / 125_000).clamp(50, 10_000);
        let cap_ms = d0_ms.saturating_mul(4).max(2_000);
        // The papers' leaders, where the exam draws no others. Runs of the exam have some hundred blocks.
        let leader_policy = LeaderPolicy::RoundRobin;
        Self { d0_ms, cap_ms, leader_policy, failures_count_for: 128, ..Self::default() }
    }
}
