//! Effects that a handler asks for: plain data, in call order.

use crate::message::Message;
use crate::parts::certificate::CheckpointProof;
use crate::record::RecordKey;
use crate::reject::Alarm;
use quorate_types::{BlockId, Height, Kind, ReplicaId, ReplicaSet, Signature, Statement, View};
use std::fmt::Debug;

/// Receivers of a message. The sender gets its own copy in every case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// All other replicas.
    All,
    /// One replica.
    One(ReplicaId),
    /// These replicas.
    Some(ReplicaSet),
}

/// A decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Commit {
    /// This block and all its ancestors.
    Chain(BlockId),
    /// This block at this height.
    At(Height, BlockId),
}

/// Whether a message waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Leaves when everything recorded so far is durable.
    UntilDurable,
    /// Leaves when the reservation of its slot is durable. Later records do not hold it.
    Reserved,
    /// Promises nothing; leaves at once.
    No,
}

/// Two statements by one replica for one slot.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Evidence {
    /// The replica that equivocated.
    pub by: ReplicaId,
    /// Its first statement.
    pub first: (Statement, Signature),
    /// Its second statement.
    pub second: (Statement, Signature),
}

/// A transition worth a line in a trace. It costs nothing but its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The transition, as a short constant name.
    pub what: &'static str,
    /// View of the transition.
    pub view: View,
    /// Height of the transition.
    pub height: Height,
}

/// One effect that a handler asks for.
#[derive(Debug)]
pub enum Effect {
    /// Makes a fact survive a crash before any later held message leaves.
    Record {
        /// Identity of the fact: a later record with the same key replaces this one.
        key: RecordKey,
        /// The encoded record.
        bytes: Vec<u8>,
    },
    /// Keeps a restarted replica from filling slots of this kind, in this view and in earlier ones.
    Reserve(Kind, View),
    /// Sends a message.
    Send {
        /// Its receivers.
        to: To,
        /// Whether it waits for the disk.
        hold: Hold,
        /// The message.
        message: Box<dyn Message>,
    },
    /// Drops held messages of this kind and view. The guard keeps their slot as used.
    Withdraw(Kind, View),
    /// Decides blocks.
    Commit(Commit),
    /// Fetches this block, its ancestors and bodies from this replica; `on_ready` answers.
    Want(BlockId, ReplicaId),
    /// Hands over the proof of a newer stable checkpoint that a peer has sent.
    CatchUp(Box<CheckpointProof>),
    /// Makes the intake read the messages of this peer first.
    Urgent(Option<ReplicaId>),
    /// Reports a replica that has equivocated.
    Accuse(Box<Evidence>),
    /// Raises an alarm.
    Alarm(Alarm),
    /// Writes a line of the trace.
    Note(Note),
}
