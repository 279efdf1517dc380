//! Fuzz tests. Every decoder of bytes from others runs with arbitrary bytes and with slightly changed valid encodings. Every
//! handler runs with arbitrary messages that are validly signed. Every proof inside of a message gives way to bad ones.
//!
//! A decoder must not panic, hang, or take more memory than a small multiple of its input. A decoder of values with one
//! encoding writes an accepted input as the same bytes again. Replicas that receive random messages must stay in
//! agreement and within their limits, and make progress as soon as the messages end.
//!
//! | variable | is |
//! |---|---|
//! | `QUORATE_FUZZ_INPUTS` | inputs for each decoder; 10,000,000 is the long form |
//! | `QUORATE_FUZZ_MESSAGES` | messages of each kind for each registered protocol; 1,000,000 is the long form |
//! | `QUORATE_FUZZ_SEED` | a number, or `fresh` for another one each time |
//! | `QUORATE_FUZZ_CORPUS` | `rewrite`: the valid encodings of the corpus are written anew |
//!
//! The corpus, `corpus/NAME.txt`, has an input in hex on each line. Valid inputs must stay valid. Inputs that have found
//! something run first, every time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::as_conversions,
    reason = "tests: a panic is how they fail"
)]

mod client;
mod configuration;
mod corpus;
mod handlers;
mod links;
mod memory;
mod proofs;
mod protocols;
mod runner;
mod service;
mod storage;
mod wire;
mod world;

#[global_allocator]
static ALLOCATOR: memory::Measuring = memory::Measuring;
