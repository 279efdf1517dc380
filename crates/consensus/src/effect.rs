//! What a handler wants done. Plain data, in call order.

use crate::message::Message;
use crate::parts::certificate::CheckpointProof;
use crate::protocol::RecordKey;
use crate::reject::Alarm;
use quorate_types::{BlockId, Height, Kind, ReplicaId, ReplicaSet, Signature, Statement, View};
use std::fmt::Debug;

/// To whom. The own copy comes back in every case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// All other replicas.
    All,
    /// One replica.
    One(ReplicaId),
    /// These replicas.
    Some(ReplicaSet),
}

/// What is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// This block and all its ancestors.
    Chain(BlockId),
    /// This block at this height.
    At(Height, BlockId),
}

/// What a decision rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Basis {
    /// Enough votes.
    Quorum,
    /// Silence for long enough: only as good as the synchrony bound.
    Timer,
}

/// Whether a message waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Leaves when everything recorded so far is durable.
    UntilDurable,
    /// Leaves when the reservation of its slot is durable, whatever was recorded since.
    Reserved,
    /// Promises nothing; leaves at once.
    No,
}

/// Two statements by one replica for one slot.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evidence {
    /// Who contradicted itself.
    pub by: ReplicaId,
    /// What it signed first.
    pub first: (Statement, Signature),
    /// What it signed as well.
    pub second: (Statement, Signature),
}

/// A transition worth a line in a trace. Costs nothing but its four words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// What happened, as a short constant name.
    pub what: &'static str,
    /// In which view.
    pub view: View,
    /// At which height.
    pub height: Height,
}

/// One thing that a handler wants done.
#[derive(Debug)]
pub enum Effect {
    /// Must survive a crash before anything held that follows leaves.
    Record {
        /// A later record with the same key replaces it.
        key: RecordKey,
        /// The encoded record.
        bytes: Vec<u8>,
    },
    /// No slot of this kind in this view, or in one before it, is filled after a restart.
    Reserve(Kind, View),
    /// Send a message.
    Send {
        /// To whom.
        to: To,
        /// Whether it waits for the disk.
        hold: Hold,
        /// The message.
        message: Box<dyn Message>,
    },
    /// What is held of this kind in this view never leaves. The guard remembers that it may have been said.
    Withdraw(Kind, View),
    /// Something is decided.
    Commit(Commit, Basis),
    /// Get this block, its ancestors and bodies from this replica; answered by `on_ready`.
    Want(BlockId, ReplicaId),
    /// A newer stable checkpoint was shown to us.
    CatchUp(Box<CheckpointProof>),
    /// Whose messages to read first just now.
    Urgent(Option<ReplicaId>),
    /// Someone contradicted itself.
    Accuse(Box<Evidence>),
    /// What must not go unnoticed.
    Alarm(Alarm),
    /// A line for the trace.
    Note(Note),
}
