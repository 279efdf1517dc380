//! # quorate-lab
//!
//! Commands that test, load and judge: the simulator at the command line, the exam, twins, torture, the load generator,
//! the judge of histories, the demo. This crate has the program `quorate`, which has the commands of `quorate-node` too.
//!
//! * [`main`] and [`ServiceLoad`]: a program that serves and tests an application of its own.
//! * [`commands`]: one module for each command, with its arguments and a `run`.
//! * [`load`]: the load generator and its figures.
//! * [`service_sim`]: any service inside the simulator.
//! * [`trial`]: a cluster of processes under load and faults, with a verdict; [`torture`] repeats it.
//!
//! Deliberately not here: the replica and the node. A program that serves an application of its own does not need this
//! crate; one that tests it does.

#![deny(clippy::print_stdout, reason = "panics when the reader is closed (`| head`): `out` does not")]
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
pub use service_load::ServiceLoad;
