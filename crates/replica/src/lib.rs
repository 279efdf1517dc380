//! # quorate-replica
//!
//! Everything a replica is, minus I/O: intake, pool, bodies, promises, order, checkpoints and catch-up, around one
//! protocol that it knows only as `dyn AnyProtocol`.
//!
//! ```text
//! bytes ─▶ Intake ─▶ Input ─▶ Replica::handle ─▶ Output ─▶ log, links, executor
//!          decode,            pool · bodies · protocol · outbox · sequencer · checkpoints
//!          window,
//!          signatures
//! ```
//!
//! * A message is checked in [`intake`]. Nothing unchecked gets past it.
//! * A promise is held in `outbox.rs`. No promise leaves before its mark is durable.
//! * Order is decided in `sequencer.rs`, and in no other file.
//!
//! A replica is a pure function of its inputs: no clock, no randomness, no I/O. The driver hands in inputs with their
//! time, drains [`Replica::poll`], and sleeps until [`Replica::deadline`].
//!
//! `replica.rs` holds the struct and its parts. The other files that say `impl Replica` each carry out one part of a
//! step: `opening`, `step`, `peers`, `amnesia`, `sequencer/ordering`; `inspect` reads. The parts know nothing of the replica.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod amnesia;
mod bodies;
mod checkpoint;
mod clients;
mod divergence;
mod encoding;
mod execution_rate;
mod host_message;
mod host_services;
#[cfg(test)]
mod host_tests;
mod input;
mod inspect;
pub mod intake;
mod opening;
mod order;
mod outbox;
mod output;
mod peer_decisions;
mod peer_exchange;
mod peers;
mod pool;
mod recording;
mod replay;
mod replica;
mod restored_log;
mod sequencer;
mod setup;
mod status;
mod step;
#[cfg(test)]
mod step_tests;
mod synchrony;
mod transfer_message;
mod window;

pub use amnesia::AmnesiaStatus;
pub use clients::{Admission, Admit};
pub use divergence::{Divergence, Quorum};
pub use host_message::{Heights, HostMessage};
pub use input::{Checked, CheckedMessage, Input};
pub use intake::{FrameSource, Intake, Passed, RefusedFrame};
pub use output::{ConnId, NameInterner, Output, OwnCopyTicket, Unsealed};
pub use peer_decisions::NextBlock;
pub use recording::Sink;
pub use replay::{Replay, ReplayMismatch};
pub use replica::Replica;
pub use restored_log::{BadLog, RestoredLog};
pub use setup::ReplicaSetup;
pub use status::{AlarmStatus, OutboxSize, PoolSize, ReplicaState, ReplicaStatus};
pub use synchrony::GuardStatus;
pub use transfer_message::{PieceAt, StateOffer, TransferMessage};
