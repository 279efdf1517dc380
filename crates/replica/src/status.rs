//! The status of a replica: one line for people, one record for tools.

use crate::amnesia::AmnesiaStatus;
use crate::synchrony::GuardStatus;
use quorate_consensus::{Alarm, Timed};
use quorate_types::{Height, Incarnation, ReplicaId, View};
use std::collections::BTreeMap;
use std::fmt;

/// Whether a replica takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaState {
    /// The replica has everything that its peers have.
    Current,
    /// The replica catches up from its peers' logs.
    CatchingUp,
    /// No peer keeps the replica's next height any more. The replica receives a state from its peers, and counts as one of
    /// f faults until then.
    Out,
    /// The replica's own state was wrong. It receives another one from its peers, and counts as one of f faults until
    /// then.
    AwaitsState,
    /// The replica has lost its disk. It makes no statement yet, and counts as one of f faults.
    Amnesiac,
    /// The replica has stopped because safety is broken.
    Stopped,
}

impl ReplicaState {
    /// Returns the name, for status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::CatchingUp => "catching up",
            Self::Out => "behind: no peer keeps the next height, receives a state",
            Self::AwaitsState => "its own state was wrong, receives another one",
            Self::Amnesiac => "amnesiac: it has lost its disk and waits until its promises no longer matter",
            Self::Stopped => "stopped: safety is broken, see the log",
        }
    }
}

/// The size of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolSize {
    /// Bundles that wait for their execution.
    pub bundles: usize,
    /// Bytes of those bundles.
    pub bytes: usize,
    /// Bundles that do not count as pending: executed already, or of no known session. They are kept for a while,
    /// because a block may name them.
    pub idle_bundles: usize,
    /// Bytes of those bundles.
    pub idle_bytes: usize,
}

/// The size of the outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutboxSize {
    /// Entries of the guard.
    pub guard_entries: usize,
    /// Records of the protocol.
    pub records: usize,
    /// Messages that are held until their mark is durable.
    pub held: usize,
}

/// Alarms of a replica, and signs of bugs in its protocol.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AlarmStatus {
    /// The first alarm that stopped the replica.
    pub stopped: Option<Alarm>,
    /// Own messages that the guard refused: a sign of a bug in the protocol.
    pub contradictions: u64,
    /// The number of alarms that did not stop the replica: the protocol noticed a message that came later than the bound
    /// allows.
    pub doubts: u64,
    /// The last of these alarms.
    pub last_doubt: Option<Alarm>,
    /// Blames of each leader whose message arrived within 2 Δ of the blame.
    pub near_misses: BTreeMap<ReplicaId, u64>,
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplicaStatus {
    /// The replica's id.
    pub id: ReplicaId,
    /// The number of this opening.
    pub incarnation: Incarnation,
    /// Whether the replica takes part.
    pub state: ReplicaState,
    /// The present view.
    pub view: View,
    /// The leader of that view.
    pub leader: ReplicaId,
    /// Whether the view is in normal operation.
    pub normal: bool,
    /// The reason of the last view change; empty before the first.
    pub last_view_change: &'static str,
    /// The number of views that were left since the opening.
    pub view_changes: u64,
    /// The height up to which every height is decided.
    pub decided: Height,
    /// The last executed height.
    pub executed: Height,
    /// The height of the stable checkpoint.
    pub stable: Height,
    /// The first decided height whose block is kept.
    pub kept: Height,
    /// The size of the pool.
    pub pool: PoolSize,
    /// The size of the outbox.
    pub outbox: OutboxSize,
    /// The number of blocks in the tree.
    pub blocks: usize,
    /// Timers that are set.
    pub timers: Vec<Timed>,
    /// Alarms, and signs of bugs in the protocol.
    pub alarms: AlarmStatus,
    /// The way back of a replica that has lost its disk; `None` for any other.
    pub amnesia: Option<AmnesiaStatus>,
    /// Measurements of the synchrony guard; `None` where the protocol assumes no bound on delays.
    pub guard: Option<GuardStatus>,
}

impl fmt::Display for ReplicaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "replica {} {} view {}{} leader {} decided {} executed {} stable {} pool {}",
            self.id,
            self.state.name(),
            self.view,
            if self.normal { "" } else { " (to begin)" },
            self.leader,
            self.decided,
            self.executed,
            self.stable,
            self.pool.bundles
        )?;
        if self.view_changes > 0 {
            write!(f, " view changes {} ({})", self.view_changes, self.last_view_change)?;
        }
        if let Some((at, name)) = self.timers.iter().min() {
            write!(f, " next {name} at {at}")?;
        }
        if let Some(guard) = &self.guard {
            write!(f, " {guard}")?;
        }
        Ok(())
    }
}
