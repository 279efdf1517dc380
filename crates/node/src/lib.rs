//! # quorate-node
//!
//! What the binary `quorate` is made of: the loop of a node, making and running clusters, the commands.
//!
//! * [`commands`]: one module for each command, with its arguments and a `run`.
//! * [`runtime`]: a replica on this machine: one thread, one loop, one place to sleep.
//! * [`service`]: the `main` of a program that replicates a service of its own.
//! * [`testnet`] makes clusters, [`processes`] runs their nodes.
//! * [`trial`] puts a cluster under load, does something to it and judges; [`torture`] does so for as long as asked.
//! * What several of these need: [`config`], [`keys`], [`ports`], [`signals`], [`exit`], [`out`], [`alloc`].
//!
//! Deliberately not here: what a replica decides, promises or keeps. That is `quorate-host` and what lies below it, and
//! the simulator runs the same; this crate brings sockets, files, clocks and processes.

#![deny(clippy::print_stdout, reason = "panics where the reader has gone away (`| head`): `out` does not")]
#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod alloc;
pub mod commands;
pub mod config;
pub mod exit;
pub mod keys;
pub mod load;
mod metered;
pub mod out;
pub mod ports;
pub mod processes;
pub mod runtime;
pub mod service;
pub mod signals;
pub mod testnet;
pub mod torture;
pub mod trial;
