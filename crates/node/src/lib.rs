//! # quorate-node
//!
//! What the binary `quorate` is made of: configuration, keys, making and running clusters, the commands.

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

pub mod config;
pub mod exit;
pub mod keys;
