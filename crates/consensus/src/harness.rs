//! One replica's protocol driven by hand, for the tests of protocols.
//!
//! A [`Harness`] is the smallest possible host. It keeps the protocol's records, holds messages that wait for the disk,
//! delivers own copies, and remembers every filled slot. It has no pool, no bodies and no network: a table answers the
//! protocol's questions about those. A [`Cluster`] is a few harnesses with a queue of messages between them.
//!
//! It stops the test by an assertion when the protocol does one of these: it fills one slot twice, sends a message unheld
//! that may fill its slot only once, or writes a record or message that cannot be read back.
//!
//! This is deliberately not the simulator: no faults but those that a test makes, no delays, no oracles.

#![allow(clippy::expect_used, reason = "test support: a failed expectation is a failed test")]

mod answer_table;
mod cluster;
mod lines;
mod replica;
mod setup;

pub use cluster::Cluster;
pub use lines::brief;
pub use replica::Harness;
pub use setup::{Setup, payload};
