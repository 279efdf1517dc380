//! # quorate-sim
//!
//! A deterministic world in which replicas and clients run: virtual time, disks that lose what was not synced,
//! networks that lose, double, delay and cut, and oracles that judge what comes of it.
//!
//! * [`World`]: replicas, clients, time. What runs in it are the hosts and client cores that ship; only disk,
//!   network and time are simulated. Same seed, same run, byte for byte: [`World::trace_hash`].
//! * [`Settings`]: what a world is made of.
//! * [`Plan`], [`NetworkFault`]: faults, planned or at once.
//! * [`conformance`]: whether a protocol costs what its specification says.
//! * [`script`]: commands to a small world with the trace that they cause, in one text file.
//! * [`seed`]: the standard random run that a number names.
//! * [`fuzz`]: members that say arbitrary things, validly signed.
//! * [`twins`]: systematic partitions of replicas that are two behind one key.
//! * [`oracles`](Oracle): what must hold, judged from outside.
//! * [`trace`]: what happened, as lines of fixed columns and as a space-time diagram.
//!
//! Deliberately not here: any protocol (a world is handed an `Entry`), sockets, files, threads, clocks.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod arrival;
mod byzantine;
mod byzantine_kind;
mod client;
mod client_connections;
mod clock;
pub mod conformance;
mod delays;
mod disk;
pub mod exam;
pub mod fault;
mod frame;
pub mod fuzz;
mod history;
mod instrumented_store;
pub mod linear;
mod link_conditions;
mod lookup;
mod model;
pub mod museum;
mod network_fault;
mod oracles;
mod places;
mod queue;
mod replay_check;
mod replica_slot;
mod report;
pub mod script;
pub mod seed;
mod settings;
pub mod trace;
mod turn_output;
pub mod twins;
mod world;

pub use bytes::Bytes;
pub use byzantine_kind::Byzantine;
pub use client::Workload;
pub use delays::{Bodies, DelayPattern, Delays};
pub use disk::{Costs, DiskTrouble, Survives};
pub use fault::Fault;
pub use frame::{BUNDLE, Content, Frame, PAYLOAD, UNKNOWN, Verdict};
pub use history::{History, OpId, Record};
pub use link_conditions::LinkConditions;
pub use model::{Model, Op};
pub use network_fault::{Change, NetworkFault};
pub use oracles::{Failure, Oracle};
pub use places::Places;
pub use quorate_app::{KvOp, KvResult};
pub use quorate_client::core::Audience;
pub use quorate_host::Stamp;
pub use quorate_replica::{Divergence, Quorum, ReplicaStatus, State};
pub use report::Report;
pub use settings::{
    BadSettings, ByzantineSettings, ClientOptions, Parameters, Settings, StorageSettings, Transport,
    sets_leaders, smallest,
};
pub use trace::{Trace, Who};
pub use world::{ControlledInput, Plan, World};

/// So many milliseconds, in nanoseconds.
#[must_use]
pub const fn ms(count: u64) -> u64 {
    count.saturating_mul(1_000_000)
}

/// So many seconds, in nanoseconds.
#[must_use]
pub const fn secs(count: u64) -> u64 {
    count.saturating_mul(1_000_000_000)
}
