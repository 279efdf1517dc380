//! # quorate-sim
//!
//! A deterministic world in which replicas and clients run. Time is virtual, disks lose unsynced bytes, and networks
//! lose, double, delay and cut. Oracles judge every run.
//!
//! * [`World`]: replicas, clients, time. The hosts and client cores are the ones that ship; only disk, network and
//!   time are simulated. The same seed gives the same run, byte for byte: [`World::trace_hash`].
//! * [`Settings`]: the make-up of a world.
//! * [`Plan`], [`NetworkFault`]: faults, planned or immediate.
//! * [`conformance`]: the costs of a protocol, measured and compared with its specification.
//! * [`script`]: commands to a small world together with the trace that they cause, in one text file.
//! * [`seed`]: the standard random run of a number.
//! * [`fuzz`]: replicas that send arbitrary, validly signed messages.
//! * [`twins`]: systematic partitions of a cluster in which two replicas share one key.
//! * [`oracles`](Oracle): properties that must hold, judged from outside.
//! * [`trace`]: the events of a run, as lines of fixed columns and as a space-time diagram.
//!
//! Deliberately absent: any protocol (a world is handed an `Entry`), sockets, files, threads, clocks.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod arrival;
mod byzantine;
mod byzantine_kind;
mod client;
mod client_connections;
mod clock;
mod companion;
pub mod conformance;
mod delays;
mod disk;
pub mod exam;
pub mod fault;
mod frame;
pub mod fuzz;
mod instrumented_store;
mod link_conditions;
mod lookup;
pub mod museum;
mod named_enum;
mod network_fault;
mod oracles;
mod places;
mod queue;
mod replay_check;
mod replica_slot;
mod report;
pub mod script;
pub mod seed;
mod service_run;
mod settings;
pub mod trace;
mod turn_output;
pub mod twins;
mod world;

pub use bytes::Bytes;
pub use byzantine::Liar;
pub use byzantine_kind::Byzantine;
pub use client::Workload;
pub use companion::{Companion, CompanionFn};
pub use delays::{Bodies, DelayPattern, Delays};
pub use disk::{Costs, DiskTrouble, Survives};
pub use fault::Fault;
pub use frame::{BUNDLE, Content, Frame, PAYLOAD, UNKNOWN, Verdict};
pub use link_conditions::LinkConditions;
pub use network_fault::{Change, NetworkFault};
pub use oracles::{Failure, Oracle};
pub use places::Places;
pub use quorate_app::{KvOp, KvResult};
pub use quorate_client::core::Audience;
pub use quorate_history::{History, Model, Op, OpId, Record};
pub use quorate_host::Stamp;
pub use quorate_replica::{
    Divergence, Heights, HostMessage, PieceAt, Quorum, ReplicaState, ReplicaStatus, StateOffer,
    TransferMessage,
};
pub use report::Report;
pub use service_run::run_with_restarts;
pub use settings::{
    BadSettings, ByzantineSettings, ClientOptions, Parameters, Settings, StorageSettings, Transport,
    sets_leaders,
};
pub use trace::{Trace, Who};
pub use world::{ControlledInput, FileDamage, Plan, World};

/// Returns milliseconds as nanoseconds.
#[must_use]
pub const fn ms(count: u64) -> u64 {
    count.saturating_mul(1_000_000)
}

/// Returns seconds as nanoseconds.
#[must_use]
pub const fn secs(count: u64) -> u64 {
    count.saturating_mul(1_000_000_000)
}
