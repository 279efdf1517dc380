//! Building blocks that protocols call. None of them calls a protocol, and none is mandatory.
//!
//! Code moves here when a second protocol needs it, never for the first.

pub mod answer_quota;
pub mod blames;
pub mod block_tree;
pub mod certificate;
pub mod chain;
pub mod guarded_wait;
pub mod leaders;
pub mod pacemaker;
pub mod recovery;
pub mod recovery_steps;
pub mod synchrony;
pub mod tally;
pub mod timeouts;
pub mod urgent_peer;
pub mod votes;
