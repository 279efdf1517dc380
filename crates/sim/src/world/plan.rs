//! Faults and restarts that happen at a given time.

use crate::disk::{DiskTrouble, Survives};
use crate::fault::Fault;
use crate::network_fault::NetworkFault;
use quorate_types::{ReplicaId, Time};

/// A planned event.
#[derive(Clone, Debug)]
pub enum Plan {
    /// The replica's machine loses power, or the process dies.
    Crash(ReplicaId, Survives),
    /// The replica's machine loses power at this step from then on: a change of the disk, or a flush.
    CrashAtStep(ReplicaId, u64, Survives),
    /// The replica is started, if it is down.
    Start(ReplicaId),
    /// The replica loses its disk and gets an empty one. It stays down until it is started.
    Wipe(ReplicaId),
    /// The replica is closed, and opened anew on the state that its disk has by now.
    Reopen(ReplicaId),
    /// The replica's process pauses until this time.
    Pause(ReplicaId, Time),
    /// The replica's time runs faster by this rate, in millionths.
    Drift(ReplicaId, i64),
    /// The replica's wall clock is off by these nanoseconds, from its next start on.
    WallClock(ReplicaId, i64),
    /// The replica's disk fails in this way from then on. [`DiskTrouble::None`] repairs it.
    Disk(ReplicaId, DiskTrouble),
    /// The replica's executor becomes five hundred times slower, or normal again.
    Executor(ReplicaId, bool),
    /// The replica's disk is damaged for good by a fault that breaks promises.
    Damage(ReplicaId, Fault),
    /// The connection of two replicas breaks.
    Disconnect(ReplicaId, ReplicaId),
    /// The connection of two replicas breaks, and the first of them learns of it only at this time.
    HalfOpen(ReplicaId, ReplicaId, Time),
    /// A network fault begins under this number.
    Begin(u64, NetworkFault),
    /// The network fault of this number ends.
    End(u64),
    /// The current leader is cut off, under this number and until this time.
    CutLeader(u64, Time),
    /// The connection of a client to a replica breaks, and is restored after this time.
    ClientCut(usize, ReplicaId, u64),
    /// The current leader is corrupted.
    Corrupt,
    /// The replica is exempt from judgement from then on.
    Exempt(ReplicaId),
    /// The Byzantine client breaks a rule.
    ByzantineClient(Fault),
}
