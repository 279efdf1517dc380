//! Faults and restarts that happen at a given time.

use crate::disk::{DiskTrouble, Survives};
use crate::fault::Fault;
use crate::network_fault::NetworkFault;
use quorate_types::{ReplicaId, Time};

/// Something that can be planned for later.
#[derive(Clone, Debug)]
pub enum Plan {
    /// The replica's machine loses power, or its process dies.
    Crash(ReplicaId, Survives),
    /// The replica's machine loses power at the so-manyth step from then: a change of the disk, or a flush.
    CrashAtStep(ReplicaId, u64, Survives),
    /// The replica is started, if it is not running.
    Start(ReplicaId),
    /// The replica's process stands still until then.
    Pause(ReplicaId, Time),
    /// The replica's time passes so much faster, in millionths.
    Drift(ReplicaId, i64),
    /// From the replica's next start on its clock on the wall is off by so many nanoseconds.
    WallClock(ReplicaId, i64),
    /// This is wrong with the replica's disk from then on. [`DiskTrouble::None`] sees to it.
    Disk(ReplicaId, DiskTrouble),
    /// The replica's executor takes five hundred times as long from then on, or as long as it should.
    Executor(ReplicaId, bool),
    /// The replica's disk is damaged for good: one of the faults that break promises.
    Damage(ReplicaId, Fault),
    /// The connection of two replicas breaks.
    Disconnect(ReplicaId, ReplicaId),
    /// The connection of two replicas is gone, and the first of them hears of it only at that moment.
    HalfOpen(ReplicaId, ReplicaId, Time),
    /// A front comes, under this number.
    Begin(u64, NetworkFault),
    /// The front with this number passes.
    End(u64),
    /// Whoever leads is cut off, under this number, until that moment.
    CutLeader(u64, Time),
    /// The connection of a client to a replica breaks, and comes back after so long.
    ClientCut(usize, ReplicaId, u64),
    /// Whoever leads is corrupted.
    Corrupt,
    /// Nothing is promised to the replica from then on.
    Exempt(ReplicaId),
    /// Somebody does to a client's name what clients must not do.
    ByzantineClient(Fault),
}
