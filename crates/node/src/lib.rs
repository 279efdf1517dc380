//! # quorate-node
//!
//! A replica as a process, and the commands that make, run and query clusters. A program that serves its own application
//! depends on this crate.
//!
//! * [`main`] and [`Service`]: the entry of such a program.
//! * [`commands`]: one module for each command, with its arguments and a `run`; [`program`] lists them.
//! * [`runtime`]: a replica on this machine, with one thread, one loop and one place to sleep. `serve` opens it.
//! * [`testnet`] makes clusters, [`layout`] names their files, [`processes`] runs their nodes.
//! * Shared parts: [`config`], [`ports`], [`signals`], [`exit`], [`out`], [`alloc`], [`profile`],
//!   [`step_times`], [`sync_times`].
//!
//! Deliberately not here:
//!
//! * The decisions, promises and state of a replica: those are in `quorate-host` and below, and the simulator runs them
//!   too. This crate brings sockets, files, clocks and processes.
//! * Simulation, load and judgement: those are in `quorate-lab`. A program that only serves does not need them.

#![deny(clippy::print_stdout, reason = "panics without a reader (`| head`): `out` does not")]
#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod alloc;
pub mod commands;
pub mod config;
pub mod disguise;
mod evidence;
pub mod exit;
pub mod layout;
mod metered;
pub mod out;
pub mod ports;
pub mod processes;
pub mod profile;
pub mod program;
pub mod runtime;
mod saved_state;
mod serve;
pub mod service;
pub mod signals;
pub mod step_times;
pub mod sync_times;
pub mod testnet;

pub use program::main;
pub use service::Service;
