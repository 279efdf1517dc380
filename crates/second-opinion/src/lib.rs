//! # quorate-second-opinion
//!
//! Tests that compare our judges with those of others. They have a crate of their own because the others have many
//! dependencies. `cargo test --workspace` runs them. Nothing here ships, and nothing may depend on it.
//!
//! * `tests/linear.rs`: the search of `quorate_history` against todc-utils and stateright.
