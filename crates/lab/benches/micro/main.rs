//! Micro-benchmarks: cryptography, encodings, the log, links, and the simulator.
//!
//! ```text
//! cargo bench -p quorate-lab --bench micro              # all of them, in about a minute
//! cargo bench -p quorate-lab --bench micro -- log       # those with `log` in their path
//! ```
//! The disk of `log` is that of `TMPDIR`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "benchmarks; a panic is how they fail"
)]

mod codec;
mod crypto;
mod link;
mod log;
mod simulator;

fn main() {
    divan::main();
}
