//! Everything that reads what others wrote, tried with bytes that nobody would write: arbitrary ones, and valid ones
//! changed a little. And every handler, tried with arbitrary messages that are validly signed.
//!
//! A decoder must not panic, hang, or take more memory than a small multiple of what it was handed, and what it
//! accepts it writes again as the same bytes, where it says that there is one encoding. Replicas that members talk
//! nonsense to must stay in agreement, within their limits, and go on as soon as the nonsense ends.
//!
//! | variable | is |
//! |---|---|
//! | `QUORATE_FUZZ_INPUTS` | inputs for each decoder; 10,000,000 is the long form |
//! | `QUORATE_FUZZ_MESSAGES` | messages of each kind for each registered protocol; 1,000,000 is the long form |
//! | `QUORATE_FUZZ_SEED` | a number, or `fresh` for another one each time |
//! | `QUORATE_FUZZ_CORPUS` | `rewrite`: the valid encodings of the corpus are written anew |
//!
//! The corpus, `corpus/NAME.txt`, has an input in hex on each line: valid ones, which must stay valid, and such as have
//! found something, which are tried first, every time.

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
mod protocols;
mod runner;
mod service;
mod storage;
mod wire;
mod world;

#[global_allocator]
static ALLOCATOR: memory::Measuring = memory::Measuring;
