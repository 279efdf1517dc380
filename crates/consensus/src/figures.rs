//! The cost of a protocol when nothing goes wrong, as its specification states it.
//!
//! A protocol states its [`Figures`]; the simulator measures the same figures in a world without faults and compares
//! them. Messages are those between replicas. Own copies travel nowhere and are not counted. Neither are messages that
//! the host sends for every protocol alike: bodies, checkpoints, requests for missing data.

use quorate_types::Kind;

/// A number that depends on the number of replicas. [`formula!`](crate::formula) makes it from one expression, so that
/// text and value agree.
#[derive(Clone, Copy, Debug)]
pub struct Formula {
    /// Text for people.
    pub text: &'static str,
    /// Value for n replicas, at least one.
    pub of: fn(n: u64) -> u64,
}

/// `formula!(|n| n * (n - 1))`: a [`Formula`] of the number of replicas; `formula!(3)`: a constant.
#[macro_export]
macro_rules! formula {
    (|$n:ident| $value:expr) => {
        $crate::Formula { text: stringify!($value), of: |$n: u64| -> u64 { $value } }
    };
    ($value:expr) => {
        $crate::Formula { text: stringify!($value), of: |_: u64| -> u64 { $value } }
    };
}

/// Number of messages of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Kind of message.
    pub kind: Kind,
    /// Number of messages, one for each receiver.
    pub messages: Formula,
}

/// Cost of the good case.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Messages for each block. The first kind is the proposal: delays are counted from it, and a leader whose proposal
    /// reaches nobody is replaced.
    pub block: &'static [Count],
    /// Message delays from the proposal to its execution, at every replica.
    pub commit_delays: Formula,
    /// Waits of Δ on the same way, for protocols that wait for it.
    pub commit_deltas: u64,
    /// Delays by which the fastest block, and the fastest reply, beat the slowest one, which has the stated delays.
    pub spread: u64,
    /// Message delays from a client's request to the reply that it accepts.
    pub reply_delays: Formula,
    /// Syncs of disks on that way, one after the other.
    pub serial_syncs: Formula,
    /// Cost of a change of leaders, where leaders can be replaced.
    pub leader_change: Option<LeaderChange>,
    /// Cost of the empty blocks of an idle cluster, where it makes some.
    pub idle: Option<Idle>,
    /// Kinds of further messages, which belong to no block.
    pub not_counted: &'static [Kind],
    /// Facts needed to compare these numbers with the paper's, a sentence each.
    pub remarks: &'static [&'static str],
}

/// Cost of replacing a live leader whose proposals reach nobody.
#[derive(Clone, Copy, Debug)]
pub struct LeaderChange {
    /// Messages of the change itself. Delays are counted from the first one of the first kind.
    pub messages: &'static [Count],
    /// Message delays to the first execution under the new leader.
    pub commit_delays: u64,
    /// Waits of Δ on the same way.
    pub commit_deltas: u64,
}

/// Cost of the blocks of an idle cluster.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// Syncs of all replicas together, for [`Idle::blocks`] blocks.
    pub syncs: Formula,
    /// Number of blocks that these syncs are for.
    pub blocks: u64,
    /// Messages for each of these blocks, where they are not those of any block.
    pub messages: Option<&'static [Count]>,
}
