//! Parameters.

use quorate_consensus::OpenError;
use quorate_types::{Committee, ReplicaId, View};
use serde::{Deserialize, Serialize};

/// Parameters of a node. Longer timers replace a dead leader later, shorter ones a slow leader sooner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PbftParams {
    /// W: blocks that the leader may have proposed and not yet decided; 1 to L.
    pub blocks_in_flight: u64,
    /// Milliseconds between two STATUS (and two VIEW-CHANGE or SUSPECT) while something is undecided; 10 to 60,000.
    pub status_ms: u64,
    /// Milliseconds between two STATUS while no height is undecided; at least `status_ms`, at most 600,000.
    pub idle_status_ms: u64,
    /// Treq: milliseconds that a bundle may wait before the leader is suspected; 10 to 60,000. At least five network delays and
    /// the execution of the blocks in flight.
    pub treq_ms: u64,
    /// T0: milliseconds that a new view has for its first execution; 10 to 60,000. At least eight network delays. Doubled with
    /// each view change in a row.
    pub t0_ms: u64,
    /// C: longest timer; at least `treq_ms` and `t0_ms`, at most 600,000.
    pub cap_ms: u64,
    /// Leaders of the first views, for the simulator. After the end of the list, and where it is empty, the replicas take turns.
    /// Nodes with such a list would not agree on their leaders.
    pub leaders: Vec<u16>,
}

/// The parameter that only the simulator sets.
pub(super) const EXAM_ONLY: &[&str] = &["leaders"];

impl Default for PbftParams {
    fn default() -> Self {
        Self {
            blocks_in_flight: 8,
            status_ms: 1_000,
            idle_status_ms: 10_000,
            treq_ms: 400,
            t0_ms: 400,
            cap_ms: 10_000,
            leaders: Vec::new(),
        }
    }
}

impl PbftParams {
    /// Returns the leader of a view.
    pub(super) fn leader(&self, committee: &Committee, view: View) -> ReplicaId {
        let set = usize::try_from(view.0).ok().and_then(|view| self.leaders.get(view));
        set.map_or_else(|| committee.rotate(view.0), |id| ReplicaId(*id))
    }

    pub(super) fn check(&self, window: u64, committee: &Committee) -> Result<(), OpenError> {
        if self.leaders.iter().any(|id| !committee.contains(ReplicaId(*id))) {
            let expected = format!("replicas below {}", committee.n());
            return Err(OpenError::Params { name: "leaders".to_owned(), expected });
        }
        let longest = self.treq_ms.max(self.t0_ms);
        let ranges = [
            ("blocks_in_flight", self.blocks_in_flight, 1, window),
            ("status_ms", self.status_ms, 10, 60_000),
            ("idle_status_ms", self.idle_status_ms, self.status_ms, 600_000),
            ("treq_ms", self.treq_ms, 10, 60_000),
            ("t0_ms", self.t0_ms, 10, 60_000),
            ("cap_ms", self.cap_ms, longest, 600_000),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(OpenError::Params {
                    name: name.to_owned(),
                    expected: format!("{low} to {high}"),
                });
            }
        }
        Ok(())
    }
}
