//! # quorate-lab
//!
//! Commands that test, load and judge: the simulator at the command line, the exam, twins, torture, the load generator,
//! the judge of histories, the demo. The program `quorate` is this crate's; it has the commands of `quorate-node` too.
//!
//! * [`main`] and [`ServiceLoad`]: a program that serves an application of its own, and tests it.
//! * [`commands`]: one module for each command, with its arguments and a `run`.
//! * [`load`]: the load generator and its figures.
//! * [`service_sim`]: a service of one's own inside the simulator.
//! * [`trial`]: a cluster of processes under load, with faults, judged; [`torture`] repeats it.
//!
//! Deliberately not here: the replica and the node. A program that serves an application of its own does not need this
//! crate; one that tests it does.

#![deny(clippy::print_stdout, reason = "panics where the reader has gone away (`| head`): `out` does not")]
#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod commands;
pub mod history_file;
pub mod load;
mod program;
mod service_load;
pub mod service_sim;
pub mod torture;
pub mod trial;

pub use program::main;
pub use service_load::{ServiceLoad, ServiceMix};
