//! Tests of the program `quorate`, of the load generator and of the judges, against real processes and the simulator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::as_conversions,
    dead_code,
    unreachable_pub,
    reason = "tests; a panic is how they fail"
)]

mod backups;
mod benches;
mod client_words;
mod cluster;
mod common;
mod configuration;
mod delays;
mod exam;
mod floors;
mod folders;
mod full_disk;
mod hostile;
mod inspect;
mod judged;
mod kill;
mod leaders;
mod lies;
mod load_words;
mod measuring;
mod operators;
mod orders;
mod profiles;
mod readiness;
mod relay;
mod reports;
mod sim;
mod step_times;
mod support;
mod synchronous;
mod syncs;
mod twins;
