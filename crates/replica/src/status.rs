//! What a replica is doing: one line for people, one record for tools.

use crate::synchrony::GuardStatus;
use quorate_consensus::Timed;
use quorate_types::{Height, Incarnation, ReplicaId, View};
use std::fmt;

/// Whether a replica takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaState {
    /// It has what its peers have.
    Current,
    /// It is catching up from its peers' logs.
    CatchingUp,
    /// No peer keeps its next height any more: it waits for a transfer of state and counts among f.
    Out,
    /// It has stopped for safety's sake.
    Stopped,
}

impl ReplicaState {
    /// For status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::CatchingUp => "catching up",
            Self::Out => "behind: no peer keeps the next height, needs a transfer of state",
            Self::Stopped => "stopped: safety is broken, see the log",
        }
    }
}

/// What the pool holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolSize {
    /// Bundles that wait for their execution.
    pub bundles: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Bundles that wait for nothing: executed already, or of no known session. They are kept for a while, because a block
    /// may name them.
    pub idle_bundles: usize,
    /// Their bytes.
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
    pub stopped: Option<String>,
    /// Own messages that the guard refused: a sign of a bug in the protocol.
    pub contradictions: u64,
    /// The number of times that the protocol noticed a message that came later than the bound allows.
    pub doubts: u64,
    /// The last of these alarms.
    pub last_doubt: Option<String>,
}

/// See the module.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplicaStatus {
    /// Which replica.
    pub id: ReplicaId,
    /// Which opening of it.
    pub incarnation: Incarnation,
    /// Whether it takes part.
    pub state: ReplicaState,
    /// Its view.
    pub view: View,
    /// The leader of that view.
    pub leader: ReplicaId,
    /// Whether the view is in normal operation.
    pub normal: bool,
    /// Why the last view change happened; empty before the first.
    pub last_view_change: &'static str,
    /// Views that were left since it was opened.
    pub view_changes: u64,
    /// Up to here every height is decided.
    pub decided: Height,
    /// Last height executed.
    pub executed: Height,
    /// Stable checkpoint.
    pub stable: Height,
    /// First decided height whose block is kept.
    pub kept: Height,
    /// What the pool holds.
    pub pool: PoolSize,
    /// The size of the outbox.
    pub outbox: OutboxSize,
    /// Blocks in the tree.
    pub blocks: usize,
    /// Timers that are set.
    pub timers: Vec<Timed>,
    /// Its alarms.
    pub alarms: AlarmStatus,
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
