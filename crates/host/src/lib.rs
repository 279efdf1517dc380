//! # quorate-host
//!
//! A replica with its log, its application and its key, as one value that takes a *turn* at a time. The node drives it
//! with real sockets and a real disk, the simulator with its own: the simulator runs the code that ships.
//!
//! The host deliberately does not know the source and the destination of bytes ([`Outgoing`]), the time (an argument),
//! or the kind of disk ([`quorate_storage::Disk`]).
//!
//! The main fact about a host is the order inside a turn (see [`Host::turn`]):
//! check → handle → send frames that promise nothing → one log write and one sync → send held promises → execute.
//! `release_gate.rs` holds promises back a second time, after the sync, where safety rests on a bound on delays.
//! `transfer` receives the state of peers, and sends the own state to them, beside the replica and after all other work.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod executor;
mod fault;
mod log_reads;
mod open;
mod outgoing;
mod peer_queues;
mod release_gate;
mod snapshots;
mod steps;
mod transfer;
mod turn;

pub use executor::{Executor, Stamp};
pub use fault::{HostFault, OpenFault};
pub use open::{DivergedState, FAR_HEIGHTS, HostSetup, StateAt, read_state};
pub use outgoing::Outgoing;
pub use steps::StepKind;
pub use transfer::TransferStatus;
pub use turn::{Host, TurnEnd, TurnWork};
