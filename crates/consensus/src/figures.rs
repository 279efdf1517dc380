//! What a protocol costs when nothing goes wrong, as its specification states it.
//!
//! A protocol states its [`Figures`] beside its properties; the simulator measures the same in a world without faults
//! and says whether they are equal. They are messages between replicas: own copies travel nowhere and are not counted,
//! and what the host sends for every protocol alike (bodies, checkpoints, questions) is not the protocol's.

use quorate_types::Kind;

/// A number that depends on how many replicas there are. Made by [`formula!`](crate::formula), so that what is shown is
/// what is worked out.
#[derive(Clone, Copy, Debug)]
pub struct Formula {
    /// For people.
    pub text: &'static str,
    /// Its value for n replicas, at least one.
    pub of: fn(n: u64) -> u64,
}

/// `formula!(|n| n * (n - 1))`: a [`Formula`] of the number of replicas.
#[macro_export]
macro_rules! formula {
    (|$n:ident| $value:expr) => {
        $crate::Formula { text: stringify!($value), of: |$n: u64| -> u64 { $value } }
    };
}

/// How many messages of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Which kind.
    pub kind: Kind,
    /// How many, one for each receiver.
    pub messages: Formula,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Messages for each block. The first kind is the proposal: delays are counted from it, and a leader that does not
    /// get it through is replaced.
    pub block: &'static [Count],
    /// Message delays from the proposal to its execution, at every replica.
    pub commit_delays: u64,
    /// Times Δ on the same way, for protocols that wait for it.
    pub commit_deltas: u64,
    /// Message delays from a client's request to the answer that it believes.
    pub reply_delays: u64,
    /// Syncs of disks on that way, one after the other.
    pub serial_syncs: u64,
    /// What it costs to replace a leader, where that is possible.
    pub leader_change: Option<LeaderChange>,
    /// What an idle cluster goes on doing, where it does: blocks of which nobody wants anything.
    pub idle: Option<Idle>,
    /// Kinds that are sent as well and belong to no block.
    pub not_counted: &'static [Kind],
    /// What else has to be known to compare these numbers with the paper's, a sentence each.
    pub remarks: &'static [&'static str],
}

/// What it costs to replace a leader that lives and whose proposals reach nobody.
#[derive(Clone, Copy, Debug)]
pub struct LeaderChange {
    /// Messages of the change itself. Delays are counted from the first one of the first kind.
    pub messages: &'static [Count],
    /// Message delays to the first execution under the new leader.
    pub commit_delays: u64,
    /// Times Δ on the same way.
    pub commit_deltas: u64,
}

/// What the blocks of an idle cluster cost. Their messages are those of any block.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Syncs of all replicas together …
    pub syncs: Formula,
    /// … for so many blocks.
    pub blocks: u64,
}
