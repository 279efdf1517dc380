//! # quorate-second-opinion
//!
//! Tests that compare judges of ours with those of others, kept apart because the others bring many crates with them.
//! `cargo test --workspace` runs them; nothing here ships, and nothing may depend on it.
//!
//! * `tests/linear.rs`: the search of `quorate_history` against todc-utils and stateright.
